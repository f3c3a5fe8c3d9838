"""The loop of a run over the nodes of a Ray cluster: a learner here, actors and a shard of the replay on each node."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.calls import ClusterError, EmptyError, LostError, Reply, Request
from ...cluster.connection import connect, import_ray
from ...cluster.sampler import Sampler
from ...cluster.sharded import NodeShard, RayCalls, count_nodes, start_shards
from ...replay import Batch
from ...terminal import plural
from .. import clock, learners
from ..actor import TRAINING, Episode, seed_of
from ..arrangement import SERVER, WEIGHTS_EVERY, Arrangement
from ..clock import cpu_seconds, seconds_of
from ..errors import ProcessLost, TrainingError
from ..learner import Learner
from ..loop import Loop
from ..parallel.board import Board, Counter, Row
from ..parallel.learning import Learning
from ..parallel.node import measure_lag, measure_turn
from ..parallel.pace import Pace
from ..weights import layout_of
from ..workload import Workload
from .actor_node import ActorShard, News, RemoteNode, join, split
from .learners import Averaged, Central, Group, NodeLearner, OverNodes, PeriodLearning
from .server import Server
from .states import Nodes

AHEAD = 2
"""Requests for batches under way while another is learned from: more hide no more of a call's time."""
PATIENCE = 5.0
"""Seconds that a node is waited for before training continues without it."""
LEARNER_PATIENCE = 15.0
"""The same for a learner."""
_RETURN_SECONDS = 180.0  # within which one of the nodes answers where all were lost
_INLINE_BYTES = 90_000  # what Ray sends within a call; more goes by its object store
_LOOK_SECONDS = 0.02
_PULL_SECONDS = 4.0  # of weights, within the patience of who asked for records
_SAVE_SECONDS, _PAUSE_SECONDS = 600.0, 60.0
_NODES = 11  # sets the random numbers of nodes apart from the other uses of a seed


class NodeActors(NodeShard, ActorShard):
    """A node's process in a Ray cluster: its actors, their replay, and its answers."""

    def __init__(self, make: Callable[[], RemoteNode], place: int) -> None:
        super().__init__(make, place)
        self.name = import_ray().get_runtime_context().get_node_id()[:8]
        self._calls = RayCalls([])

    def obey_and_answer(self, message: bytes, weights: Any = None) -> bytes:
        """Obey and answer, with the newest weights ``[P]`` if any, or the weight server to pull them from."""
        if weights is not None and not isinstance(weights, np.ndarray):
            server, weights = weights, None
            with contextlib.suppress(LostError, TimeoutError):  # those that come next do as well
                weights = self._calls.get(server.pull.remote("acting", 0), _PULL_SECONDS)
        return super().obey_and_answer(message, weights)


