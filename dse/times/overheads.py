"""What a process that does everything in turns takes beyond the sum of its parts, from serial loops that were timed.

Letters: u environment steps a gradient step. Times are seconds of one call.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..estimate import Estimate
from ..records import Measurement
from ..stats import geometric_mean

REFERENCE = "torch"
"""The implementation of learners and policies in records that name none."""
Times = Callable[[str, int], Estimate | None]
"""The time of a part (an implementation and an op) at a batch size; None where it was not timed."""


def what_of(part: str, implementation: str = REFERENCE, environments: int = 1) -> str:
    """The name of a part's rows, which says what is not the reference, and how many environments are stepped at once.

    >>> what_of("learner step"), what_of("actor step", "dense", 8)
    ('learner step', 'actor step, dense, 8 environments')
    """
    words = [implementation] * (implementation != REFERENCE)
    words += [f"{environments:,} environments"] * (environments != 1)
    return ", ".join([part, *words])


@dataclass(frozen=True)
class Overheads:
    """What a process that does everything in turns takes beyond the sum of its parts (measured in serial loops).

    ``cold_seconds``: what the tree takes more, an element, for a gradient step in between drives it out of the cache.
    ``rest``: the factor on the gradient step, for weights, masks, Python and caches in between. Both have a factor of
    uncertainty. ``rest_seconds``: the same as a time, which a gradient step on a small batch takes at least beyond its
    own. ``insert_seconds``: what an insertion takes beyond the tree's update and the writing of rows; 0 where none was
    timed. ``is_own``: whether a loop of the workload itself tells; else the rest lies between a share and a time.
    """

    cold_seconds: float
    cold_factor: float
    rest: float
    rest_factor: float
    rest_seconds: float
    insert_seconds: float
    description: str
    is_own: bool = True

    def step(self, alone: Estimate) -> Estimate:
        """The time of a gradient step in such a process, from its time alone.

        Loops of other workloads tell a rest of theirs. Part of it goes with the length of a step and part with the
        number of steps, and one loop does not tell the two apart: this workload's is taken in the middle.
        """
        share, fixed = alone.value * max(0.0, self.rest - 1), max(0.0, self.rest_seconds)
        most = max(share, fixed)
        seconds = alone.value + (most if self.is_own else math.sqrt(share * fixed))
        slower = 1 + most / alone.value
        low, high = alone.low * max(1.0, self.rest / self.rest_factor), alone.high * slower * self.rest_factor
        return dataclasses.replace(alone, value=seconds, low=min(low, seconds), high=high)


def overheads(
    records: Sequence[Measurement], profiled: str, floor: float, alone: Callable[[str], Times], by: str = REFERENCE
) -> Overheads | None:
    """What the whole serial loops tell that were timed ``by`` an implementation of learner and policy: this workload's,
    or those of all, with what they differ by.

    ``alone``: times of a workload's parts, by its identity; ``profiled``: the identity of the workload in question.
    """
    loops: dict[str, dict[str, Measurement]] = {}
    for record in records:
        ours = ("loop", "actor", "numba", "buffer")
        if record.primitive == "serial_step" and record.contestant in ours and record.low_seconds:
            key = str(record.options.get("identity"))
            what = what_of(f"{record.contestant} {record.op}", str(record.options.get("learner", REFERENCE)))
            loops.setdefault(key, {})[what] = record
    beyond = {}
    for key, steps in loops.items():
        parts = {what_of("loop step", by), what_of("actor step", by), "numba tree"}
        if parts <= set(steps) and (pair := _beyond(alone(key), steps, by)):
            beyond[key] = pair
    if not beyond:
        return None
    chosen = [beyond[profiled]] if profiled in beyond else list(beyond.values())
    own = math.exp(floor)
    cold, cold_factor = _middle([one.cold_seconds for one in chosen], own)
    rest, rest_factor = _middle([one.rest for one in chosen], own)
    fixed = sum(one.rest_seconds for one in chosen) / len(chosen)
    insert = sum(one.insert_seconds for one in chosen) / len(chosen)
    description = "whole serial loops less the sum of their parts, as the command share of benchmarks times them"
    return Overheads(cold, cold_factor, rest, rest_factor, fixed, insert, description, profiled in beyond)


def _beyond(time: Times, steps: Mapping[str, Measurement], by: str) -> Overheads | None:
    """What one workload's loop takes beyond its parts; None where a part was not timed alone."""
    loop, actor, tree = steps[what_of("loop step", by)], steps[what_of("actor step", by)], steps["numba tree"]
    u = int(loop.options.get("update_interval", 1))
    draw, update = (time(f"numba {op}", tree.batch) for op in ("draw", "update"))
    learner, gather = time(what_of("learner step", by), tree.batch), time("storage gather", tree.batch)
    if not (draw and update and learner and gather):
        return None
    inserting = often = 0.0
    if (insert := steps.get("buffer insert")) and (write := time("storage write", insert.batch)):
        small = time("numba update", insert.batch)
        inserting = max(insert.seconds - write.value - (small.value if small else 0.0), 0.0)
        often = u / insert.batch * insert.seconds
    cold = max(tree.seconds - draw.value - update.value, 0.01 * tree.seconds) / tree.batch
    parts = learner.value + gather.value
    rest = max(loop.seconds - u * actor.seconds - often - tree.seconds, parts)
    return Overheads(cold, 1.0, rest / parts, 1.0, rest - parts, inserting, "")


def _middle(values: Sequence[float], own: float) -> tuple[float, float]:
    """(geometric mean, factor that reaches all of them and a measurement's own error beyond)."""
    middle = geometric_mean(values)
    return middle, own * max(max(value / middle, middle / value) for value in values)
