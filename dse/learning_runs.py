"""Select the runs of training by several processes, and tell what they reached by the five metrics of [Zhang2022, 1.5].

A metric has a value for each seed, and a kind of run the median over seeds with its 95 % bootstrap interval. A seed
that did not reach the threshold counts as beyond its last evaluation. A scaling factor is the speed-up over one learner
with actors of its own, a seed each, divided by the learners: 1 is perfect, 1 / L gains nothing (5.1.4).
"""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from impls.training.clock import (
    computation_efficiency,
    learning_efficiency,
    sample_efficiency,
    scaling_factor,
    time_to_solve,
)

from .records import Record, how_to_measure, in_order
from .stats import interval_over_seeds, median_interval

PRIMITIVE = "training run"
STEP_PRIMITIVE = "learners step"
"""Gradient steps of several learners alone: of L, each takes B/L records from a bank, and all average every H steps."""
SERIAL = "serial"
AMONG_LEARNERS = ("kind", "identity", "learners", "sync", "strategy", "period", "banks")
"""Options by which a run of several learners differs from that of one."""
METRICS = {
    "policy_quality": ("return", ",.0f"),
    "sample_efficiency": ("environment steps", ",.0f"),
    "learning_efficiency": ("gradient steps", ",.0f"),
    "computation_efficiency": ("gradient steps/s", ",.0f"),
    "scaling_factor": ("", ".2f"),
    "speedup_over_serial": ("", ",.2f"),
    "time_to_solve": ("s", ",.1f"),
}
"""Unit and form of each metric; the last two are no metrics of [Zhang2022]."""
STALE = ("stale_weights", "stale_batches")
ALL_METRICS = METRICS | dict.fromkeys(STALE, ("gradient steps", ",.1f")) | {"rollouts": ("model records", ",.0f")}
COPIES = "copies"
FIGURES = {"episodes": ",.0f", "seconds an episode": ".3f", "minutes": ".2f", "speed-up": ".2f"}
"""Form of each of the four figures of [StoneSachdev, Figs. 1 to 4]."""
Key = tuple[str, str]  # workload and kind


class Value(NamedTuple):
    """A number of a run; where it ``is_beyond``, the run ended there without getting to its own."""

    number: float
    is_beyond: bool = False


Metrics = Mapping[str, Mapping[int, Value]]  # by name and seed
Reached = dict[Key, dict[str, dict[int, Value]]]


def latest(measurements: Sequence[Record]) -> list[Record]:
    """Return the runs that ended, of each workload, kind and seed the latest, in the order of kinds and seeds.

    A run that was evaluated more often stands before a later one: it tells more precisely when the run was solved.
    """
    runs: dict[Any, Record] = {}
    for record in in_order(measurements):
        if record.primitive == PRIMITIVE and record.median_seconds is not None:
            key = tuple(record.options[name] for name in ("workload", "kind", "seed"))
            if key not in runs or record.metrics["interval"] <= runs[key].metrics["interval"]:
                runs[key] = record
    first = {key[1]: at for at, key in reversed(list(enumerate(runs)))}
    return [runs[key] for key in sorted(runs, key=lambda key: (key[0], key[1] != SERIAL, first[key[1]], key[2]))]


def group_by_kind(runs: Sequence[Record]) -> dict[Key, list[Record]]:
    """Return the runs of each workload and kind."""
    groups: dict[Key, list[Record]] = {}
    for record in runs:
        groups.setdefault((record.options["workload"], record.options["kind"]), []).append(record)
    return groups


def metrics_of(runs: Sequence[Record]) -> Reached:
    """Compute what runs reached, by workload and kind, metric and seed.

    A seed lacks a scaling factor without its run by one learner, and a speedup without its run by the serial loop.
    """
    alone = {_shape(run): run for run in runs if run.options["learners"] == 1}
    serial = {_seed(run): run for run in runs if run.options["kind"] == SERIAL}
    found: Reached = {}
    for key, group in group_by_kind(runs).items():
        found[key] = {name: {} for name in ALL_METRICS}
        for run in group:
            for name, value in _values(run, alone.get(_shape(run)), serial.get(_seed(run))):
                found[key][name][run.options["seed"]] = value
    return found


