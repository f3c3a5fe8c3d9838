"""Learners on nodes of their own, whose weights are averaged: local SGD over machines [Zhang2022, Algorithms 5, 7, 8].

Each samples its own batches from the shards of all nodes, and takes H steps by itself; then all average their weights.
The process that was started is the first of them. It says when a period of H steps begins, and works out the averages:
of learners that answer, for one that was lost leaves the mean, and joins again with the weights of the first.
"""

import contextlib
import datetime
import importlib.util
import queue
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.calls import LostError
from ...cluster.connection import import_ray
from ...cluster.sampler import Sampler
from ...cluster.sharded import RayCalls, list_versions
from ...replay import Batch
from .. import clock, learners
from ..actor import beta_at, seed_of
from ..arrangement import Arrangement
from ..learner import Learner, Stepped
from ..parallel.board import Board, Counter
from ..parallel.learning import Learning
from ..parallel.pace import Pace
from ..parallel.syncs import Alone, LearnerSync, Local, SharedGradients, prepare_gradients
from ..weights import layout_of
from ..workload import Workload
from .server import Server

_LEARNERS = 12  # sets the random numbers of learners on nodes apart from the other uses of a seed
_MOST_MEANS = 4  # of a period, so that means of two periods have other numbers
_FOREVER = 1e9  # seconds: the first learner ends a server that does not answer
LARGE = 100_000
"""Weights from which on torch.distributed averages, where torch is there: Ray's calls take longer by then."""


def connect(url: str, rank: int, count: int, seconds: float) -> None:
    """Join ``count`` processes that average by torch.distributed (gloo). RuntimeError where they do not meet."""
    group = importlib.import_module("torch.distributed")
    if group.is_initialized():
        group.destroy_process_group()
    timeout = datetime.timedelta(seconds=seconds)
    group.init_process_group("gloo", init_method=url, rank=rank, world_size=count, timeout=timeout)


