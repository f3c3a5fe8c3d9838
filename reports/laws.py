"""Hold the laws of modeled times, and what serial loops take beyond their parts, against what they were not fitted to.

Each law's constants are fitted anew to the cells of all workloads of a machine but one, or of all machines but one, and
the law then predicts what was left out. Three machines with profiles are no sample of machines, and one has a GPU:
of its trees a number of leaves is left out in place of a workload. Nothing here holds laws of FPGAs against anything.

A serial loop is predicted from its workload's profile, and from what the loops of the other workloads take beyond the
sum of their parts. Other runs are predicted from all records of their machine.

Times are seconds of one call; an error is a factor, the larger of told / measured and measured / told.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from dse import platforms
from dse.estimate import Estimate
from dse.mapping.answer import MappingAnswer, build_answer, lacking
from dse.mapping.build import build
from dse.mapping.question import IMPLEMENTATIONS, with_values
from dse.platforms import Device, Platform, PlatformError
from dse.platforms.files import FILE, RESULTS
from dse.records import Record, RecordError, how_to_measure
from dse.solver.problem import ProblemError
from dse.times import laws
from dse.times.cells import FLAT, STATE_DICT, PerformanceTable, evidence, of_records, workloads
from dse.times.door import Times
from dse.times.laws import AS_FITTED, FLOAT_BYTES, Constants
from dse.times.whole import REFERENCE, is_whole
from impls.files import list_files
from impls.training import Workload, WorkloadError, identity, load
from impls.training.weights import layout_of

STEPS = (2.0, 1.3, 1.1, 1.03)  # factors on a constant that a fit tries, coarse ones first
TREE = "numba"  # the tree that profiles time
GPU_TREE, TREE_TOPICS = "cupy", ("gpu", "sum_tree")  # the tree of a GPU, and the primitives that time it
Out = Literal["workload", "machine"]
OUT: tuple[Out, ...] = ("workload", "machine")


@dataclass(frozen=True)
class Law:
    """A law's factor, and the names of the constants that a fit may change."""

    factor: float
    constants: tuple[str, ...]


LAWS = {
    "learner": Law(laws.LEARNER_FACTOR, ("framework_seconds",)),
    "threads": Law(laws.THREADS_FACTOR, ("learner_contention", "learner_sync")),
    "tree": Law(laws.TREE_FACTOR, ("tree_call_seconds", "tree_update_share")),
    "rows": Law(laws.ROWS_FACTOR, ("rows_call_seconds", "row_seconds")),
    "actor": Law(laws.ACTOR_FACTOR, ("actor_seconds",)),
    "processes": Law(laws.PROCESSES_FACTOR, ("actor_contention",)),
    "GPU learner": Law(laws.GPU_LEARNER_FACTOR, ("operation_launches",)),
    "GPU tree": Law(laws.GPU_TREE_FACTOR, ("draw_launches", "update_launches")),
    "fetch": Law(laws.FETCH_FACTOR, ("fetch_seconds", "fetch_bytes_per_s", "state_dict_seconds")),
}


@dataclass(frozen=True)
class Cell:
    """A measured time, and what a law tells of it with given constants, ``over`` what it tells with them of one core.

    Of "threads" and "processes" the time is that on x cores as a share of that on one.
    """

    law: str
    machine: str
    workload: str
    seconds: float
    told: Callable[..., Estimate]
    over: Callable[..., Estimate] | None = None

    def error(self, constants: Constants = AS_FITTED) -> float:
        """The factor by which the law is off."""
        return _error(self, constants)

    def is_within(self, constants: Constants) -> bool:
        """Whether the law is off by no more than its factor, which grows beyond the cores that it was fitted to."""
        there = self.told(constants=constants).factor
        here = self.over(constants=constants).factor if self.over else LAWS[self.law].factor
        return self.error(constants) <= laws.together(LAWS[self.law].factor, max(1.0, there / here))


@functools.lru_cache(maxsize=1 << 17)  # fits without one cell or another try the same constants
def _error(cell: Cell, constants: Constants) -> float:
    ratio = cell.told(constants=constants).value / cell.seconds
    ratio /= cell.over(constants=constants).value if cell.over else 1
    return max(ratio, 1 / ratio)


