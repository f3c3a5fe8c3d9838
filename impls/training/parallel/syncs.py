"""How the gradient steps of several learners combine.

    synchronous    each learner derives the gradient of B/L records, the first takes the step along their mean
    lock           each takes whole steps on B records and the same weights, one learner at a time
    hogwild        the same without a lock, so that steps overlap
    local          each takes steps on weights of its own and B/L records, and all average theirs every H steps

A new one is a class of this file with a ``name``; where its learners share a step, each with a part of the batch, its
name stands in ``SHARING`` of ``arrangement`` too.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from ...replay import Batch
from ...replay.block import Handle, Memory
from ...replay.sync import make_mutex
from .. import clock
from ..arrangement import Arrangement, named_classes
from ..errors import TrainingError
from ..learner import Learner, Phase, Stepped, Vectors, Weights
from ..weights import layout_of, spans
from . import counter
from .board import Board, Counter, Row, Shapes, SharedArrays
from .counter import lock, unlock
from .pace import Pace

PATIENCE_SECONDS = 180.0  # that the parent waits for another process, which may still compile its kernels
ARRIVED, APPLIED, LEARNING, PUBLISHING, _LINES = range(5)
"""Lines of ``SharedGradients``: two counters of learners, and two mutexes."""
_PHASES = 3


class Sync:
    """The gradient steps of process ``number`` of several, of which number 0 is the parent."""

    name: ClassVar[str] = ""

    def __init__(self, learner: Learner, board: Board, number: int) -> None:
        self.learner, self.board, self.number = learner, board, number

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Call until it returns True, which takes 20 ms at most, and rest in pauses meanwhile.

        Stopped when the run ends; in the parent, TrainingError for a child that failed or keeps it waiting for 3
        minutes.
        """
        end = clock.seconds() + PATIENCE_SECONDS
        while not is_so():
            self.board.check(self.number)
            if self.number == 0 and clock.seconds() > end:
                raise TrainingError(f"a process of this run has done nothing for {PATIENCE_SECONDS:.0f} s")

    @contextlib.contextmanager
    def counting_wait(self) -> Iterator[None]:
        """Count the time spent inside this context as waited."""
        began = clock.nanoseconds()
        yield
        self.board.rows[self.number, Row.WAITED] += clock.nanoseconds() - began

    @contextlib.contextmanager
    def locked(self, mutex: int) -> Iterator[None]:
        """Hold the mutex at an address; a mutex whose owner died is taken over."""
        with self.counting_wait():
            self.wait(lambda: bool(lock(mutex)))
        try:
            yield
        finally:
            unlock(mutex)


class LearnerSync(Sync, ABC):
    """The gradient steps of learner ``number`` of L, which sample from one replay."""

    def claim(self, pace: Pace) -> int | None:
        """Claim the next gradient step once it is due; returns the number of those before it.

        None if none is due within 20 ms, or another learner was faster.
        """
        claimed = self.board.value(Counter.CLAIMED_UPDATES)
        if not self.board.look(Counter.STEPS, pace.due(claimed + 1), self.number):
            return None
        before = self.board.claim(Counter.CLAIMED_UPDATES, 1, claimed + 1)
        return None if before < 0 else before

    @abstractmethod
    def step(self, batch: Batch, before: int) -> Stepped:
        """Take the step that was claimed with a batch: compute, combine, count it, hand out weights."""

    def settle(self) -> None:
        """Count, before the parent's learner is saved, the steps that others have taken."""
        self.learner.count(self.board.value(Counter.UPDATES))

    def _publish(self, weights: Weights) -> None:
        self.board.publish(weights)
        self.board.add(Counter.UPDATES)


class Alone(LearnerSync):
    """One learner, which shares its steps with no other."""

    def step(self, batch: Batch, before: int) -> Stepped:
        """A gradient step, then the weights are handed out."""
        stepped = self.learner.step(batch.rows, batch.weights)
        self._publish(self.learner.latest())
        return stepped


