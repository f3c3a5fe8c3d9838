"""Select the runs of training by several processes, and tell what several learners of one network gained in them.

A scaling factor is the speed-up over one learner with actors of its own, a seed each, divided by the learners: 1 is
perfect, 1 / L gains nothing ([Zhang2022, 5.1.4]).
"""

import statistics
from collections.abc import Mapping, Sequence

from impls.training.throughput import scaling_factor

from ..records import Measurement, how_to_measure, in_order

PRIMITIVE = "training run"
SERIAL = "serial"
AMONG_LEARNERS = ("kind", "identity", "learners", "sync", "strategy", "period", "banks")
"""Options by which a run of several learners differs from that of one."""
Groups = Mapping[tuple[str, str], Sequence[Measurement]]


def latest(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the runs that ended, of each workload, kind and seed the latest, in the order of kinds and seeds."""
    kept = {}
    for record in in_order(measurements):
        if record.primitive == PRIMITIVE and record.median_seconds is not None:
            kept[tuple(record.options[name] for name in ("workload", "kind", "seed"))] = record
    first = {key[1]: at for at, key in reversed(list(enumerate(kept)))}
    return [kept[key] for key in sorted(kept, key=lambda key: (key[0], key[1] != SERIAL, first[key[1]], key[2]))]


def by_kind(runs: Sequence[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
    """Return the runs of each workload and kind."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for record in runs:
        groups.setdefault((record.options["workload"], record.options["kind"]), []).append(record)
    return groups


def is_solved(run: Measurement) -> bool:
    """Say whether a run was solved."""
    return run.machine.get("solved_steps") is not None


def scaling_factors(runs: Sequence[Measurement]) -> dict[tuple[str, str], list[float]]:
    """Return the scaling factors of runs of several learners by workload and kind; a seed without its twin has none."""
    alone = {_shape(one): one.seconds for one in runs if one.options["learners"] == 1}
    factors: dict[tuple[str, str], list[float]] = {}
    for one in runs:
        if one.options["learners"] > 1 and (single := alone.get(_shape(one))):
            factor = scaling_factor(1 / one.seconds, one.options["learners"], 1 / single)
            factors.setdefault((one.options["workload"], one.options["kind"]), []).append(factor)
    return factors


def _shape(run: Measurement) -> str:
    return repr(sorted((name, value) for name, value in run.options.items() if name not in AMONG_LEARNERS))


def told(records: Sequence[Measurement]) -> str:
    """Tell what runs of several learners reached, and those of one; or how to measure it."""
    runs = latest(records)
    groups, factors = by_kind(runs), scaling_factors(runs)
    if not factors:
        return f"no such run is on record; {how_to_measure('learning')}"
    shapes = {_shape(run) for key in factors for run in groups[key]}
    single = {(run.options["workload"], run.options["kind"]) for run in runs if _shape(run) in shapes} - set(factors)
    said = [_reached(key, groups[key], factors.get(key, ())) for key in (*sorted(single), *factors)]
    return f"to a return, medians over seeds: {'; '.join(said)}"


def _reached(key: tuple[str, str], runs: Sequence[Measurement], factors: Sequence[float]) -> str:
    ended = [run.machine for run in runs if is_solved(run)]
    said = f"{', '.join(key)}: {len(ended)} of {len(runs)} solved"
    if ended:
        steps, seconds = (statistics.median(one[name] for one in ended) for name in ("solved_steps", "solved_seconds"))
        said += f" after {steps:,.0f} environment steps, {seconds:.1f} s"
    return said + (f", scaling factor {statistics.median(factors):.2f}" if factors else "")
