"""Times of parts scaled by what a whole run took beyond them: what was measured whole is the prediction.

The parts of the run that was timed, each alone, add up to less than it took, or more. Every time of a run is scaled by
that ratio of its nearest whole run, so the rate of a run that was timed is the measured one, and its interval too.
"""

import functools
import math
from dataclasses import dataclass

from ..estimate import Estimate, Evidence
from ..times.analytic import together
from ..times.parts import Parts
from ..times.whole_runs import REFERENCE, UNLIKE, Whole
from .processes import Beside, Run, crowding, one_thread, replay_seconds, replay_times, reshaped


@dataclass
class Scaled:
    """What the parts of a run take, by ``whole``, the nearest run of the workload that was timed whole."""

    parts: Parts
    run: Run
    whole: Whole

    @functools.cached_property
    def own(self) -> Parts:
        """The parts alone; where actors are apart they insert, so the replay counts none of it."""
        return self.parts if self.run.arrangement == "serial" else reshaped(self.parts, self.parts.workload)

    @property
    def counts_others(self) -> bool:
        """Whether the times count what runs concurrently on other cores."""
        return self.whole.arrangement != "serial"

    @property
    def _timed(self) -> Run:
        return Run(self.whole.arrangement, self.whole.actors, self.whole.learner, self.whole.policy)

    @functools.cached_property
    def ratio(self) -> float:
        """How many times the sum of its parts the whole run took; more where processes share cores that it did not."""
        whole, workload, serial = self.whole, self.parts.workload, self.whole.arrangement == "serial"
        there = reshaped(self.parts, workload, whole.batch, whole.interval, whole.environments, workload.replay.fanout)
        acting = there.acting(whole.actors, serial, whole.policy).value
        learner = one_thread(there, whole.learner).value
        replay = replay_seconds(there if serial else reshaped(there, there.workload))
        sides = {"serial": (acting + learner + replay,), "apart": (acting, learner + replay)}
        more = crowding(self.parts, self.run) / crowding(there, self._timed)
        return more * whole.time.value / max(sides.get(whole.arrangement, (acting, learner, replay)))

    @functools.cached_property
    def _is_its_own(self) -> bool:
        """Whether the run in question is the one that was timed, at its batch and update interval."""
        learner = self.parts.workload.learner
        shape = learner.batch, learner.update_interval
        return not self._unlike and shape == (self.whole.batch, self.whole.interval)

    @functools.cached_property
    def _unlike(self) -> int:
        """In how many ways the run is another one than was timed."""
        cores, environments = self.parts.cores, (self.parts.environments, self.whole.environments)
        sides = (
            (one.arrangement, one.learner, one.policy, one.actors, one.processes > cores)
            for one in (self.run, self._timed)
        )
        return sum(mine != theirs for mine, theirs in (*zip(*sides, strict=True), environments))

    def acting(self, alone: Estimate, policy: str = "") -> Estimate:
        """Seconds of a gradient step that actors take, or moving records, by the time alone."""
        return self._of_the_whole(alone, self._is_its_own)

    stored = acting

    def step(self, alone: Estimate, learner: str) -> Estimate:
        """The learner's time of a gradient step by its time alone."""
        is_timed = self._is_its_own and alone.value == one_thread(self.parts, learner).value
        return self._of_the_whole(alone, is_timed)

    def replay(self, alone: Estimate) -> Estimate:
        """The time of a part of a tree by its time alone: its error is the tree's own, for trees are compared.

        But of the tree that the whole run had, where only a law tells its part of the run.
        """
        if alone.interval == "factor" and self._is_its_own and alone.value in self._tree_times:
            return self._of_the_whole(alone, True)
        return alone.scaled(self.ratio)

    @functools.cached_property
    def _tree_times(self) -> list[float]:
        """Seconds of sampling and updating by the tree of runs that were timed whole, alone."""
        own = self.own.workload
        there = reshaped(self.own, own, 0, own.learner.update_interval, fanout=own.replay.fanout)
        return [time.value for time in replay_times(there)[:2]]

    def _of_the_whole(self, alone: Estimate, is_timed: bool) -> Estimate:
        """A part's time on the evidence of whole runs: one profile times all, so a slower machine slows all of them.

        An arrangement that was not timed whole rests on evidence of its own.
        """
        known, name = self.whole.time, self.parts.cpu.name
        factor = together(known.factor, *[UNLIKE] * self._unlike, *([] if is_timed else [alone.factor]))
        told = f"{alone.rests_on.told}; a whole step took {self.ratio:.2f} times its parts: {known.rests_on.told}"
        source = known.source if is_timed else alone.source
        other = f", {self.run.arrangement}" if self.run.arrangement != self.whole.arrangement else ""
        share = (alone.source, alone.factor) if alone.interval == "factor" else None
        evidence = Evidence(f"loop({name}){other}", source, told, alone.rests_on.command, alone.rests_on.assumed, share)
        return Estimate.within(alone.value * self.ratio, factor, evidence)


@dataclass
class Elsewhere:
    """What the parts of a loop take where none of the workload was timed whole: by loops of others, or as alone."""

    own: Parts
    run: Run | None = None
    counts_others = False

    @functools.cached_property
    def ratio(self) -> float:
        """How many times as long all takes where processes share cores."""
        return crowding(self.own, self.run) if self.run else 1.0

    def replay(self, alone: Estimate) -> Estimate:
        """The time of a part of the replay: as it is alone."""
        return alone.scaled(self.ratio)

    stored = replay

    def acting(self, alone: Estimate, implementation: str) -> Estimate:
        """Seconds of a gradient step that actors take, or a learner, of an implementation, by the time alone."""
        table = self.own.table
        known = table and (table.beyond.get(implementation) or table.beyond.get(REFERENCE))
        if not known or self.own.own:
            return alone.scaled(self.ratio)
        told = f"{alone.rests_on.told}; times {known.ratio:.2f}, as loops of other workloads take beyond their parts"
        return Estimate.within(
            self.ratio * alone.value * known.ratio, together(alone.factor, known.factor), alone.rests_on
        ).resting_on(told=told)

    step = acting


def beside_of(parts: Parts, run: Run) -> Beside | Scaled | Elsewhere:
    """What the parts of a run take in it: by runs of its arrangement with timed parts, by whole runs, or alone."""
    assert parts.table
    if any(one.arrangement == run.arrangement for one in parts.table.beside):
        return Beside(parts, run)
    if not parts.table.whole:
        return Elsewhere(parts, run)
    shape = parts.workload.learner

    def unlike(one: Whole) -> tuple[float, ...]:
        sizes = (one.batch, shape.batch), (one.interval, shape.update_interval), (one.actors, run.actors)
        counts = (*sizes, (one.environments, parts.environments))
        is_serial = (one.arrangement == "serial") != (run.arrangement == "serial")  # processes hand over to each other
        other = one.arrangement != run.arrangement, is_serial, one.learner != run.learner, one.policy != run.policy
        return (*other, sum(abs(math.log(mine / theirs)) for mine, theirs in counts))

    return Scaled(parts, run, min(parts.table.whole, key=unlike))