def reduce_mean(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of the connected processes' weights. RuntimeError where one of them does not take part."""
    torch, group = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    total = torch.from_numpy(weights.copy())
    group.all_reduce(total)
    mean: NDArray[np.float32] = (total / group.get_world_size()).numpy()
    return mean


class OverNodes(Alone):
    """One learner of actors that are elsewhere: news of their steps come only while it looks for them."""

    def claim(self, pace: Pace) -> int | None:
        """Claim the next gradient step if it is due."""
        claimed = self.board.value(Counter.CLAIMED_UPDATES)
        return super().claim(pace) if self.board.value(Counter.STEPS) >= pace.due(claimed + 1) else None

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take the gradient step that was claimed; weights are handed out with calls."""
        stepped = self.learner.step(batch.rows, batch.weights)
        self.board.add(Counter.UPDATES)
        return stepped


class Central(OverNodes):
    """The central learner, which splits each batch among learners and takes the step along the mean of gradients.

    So [Horgan2018] has several learners [Zhang2022, Figure 5.7, top]. Each part of a batch has B/L records; the part of
    a learner that was lost is the central learner's to derive.
    """

    def __init__(self, learner: Learner, board: Board, group: "Group") -> None:
        super().__init__(learner, board, 0)
        self._group = group

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take the gradient step that was claimed, with all learners."""
        learner, losses, priorities = self.learner, dict[str, float](), list[Any]()
        count = 1 + len(self._group.actors)
        split = {name: np.split(rows, count) for name, rows in batch.rows.items()}
        parts = [
            ({name: rows[at] for name, rows in split.items()}, weights)
            for at, weights in enumerate(np.split(batch.weights, count))
        ]
        own: dict[int, Any] = {}
        self._group.let_join()
        for at, phase in enumerate(learner.phases()):
            # Invariant: all learners that are there have the weights and targets that this one has.
            asked, found = self._group.ask(at, learner.latest(), parts[1:] if at == 0 else None), list[Any]()
            for place in range(count):
                answer = asked(place - 1) if place else None
                if answer is None:
                    if place not in own:
                        own[place] = learner.rows(*parts[place])
                    derived = learner.gradient(phase, own[place])
                    answer = derived.gradient.copy(), derived.priorities, derived.loss
                found.append(answer)
            learner.apply(phase, np.mean([gradient for gradient, _, _ in found], 0))
            losses[phase.network] = float(np.mean([loss for _, _, loss in found]))
            priorities = priorities or [sizes for _, sizes, _ in found if sizes is not None]
        learner.finish()
        self.board.add(Counter.UPDATES)
        return Stepped(np.concatenate(priorities), losses)


class Averaged(Local):
    """A learner with weights of its own, whose averages are computed elsewhere, by ``group``."""

    def __init__(self, learner: Learner, arrangement: Arrangement, group: Any, board: Board | None = None) -> None:
        board = board or Board(1, 0, len(learner.parameters))
        super().__init__(learner, board, 0, SharedGradients(learner, replace(arrangement, learners=1)))
        self._group = group

    def claim(self, pace: Pace) -> int | None:
        """Claim the next step, which is due."""
        return LearnerSync.claim(self, pace)

    def _average(self, span: slice) -> None:
        weights = self.common.weights[0, span]
        weights[:] = self.common.averaged[span] = self._group.mean(weights)


class NodeLearner:
    """The process of learner ``number`` > 0, which follows the first once it has joined."""

    def __init__(self, workload: Workload, arrangement: Arrangement, name: str, seed: int, number: int) -> None:
        learner, self._seed = learners.make(workload, name, seed=seed), (seed, _LEARNERS, number)
        learners.use_threads(arrangement.threads)
        prepare_gradients(learner, arrangement.rows(workload))
        self._workload, self._arrangement, self._rows = workload, arrangement, arrangement.rows(workload)
        self._vectors, self._handed = queue.SimpleQueue[NDArray[np.float32]](), queue.SimpleQueue[NDArray[np.float32]]()
        self._learner, self._part, self._is_connected = learner, None, False
        self._sampler: Sampler | None = None
        self._calls, self._place, self._means, self._server = RayCalls([]), number - 1, 0, None
        self._sync = Averaged(learner, arrangement, self) if arrangement.sync == "local" else None

    def describe(self) -> dict[str, Any]:
        """Return what all nodes need alike, and the node's id."""
        return {"versions": list_versions(), "node": import_ray().get_runtime_context().get_node_id()}

    def take_steps(self, count: int, before: int, beta: float) -> float:
        """Take gradient steps, after ``before`` others, by this beta; returns this process's CPU seconds."""
        sync, sampler = self._sync, self._sampler
        if sync is None or sampler is None:
            raise LostError("this learner has begun anew, and has not joined yet")
        self._means = _MOST_MEANS * before
        with contextlib.suppress(LostError):  # of the weight server, which the first learner misses too
            for number in range(before, before + count):
                batch = sampler.sample(self._rows, beta, self._rng)
                stepped = sync.step(batch, number)
                sampler.update_priorities(batch.sequence, stepped.priorities)
                stepped.check()
        return clock.cpu_seconds()

    def connect(self, *where: Any) -> None:
        """Take part in averages by torch.distributed from now on; see :func:`connect`."""
        connect(*where)
        self._is_connected = True

    def mean(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hand in weights, and wait for the mean of all learners. LostError where their server is lost."""
        self._means += 1
        if self._server is not None:
            self._server.push.remote(self._place, self._means, weights)
            return np.asarray(self._calls.get(self._server.pull.remote("mean", self._means), _FOREVER))
        if self._is_connected:
            try:
                return reduce_mean(weights)
            except RuntimeError:  # a learner is lost: the first asks for the weights of the others
                self._is_connected = False
        self._vectors.put(weights.copy())
        return self._handed.get()

    def hand_out(self, mean: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Take the mean of the weights handed in before, if any were; return those that are handed in next."""
        if mean is not None:
            self._handed.put(mean)
        return self._vectors.get()

    def derive(
        self, at: int, weights: NDArray[np.float32], part: tuple[Any, Any] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, float, float]:
        """(gradient, |TD errors| if any, loss) of phase number ``at`` of a step, by weights ``[P]``, and CPU seconds.

        The ``part`` of the batch, rows and importance weights, comes with the first phase.
        """
        learner = self._learner
        if self._sampler is None:
            raise LostError("this learner has begun anew, and has not joined yet")
        learner.parameters[:] = weights
        if part is not None:
            if self._part is not None:
                learner.finish()  # the step before, after whose last phase these are the weights
            self._part = learner.rows(*part)
        derived = learner.gradient(learner.phases()[at], self._part)
        return derived.gradient.copy(), derived.priorities, derived.loss, clock.cpu_seconds()

    def state_dict(self) -> dict[str, Any]:
        """The state of the learner."""
        return self._learner.state_dict()

    def join(self, state: dict[str, Any], shards: Sequence[Any], epoch: int, server: Any) -> None:
        """Take the state of a learner, whose weights count as the last average; sample from the shards of actors.

        Weights meet in the ``server``, if there is one.

        The random numbers are this learner's own, others in each ``epoch``.
        """
        size = self._arrangement.batches_a_call
        self._sampler = Sampler(RayCalls(shards), layout_of(self._workload), batches_a_call=size)
        self._learner.load_state_dict(state)
        seed = seed_of(*self._seed, epoch)
        self._learner.rng, self._rng = (np.random.default_rng([seed, use]) for use in range(2))
        self._part, self._server = None, server
        if self._sync is not None:
            self._sync.common.averaged[:] = state["weights"]


class Group:
    """The first learner's part: it lets the others begin a period, and works out means of all that answer in time.

    ``actors`` are the others' processes, ``names`` those of their nodes, ``shards`` the processes that they sample
    from; ``events`` takes sentences for people. A learner that is lost is started again, and joins with the state of
    ``learner``, the first.
    """

    def __init__(
        self, actors: Sequence[Any], names: Sequence[str], shards: Sequence[Any], learner: Learner, patience: float,
        server: Server,
    ) -> None:  # fmt: skip
        self._ray, self._calls, self.actors, self.names = import_ray(), RayCalls(actors), actors, names
        self._shards, self._learner, self._patience = list(shards), learner, patience
        self._periods, self._vectors, self._joining = dict[int, Any](), dict[int, Any](), dict[int, Any]()
        self.there, self.events, self.losses = set(range(len(actors))), list[str](), 0
        self._server, self._means = server, 0
        self._is_large = len(learner.parameters) >= LARGE and importlib.util.find_spec("torch") is not None
        self._connected = set[int]()  # who averages by torch.distributed with this process
        self._epoch, self._began = 0, 0.0
        self._cpu, self._cpu_before = dict[int, float](), 0.0
        self.load_states([], 0)

    def begin(self, count: int, before: int, beta: float) -> None:
        """Let every learner take ``count`` gradient steps, after ``before`` others, by this beta."""
        self._finish_period()
        self.let_join()
        if self._is_large and self._server.process is None and self._connected != self.there:
            self._connect()
        self._means = _MOST_MEANS * before
        for place in self.there:
            self._periods[place] = self.actors[place].take_steps.remote(count, before, beta)
        self._began = clock.seconds()

    def mean(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """The mean of these weights and of those that every other learner hands in next.

        Raises what another learner raised, such as ValueError where training diverged.
        """
        if self._connected and self._connected == self._periods.keys():
            try:
                return reduce_mean(weights)
            except RuntimeError:
                self._connected = set()
        for place in [place for place in self._periods if place not in self._vectors]:
            self._hand_out(place, None)
        parts, now = [weights.copy()], clock.seconds()
        deadline = now + self._patience + (now - self._began)  # as long again as this learner took
        for place in sorted(self._periods):
            # A learner whose period is over hands nothing in any more; the server does not know it.
            either = [self._vectors[place], self._periods[place]]
            self._ray.wait(either, timeout=max(0.0, deadline - clock.seconds()))
            if (handed_in := self._get(place, self._vectors.pop(place), 0.0)) is not None:
                parts.append(handed_in)
        mean: NDArray[np.float32] = np.mean(parts, 0)
        self._means += 1
        self._server.push("mean", self._means, lambda: mean)
        for place in self._periods:
            self._hand_out(place, mean)
        return mean

    def ask(self, at: int, weights: NDArray[np.float32], parts: Sequence[Any] | None) -> Callable[[int], Any]:
        """Let all derive gradients of a phase; returns a function from a learner's place to its answer.

        It is None of a learner that is not there, or does not answer in time.
        """

        def answer_of(place: int) -> Any:
            answer = self._get(place, sent[place], deadline) if place in sent else None
            if answer is None:
                return None
            self._cpu[place] = answer[-1]
            return answer[:-1]

        sent = {
            place: self.actors[place].derive.remote(at, weights, None if parts is None else parts[place])
            for place in self.there
        }
        deadline = clock.seconds() + self._patience

        return answer_of

    def list_states(self) -> list[dict[str, Any]]:
        """The states of the other learners, between two periods; of one that is not there the first's."""
        self._finish_period()
        states = [self._learner.state_dict() for _ in self.actors]
        for place in [*self.there]:
            deadline = clock.seconds() + self._patience
            states[place] = self._get(place, self.actors[place].state_dict.remote(), deadline) or states[place]
        return states

    def load_states(self, states: Sequence[dict[str, Any]], epoch: int) -> None:
        """Give the other learners their states; those beyond the saved ones have the first's.

        LostError, or TimeoutError, where one does not answer.
        """
        self._epoch = 1_000 * epoch
        own = [*states[: len(self.actors)], *[self._learner.state_dict()] * (len(self.actors) - len(states))]
        for place, state in enumerate(own):
            self._join(place, state)

    def _join(self, place: int, state: dict[str, Any]) -> None:
        joined = self.actors[place].join.remote(state, self._shards, self._epoch, self._server.process)
        self._calls.get(joined, self._patience)

    def _connect(self) -> None:
        """Let all that are there average by torch.distributed; who does not meet the others in time is lost."""
        with socket.socket() as free:
            free.bind(("", 0))
            url = f"tcp://{self._ray.util.get_node_ip_address()}:{free.getsockname()[1]}"
        count, places, why = 1 + len(self.there), sorted(self.there), ""
        meeting = {
            place: self.actors[place].connect.remote(url, rank, count, self._patience)
            for rank, place in enumerate(places, 1)
        }
        with contextlib.suppress(RuntimeError):
            connect(url, 0, count, self._patience)
        for place, met in meeting.items():
            try:
                self._calls.get(met, self._patience)
            except (LostError, TimeoutError):
                self._lose(place)
            except (RuntimeError, ImportError) as error:
                why = str(error).strip().splitlines()[-1]
        if why and len(self.there) == count - 1:  # there may be no way between nodes, or one has no torch
            self._is_large = False
            self.events.append(f"averages go by Ray's calls, for torch.distributed does not connect ({why})")
        self._connected = set(self.there) if self._is_large and len(self.there) == count - 1 else set()

    def _hand_out(self, place: int, mean: NDArray[np.float32] | None) -> None:
        if self._server.process is not None:
            self._vectors[place] = self._server.process.pull.remote(place, self._means + 1)
            return
        self._vectors[place] = self.actors[place].hand_out.options(concurrency_group="mean").remote(mean)

    def _finish_period(self) -> None:
        """Know that every learner has taken the steps of the last period; raises what a learner raised."""
        deadline = clock.seconds() + self._patience
        for place, period in [*self._periods.items()]:
            if (seconds := self._get(place, period, deadline)) is not None:
                self._cpu[place] = seconds
        self._periods.clear()

    def cpu_seconds(self) -> float:
        """CPU time of the other learners' processes, as of their last answers; take differences."""
        return self._cpu_before + sum(self._cpu.values())

    def _get(self, place: int, answer: Any, deadline: float) -> Any:
        """The answer of a learner; None where it is lost, and then it leaves. Raises other errors of its own."""
        try:
            return self._calls.get(answer, max(0.0, deadline - clock.seconds()))
        except (LostError, TimeoutError, RuntimeError):  # RuntimeError: it found no node that answers
            self._lose(place)
            return None

    def _lose(self, place: int) -> None:
        """Continue without a learner, whose process is started again."""
        if (period := self._periods.pop(place, None)) is not None and self._ray.wait([period], timeout=0)[0]:
            with contextlib.suppress(LostError, RuntimeError):  # RuntimeError: it found no node that answers
                self._calls.get(period, 0.0)  # which raises what the learner raised
        self.there.discard(place)
        self._vectors.pop(place, None)
        self.losses, self._cpu_before = self.losses + 1, self._cpu_before + self._cpu.pop(place, 0.0)
        self._ray.kill(self.actors[place], no_restart=False)
        self.events.append(f"the learner on node {self.names[place]} is lost, and leaves the mean of the others")
        self._joining[place] = self.actors[place].describe.remote()

    def let_join(self) -> None:
        """Let learners that were started again take part from the next period on, with the first's state."""
        for place, started in [*self._joining.items()]:
            if not self._ray.wait([started], timeout=0)[0]:
                continue
            try:
                self._calls.get(started, 0.0)
                self._epoch += 1
                self._join(place, self._learner.state_dict())
            except (LostError, TimeoutError):
                self._joining[place] = self.actors[place].describe.remote()
                continue
            del self._joining[place]
            self.there.add(place)
            self.events.append(f"the learner on node {self.names[place]} joins the others again")


class PeriodLearning(Learning):
    """The gradient steps of the first learner, H of them once all are due, while others take theirs."""

    def __init__(self, *parts: Any, group: Group, period: int, last: int) -> None:
        super().__init__(*parts)
        self._group, self._period, self._last = group, period, last
        self.left = 0  # gradient steps of the period under way, all of them due

    def advance(self) -> bool:
        """Take the next step of a period; begin a period if all its steps are due. Returns whether a step was taken.

        The last steps of a run, fewer than a period, are the first learner's alone, and are not averaged.
        """
        if not self.left:
            before, steps = self._board.value(Counter.UPDATES), self._board.value(Counter.STEPS)
            count = min(self._period, self._last - before)
            if count <= 0 or steps < self.pace.due(before + count):
                self._batches.receive()
                return False
            if count == self._period:
                self._group.begin(count, before, beta_at(self._workload, steps))
            self.left = count
        is_taken = super().advance()
        self.left -= is_taken
        return is_taken
