"""Compute values of claims from timings: ratios of two methods, point by point, with the noise of their own run.

Methods are never pooled. A query that finds two records at one point is an error, which names what they differ in.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse import stats
from dse.drift import drift
from dse.records import CELL, Record, in_order, twins
from dse.times.cells import workloads

from .judge import Data, Finding, Part, PooledError

LEVEL = 0.05
LEAST_PAIRS = 5
"""Fewer A/A pairs of a run say little of its noise."""
LEAST_FANOUTS, LEAST_SIZES = 7, 3
"""Fewer different K, or sizes of a queue, are no curve."""
TWINS_OF = {"peer_shared": "peer"}
"""Primitives without A/A twins, with the primitive of the same run that has them."""
DEFAULTS = {"learner": "torch", "environments": 1, "beside": 0, "units": "one"}
"""Options that some records lack, with the value that they then have."""
Reals = NDArray[np.float64]
Names = Sequence[str]
Where = Mapping[str, Any]
Point = tuple[Any, ...]


@cache
def student(level: float, freedom: int) -> float:
    """Compute the quantile of Student's t that is exceeded with probability ``level``; normal for a freedom of 0."""
    from scipy.stats import norm, t  # noqa: PLC0415  # heavy

    return float(t.isf(level, freedom) if freedom else norm.isf(level))


@dataclass(frozen=True)
class Noise:
    """The noise of timings: ``floor`` as ``stats.noise_floor`` has it, and the A/A ``pairs`` that it rests on."""

    floor: float = 0.0
    pairs: int = 0

    @property
    def sigma(self) -> float:
        """Standard deviation of the difference of the logarithms of two times."""
        return self.floor / stats.Z

    def critical(self, tests: int = 1) -> float:
        """Compute how many standard deviations each of several one-sided tests must exceed (Student, Bonferroni)."""
        return student(LEVEL / max(1, tests), max(0, self.pairs - 1))

    def __str__(self) -> str:
        return f"{self.floor:.0%} of {self.pairs} A/A pairs" if self.pairs else "intervals of the samples alone"


def measure_noise(data: Data, primitive: str, used: Iterable[Record] = ()) -> Noise:
    """Measure the noise by A/A twins of the runs that made the ``used`` records, or of all runs where those have few.

    Without ``LEAST_PAIRS`` of them it is 0, and intervals are those of the samples alone.
    """
    timed = [*data.records.get(primitive, ()), *data.records.get(f"{primitive}_again", ())]
    runs = {record.run.key for record in used}
    for kept in ([record for record in timed if record.run.key in runs], timed):
        if len(pairs := twins(kept, primitive)) >= LEAST_PAIRS:
            return Noise(stats.noise_floor(pairs), len(pairs))
    return Noise()


def get_sigma(record: Record) -> float:
    """Compute the standard deviation of a record's ln(time) from its own interval, 0 where it has none."""
    if record.low_seconds is None or record.high_seconds is None:
        return 0.0
    return math.log(record.high_seconds / record.low_seconds) / (2 * stats.Z)


def get_value(record: Record, name: str) -> Any:
    """Return a field of a record, or an option of it by its name."""
    return getattr(record, name) if name in CELL or name == "status" else record.options.get(name, DEFAULTS.get(name))


def pick(records: Iterable[Record], where: Where) -> list[Record]:
    """Select timed records by fields and options: equal to a value, or in a list of values."""
    wanted = {name: value if isinstance(value, list) else [value] for name, value in where.items()}
    return [
        record
        for record in records
        if record.median_seconds is not None and all(get_value(record, name) in kept for name, kept in wanted.items())
    ]


def place_records(records: Iterable[Record], over: Names) -> dict[Point, Record]:
    """Return the latest record at each point, its values of ``over``. PooledError where another differs from it."""
    cells: dict[Point, Record] = {}
    for record in in_order(records):
        point = tuple(get_value(record, name) for name in over)
        if point in cells:
            other = cells[point]
            names = [*sorted({*CELL} - {"options"}), *sorted({*record.options, *other.options})]
            if differ := [name for name in names if get_value(record, name) != get_value(other, name)]:
                raise PooledError(f"records at {point} differ in {', '.join(differ)}; name in the claim which it means")
        cells[point] = record
    return cells


def group_runs(records: Iterable[Record]) -> list[list[Record]]:
    """Group records by their run, the earliest run first; times of two runs are never divided by each other."""
    runs: dict[Point, list[Record]] = defaultdict(list)
    for record in in_order(records):
        runs[record.run.key].append(record)
    return in_order(runs.values(), lambda run: run[-1].utc)