def _values(run: Record, single: Record | None, serial: Record | None) -> Iterator[tuple[str, Value]]:
    """Yield the metrics of a run by name; ``single``: the run by one learner, which like ``serial`` has its seed."""
    steps, updates, seconds, means = zip(*run.metrics["points"], strict=True)
    rate, learners = computation_efficiency(1, run.seconds), run.options["learners"]
    if run.metrics["test_mean"] is not None:
        yield "policy_quality", Value(run.metrics["test_mean"])
    reached = (sample_efficiency, steps), (learning_efficiency, updates), (time_to_solve, seconds)
    named = [(efficiency, efficiency.__name__, counts) for efficiency, counts in reached]
    if any(run.metrics.get("rollouts", ())):
        named.append((sample_efficiency, "rollouts", run.metrics["rollouts"]))
    for efficiency, name, counts in named:
        count = efficiency(counts, means, run.metrics["solved_at"])
        yield name, Value(counts[-1], True) if count is None else Value(count)
    yield "computation_efficiency", Value(rate)
    if single and learners > 1:
        yield "scaling_factor", Value(scaling_factor(rate, learners, computation_efficiency(1, single.seconds)))
    if serial and serial is not run:
        yield "speedup_over_serial", Value(serial.seconds / run.seconds)
    report = run.metrics.get("report") or {}
    yield from ((name, Value(report[name]["mean"])) for name in STALE if name in report)


def figures_of(runs: Sequence[Record]) -> Reached:
    """Compute the four figures of [StoneSachdev] of copies and model workers, by workload and kind, name and seed.

    A seed that was not solved is beyond what it had at its end, but for the seconds that an episode takes, while copies
    play side by side.
    """
    copies = [run for run in runs if run.options["arrangement"] == COPIES]
    single = [run for run in copies if run.options["processes"] == 1 and not run.options.get("model_workers")]
    alone = {_seed(run): run for run in single}
    found: Reached = {}
    for run in copies:
        (episodes, seconds, is_beyond), first = _until_solved(run), alone.get(_seed(run))
        values = {
            "episodes": Value(episodes, is_beyond),
            "seconds an episode": Value(run.options["processes"] * seconds / max(1, episodes)),
        }
        values["minutes"] = Value(seconds / 60, is_beyond)
        if first is not None and not is_beyond and not (of_first := _until_solved(first))[2]:
            values["speed-up"] = Value(of_first[1] / seconds)
        metrics = found.setdefault((run.options["workload"], label_kind(run)), {name: {} for name in FIGURES})
        for name, value in values.items():
            metrics[name][run.options["seed"]] = value
    return found


def _until_solved(run: Record) -> tuple[int, float, bool]:
    """Return episodes and seconds until solved, or until the end of a run that was not, and whether it was not."""
    reached = zip(run.metrics["episodes"], run.metrics["points"], strict=True)
    for episodes, (_, _, seconds, mean) in reached:
        if mean >= run.metrics["solved_at"]:
            return episodes, seconds, False
    return run.metrics["episodes"][-1], run.metrics["points"][-1][2], True


def label_kind(run: Record) -> str:
    """Name a run, and say where more processes than cores shared these."""
    report = run.metrics["report"]
    if report.get("hosts") == 1:
        return f"{run.options['kind']} (of one machine)"
    cores = report["cores"].values()
    is_shared = len(cores) > len({core for used in cores for core in used})
    return f"{run.options['kind']}{' (oversubscribed)' * is_shared}"


def write_figures(reached: Reached) -> list[list[str]]:
    """Write a row for each kind of copies: the seeds solved, and the figures over seeds."""
    rows, are_many = [], len({workload for workload, _ in reached}) > 1
    for (workload, kind), figures in reached.items():
        seeds = figures["episodes"]
        solved = sum(not value.is_beyond for value in seeds.values())
        texts = [write_over_seeds(figures[name].values(), form) for name, form in FIGURES.items()]
        rows.append([f"{workload}: {kind}" if are_many else kind, f"{solved} of {len(seeds)}", *texts])
    return rows


def _seed(run: Record) -> tuple[str, int]:
    return run.options["workload"], run.options["seed"]


def _shape(run: Record) -> str:
    return repr(sorted((name, value) for name, value in run.options.items() if name not in AMONG_LEARNERS))


def list_unsolved(metrics: Metrics) -> list[int]:
    """List the seeds whose runs did not reach the threshold."""
    return [seed for seed, value in metrics.get("sample_efficiency", {}).items() if value.is_beyond]


def summarize_seeds(values: Collection[Value]) -> list[Value]:
    """Compute the median over seeds and the ends of its 95 % interval; nothing of fewer seeds than an interval takes.

    A seed that is beyond its number counts as infinite, so a median or an end that is infinite is beyond what it would
    be if those seeds had got there at their numbers.
    """
    least = interval_over_seeds([value.number for value in values])
    true = interval_over_seeds([math.inf if value.is_beyond else value.number for value in values])
    return [Value(number, math.isinf(end)) for number, end in zip(least, true, strict=True)]