class SharedGradients(SharedArrays):
    """Memory that the L learners of an arrangement compute with; this learner, of a ``number``, is placed on it.

    By name: ``losses [L, 8]`` by phase, ``overlaps [L, 8]`` (gradient steps of others that ended during an own step:
    sum and most), ``kept [L, 8]`` (steps since all averaged), ``gradients [L, P]`` where learners hand them in, or one
    row of weights as they were last averaged, and the ``Vectors``, a row for each learner where it has a copy. Without
    ``memory`` it is made, and has the learner's own numbers. TrainingError for a learner that is not on the CPU.
    """

    def __init__(
        self, learner: Learner, arrangement: Arrangement, memory: Memory | None = None, number: int = 0
    ) -> None:
        own, learners, is_local = learner.vectors(), arrangement.learners, arrangement.sync == "local"
        self.learners, self.period = learners, arrangement.period
        handed_in = SYNCS[arrangement.sync].count_vectors(learners)
        shapes: Shapes = {
            "losses": ((learners, counter.LINE_WORDS), np.float64),
            "overlaps": ((learners, counter.LINE_WORDS), np.int64),
            "kept": ((learners, counter.LINE_WORDS), np.int64),
            "gradients": ((handed_in, len(own.parameters)), np.float32),
        }
        copies = learners if is_local else 1
        vectors: Shapes = {name: ((copies, len(numbers)), np.float32) for name, numbers in own._asdict().items()}
        super().__init__(_LINES, {**shapes, **vectors}, memory)
        self.losses, self.gradients, self.weights = self["losses"][:, :_PHASES], self["gradients"], self["parameters"]
        self.overlaps, self.kept = self["overlaps"][:, :2], self["kept"][:, 0]
        self._vectors = Vectors(*(self[name] for name in Vectors._fields))
        if memory is None:
            for mutex in (LEARNING, PUBLISHING):
                make_mutex(self.address(mutex))
            for numbers, given in zip(self._vectors, own, strict=True):
                numbers[:] = given
            if is_local:
                self.averaged[:] = own.parameters
        learner.place(Vectors(*(numbers[number if is_local else 0] for numbers in self._vectors)))
        prepare_gradients(learner, arrangement.rows(learner.workload))

    @property
    def averaged(self) -> Weights:
        """The weights ``[P]`` as they were last averaged."""
        averaged: Weights = self.gradients[0]
        return averaged

    def state_dict(self) -> dict[str, Weights]:
        """The numbers of learners with copies of their own, as copies; nothing where they share them."""
        kept = {**self._vectors._asdict(), "averaged": self.gradients} if len(self.weights) > 1 else {}
        return {name: numbers.copy() for name, numbers in kept.items()}

    def load_state_dict(self, state: Mapping[str, Weights]) -> None:
        """Take a state of as many learners; of an empty one, the numbers of the first for all."""
        if not state and len(self.weights) > 1:
            for numbers in self._vectors:
                numbers[:] = numbers[0]
            self.averaged[:] = self.weights[0]
        for name, numbers in state.items():
            (self.gradients if name == "averaged" else self[name])[:] = numbers

    @classmethod
    def attach(cls, handle: Handle, learner: Learner, arrangement: Arrangement, number: int) -> "SharedGradients":
        """Place learner ``number`` of the same workload and arrangement on the memory of a handle."""
        return cls(learner, arrangement, handle.attach(), number)

    def overlapping_steps(self, board: Board) -> dict[str, float]:
        """Gradient steps of other learners that ended during a step: the mean over steps, and the most."""
        steps = max(1, int(board.rows[: self.learners, Row.TURNS].sum()))
        return {"mean": float(self.overlaps[:, 0].sum()) / steps, "most": int(self.overlaps[:, 1].max())}


def prepare_gradients(learner: Learner, rows: int) -> None:
    """Derive gradients of zeros once, so that compiling and loading code delays no step."""
    parts = layout_of(learner.workload).transition
    zeros = {name: np.zeros((rows, *shape), dtype) for name, (shape, dtype) in parts.items()}
    batch = learner.rows(zeros, np.ones(rows, np.float32))
    for phase in learner.phases():
        learner.gradient(phase, batch)


class Joint(LearnerSync):
    """One of several learners, on memory that they have in common."""

    def __init__(self, learner: Learner, board: Board, number: int, common: SharedGradients) -> None:
        super().__init__(learner, board, number)
        self.common = common
        self.settle()

    @staticmethod
    def count_vectors(learners: int) -> int:
        """Vectors ``[P]`` of ``SharedGradients.gradients`` that a number of learners needs."""
        return 0

    def reach(self, line: int, least: int) -> None:
        """Wait until a counter of ``common`` is at least ``least``."""
        address = self.common.address(line)
        self.wait(lambda: self.board.look_at(address, least, self.number))

    def arrive(self, line: int) -> None:
        """Add 1 to a counter of ``common``."""
        counter.add(self.common.address(line), 1)