@dataclass(frozen=True)
class Ratio:
    """A ratio of two times at a point: its logarithm, the standard deviation of that, and the records."""

    name: str
    log: float
    sigma: float
    used: Sequence[Record]


def divide_times(name: str, above: Sequence[Record], below: Sequence[Record]) -> Ratio:
    """Divide the sum of times by another sum of times."""
    logs, sigmas = [], []
    for side in (above, below):
        total = sum(record.seconds for record in side)
        logs.append(math.log(total))
        sigmas += [record.seconds / total * get_sigma(record) for record in side]
    return Ratio(name, logs[0] - logs[1], math.hypot(*sigmas), [*above, *below])


def compute_ratios(
    data: Data, primitive: str, where: Where, ours: Where, against: Where, over: Names, ops: Names, mean: bool = False
) -> Finding | None:
    """Compute how many times as fast ``ours`` is as ``against``, at each point or in the ``mean`` over points.

    Times of several ``ops`` are added up; where threads have no core each they do not count. Points are those of the
    one run that has the most; of equals, of the latest. None without points, or where neither twins nor samples tell an
    interval.
    """
    timed = [record for record in pick(data.records.get(primitive, ()), where) if not record.is_oversubscribed]
    runs = [_pair_times(run, ours, against, over, ops) for run in group_runs(timed)]
    ratios = max(reversed(runs), key=len, default=[])
    used = [record for ratio in ratios for record in ratio.used]
    noise = measure_noise(data, TWINS_OF.get(primitive, primitive), used)
    if not ratios or not (noise.pairs or all(ratio.sigma for ratio in ratios)):
        return None
    flat = ({**side, **side.get("options", {})} for side in (against, ours))
    names = [", ".join(f"{key} {value}" for key, value in side.items() if key != "options") for side in flat]
    facts = {"ratio of times": " / ".join(name or "default" for name in names), "noise": str(noise)}
    if mean:
        return Finding([compute_mean(ratios, noise)], facts, used)
    critical = noise.critical(2 * len(ratios))  # of intervals that hold for all points together
    halves = [critical * math.hypot(noise.sigma, ratio.sigma) for ratio in ratios]
    parts = [make_part(ratio.name, ratio.log, half) for ratio, half in zip(ratios, halves, strict=True)]
    return Finding(parts, facts, used)


def _pair_times(run: Sequence[Record], ours: Where, against: Where, over: Names, ops: Names) -> list[Ratio]:
    """Divide the times of two methods in one run, at every point that has all operations of both."""
    above, below = ([place_records(pick(run, {**side, "op": op}), over) for op in ops] for side in (against, ours))
    points = set.intersection(*map(set, (*above, *below)))
    return [
        divide_times(_name_point(over, point), [cells[point] for cells in above], [cells[point] for cells in below])
        for point in sorted(points, key=repr)
    ]


def _name_point(over: Names, point: Point) -> str:
    named = zip(over, point, strict=True)
    return ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{value}" for name, value in named)


def make_part(name: str, log: float, low: float, high: float | None = None, is_guard: bool = False) -> Part:
    """Make a part of the logarithm of a ratio and the half-widths of its interval, downwards and upwards."""
    half = low if high is None else high
    return Part(name, math.exp(log), math.exp(log - low), math.exp(log + half), is_guard=is_guard)