class NodeCalls(RayCalls):
    """Requests to shards, which bring each node its orders as well, and its news back."""

    def __init__(self, actors: Sequence[Any], nodes: Nodes, learner: Learner, server: Server) -> None:
        super().__init__(actors)
        self._nodes, self._learner, self._server = nodes, learner, server
        self._watches: dict[Any, tuple[int, float]] = {}
        self._newest: tuple[int, Any] = (-1, None)
        self.before_ask: Callable[[], None] = lambda: None  # which works out what each node may do by now

    def ask(self, shard: int, request: Request) -> Any:
        """Send orders and a request, and return at once a reference to the answer."""
        self.before_ask()
        message = join(self._nodes.orders_for(shard).pack(), request.pack())
        is_new = self._nodes.each[shard].weights < 0  # it begins by weights that no server can lose
        weights = self._weights(is_new) if self._nodes.is_weighted(shard) else None
        return self._actors[shard].obey_and_answer.remote(message, weights)

    def answer(self, reference: Any, seconds: float) -> Reply:
        """Return the answer, and hear the news that come with it; raises as that of any calls."""
        news, reply = split(self.get(reference, seconds))
        self._nodes.hear(News.unpack(news))
        return Reply.unpack(reply)

    def _weights(self, is_new: bool) -> Any:
        """The newest weights ``[P]``, a reference to them where they are too large for a call, or their server."""
        updates = self._nodes.updates
        if not is_new and (server := self._server.push("acting", updates, self._learner.weights)):
            return server
        if self._newest[0] != updates:
            weights: NDArray[np.float32] = self._learner.weights()
            self._newest = updates, weights if weights.nbytes <= _INLINE_BYTES else self._ray.put(weights)
        return self._newest[1]

    def wait_for_news(self, missing: int) -> list[int]:
        """Wait for at most 20 ms until nodes have taken ``missing`` steps; returns nodes that take too long.

        A node answers no later than once it has taken all that it was allowed.
        """
        living = [place for place, node in enumerate(self._nodes.each) if not node.is_gone and node.run]
        watched, now = {place for place, _ in self._watches.values()}, clock.seconds()
        for place in living:
            if place not in watched:
                node = self._nodes.each[place]
                steps = node.steps + max(1, min(missing // len(living), node.allowed - node.steps))
                watch = self._actors[place].watch.options(concurrency_group="watch")
                self._watches[watch.remote(self._nodes.orders_for(place).pack(), steps)] = place, now
        if not self._watches:
            time.sleep(_LOOK_SECONDS)
            return []
        self._ray.wait(list(self._watches), num_returns=1, timeout=_LOOK_SECONDS)
        for reference in self.list_ready(list(self._watches)):
            del self._watches[reference]
            try:
                self._nodes.hear(News.unpack(self.get(reference, PATIENCE)))
            except (LostError, TimeoutError):
                continue  # the sampler finds out what became of it
        for reference, (place, _) in self._watches.items():
            if place not in living:  # it is waited for anew once it is back
                self._watches[reference] = place, now
        return [place for place, since in self._watches.values() if now - since > PATIENCE]


class NodeBatches:
    """Batches from the shards of all nodes; what ``OwnBatches`` offers of one machine."""

    def __init__(self, sampler: Sampler, calls: NodeCalls, loop: "NodesLoop", batch: int) -> None:
        self._sampler, self._calls, self._loop, self._batch = sampler, calls, loop, batch
        self._rng, calls.before_ask = loop.rng, loop.allow_steps

    def take(self, beta: float, updates: int) -> tuple[Batch, int] | None:
        """(the next batch, gradient steps taken when it was asked for); None while no node has a record."""
        self._sampler.moment = updates
        try:
            batch = self._sampler.sample(self._batch, beta, self._rng)
        except (ClusterError, EmptyError) as error:
            self._loop.is_empty = isinstance(error, EmptyError)
            self.receive()
            return None
        self._loop.is_empty = False
        self._loop.count_steps()
        return batch, self._sampler.drawn_at

    def receive(self) -> None:
        """Wait for at most 20 ms for environment steps, and look after the nodes."""
        self._sampler.look_after_shards()
        self._loop.allow_steps()
        for place in self._calls.wait_for_news(self._loop.missing_steps() + self._loop.hidden_steps // 4):
            self._sampler.give_up(place)
        self._loop.count_steps()
        self._loop.raise_if_lost()

    def learned(self, batch: Batch, priorities: NDArray[np.float32]) -> None:
        """Set the priorities of the batch that was taken last, from its |TD errors| ``[B]``."""
        self._sampler.update_priorities(batch.sequence, priorities)


class NodesLoop(Loop):
    """A learner in this process, and on each of M nodes of a cluster what ``apart`` has without one.

    Each node has the workload's actors, and an M-th of the replay. ``cluster`` says which cluster, as
    :func:`impls.cluster.connection.connect` does. Of E(g) steps that nodes may take after g gradient steps

        E(g) = due(g + 1) + 2 G (D + 1) u + A E M,

    the lead 2 G (D + 1) u hides the time of calls: G batches a call, D calls ahead, u the update interval, A E M the
    environments of all; (H - 1) u more where learners average every H steps. ``seed`` decides the first weights and
    the random numbers of each process, but not the order of their turns.

    TrainingError for a cluster, or a workload, with which this cannot be.
    """

    contestant = "numba"

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        *,
        cluster: str = "auto",
        learner: str | None = None,
        policy: str | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        arrangement.check(workload)
        self.workload, self.arrangement, self.seed, self.device = workload, arrangement, seed, device
        self.policy_name = learners.default(workload) if policy is None else policy
        if reason := learners.unsuited(self.policy_name, workload):
            raise TrainingError(reason)
        self.learner = learners.make(workload, learner, seed=seed, device=device)
        self.losses, self._epoch, self._end = {}, 0, workload.steps
        self._pace = Pace.of(workload, arrangement)
        self._steps, self._last_update = workload.steps, self._pace.updates_at(workload.steps)
        self.is_empty = False  # no node has a record, so that all may act until one has
        self._answered = clock.seconds()
        self._ray: Any = None
        self._actors, self._placements, self._pauses = list[Any](), list[Any](), 0
        self._group: Group | None = None
        self._server: Server | None = None
        self.board, self.rng = Board(1, 0, len(self.learner.parameters)), np.random.default_rng([seed, TRAINING])
        try:
            self._ray = connect(cluster)
            self._start(self._ray)
            self._learning = self._make_learning()
        except BaseException as error:
            self._end_processes()
            if isinstance(error, ClusterError | LostError | TimeoutError):
                raise TrainingError(str(error) or "a learner on a node did not answer in time") from None
            raise

    def _make_learning(self) -> Learning:
        workload, arrangement, group, board = self.workload, self.arrangement, self._group, self.board
        is_local = arrangement.sync == "local"
        rows = arrangement.rows(workload) if is_local else workload.learner.batch
        parts = workload, NodeBatches(self._sampler, self._calls, self, rows), board, self._pace
        if group is None:
            return Learning(*parts, OverNodes(self.learner, board, 0))
        if not is_local:
            return Learning(*parts, Central(self.learner, board, group))
        averaged = Averaged(self.learner, arrangement, group, board)
        return PeriodLearning(*parts, averaged, group=group, period=arrangement.period, last=self._last_update)

    @property
    def _period(self) -> int:
        """Gradient steps that are taken once all of them are due."""
        return self.arrangement.period if self.arrangement.sync == "local" else 1

    @property
    def hidden_steps(self) -> int:
        """Environment steps that nodes may be ahead while calls are under way.

        A learner that waits for steps waits for a quarter of them: calls cost more than steps that are known later.
        """
        return 2 * self.arrangement.batches_a_call * (AHEAD + 1) * self._pace.interval

    @property
    def _lead(self) -> int:
        """Environment steps that all nodes may be ahead."""
        actors = self.workload.actors
        environments = actors.count * actors.environments * len(self.nodes.each)
        unfilled = environments * actors.local_storage if self.is_empty else 0
        return self.hidden_steps + self._pace.interval * (self._period - 1) + environments + unfilled

    def _start(self, ray: Any) -> None:
        """Start a process on each node, and know their names."""
        workload, cpus = self.workload, self.workload.actors.count
        count = count_nodes(ray, self.arrangement.actor_nodes, cpus, "actor nodes")
        if others := self.arrangement.learners - 1:
            count_nodes(ray, others, self.arrangement.threads, "other learners")
        part = replace(workload, replay=replace(workload.replay, capacity=-(-workload.replay.capacity // count)))
        within = replace(self.arrangement, name="apart", ratio="free", learners=1, sync="", weights="shared")
        make = functools.partial(
            RemoteNode, part, within, len(self.learner.parameters), learner=self.learner.implementation,
            policy=self.policy_name,
        )  # fmt: skip
        arguments = [(functools.partial(make, seed=seed_of(self.seed, _NODES, place)), place) for place in range(count)]
        self._actors, names, *self._placements = start_shards(
            ray, NodeActors, arguments, cpus, concurrency_groups={"watch": 1}
        )
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        self.nodes_of_actors = count
        self._hosts = len({ray.util.get_node_ip_address(), *(addresses[name] for name in names)})
        self.nodes = Nodes([name[:8] for name in names], WEIGHTS_EVERY)
        self._server = Server(self.nodes, self.arrangement.weights == SERVER)
        self._calls = NodeCalls(self._actors, self.nodes, self.learner, self._server)
        self._sampler = Sampler(
            self._calls, layout_of(workload), batches_a_call=self.arrangement.batches_a_call, ahead=AHEAD,
            patience=PATIENCE,
        )  # fmt: skip
        self.nodes.events.append(
            f"actors are on {plural(count, 'node')}: {', '.join(node.name for node in self.nodes.each)}"
        )
        if depth := workload.replay.presampled:
            drawn = (AHEAD + 1) * self.arrangement.batches_a_call
            self.nodes.events.append(f"presampled = {depth} is not used: calls draw up to {drawn} batches ahead")
        if others:
            parts = workload, self.arrangement, self.learner.implementation, self.seed
            wanted = [(*parts, number) for number in range(1, others + 1)]
            learning, names, placement = start_shards(
                ray, NodeLearner, wanted, self.arrangement.threads, concurrency_groups={"mean": 1}
            )
            self._placements.append(placement)
            names = [name[:8] for name in names]
            self.nodes.events.append(f"other learners are on: {', '.join(names)}")
            self._group = Group(learning, names, self._actors, self.learner, LEARNER_PATIENCE, self._server)

    @property
    def step(self) -> int:
        """Number of environment steps that were known to be taken when they were counted last."""
        return self.board.value(Counter.STEPS)

    @property
    def updates(self) -> int:
        """Number of gradient steps taken."""
        return self.board.value(Counter.UPDATES)

    @property
    def failure(self) -> str:
        """Why a node cannot continue; "" while all can."""
        return self.nodes.failure

    def allow_steps(self) -> None:
        """Work out how many steps each node may take by now, which its next call says."""
        self.nodes.note_gone([is_gone for is_gone, _ in self._sampler.list_shards()])
        self.nodes.allow_steps(min(self._end, self._pace.due(self.updates + 1) + self._lead), self.updates)

    def count_steps(self) -> None:
        """Count the environment steps that are known to be taken."""
        self.board.set(Counter.STEPS, self.nodes.steps)
        self.nodes.lead = max(self.nodes.lead, self._pace.lead(self.nodes.steps, self.updates))

    def missing_steps(self) -> int:
        """Environment steps before the next gradient step is due."""
        return self._pace.due(self.updates + self._period) - self.step

    def until(self, end: int) -> None:
        """Let nodes take no step from environment step ``end`` on."""
        self._end = end

    def done(self, end: int) -> bool:
        """Whether environment step ``end`` is reached, and no gradient step is due."""
        due = self._pace.updates_at(self.step)
        if isinstance(self._learning, PeriodLearning):
            due = min(due, self._last_update) if end >= self._steps else due - self.arrangement.period + 1
        return self.step >= end and self.updates >= due

    def advance(self) -> tuple[Episode, ...]:
        """Take a gradient step, or wait for one for 20 ms; returns the episodes that ended meanwhile.

        TrainingError when training has diverged; ProcessLost where a node's environment failed, or no node answers.
        """
        self._take_step()
        return self.ended()

    def _take_step(self) -> None:
        try:
            self._learning.advance()
        except (ValueError, RuntimeError) as error:
            raise TrainingError(f"after {self.step:,} steps and {self.updates:,} gradient steps: {error}") from None
        self.losses = self._learning.losses
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """ProcessLost where a node's environment failed, or no node has answered for 3 minutes."""
        if self.failure:
            raise ProcessLost(self.failure)
        now = clock.seconds()
        if any(not node.is_gone for node in self.nodes.each):
            self._answered = now
        elif now - self._answered > _RETURN_SECONDS:
            raise ProcessLost(f"no node has answered for {_RETURN_SECONDS:.0f} s; `ray status` shows which live")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The actors of all nodes that answer rest while the context lasts, and their steps so far are known."""
        self._pauses += 1
        try:
            if self._pauses == 1:
                # All steps of a period under way are due; where no node is there, it is broken off.
                while isinstance(self._learning, PeriodLearning) and self._learning.left and self._list_living():
                    self._take_step()
                for answer in [actor.pause.remote() for actor in self._list_living()]:
                    with contextlib.suppress(LostError, TimeoutError):  # the sampler finds out
                        self.nodes.hear(News.unpack(self._calls.get(answer, _PAUSE_SECONDS)))
                self.count_steps()
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                for actor in self._actors:  # of one that is lost and comes back, too
                    actor.resume.remote()

    def _list_living(self) -> list[Any]:
        return [actor for actor, node in zip(self._actors, self.nodes.each, strict=True) if not node.is_gone]

    def ended(self) -> tuple[Episode, ...]:
        """Episodes that ended since ``advance`` last returned."""
        ended, self.nodes.ended = tuple(self.nodes.ended), []
        return ended

    @property
    def status(self) -> str:
        """How many of the nodes are there."""
        there = sum(not node.is_gone for node in self.nodes.each)
        return f" on {there} of {len(self.nodes.each)} nodes"

    def take_events(self) -> list[str]:
        """Sentences of nodes that were lost, or came back, since this was last called."""
        events, self.nodes.events = self.nodes.events, []
        if self._group:
            events, self._group.events = events + self._group.events, []
        return events

    def cpu_seconds(self) -> float:
        """CPU time of all processes on all nodes, as of their last answers; take differences."""
        own = cpu_seconds() + sum(map(seconds_of, self.learner.pids))
        own += self._group.cpu_seconds() if self._group else 0.0
        return own + sum(node.cpu_before + node.cpu for node in self.nodes.each) / 1e9

    def report(self) -> dict[str, Any]:
        """Counts and shares of the run since it was begun: as those of ``apart``, and of each of the ``nodes``.

        ``replay`` are counts of all shards: see :meth:`impls.cluster.sampler.Sampler.stats`.
        """
        self._sampler.flush()
        return {
            "steps": self.step,
            "updates": self.updates,
            "busy_seconds": {"learner": measure_turn(self.board, [0])},
            "lead": self.nodes.lead,
            "lag": int(self.board.rows[0, Row.LEAD]),
            "stale_weights": self.nodes.measure_lag(),
            "stale_batches": measure_lag(self.board, [0]),
            "restarts": sum(node.restarts_before + node.restarts for node in self.nodes.each),
            "cores": {},
            "hosts": self._hosts,
            "learners_lost": self._group.losses if self._group else 0,
            "nodes": self.nodes.describe([records for _, records in self._sampler.list_shards()]),
            "replay": self._sampler.stats(),
        }

    def close(self) -> None:
        """End the nodes' processes, and let go of the learner."""
        self.learner.close()
        self._end_processes()

    def _end_processes(self) -> None:
        if self._ray is not None and self._ray.is_initialized():
            for actor in [*self._actors, *(self._group.actors if self._group else ())]:
                self._ray.kill(actor)
            if self._server is not None:
                self._server.end()
            for placement in self._placements:
                self._ray.util.remove_placement_group(placement)

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        return super().identity() | {"arrangement": self.arrangement.to_dict()}

    def state_dict(self) -> dict[str, Any]:
        """Learner, counters, generator, and the records of the nodes that answer. Actors begin new episodes from it."""
        self._sampler.flush()
        with self.paused():
            saved, living = [], self._list_living()
            for node, answer in zip(
                [node for node in self.nodes.each if not node.is_gone],
                [actor.save_records.remote() for actor in living],
                strict=True,
            ):
                try:
                    saved.append(self._calls.get(answer, _SAVE_SECONDS))
                except (LostError, TimeoutError):
                    self.nodes.events.append(f"the records of node {node.name} are not saved: it does not answer")
            is_local = isinstance(self._learning, PeriodLearning)
            return {
                "learner": self.learner.state_dict(),
                "learners": self._group.list_states() if self._group and is_local else [],
                "buffers": saved,
                "rng": self.rng.bit_generator.state,
                "step": self.step,
                "updates": self.updates,
                "epoch": self._epoch,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity, before it begins.

        TrainingError for records of more nodes than there are, or of nodes with larger parts, with what to do.
        """
        self._epoch = int(state["epoch"]) + 1
        self.learner.load_state_dict(state["learner"])
        self.learner.acting[:] = self.learner.latest()
        saved, count = state["buffers"], len(self._actors)
        try:
            if self._group:
                self._group.load_states(state["learners"], self._epoch)
            loading = [actor.load_records.remote(records) for actor, records in zip(self._actors, saved, strict=False)]
            for answer in loading:
                self._calls.get(answer, _SAVE_SECONDS)
        except (LostError, TimeoutError) as error:
            raise TrainingError(f"a node does not take up the run ({error}); resume again once it answers") from None
        except ValueError as error:
            raise TrainingError(f"records of {len(saved)} nodes do not fit {count}: {error}") from None
        if len(saved) > count:
            raise TrainingError(f"the run has the records of {len(saved)} nodes, not of {count}; start as many nodes")
        self.rng.bit_generator.state = state["rng"]
        self.nodes.begin_at(int(state["step"]), int(state["updates"]), self._epoch)
        for number in (Counter.UPDATES, Counter.CLAIMED_UPDATES):
            self.board.set(number, int(state["updates"]))
        self._learning = self._make_learning()  # by the schedule of the state
        self.count_steps()