class FollowingJoint(Joint):
    """One of several learners that take each step together: the first claims it."""

    def claim(self, pace: Pace) -> int | None:
        """Claim the next step in the first learner; the others take theirs as soon as it is due."""
        if self.number == 0:
            return super().claim(pace)
        before = self.learner.steps
        return before if self.board.look(Counter.STEPS, pace.due(before + 1), self.number) else None


class Synchronous(FollowingJoint):
    """Learners that take each step together, as by a parameter server [Zhang2021].

    All learners compute with the same weights in shared memory. Of each phase they hand in their gradients; the first
    waits for all, takes the step along their mean, and lets the others continue. Losses are means over rows, so L parts
    of B/L records give the gradient of B records, up to rounding.
    """

    name = "synchronous"
    _done = 0  # phases of all steps so far

    @staticmethod
    def count_vectors(learners: int) -> int:
        """A gradient of each learner."""
        return learners

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take a step together; the losses are those of all learners in the first, its own in another."""
        learner, priorities, losses = self.learner, np.empty(0, np.float32), dict[str, float]()
        rows, phases = learner.rows(batch.rows, batch.weights), learner.phases()
        for at, phase in enumerate(phases):
            # Invariant: all learners are in the same phase, and no weight changes until all gradients have arrived.
            derived, span = learner.gradient(phase, rows), spans(learner.workload)[phase.network]
            self.common.gradients[self.number, span] = derived.gradient
            self.common.losses[self.number, at] = derived.loss
            priorities = priorities if derived.priorities is None else derived.priorities
            self._done += 1
            if self.number:
                losses[phase.network] = derived.loss
                self.arrive(ARRIVED)
                self.reach(APPLIED, self._done)
            else:
                losses[phase.network] = self._apply(phase, at, span, at == len(phases) - 1)
        if self.number:
            learner.steps += 1
        else:
            self._publish(learner.parameters)
        return Stepped(priorities, losses)

    def _apply(self, phase: Phase, at: int, span: slice, is_last: bool) -> float:
        """Wait for the others' gradients, take the step along the mean, let them continue; returns the mean loss."""
        self.reach(ARRIVED, (self.common.learners - 1) * self._done)
        self.learner.apply(phase, self.common.gradients[:, span].mean(0))
        loss = float(self.common.losses[:, at].mean())
        if is_last:
            self.learner.finish()
        self.arrive(APPLIED)
        return loss


class Lock(Joint):
    """Learners that take whole gradient steps on the same weights, one at a time under a mutex [StoneSachdev].

    Each step sees the weights that the step before it left. The mutex is robust: where its owner dies in the middle of
    a step, the next learner continues from what that left.
    """

    name = "lock"

    def step(self, batch: Batch, before: int) -> Stepped:
        """Wait for the mutex, then take a step as one learner alone would."""
        with self.locked(self.common.address(LEARNING)):
            self.learner.count(self.board.value(Counter.UPDATES))
            stepped = self.learner.step(batch.rows, batch.weights)
            self._publish(self.learner.parameters)
        return stepped