def compute_mean(ratios: Sequence[Ratio], noise: Noise) -> Part:
    """Compute the geometric mean of ratios with its 90 % interval, for two one-sided tests [Schuirmann1987].

    Its half-width is from the noise, or from how much the ratios differ, whichever is larger.
    """
    logs, count = np.array([ratio.log for ratio in ratios]), len(ratios)
    error, freedom = math.hypot(*(math.hypot(noise.sigma, ratio.sigma) for ratio in ratios)) / count, noise.pairs - 1
    spread = float(logs.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    if spread > error:
        error, freedom = spread, count - 1
    name = f"mean of {count} points" if count > 1 else ratios[0].name
    return make_part(name, float(logs.mean()), student(LEVEL, max(0, freedom)) * error)


@dataclass(frozen=True)
class Curves:
    """Times over the fanout K of one method: ln(seconds) by K, by series (N)."""

    series: Mapping[str, Mapping[int, float]]
    noise: Noise
    used: Sequence[Record]


Shape = Callable[[Curves, int], Iterator[Part]]


def collect_curves(data: Data, where: Where, ops: Names) -> Curves | None:
    """Collect the stable times over K of one method, those of several operations added up.

    Each series (N) is of the run that has the most K. None where no run has enough, or no time was measured twice.
    """
    wanted = {**where, "op": list(ops), "status": "ok"}
    chosen: dict[int, dict[int, list[Record]]] = {}
    for run in group_runs(pick(data.records.get("sum_tree", ()), wanted)):
        series: dict[int, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
        for (capacity, fanout, _), record in place_records(run, ("capacity", "fanout", "op")).items():
            series[capacity][fanout].append(record)
        for capacity, cells in series.items():
            whole = {fanout: both for fanout, both in sorted(cells.items()) if len(both) == len(ops)}
            if len(whole) >= max(LEAST_FANOUTS, len(chosen.get(capacity, ()))):
                chosen[capacity] = whole
    used = [record for cells in chosen.values() for both in cells.values() for record in both]
    noise = measure_noise(data, "sum_tree", used)
    logs = {
        f"N = {capacity:,}": {k: math.log(sum(record.seconds for record in both)) for k, both in cells.items()}
        for capacity, cells in sorted(chosen.items())
    }
    return Curves(logs, noise, used) if used and noise.pairs else None


def compare_fanouts(data: Data, shape: str, where: Where, ops: Names, best: int = 16) -> Finding | None:
    """Compute the ratios that a shape of times over K claims to be above 1: SHAPES; facts name the fastest K."""
    curves = collect_curves(data, where, ops)
    if curves is None:
        return None
    fastest = {f"fastest at {name}": f"K = {min(logs, key=lambda k: logs[k])}" for name, logs in curves.series.items()}
    parts = list(SHAPES[shape](curves, best))
    return Finding(parts, {**fastest, "noise": str(curves.noise)}, curves.used) if parts else None


def is_falling(curves: Curves, _: int = 0) -> Iterator[Part]:
    """Yield the smallest K to the largest, and as a guard the K of each series that most exceeds a smaller K.

    A flat curve is the falling curve that is the likeliest to be refuted: its pairs of K are all tested together.
    """
    tests = sum(math.comb(len(logs), 2) for logs in curves.series.values())
    single, every = (curves.noise.critical(number) * curves.noise.sigma for number in (1, tests))
    for name, logs in curves.series.items():
        ends = logs[min(logs)] - logs[max(logs)]
        yield make_part(f"{name}, smallest K to largest", ends, single, every)
        fall, small, large = min((logs[a] - logs[b], a, b) for a, b in combinations(logs, 2))
        yield make_part(f"{name}, K = {small} to {large}", fall, 0.0, every, is_guard=True)


def has_inner_minimum(curves: Curves, _: int = 0) -> Iterator[Part]:
    """Yield, for each series, the faster of both ends to the fastest K inside."""
    noise = curves.noise
    for name, logs in curves.series.items():
        first, *inside, last = logs.values()
        low, high = (noise.critical(tests) * noise.sigma for tests in (len(inside), 2 * len(curves.series)))
        yield make_part(f"{name}, ends to the inner minimum", min(first, last) - min(inside), low, high)


def is_best(curves: Curves, best: int) -> Iterator[Part]:
    """Yield every other K to the K that is said to be the best, in the mean over the series."""
    noise, series = curves.noise, [logs for logs in curves.series.values() if best in logs]
    others = sorted({fanout for logs in series for fanout in logs} - {best})
    for fanout in others:
        behind = [logs[fanout] - logs[best] for logs in series if fanout in logs]
        sigma = noise.sigma / math.sqrt(len(behind))
        low, high = (noise.critical(tests) * sigma for tests in (1, len(others)))
        yield make_part(f"K = {fanout} to {best}", sum(behind) / len(behind), low, high)


SHAPES: dict[str, Shape] = {"falling": is_falling, "inner_minimum": has_inner_minimum, "best": is_best}
"""The shapes of times over K, each with the function that yields ratios which are above 1 if it is so."""


def compare_states(data: Data) -> Finding | None:
    """Compute how much longer a step takes with each larger size of a state: the least of it to the most of a smaller.

    A step is an environment step with its share of a gradient step, by torch, on one core. Intervals are those of
    another run of the machine.
    """
    alone = {"threads": 1, "learner": "torch", "beside": 0, "environments": 1}
    profiled = pick(data.records.get("training", ()), {**alone, "op": "step", "contestant": ["actor", "learner"]})
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    used: list[Record] = []
    for (name, identity), workload in workloads(profiled).items():
        cells = place_records(pick(profiled, {"identity": identity}), ("contestant", "batch"))
        acting = cells.get(("actor", 1))
        learning = cells.get(("learner", workload.learner.batch)) if workload else None
        if workload and acting and learning:
            seconds = acting.seconds + learning.seconds / workload.learner.update_interval
            steps[math.prod(workload.observation.stacked)][name] = seconds
            used += [acting, learning]
    half = drift(data.records.get("sentinel", ())).half_width(0.0)
    parts = [
        make_part(f"{a:,} to {b:,} numbers", math.log(min(steps[b].values()) / max(steps[a].values())), half)
        for a, b in pairwise(sorted(steps))
    ]
    facts = {f"{name}, ms": 1e3 * seconds for own in steps.values() for name, seconds in own.items()}
    return Finding(parts, facts, used) if parts else None


def compare_units(data: Data, **given: Any) -> Finding | None:
    """Compute the ratios of ``compute_ratios``; facts tell which share of the time each kind of process waited."""
    found = compute_ratios(data, "training arrangement", **given)
    shares: dict[str, list[float]] = defaultdict(list)
    for record in found.used if found else ():
        waited = record.metrics.get("report", {}).get("waited", {})
        for name, share in waited.items():
            units = f"units {get_value(record, 'units')}: {name.partition('-')[0]} waited, share of the time"
            shares[units].append(share)
    means = {name: sum(own) / len(own) for name, own in shares.items()}
    return found and replace(found, facts={**found.facts, **means})


@dataclass(frozen=True)
class System:
    """An actor and a learner that share records by a queue or by memory, and the share of time that transfers take."""

    name: str
    size: int
    loss: float
    low: float
    high: float
    updates_hz: float
    used: Sequence[Record]


def _collect_systems(data: Data, kind: str) -> list[System]:
    """Collect the systems by a kind of transport, by their workload, batch, rows a hand-over, size and run."""
    over, systems = ("workload", "batch", "rows", "contestant", "op"), []
    for number, run in enumerate(group_runs(pick(data.records.get("training transport", ()), {}))):
        plain = [record for record in run if record.options.keys() <= {"workload", "rows"}]
        cells = place_records([record for record in plain if record.contestant.startswith(kind)], over)
        for (workload, batch, rows, contestant, op), step in cells.items():
            transfer = cells.get((workload, batch, rows, contestant, "transfer"))
            if op == "gradient step" and transfer:
                ratio = divide_times(f"{workload}, B = {batch:,}, {rows} rows, run {number}", [transfer], [step])
                loss, low, high = (math.exp(ratio.log + half * ratio.sigma) for half in (0.0, -stats.Z, stats.Z))
                size = int(contestant.removeprefix(kind) or 0)
                systems.append(System(ratio.name, size, loss, low, high, 1 / step.seconds, ratio.used))
    return sorted(systems, key=lambda system: (system.name, system.size))


def compare_queues(data: Data) -> Finding | None:
    """Compute how much more of the learner's time transfers take by each queue than by shared memory."""
    shared = {system.name: system for system in _collect_systems(data, "shared")}
    parts, used = [], []
    for queue in _collect_systems(data, "queue"):
        if free := shared.get(queue.name):
            name = f"{queue.name}, queue of {queue.size:,}"
            parts.append(Part(name, queue.loss - free.loss, queue.low - free.high, queue.high - free.low))
            used += [*queue.used, *free.used]
    return Finding(parts, {}, used) if parts else None


def compare_sizes(data: Data, law: bool = False) -> Finding | None:
    """Compute how many times the share of time that transfers take is that of the next larger queue, filled first.

    With ``law``: by how much the update rate / (1 - share) differs over the sizes, three or more, printed and measured.
    """
    groups: dict[str, list[System]] = defaultdict(list)
    for system in _collect_systems(data, "fill"):
        groups[system.name].append(system)
    groups = {name: systems for name, systems in groups.items() if len(systems) >= LEAST_SIZES}
    used = [record for systems in groups.values() for system in systems for record in system.used]
    if law:
        names = [f"hou2023.table_3.rows.QS{size}" for size in data.quoted.table("hou2023.table_3.cycle_seconds")]
        rates = {"printed": [row["updates"] / (1 - row["loss"] / 100) for row in map(data.quoted.table, names)]}
        for name, systems in groups.items():
            rates[name] = [system.updates_hz / (1 - system.loss) for system in systems]
        return replace(Finding.exact({name: max(hz) / min(hz) for name, hz in rates.items()}), used=used)
    parts = []
    for name, systems in groups.items():
        for small, large in pairwise(systems):
            sizes = f"{name}, {small.size:,} to {large.size:,} records"
            ends = small.loss / large.loss, small.low / large.high, small.high / large.low
            parts.append(Part(sizes, *ends))
    return Finding(parts, {}, used) if parts else None