@dataclass(frozen=True)
class HeldOut:
    """Errors of a law on all cells of what was left out in turn; ``within``: the share within the law's ``factor``.

    ``left_out``: by its name, how many cells it has and the worst of their errors. ``as_fitted``: the share within the
    factor by the constants in use, which were drawn from one of the machines.
    """

    law: str
    out: Out
    cells: int
    median: float
    worst: float
    within: float
    factor: float
    as_fitted: float
    left_out: Mapping[str, tuple[int, float]]


def held_out(results: Path = RESULTS) -> tuple[HeldOut, ...]:
    """The errors of every law, leaving out a workload of a machine, then a machine; those with cells enough alone."""
    known = cells(results)
    return tuple(
        answer
        for law in LAWS
        for out in OUT
        if (answer := _held_out(law, out, [one for one in known if one.law == law]))
    )


def _held_out(law: str, out: Out, cells: Sequence[Cell]) -> HeldOut | None:
    errors: dict[str, list[float]] = {}
    told: list[tuple[Cell, Constants]] = []
    for name, tested, rest in _folds(out, cells):
        if rest:
            constants = fitted(law, rest)
            errors[name] = [one.error(constants) for one in tested]
            told += [(one, constants) for one in tested]
    every = [error for each in errors.values() for error in each]
    if not every:
        return None
    return HeldOut(
        *(law, out, len(every), median(every), max(every), _share(told), LAWS[law].factor),
        _share([(one, AS_FITTED) for one in cells]),
        {name: (len(each), max(each)) for name, each in errors.items()},
    )


def _folds(out: Out, cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell], list[Cell]]]:
    """(what is left out, its cells, those that the constants are fitted to)."""
    machines = {one.machine: [other for other in cells if other.machine == one.machine] for one in cells}
    for machine, own in machines.items():
        if out == "machine":
            yield machine, own, [one for one in cells if one.machine != machine]
            continue
        for workload in {one.workload: None for one in own}:
            tested = [one for one in own if one.workload == workload]
            yield f"{workload} on {machine}", tested, [one for one in own if one.workload != workload]


def _share(told: Sequence[tuple[Cell, Constants]]) -> float:
    return sum(one.is_within(constants) for one, constants in told) / len(told)


def fitted(law: str, cells: Sequence[Cell]) -> Constants:
    """The constants with the least squared logarithms of errors on these cells, each changed in turn."""
    constants = AS_FITTED

    def missed(tried: Constants, enough: float) -> float:
        """What they miss by, or some sum that is ``enough`` to tell that they are no better."""
        total = 0.0
        for one in cells:
            if total >= enough:
                break
            total += math.log(one.error(tried)) ** 2
        return total

    least = missed(constants, math.inf)
    for step in STEPS:
        better = True
        while better:
            # Invariant: least is what these constants miss by, and only ever falls.
            better = False
            for name in LAWS[law].constants:
                for factor in (step, 1 / step):
                    tried = replace(constants, **{name: getattr(constants, name) * factor})
                    enough = least * (1 - 1e-9)
                    if (off := missed(tried, enough)) < enough:
                        constants, least, better = tried, off, True
    return constants


def cells(results: Path = RESULTS) -> tuple[Cell, ...]:
    """The cells of every machine in a folder of results that was probed and has profiles."""
    known: list[Cell] = []
    for key, _, workload, records in _profiles(results):
        if workload:
            known += _of_workload(platforms.load(results / key / FILE), workload, of_records(records, key, workload))
    return (*known, *_gpu_trees(results))


def untold(results: Path = RESULTS) -> tuple[str, ...]:
    """ "NAME on MACHINE" for each profile that is left out, for nothing tells its workload."""
    return tuple(f"{name} on {key}" for key, name, workload, _ in _profiles(results) if workload is None)


def _folders(results: Path) -> list[Path]:
    """The folders of machines that were probed and have profiles."""
    every = list_files(results, "*")
    return [folder for folder in every if (folder / FILE).is_file() and list_files(folder, "profile-*.jsonl")]