class Hogwild(Joint):
    """Learners that take whole gradient steps on the same weights without a lock [StoneSachdev].

    Steps overlap: a gradient may rest on weights that others are changing, and of two additions to one weight at the
    same moment one is lost. Only handing weights out to actors takes turns.
    """

    name = "hogwild"

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take a step at once, and note how many steps of others ended during it."""
        began = self.board.value(Counter.UPDATES)
        self.learner.count(before)
        stepped = self.learner.step(batch.rows, batch.weights)
        overlap = self.board.value(Counter.UPDATES) - began
        mine = self.common.overlaps[self.number]
        mine[0] += overlap
        mine[1] = max(mine[1], overlap)
        with self.locked(self.common.address(PUBLISHING)):
            self._publish(self.learner.parameters)
        return stepped


class Local(FollowingJoint):
    """Learners with weights of their own, averaged every H gradient steps: local SGD [Zhang2022, Algorithms 5, 7, 8].

    A gradient step is a step of each learner on its B/L records. Targets stay fixed between averages, and then move as
    far as H steps would move them: a share 1 - (1 - tau)^n, where target_interval has n of its multiples among the H.
    DQN chooses the next action by the averaged network. Where an algorithm has a policy, critics learn first; once they
    are averaged the policy learns from the same H batches, by one critic for all, and is averaged too (and then SAC's
    temperature).

    With plain gradient descent and H = 1 this is what ``synchronous`` learners do, up to rounding. With Adam it is not:
    each learner's moments are its own, and a mean of Adam's steps is not Adam's step along a mean.

    A period that a resume breaks continues: a learner that had taken n of its H steps takes H - n. No state has the
    batches of those n; the first batch since stands for each of them when the policy learns.
    """

    name = "local"

    def __init__(self, learner: Learner, board: Board, number: int, common: SharedGradients) -> None:
        super().__init__(learner, board, number, common)
        if number:
            kept = int(common.kept[number])
            learner.count(board.value(Counter.UPDATES) - int(common.kept[0]) + kept, kept)
        learner.act_by(common.averaged)
        self._arrivals = 0
        self._kept = list[tuple[Any, tuple[Phase, ...]]]()  # of each step of this period what its policy learns from

    @staticmethod
    def count_vectors(learners: int) -> int:
        """The weights as they were last averaged."""
        return 1

    def settle(self) -> None:
        """Do nothing: this learner's numbers and steps are its own."""

    def claim(self, pace: Pace) -> int | None:
        """Claim the next step in the first learner; the others take theirs as soon as it is due."""
        if self._arrivals == 0:
            self._meet()  # before any step is counted, from which the others count on
        return super().claim(pace)

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take a step of one's own, and average if it is the last of the period."""
        learner = self.learner
        rows = learner.rows(batch.rows, batch.weights)
        self._take_up(rows, before)
        first, *later = learner.phases()
        derived = learner.gradient(first, rows)
        learner.apply(first, derived.gradient)
        learner.steps = before + 1
        self._kept.append((rows if later else None, tuple(later)))
        self.common.kept[self.number] = len(self._kept)
        losses = {first.network: derived.loss}
        if len(self._kept) == self.common.period:
            losses |= self._finish()
        if self.number == 0:
            self.board.add(Counter.UPDATES)
        assert derived.priorities is not None  # the first phase has them
        return Stepped(derived.priorities, losses)

    def _take_up(self, rows: Any, before: int) -> None:
        """Let ``rows`` stand for the batch of each step of this period that was taken before a resume."""
        for step in range(before - int(self.common.kept[self.number]) + len(self._kept), before):
            self.learner.steps = step
            self._kept.append((rows, self.learner.phases()[1:]))
        self.learner.steps = before
        if len(self._kept) == self.common.period:
            self._finish()

    def _finish(self) -> dict[str, float]:
        """Average, train and average what else there is, then move the targets; returns the losses of the latter."""
        learner, losses = self.learner, dict[str, float]()
        for network, span in spans(learner.workload).items():
            # Invariant: the networks before this one are the same in all learners.
            for rows, phase in [(rows, phase) for rows, later in self._kept for phase in later]:
                if phase.network == network:
                    derived = learner.gradient(phase, rows)
                    learner.apply(phase, derived.gradient)
                    losses[network] = derived.loss
            if span.start == 0 or network in losses:  # the first has learned in each step
                self._average(span)
        settings, period = learner.workload.learner, len(self._kept)
        self._kept.clear()
        self.common.kept[self.number] = 0
        moves = learner.steps // settings.target_interval - (learner.steps - period) // settings.target_interval
        learner.move_targets(1 - (1 - settings.tau) ** moves)
        if self.number == 0:
            self.board.publish(self.common.averaged)
        return losses

    def _average(self, span: slice) -> None:
        """Set a network's weights of all learners to their mean, of which each computes a part."""
        self._meet()
        edges = np.linspace(span.start, span.stop, self.common.learners + 1).astype(int)
        part = slice(edges[self.number], edges[self.number + 1])
        weights, averaged = self.common.weights[:, part], self.common.averaged[part]
        np.mean(weights, 0, out=averaged)
        weights[:] = averaged
        self._meet()

    def _meet(self) -> None:
        """Wait until all learners have come as far as this one."""
        self._arrivals += 1
        self.arrive(ARRIVED)
        self.reach(ARRIVED, self.common.learners * self._arrivals)


SYNCS: dict[str, type[Joint]] = named_classes(Joint)


def make(
    arrangement: Arrangement, learner: Learner, board: Board, number: int, common: SharedGradients | None
) -> LearnerSync:
    """The sync of learner ``number`` of an arrangement; ``common`` is None where there is one learner."""
    if common is None:
        return Alone(learner, board, number)
    return SYNCS[arrangement.sync](learner, board, number, common)