def write_over_seeds(values: Collection[Value], form: str) -> str:
    """Write the median over seeds with its 95 % interval in brackets, or the values of seeds too few for one."""
    numbers = summarize_seeds(values)
    texts = [f"{'> ' * value.is_beyond}{value.number:{form}}" for value in numbers or values]
    return "{} [{}, {}]".format(*texts) if numbers else "; ".join(texts)


def write_metrics(metrics: Metrics, columns: Mapping[str, tuple[str, str]] = METRICS) -> list[str]:
    """Write how many of the seeds were solved, and each metric over seeds."""
    seeds = len(metrics.get("sample_efficiency", ()))
    texts = [write_over_seeds(metrics.get(name, {}).values(), form) for name, (_, form) in columns.items()]
    return [f"{seeds - len(list_unsolved(metrics))} of {seeds}", *texts]


def describe(records: Sequence[Record]) -> str:
    """Tell what runs of several learners reached, and those of one; or how to measure it."""
    runs = latest(records)
    groups, found = group_by_kind(runs), metrics_of(runs)
    factors = [key for key, metrics in found.items() if metrics["scaling_factor"]]
    if not factors:
        return f"no such run is on record; {how_to_measure('run learning')}"
    shapes = {_shape(run) for key in factors for run in groups[key]}
    single = {key for key, group in groups.items() if shapes & set(map(_shape, group))} - set(factors)
    said = [_describe_reached(key, found[key]) for key in (*sorted(single), *factors)]
    return f"to a return, medians over seeds with their 95 % intervals: {'; '.join(said)}"


def _describe_reached(key: Key, metrics: Metrics) -> str:
    solved, _, until, *_, factor, _, _ = write_metrics(metrics)
    said = f"{', '.join(key)}: {solved} solved after {until} environment steps"
    return said + f", scaling factor {factor}" * bool(factor)


def step_rows(found: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a row for each cell of several learners: its scaling factor, and those of Eqs. 5.5 and 5.6.

    A factor is the median over rounds, in each of which all were timed, with the 95 % interval of that median.
    """
    timed = [record for record in in_order(found) if record.primitive == STEP_PRIMITIVE and record.median_seconds]
    known = {_step_cell(record): record for record in timed}
    made = []
    for (hidden, batch, count, period), record in known.items():
        single, part = (known.get((hidden, size, 1, 0)) for size in (batch, batch // count))
        if count == 1 or single is None or part is None:
            continue
        # Eq. 5.5, where a step has its replay on B/L records too, and weights in shared memory need no transfer.
        meeting = record.metrics["average_seconds"] / period
        own, alone, smaller = (record.samples_seconds, single.samples_seconds, part.samples_seconds)
        factor = median_interval(
            [alone_seconds / own_seconds / count for alone_seconds, own_seconds in zip(alone, own, strict=False)]
        )
        ratios = [whole / (part_takes + meeting) / count for whole, part_takes in zip(alone, smaller, strict=False)]
        exact = statistics.median(ratios)
        made.append({
            "network": network_name(hidden), "batch": batch, "learners": count, "period": period,
            "one_seconds": single.seconds, "seconds": record.seconds, "factor": factor.median,
            "factor_range": [factor.low, factor.high], "exact": exact,
            "printed": 1 / (1 + count * meeting / single.seconds), "cores": record.machine["cores"],
        })  # fmt: skip
    return made


def _step_cell(record: Record) -> tuple[tuple[int, ...], int, int, int]:
    options = record.options
    return tuple(options["hidden"]), record.batch, options["learners"], options.get("period", 0)


def network_name(hidden: Sequence[int]) -> str:
    """Return a network's name, as tables have it: its layers and their units."""
    return f"{len(hidden)} x {hidden[0]:,}"


STEP_HEAD = ("network", "B", "H", "us by one", "us by two", "scaling factor", "Eq. 5.5", "Eq. 5.6 as printed")


def write_step_rows(made: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Write rows for a table under ``STEP_HEAD``."""
    for row in made:
        low, high = row["factor_range"]
        yield (
            row["network"], f"{row['batch']:,}", str(row["period"]), f"{1e6 * row['one_seconds']:,.0f}",
            f"{1e6 * row['seconds']:,.0f}", f"{row['factor']:.2f} [{low:.2f}, {high:.2f}]", f"{row['exact']:.2f}",
            f"{row['printed']:.2f}",
        )  # fmt: skip