def _profiles(results: Path) -> Iterator[tuple[str, str, Workload | None, Sequence[Record]]]:
    """(machine, name, workload, the machine's records of profiles) of each workload that was profiled."""
    for folder in _folders(results):
        every = evidence(results)[folder.name].records
        records = [one for one in every if one.primitive in ("training", "training_again")]
        for (name, _), workload in sorted(workloads(records).items()):
            yield folder.name, name, workload, records


def _gpu_trees(results: Path) -> Iterator[Cell]:
    """Yield the calls of the GPU's tree as it ships, by how many leaves it has."""
    for folder in _folders(results):
        gpu = _first(platforms.load(folder / FILE), "gpu")
        for record in evidence(results)[folder.name].records if gpu else ():
            is_shipped = record.contestant == GPU_TREE and not record.options and record.primitive in TREE_TOPICS
            if gpu and is_shipped and record.op in ("draw", "update") and record.median_seconds:
                is_update = record.op == "update"
                told = functools.partial(_tree, gpu, record.capacity, record.fanout, record.batch, is_update)
                yield Cell("GPU tree", folder.name, f"N={record.capacity:,}", record.median_seconds, told)


def _first(platform: Platform, kind: str) -> Device | None:
    return next((device for device in platform.devices if device.kind == kind), None)


def _of_workload(platform: Platform, workload: Workload, table: PerformanceTable) -> Iterator[Cell]:
    cpu, gpu = (_first(platform, kind) for kind in ("cpu", "gpu"))
    assert cpu

    def cell(law: str, seconds: float, told: Callable[..., Any], *arguments: Any, **more: Any) -> Cell:
        return Cell(law, table.machine_key, workload.name, seconds, functools.partial(told, *arguments), **more)

    yield from _of_cores(cell, cpu, workload, table)
    for (_, batch), _ in table.alone("cuda step").items() if gpu else ():
        if known := table.time("cuda step", batch):
            yield cell("GPU learner", known.value, laws.learner, cpu, gpu, workload, batch)
    layout, local = layout_of(workload), workload.actors.local_storage
    read = float(layout.record_bytes * laws.records_read(workload))
    for op, nbytes in (("gather", read), ("write", layout.record_bytes * (local + layout.fillers) / local)):
        for (_, count), _ in table.alone(f"storage {op}").items():
            if known := table.time(f"storage {op}", count):
                yield cell("rows", known.value, laws.rows_moved, cpu, count, count * nbytes)
    for op in ("draw", "update"):
        for (_, batch), rows in table.alone(f"{TREE} {op}", 1).items():
            fanout, capacity = (int(rows[0].options[key]) for key in ("fanout", "capacity"))
            if known := table.time(f"{TREE} {op}", batch):
                yield cell("tree", known.value, _tree, cpu, capacity, fanout, batch, op == "update")
    for kind in (FLAT, STATE_DICT):
        if known := table.time("weights fetch", 1, via="shared", kind=kind):
            weights = FLOAT_BYTES * float(table.rows[0].options["parameters"])
            yield cell("fetch", known.value, functools.partial(laws.fetch, is_flat=kind == FLAT), weights)


def _of_cores(cell: Callable[..., Cell], cpu: Device, workload: Workload, table: PerformanceTable) -> Iterator[Cell]:
    """The times of learners and actors, and what more cores make of each."""
    for (threads, batch), _ in table.alone("learner step").items():
        known, alone = table.time("learner step", batch, threads), table.time("learner step", batch)
        law = functools.partial(laws.learner, cpu, cpu, workload, batch)
        if known:
            yield cell("learner", known.value, law, threads)
        if known and alone and threads > 1:
            yield cell("threads", known.value / alone.value, law, threads, over=law)
    for (processes, _), _ in table.alone("actor step").items():
        known, alone = table.time("actor step", 1, processes), table.time("actor step", 1)
        if known:
            yield cell("actor", known.value, laws.actor, cpu, processes)
        if known and alone and processes > 1:
            over = functools.partial(laws.actor, cpu, 1)
            yield cell("processes", known.value / alone.value, laws.actor, cpu, processes, over=over)


def _tree(device: Device, capacity: int, fanout: int, batch: int, is_update: bool, constants: Constants) -> Estimate:
    return laws.tree(device, capacity, fanout, batch, constants=constants)[is_update]


