"""What an answer about a mapping counts and leaves out, in sentences."""

from collections.abc import Iterator

from ..records import how_to_measure
from ..solver.objectives import Objective
from ..solver.problem import Option
from ..solver.result import Solution
from ..solver.throughput import TOO_HIGH, slowdowns
from ..times.whole_runs import REFERENCE
from .build import Built
from .options import Place, implementation_of


def notes(built: Built, solution: Solution) -> list[str]:
    """What the rate counts and what it leaves out, a sentence each."""
    parts, place, notes = built.parts, Place(solution.mode), list[str]()
    chosen = solution.choice
    workload = parts.workload
    if parts.table and parts.table.differs:
        notes.append(
            f"profiled was {parts.table.workload} with other {', '.join(parts.table.differs)}; what depends on those "
            "was interpolated or modeled, the rest is that profile's"
        )
    for option, factor in zip(chosen.options, slowdowns(solution.problem, chosen), strict=True):
        if factor != 1:
            notes.append(
                f"on {option.device} the time of {option.part} is {factor:.2f} times as long beside what runs on other "
                f"cores; the time above counts that{_by_reference(built, option)}"
            )
    if parts.table is None:
        notes.append(
            f"no records of {parts.platform.name}: every time is modeled, quoted, or carried over from another machine"
        )
    elif not parts.table.rows:
        notes.append(f"no profile of {workload.name}; {how_to_measure(f'profile --workload {parts.workload_word}')}")
    in_turns = place.in_turns
    if in_turns and chosen.depth:
        notes.append(f"the workload's {chosen.depth} batches sampled ahead gain nothing where everything takes turns")
    if not in_turns and chosen.depth == 0:
        notes.append(
            "the workload samples no batch ahead, so nothing of the loop overlaps; --free presampled lifts that"
        )
    if place.arrangement == "serial" and (ratio := built.ratios.get(place, 1.0)) != 1:
        notes.append(f"a whole serial loop took {ratio:.2f} times its parts, each timed alone; the rate is the loop's")
    count = workload.actors.count
    if solution.outcome.bottleneck == chosen.actors.engine != chosen.learner.engine:
        if built.details(chosen.actors).get("processes") == count:
            notes.append(
                f"each of the workload's actors ({count}) has a process already; --fix actor_count= takes others"
            )
    if chosen.sampling.device != chosen.updating.device:
        notes.append("sampling and updating part: how sums travel between two trees is our model, nobody has built it")
    return [*notes, *_of_the_rate(solution.objective, place, parts.environments), *built.notes(chosen)]


def _by_reference(built: Built, option: Option) -> str:
    """Say that a factor was not timed with the implementation of an option; "" where it was."""
    is_other = implementation_of(built.details(option)) != REFERENCE
    return f", as timed with learner and policy {REFERENCE}" * is_other


def _of_the_rate(objective: Objective, place: Place, environments: int) -> Iterator[str]:
    if environments > 1:
        yield (
            f"actors.environments = {environments:,}: each actor steps so many at once, by the same weights; another "
            "number changes learning slightly"
        )
    if objective == "per_watt":
        yield "watts are the limits of whole devices, each counted in full as soon as anything runs on it"
    if not place.in_turns:
        high = ", ".join(f"{share:.0%} at D = {depth}" for depth, share in TOO_HIGH.items())
        yield (
            "the rate is an upper bound: where parts run at the same time, batches meet on their way; of random loops "
            f"it was too high by up to {high} (`python -m dse depth` simulates a system's own)"
        )
