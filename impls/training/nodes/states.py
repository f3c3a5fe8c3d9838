"""What the learner of a run over nodes knows of each, and how many environment steps it lets each take.

In a run of one machine actors wait where they are too far ahead of the learner. Over machines they would wait for each
call, so the learner lets nodes take steps before they are due: of E(g) steps that all may take after g gradient steps,
those known to be taken count first, and what is left is given out so that all living nodes have equally many ahead. So
faster nodes take more of the steps, and what a lost node did not take goes to the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..actor import Episode
from .actor_node import News, Orders

_LIVES = 1_000_033  # between the epochs of two processes of a node


def share_steps(total: int, taken: Sequence[int], allowed: Sequence[int]) -> list[int]:
    """Environment steps that nodes may take from now on, of ``total`` for all.

    None may take less than it was ``allowed`` before; else all have equally many ahead of those ``taken``, up to 1.

    >>> share_steps(100, taken=[10, 30], allowed=[20, 30])
    [40, 60]
    """
    if sum(allowed) >= total:
        return list(allowed)
    least, most = 0, total
    while least < most:
        # Invariant: ``least`` steps ahead for each are not too many, and ``most + 1`` are.
        ahead = (least + most + 1) // 2
        if sum(max(before, steps + ahead) for steps, before in zip(taken, allowed, strict=True)) <= total:
            least = ahead
        else:
            most = ahead - 1
    shares = [max(before, steps + least) for steps, before in zip(taken, allowed, strict=True)]
    rest = total - sum(shares)
    for place, steps in enumerate(taken):
        if rest > 0 and shares[place] == steps + least:
            shares[place], rest = shares[place] + 1, rest - 1
    return shares


@dataclass
class NodeState:
    """The learner's knowledge of a node: of its present process ``run``, and how many processes it has had.

    ``allowed`` environment steps of which ``steps`` are known to be taken; ``episodes`` that are known; gradient steps
    behind the weights that it has, ``weights``, -1 before any.
    """

    name: str
    run: int = 0
    lives: int = 0
    steps: int = 0
    steps_before: int = 0
    allowed: int = 0
    episodes: int = 0
    weights: int = -1
    restarts: int = 0
    restarts_before: int = 0
    cpu: int = 0
    cpu_before: int = 0
    is_gone: bool = True
    losses: int = 0
    failure: str = ""

    @property
    def all_steps(self) -> int:
        """Steps that this node has taken in all its lives."""
        return self.steps_before + self.steps


class Nodes:
    """The nodes of a run; ``names`` them. Weights go to a node again once they are ``period`` gradient steps older."""

    def __init__(self, names: Sequence[str], period: int) -> None:
        self.each = [NodeState(name) for name in names]
        self.period, self.updates, self.epoch = period, 0, 0
        self.steps_before = 0  # of the run, before these nodes began
        self.ended: list[Episode] = []
        self.events: list[str] = []
        self.lag_sum, self.lag_count, self.lag_most, self.lead = 0, 0, 0, 0
        self._ended_runs = set[int]()

    @property
    def steps(self) -> int:
        """Environment steps that are known to be taken, by nodes that were lost too."""
        return self.steps_before + sum(node.all_steps for node in self.each)

    @property
    def failure(self) -> str:
        """Why a node cannot continue, "" while all can."""
        return next((f"node {node.name}: {node.failure}" for node in self.each if node.failure), "")

    def allow_steps(self, total: int, updates: int) -> None:
        """Let nodes take ``total`` environment steps of the run in all, after a number of gradient steps."""
        self.updates = updates
        living = [node for node in self.each if not node.is_gone and node.run]
        others = self.steps - sum(node.steps for node in living)
        shares = share_steps(total - others, [node.steps for node in living], [node.allowed for node in living])
        for node, share in zip(living, shares, strict=True):
            node.allowed = share

    def begin_at(self, steps: int, updates: int, epoch: int) -> None:
        """Begin after steps that other nodes took, and gradient steps; nothing was allowed yet."""
        self.steps_before, self.updates, self.epoch = steps, updates, epoch
        for node in self.each:
            node.allowed = 0

    def orders_for(self, place: int) -> Orders:
        """Return the present orders for a node."""
        node = self.each[place]
        epoch = self.epoch + _LIVES * max(0, node.lives - 1)
        return Orders(node.run, node.allowed, self.steps - node.steps, self.updates, node.episodes, epoch)

    def is_weighted(self, place: int) -> bool:
        """Whether a node is to get weights with what is said to it now; it then has them."""
        node = self.each[place]
        if not node.run or (node.weights >= 0 and self.updates < node.weights + self.period):
            return False
        node.weights = self.updates
        return True

    def hear(self, news: News) -> None:
        """Take over what a node says; news of a process that has ended are old."""
        node = self.each[news.place]
        if news.run in self._ended_runs:
            return
        if news.run != node.run:
            self._begin_life(node, news.run)
        node.steps, node.restarts = max(node.steps, news.steps), news.restarts
        node.cpu, node.name, node.failure = max(node.cpu, news.cpu), news.name, news.failure
        new = news.episodes[max(0, node.episodes - news.first) :]
        node.episodes += len(new)
        self.ended += [Episode(float(score), int(length)) for score, length in new]
        if node.weights >= 0:
            lag = self.updates - node.weights
            self.lag_sum, self.lag_count = self.lag_sum + lag, self.lag_count + 1
            self.lag_most = max(self.lag_most, lag)

    def note_gone(self, gone: Sequence[bool]) -> None:
        """Take over which nodes are gone; whoever is lost, or comes back, is an event."""
        for node, is_gone in zip(self.each, gone, strict=True):
            if is_gone == node.is_gone:
                continue
            node.is_gone = is_gone
            there = sum(not other.is_gone for other in self.each)
            node.losses += is_gone
            if is_gone:
                node.weights = -1  # those under way may be lost
                self.events.append(f"node {node.name} is lost; training continues on {there} of {len(self.each)} nodes")
            elif node.losses:
                self.events.append(f"node {node.name} {'continues' if node.steps else 'begins, with no record'}")

    def _begin_life(self, node: NodeState, run: int) -> None:
        if node.run:
            self._ended_runs.add(node.run)
        node.steps_before, node.cpu_before = node.all_steps, node.cpu_before + node.cpu
        node.run, node.lives, node.steps, node.allowed, node.episodes = run, node.lives + 1, 0, 0, 0
        node.weights, node.cpu = -1, 0
        node.restarts_before, node.restarts = node.restarts_before + node.restarts, 0

    def measure_lag(self) -> dict[str, float]:
        """Gradient steps by which weights of nodes were behind when they answered: the mean, and the most."""
        return {"mean": self.lag_sum / max(1, self.lag_count), "most": self.lag_most}

    def describe(self, records: Sequence[int]) -> list[dict[str, Any]]:
        """Return the row of each node in a report."""
        return [
            {
                "node": node.name, "steps": node.all_steps, "records": count, "is_gone": node.is_gone,
                "processes": node.lives, "restarts": node.restarts_before + node.restarts,
            }
            for node, count in zip(self.each, records, strict=True)
        ]  # fmt: skip