@dataclass(frozen=True)
class SerialLoop:
    """A serial loop predicted by the loops of other workloads, and as it was measured.

    ``predicted``: (gradient steps a second, low, high); ``others``: whose loops told.
    """

    machine: str
    workload: str
    predicted: tuple[float, float, float]
    measured_hz: float
    others: tuple[str, ...]

    @property
    def error(self) -> float:
        """The relative error of the predicted rate: -0.1 is a tenth too few steps a second."""
        return self.predicted[0] / self.measured_hz - 1


def serial_loops(results: Path = RESULTS) -> tuple[SerialLoop, ...]:
    """Every serial loop by torch that was timed beside others on its machine, predicted without it."""
    known: list[SerialLoop] = []
    for folder in _folders(results):
        records = evidence(results)[folder.name].records
        timed = {
            (str(one.options["workload"]), str(one.options["identity"])): one.seconds
            for one in records
            if (one.primitive, one.contestant, one.op) == ("training", "loop", "step")
            and one.median_seconds
            and one.options.get("learner", REFERENCE) == REFERENCE
        }
        told = workloads(records)
        for key, seconds in sorted(timed.items()):
            others = tuple(name for name, own in sorted(timed) if own != key[1])
            if others and (workload := told[key]):
                answer = _without_its_own(folder, workload, records)
                rates = answer.hz, answer.low, answer.high
                known.append(SerialLoop(folder.name, key[0], rates, 1 / seconds, others))
    return tuple(known)


def _without_its_own(folder: Path, workload: Workload, records: Sequence[Record]) -> MappingAnswer:
    """The rate of a serial loop, fixed to what was run, where no loop of its workload was timed."""
    own = identity(workload)
    rest = [one for one in records if not is_whole(one) or one.options.get("identity") != own]
    fix = {"arrangement": "serial", "learner_threads": 1, "contestant": TREE, "fanout": workload.replay.fanout}
    fix |= dict.fromkeys(IMPLEMENTATIONS, REFERENCE)
    return predict(Times(platforms.load(folder / FILE), workload, of_records(rest, folder.name, workload), None, fix))


def predict(parts: Times) -> MappingAnswer:
    """Predict the rate of what the parts are fixed to. RecordError where it does not fit their platform."""
    answer = build_answer(build(parts), "ratio")
    if not isinstance(answer, MappingAnswer):
        lacks = "; ".join(lacking(answer))
        raise RecordError(f"{parts.workload.name} does not fit platform {parts.platform.name!r}: {lacks}")
    return answer


RUN = ("arrangement", "environments", "presampled", "batch", "update_interval")


def predict_runs(
    records: Sequence[Record], platform: Platform, runs: Iterable[Mapping[str, Any]]
) -> Iterator[MappingAnswer | None]:
    """Predict runs, each by its options, from a machine's records; None where these tell nothing of one."""
    table = functools.cache(functools.partial(table_of, tuple(records), platform.machine_key or ""))
    for run in runs:
        try:
            workload, rows = table(run["workload"])
            fix = {**{name: run[name] for name in RUN}, "actor_count": run["actors"]}
            fix |= {f"{name}_implementation": run[name] for name in ("learner", "policy")}
            fix |= {"actors": run["actors"]} if run["arrangement"] != "serial" else {}
            fix |= {"learner_threads": 1, "contestant": TREE, "fanout": workload.replay.fanout, "threads": 1}
            yield predict(Times(platform, with_values(workload, fix), rows, None, fix))
        except (RecordError, WorkloadError, PlatformError, ProblemError):
            yield None


def table_of(records: Sequence[Record], machine: str, name: str) -> tuple[Workload, PerformanceTable]:
    """Return a workload, as records tell it or as it ships, and its profile. RecordError where there is none."""
    own = {one: known for (one, _), known in workloads(records).items() if known}
    workload = own.get(name) or load(name)
    table = of_records(records, machine, workload)
    if not table.rows:
        raise RecordError(f"{name}: no record tells a profile; {how_to_measure(f'profile --workload {name}')}")
    return workload, table
