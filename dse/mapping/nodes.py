"""Train over the nodes of a cluster: how many of which kind, and whether one machine is enough.

The process that learns takes a gradient step of B records, puts each batch together, and once in G gradient steps calls
each of M nodes; with every ``WEIGHTS_EVERY``-th of them go the newest weights. A actors of each node take environment
steps meanwhile. The rate, in gradient steps/s, is that of the slowest of four:

    1 / (t_learn + t_batch + B t_record + M t_call / G)      the learner's process
    M / t_acting(A)                             the actors of all nodes, t_acting(A) for the steps of a gradient step
    G / t_answer                                each node, which answers a call once in G gradient steps
    beta / (records + weights)                  the network, in bytes of a gradient step

One machine of C cores has at most 1 / t_acting(C - 1): nodes pay once an environment step takes so long that this is
below what the learner's process allows, the **break-even**. Memory may want nodes before: each has N / M records.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from impls.training.arrangement import NODES, WEIGHTS_EVERY

from ..answer import Note, Row
from ..estimate import Estimate, Evidence, weakest
from ..platforms import PlatformError, load
from ..platforms.files import HERE
from ..platforms.platform import Network, Node
from ..platforms.quantities import SOURCE_OF, Quantity
from ..solver.law import EPSILONS
from ..solver.problem import ProblemError
from ..times.door import Times
from ..times.laws import cores_of
from ..times.learners import Learner
from ..times.whole import REFERENCE
from .answer import MappingAnswer, Shortage
from .question import MappingQuestion, answer_question

BATCHES_A_CALL = (1, 2, 4, 8, 16, 32)
"""G that are tried: of more, a batch is older when it is learned from, and no call costs less that counts."""
NETWORK_FACTOR = 1.5  # an assumption: the error bound of what a network takes


@dataclass(frozen=True)
class NodesPlan:
    """M nodes of a kind with A actors each, and G batches a call. ``times``: the seconds of a gradient step by side."""

    node: Node
    nodes: int
    actors: int
    batches_a_call: int
    learner: Learner
    is_on_processor: bool
    policy: str
    times: Mapping[str, Estimate]

    @property
    def side(self) -> str:
        """The side that takes longest: learner, actors, node or network."""
        return max(self.times, key=lambda side: self.times[side].value)

    @property
    def hz(self) -> float:
        """Return the rate, in gradient steps/s."""
        return 1 / self.times[self.side].value

    @property
    def price(self) -> float | None:
        """The price of an hour of all nodes; None where it is not stated."""
        return self.nodes * self.node.price_per_hour.value if self.node.price_per_hour else None

    @property
    def rate(self) -> Estimate:
        """The rate with its ends: those of the side that takes longest at either end of all times."""
        low, high = (1 / max(getattr(time, end) for time in self.times.values()) for end in ("high", "low"))
        return Estimate(self.hz, low, high, self.times[self.side].rests_on)

    def row(self, says: str = "") -> Row:
        """Return the plan as a row; ``hz_by_...``: what each side alone allows."""
        more: dict[str, Any] = {f"{side}_hz": 1 / time.value for side, time in self.times.items()}
        more |= {"side": self.side, "price_per_hour": self.price, "learner": self.learner.name}
        per_million = self.price and self.price / self.hz / 3600 * 1e6
        more |= {"price_of_a_million": per_million}
        label = {"arrangement": NODES, "kind_of_node": self.node.name, "actor_nodes": self.nodes}
        label |= {"actors": self.actors, "batches_a_call": self.batches_a_call}
        return Row(label, self.rate, "gradient steps/s", more, says)


@dataclass(frozen=True)
class OverNodes:
    """Plans over nodes, the best first, to compare with one machine.

    ``machine_hz``: the rate of one machine with ``actors_of_machine``, 0 where it does not hold the workload.
    ``env_seconds``: the time of an environment step by an actor of this machine. ``break_even``: the time from which on
    nodes pay; infinite where all of them together have no more cores for actors than this machine.
    """

    plans: Sequence[NodesPlan]
    machine_hz: float
    actors_of_machine: int
    env_seconds: float
    break_even: float
    question: MappingQuestion

    objective = "ratio"  # whose value is the rate

    @property
    def choice(self) -> Row:
        """The row of the best plan."""
        shape = {"workload": self.workload, "batch": self.question.workload.learner.batch}
        row = self.best.row("train_over_nodes")
        return replace(row, more={**row.more, **shape, "hz": self.hz})

    @property
    def workload(self) -> str:
        """Return the name of the workload."""
        return self.question.workload.name

    @property
    def hz(self) -> float:
        """Return the rate of the best plan, in gradient steps/s."""
        return self.best.hz

    value = hz

    @property
    def machine_note(self) -> Note | None:
        """The note on the machine whose records answer."""
        return self.question.machine_note

    @property
    def profile_notes(self) -> tuple[Note, ...]:
        """Notes on a profile that is incomplete, or was disturbed."""
        return self.question.profile_notes

    @property
    def low(self) -> float:
        """The low end of the rate."""
        return self.best.rate.low

    @property
    def high(self) -> float:
        """The high end of the rate."""
        return self.best.rate.high

    @property
    def best(self) -> NodesPlan:
        """The plan to take: of equally fast ones the cheapest, with the fewest nodes and actors, and the smallest G."""
        return self.plans[0]

    @property
    def pays(self) -> bool:
        """Whether nodes are faster than one machine by more than counts as equally good, or hold what that does not."""
        return self.best.hz > (1 + EPSILONS["ratio"]) * self.machine_hz

    @property
    def is_taken(self) -> bool:
        """Whether the answer is the best plan, and not one machine."""
        return self.question.fix.get("arrangement") == NODES or self.pays

    @property
    def note(self) -> Note:
        """Whether one machine is enough, and the break-even."""
        has_end = not math.isinf(self.break_even)
        if not self.machine_hz:
            kind = "nodes_hold_it"
        elif self.pays:  # for their actors, or as a learner that does not sample for itself is faster
            kind = "nodes_pay" if self.env_seconds >= self.break_even else "nodes_are_faster"
        else:
            kind = "one_machine_is_enough" if has_end else "nodes_never_pay"
        values = {
            "alone_hz": self.machine_hz,
            "alone_actors": self.actors_of_machine,
            "nodes_hz": self.best.hz,
            "nodes": self.best.nodes,
            "break_even_seconds": self.break_even if has_end else None,
            "env_seconds": self.env_seconds,
        }
        return Note(kind, values, "first")


def plan_nodes(question: MappingQuestion, alone: MappingAnswer | Shortage) -> OverNodes | None:
    """Plan a run over the nodes of a question's platform; None where it states none, or nothing fits them.

    ``alone``: the answer of one machine, which is compared with more actors too. ProblemError where the question fixes
    the arrangement and no plan is possible.
    """
    wanted, platform = question.fix.get("arrangement"), question.platform
    if not platform.network or wanted not in (None, NODES) or question.objective != "ratio":
        if wanted == NODES:
            raise ProblemError(f"arrangement={NODES} goes with --objective ratio, not {question.objective}")
        return None
    parts = question.parts()
    kinds = [(node, _times_of(question, parts, node)) for node in platform.nodes]
    learner = _fastest_learner(parts)
    plans = list(_plans(question, platform.network, parts, kinds, learner))
    if not plans:
        if wanted == NODES:
            raise ProblemError(
                f"arrangement={NODES}: no node of {platform.name} holds a part of {question.workload.name} with its "
                "actors; fix fewer actors, or leave the arrangement out"
            )
        return None
    epsilon = EPSILONS["ratio"] if question.epsilon is None else question.epsilon
    groups: dict[tuple[str, int], list[NodesPlan]] = {}
    for plan in plans:
        groups.setdefault((plan.node.name, plan.nodes), []).append(plan)
    of_groups = [_choose(group, epsilon) for group in groups.values()]
    best = _choose(of_groups, epsilon)
    of_groups.sort(key=lambda plan: (plan is not best, -plan.hz))
    own, env_seconds = max(1, parts.cores - 1), parts.actors.fastest_step(1).value
    per_step = _fastest_acting(parts, own)[1].value / env_seconds
    needed = ((own // _cores_of(node, there) + 1, node.count.value) for node, there in kinds)  # for one actor more
    calls = [nodes / max(BATCHES_A_CALL) for nodes, count in needed if nodes <= count]
    seconds = (_add_calls(learner[1].step, platform.network, parts.batch, count).value for count in calls)
    break_even = min(seconds, default=math.inf) / per_step
    machine_hz, actors = max(_count_alone(alone), _count_alone(_ask_alone(question, own)))
    return OverNodes(of_groups, machine_hz, actors, env_seconds, break_even, question)


def _cores_of(node: Node, there: Times) -> int:
    return int(node.cores.value) if node.cores else cores_of(there.cpu)


def _ask_alone(question: MappingQuestion, actors: int) -> MappingAnswer | Shortage | None:
    """The answer of one machine with a number of actors; None where it may not have them."""
    asked = question.drop_nodes()
    try:
        return answer_question(replace(asked, fix={**asked.fix, "actor_count": actors}))
    except ProblemError:
        return None


def _count_alone(found: MappingAnswer | Shortage | None) -> tuple[float, int]:
    """(gradient steps/s of one machine, its actors)."""
    if not isinstance(found, MappingAnswer):
        return 0.0, 0
    return found.hz, found.details("actors").get("processes", 1)


def _choose(plans: Sequence[NodesPlan], epsilon: float) -> NodesPlan:
    """Choose, of plans that are as fast as any but for a share, the cheapest."""
    least = (1 - epsilon) * max(plan.hz for plan in plans)
    return min((plan for plan in plans if plan.hz >= least), key=_costs)


def _costs(plan: NodesPlan) -> tuple[float, ...]:
    price = math.inf if plan.price is None else plan.price
    return price, plan.nodes, plan.actors, plan.batches_a_call, -plan.hz


def _times_of(question: MappingQuestion, parts: Times, node: Node) -> Times:
    """The times of parts on a node: ``parts`` where the question's own platform is the node's."""
    if node.platform in (HERE, question.platform.name):
        return parts
    try:
        return replace(question, platform=load(node.platform, question.results), times=None).parts()
    except PlatformError as error:
        raise ProblemError(f"node {node.name}: {error}") from None


def _plans(
    question: MappingQuestion,
    network: Network,
    parts: Times,
    kinds: Sequence[tuple[Node, Times]],
    learner_of: tuple[bool, Learner],
) -> Iterator[NodesPlan]:
    """Yield every plan that fits, without more nodes than keep the learner busy: kinds of nodes, M, A and G."""
    fix, (is_on_processor, learner) = question.fix, learner_of
    answer, rate = network.answer_seconds, network.rate_bytes_per_s
    for node, there in kinds:
        memory = there.cpu.memory.size_bytes.value if there.cpu.memory else math.inf
        least, cores = max(1, math.ceil(parts.storage_bytes / memory)), _cores_of(node, there)
        for actors in [fix["actors"]] if "actors" in fix else range(1, cores + 1):
            policy, steps = _fastest_acting(there, actors)
            most = max(least, math.ceil(steps.value / learner.step.value))
            counts = [fix["actor_nodes"]] if "actor_nodes" in fix else range(least, most + 1)
            fitting = [count for count in counts if least <= count <= node.count.value and actors <= cores]
            calls = [fix["batches_a_call"]] if "batches_a_call" in fix else BATCHES_A_CALL
            for nodes, batches in itertools.product(fitting, calls):
                nbytes = parts.batch_bytes + nodes * parts.weights_bytes / WEIGHTS_EVERY
                times = {
                    "learner": _add_calls(learner.step, network, parts.batch, nodes / batches),
                    "actors": steps.scaled(1 / nodes),
                    "node": _estimate(answer.value / batches, answer, "a node's answers"),
                    "network": _estimate(nbytes / rate.value, rate, "bytes sent"),
                }
                yield NodesPlan(node, nodes, actors, batches, learner, is_on_processor, policy, times)


def _fastest_learner(parts: Times) -> tuple[bool, Learner]:
    """(whether it is on the processor, the fastest learner that a process of training has: on one thread, or a GPU)."""
    known = [
        (device is parts.cpu, learner)
        for device in parts.platform.devices
        if device.kind == "gpu" or device is parts.cpu
        for learner in parts.learners.list(device)
        if learner.devices == 1 and learner.details.get("threads", 1) == 1
        and parts.allows("learner_implementation", learner.details.get("implementation", REFERENCE))
        and parts.allows("learner", device.name)
    ]  # fmt: skip
    if not known:
        raise ProblemError("no learner that runs over nodes is as fixed; leave out --fix learner")
    return min(known, key=lambda found: found[1].step.value)


def _fastest_acting(parts: Times, processes: int) -> tuple[str, Estimate]:
    """(the policy's implementation, seconds of a gradient step's environment steps by x processes together)."""
    policies = [name for name in parts.actors.policies if parts.allows("policy_implementation", name)]
    known = [(name, parts.actors.acting(processes, policy=name)) for name in policies]
    return min(known, key=lambda found: found[1].value)


def _add_calls(step: Estimate, network: Network, batch: int, calls: float) -> Estimate:
    """A gradient step of B records with what the learner's processor does for them, and for a number of calls."""
    costs = ((network.batch_seconds, 1), (network.record_seconds, batch), (network.call_seconds, calls))
    more = sum(quantity.value * count for quantity, count in costs)
    whose = weakest((step.source, *(SOURCE_OF[quantity.origin] for quantity, _ in costs)))
    told = f"{step.rests_on.description}; calls: {more * 1e6:.3g}us"
    return step.plus(more, NETWORK_FACTOR).resting_on(source=whose, description=told)


def _estimate(seconds: float, quantity: Quantity, what: str) -> Estimate:
    """Seconds that follow from a quantity of the network alone."""
    evidence = Evidence("network", SOURCE_OF[quantity.origin], f"{what}: {quantity.note}")
    return Estimate.within(seconds, NETWORK_FACTOR, evidence)
