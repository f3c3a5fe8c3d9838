"""Keep every number as a record: its source, its value, and what it was measured with.

A record is one JSON object a line, without what has its default. What all records of a run share, its commit, command
and machine (``Run``), stands in the first line of the run (``run``) and holds until another does. What was found
besides seconds are its ``metrics``, how it alone was made its ``facts``. Files are only appended to, line by line, so a
process killed at any moment leaves whole lines and at most one torn line at the end, which readers drop with a warning
and the next writer cuts off.
"""

import dataclasses
import datetime
import functools
import json
import operator
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from impls.checks import near, short
from impls.files import list_files, lock, refusing, try_to_write

from . import stats

SCHEMA = 3
OF_MACHINES = frozenset(
    "key cpu vendor family model stepping kernel governor vector_sets cores memory_bytes caches gpus python "
    "packages evidence workload load compiled_for compiled_with optimized bounds_checked with_avx loops_vectorized "
    "slp_vectorized".split()
)
"""Facts of a machine that the records of a run share."""
METRICS = {
    "average_seconds": "s", "busiest": "process", "cpu_percent": "% of all cores", "episodes": "count by point",
    "frames_hz": "rows/s", "gradient_steps": "count", "interval": "steps between points", "over": "limits exceeded",
    "points": "steps, updates, s, mean return", "race": "rows", "ratios": "measured / asked", "report": "counts",
    "restarts": "count", "rollouts": "count by point", "sampling_hz": "steps/s", "seconds": "s",
    "solved_at": "mean return", "solved_seconds": "s", "solved_steps": "count", "solved_updates": "count",
    "start_seconds": "s", "steps": "count", "superseded": "share",
    "test_episodes": "count", "test_mean": "mean return", "update_hz": "gradient steps/s", "used_bytes": "bytes",
}  # fmt: skip
"""What records may have found besides seconds of a call: the unit, or what it counts."""
MOST, LONGEST_SECONDS, MOST_NESTED = 10**18, 1e9, 32
"""Largest whole number, longest time and deepest nesting that a record may hold."""
_BENCHMARKS = Path(__file__).parent.parent / "benchmarks" / "sweep.py"  # next to this package in a checkout alone

Source = Literal["measured", "interpolated", "extrapolated", "modeled", "quoted"]
"""The one vocabulary of where a number comes from; a record of one is never interpolated."""
SENTINEL = "sentinel"
"""The primitive of records that show how much a machine changes from one run to another."""
Status = Literal["ok", "skipped", "failed", "unstable"]

SOURCES = ("measured", "modeled", "quoted", "extrapolated")
LOAD = "load"
"""The key of a record's machine that says how many processes of others ran; only where they were too many."""
NOISY = 0.10
"""Noise floor from which a run is noisy."""
STATUSES = ("ok", "skipped", "failed", "unstable")
ANOTHER = "choose another folder"
AHEAD = datetime.timedelta(days=1)  # of this clock, from which on a time stamp is of a wrong one
Stamped = TypeVar("Stamped")


class RecordError(Exception):
    """Unusable results, a file or a folder; the message names the file, the line and the remedy."""


class NoRecordsError(RecordError):
    """There are no records of what is asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What the records of a run share: one command of one code on one machine, whose facts are of ``OF_MACHINES``.

    ValueError for another fact of a machine.
    """

    schema: int = SCHEMA
    commit: str | None = None
    dirty: bool | None = None
    command: str = ""
    machine: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.machine.keys() - OF_MACHINES:
            raise ValueError(f"{short(name)} is no fact of a machine; move it to facts")

    @functools.cached_property
    def key(self) -> tuple[Any, ...]:
        """Its machine, code and command, and whether others disturbed it: equal for a run and what resumed it."""
        return self.machine.get("key"), self.code, self.command, LOAD in self.machine

    @property
    def code(self) -> str | None:
        """The code that was timed: the hash of its files, or the commit of runs that have none."""
        return (self.machine.get("evidence") or {}).get("code") or self.commit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A number, or the reason why there is none. Times are seconds per call of ``batch`` elements.

    ``median_seconds`` with its 95 % interval ``[low_seconds, high_seconds]`` summarizes ``samples_seconds``, each the
    mean of ``calls_per_sample`` calls; all are None where ``status`` is skipped or failed, and ``reason`` says why
    (beside a time it is what to know of it); but a cell that was skipped for its length has a call's ``low_seconds``.
    ``primitive`` is "sum_tree", "peer" (of a library, or of ours in the same run), "training" (a part of a training
    system, for the workload that ``options`` name), "serial_step" (a training step and the tree in it), each of them
    also with "_again" (the A/A twin that gives a run its noise floor), "training arrangement" (a run of several
    processes, or one of its parts among the others), "peer_shared" (one tree, several Python threads), "gpu" (trees on
    a device, concurrently), "memory" (the floor), one of "replay_operations", "replay_parts", "replay_batches",
    "replay_pairs", "replay_threads", "replay_processes" and "replay_flush" (whole buffers, alone or shared by so many
    ``threads``, which may be processes), "loop_peer" (an environment step of a whole training loop with its gradient
    step, of ours or of a library, by the clock that ``op`` names), "training run" (a gradient step of a whole run by
    ``options``' seed, with its curve in ``metrics``), "plugin" (a step of another library's replay or training, on its
    own replay or on ours, and the time of the tree's calls in it), "plugin run" (a step of a run of such a library),
    "training adaptation" (one of a running loop at a look of a search), "race" (a step of the winner of trees that were
    raced, with all samples in ``metrics``), or "sentinel" (timed in every run, to tell by
    how much the machine changes). ``contestant`` is the implementation that was timed.

    ``metrics``: results other than seconds of a call, by the names of ``METRICS``; ``facts``: how this record was made,
    such as the CPUs it was kept on or a device, by any other names. ValueError where a name is among the wrong ones.
    """

    run: Run
    source: Source
    status: Status
    primitive: str
    contestant: str
    op: str
    capacity: int
    batch: int
    fanout: int = 16
    threads: int = 1
    dtype: str = "float32"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    distribution: str = "uniform"
    reason: str | None = None
    samples_seconds: tuple[float, ...] = ()
    calls_per_sample: int | None = None
    median_seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    utc: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.metrics.keys() - METRICS.keys():
            raise ValueError(
                f"unknown metric {short(name)}, METRICS of dse/records.py has none of it{near(name, METRICS)}"
            )
        for name in self.facts.keys() & _NO_FACTS:
            raise ValueError(f"{name} is no fact; move it to {'metrics' if name in METRICS else 'the machine of run'}")

    @functools.cached_property
    def cell(self) -> str:
        """The measured cell, whatever the outcome: equal cells are measurements of the same thing.

        Of two sentinels none replaces the other, for it is their change over time that counts: each is its own cell.
        """
        own = [self.utc] if self.primitive == SENTINEL else []
        return json.dumps([*(getattr(self, name) for name in CELL), *own], sort_keys=True)

    @property
    def machine(self) -> dict[str, Any]:
        """Facts of the machine it was measured on."""
        return self.run.machine

    @property
    def machine_key(self) -> str:
        """Key of the machine it was measured on."""
        return str(self.run.machine.get("key", ""))

    @property
    def commit(self) -> str | None:
        """The commit of the checkout that measured it."""
        return self.run.commit

    @property
    def is_oversubscribed(self) -> bool:
        """Whether there were more threads or processes than the CPUs that they were kept on."""
        return self.threads > len(self.facts.get("affinity") or range(self.machine.get("cores", 1)))

    @property
    def seconds_at_least(self) -> float:
        """Seconds of the single call that was too long to time a cell; 0 for any other record."""
        return self.low_seconds or 0.0 if self.median_seconds is None else 0.0

    @property
    def seconds(self) -> float:
        """Median seconds of a call. ValueError where there is none."""
        if self.median_seconds is None:
            raise ValueError(f"{self.contestant} {self.op} has no time: {self.status}, {self.reason}")
        return self.median_seconds

    def to_json(self, before: "Record | None" = None) -> str:
        """Write the record as one line, without its newline; its run only if that of the line ``before`` is another."""
        fields = {} if before and before.run == self.run else {"run": dataclasses.asdict(self.run)}
        fields |= {name: value for name in _FIELDS if (value := getattr(self, name)) != _DEFAULTS.get(name, ...)}
        return json.dumps(fields, allow_nan=False, separators=(",", ":"))


def identity_of(record: Record) -> tuple[str, str]:
    """Return what a record is a measurement of, its machine and its cell: equal identities are the same cell."""
    return record.machine_key, record.cell


CELL = ("primitive", "contestant", "op", "capacity", "fanout", "batch", "threads", "dtype", "options", "distribution")
"""The fields that make up a cell, in order."""


_JSON: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("text", (str,)),
    Literal: ("text", (str,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    tuple: ("a list", (list,)),
    dict: ("an object", (dict,)),
    NoneType: ("null", (NoneType,)),
}
"""What JSON makes of a type: in words, and the types of Python that it is read as."""
_LEAST = {"capacity": 0, "batch": 1, "fanout": 1, "threads": 1, "calls_per_sample": 1, "cores": 1, "memory_bytes": 0}
"""The least of each whole number."""
_NO_FACTS = OF_MACHINES | METRICS.keys()


def _kinds(hints: Mapping[str, Any]) -> dict[str, tuple[str, tuple[type, ...]]]:
    """Return for each name what its value may be: in words, and the types."""
    kinds = {}
    for name, hint in hints.items():
        either = [_JSON[get_origin(one) or one] for one in (get_args(hint) if NoneType in get_args(hint) else (hint,))]
        words, types = zip(*either, strict=True)
        kinds[name] = " or ".join(words), sum(types, ())
    return kinds


_FIELDS = _kinds({name: hint for name, hint in get_type_hints(Record).items() if name != "run"})
_OF_RUN = _kinds(get_type_hints(Run))
_FACTS = {"key": str, "cores": int, "memory_bytes": float | None, "caches": dict}
_KINDS = _FIELDS | _OF_RUN | _kinds(_FACTS)  # of fields, and of facts of a machine that answers rest on
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Record)}
_DEFAULTS |= {name: {} for name in ("options", "facts", "metrics")}
COLUMNS = tuple(name for name in _OF_RUN | _FIELDS if name not in ("samples_seconds", "metrics"))
"""Fields that a row of a table has."""
_NEEDED = [name for name in _FIELDS if _DEFAULTS[name] is dataclasses.MISSING]


def parse_lines(lines: Iterable[str], path: str | Path) -> Iterator[Record]:
    """Parse the lines of a file as records. RecordError, with its line, for anything that is not of this schema."""
    record: Record | None = None
    for position, line in enumerate(lines, 1):
        if line.strip():
            record = parse(line, f"{path}:{position}", record)
            yield record


def parse(line: str, where: str, before: Record | None = None) -> Record:
    """Parse a line as a record, of its run or of that of the record ``before``. RecordError for anything that is not
    exactly one of this schema."""
    fields = _read_object(line, where)
    if "run" not in fields and before is None:
        raise _damaged(where, "names no run, nor does a line before it; the file was cut or edited")
    try:
        run = _build_run(fields.pop("run"), where) if before is None or "run" in fields else before.run
        return _build(fields, run, where)
    except ValueError as error:
        raise RecordError(f"{where}: {error}") from None


def _read_object(line: str, where: str) -> dict[str, Any]:
    try:
        fields = _decode(line)
    except (ValueError, RecursionError) as error:
        said = str(getattr(error, "msg", error)).partition(";")[0]
        raise _damaged(where, f"not a JSON object ({said}); the file was truncated or edited") from None
    if not isinstance(fields, dict):
        raise RecordError(f"{where}: a record is a JSON object, not {type(fields).__name__}")
    if "schema" in fields:
        raise _of_another_schema(fields["schema"], where)
    return fields


def _damaged(where: str, what: str) -> RecordError:
    return RecordError(f"{where}: {what}; restore the file, or move it away and measure again")


def _of_another_schema(schema: Any, where: str) -> RecordError:
    return RecordError(f"{where}: schema {short(schema)}, this version reads {SCHEMA}; move it away and measure again")


def _build_run(run: Any, where: str) -> Run:
    """Make a run of its fields. RecordError unless they are exactly those of this schema."""
    if not isinstance(run, dict):
        raise _damaged(where, f"run must be an object, not {short(run)}; the file was edited")
    if run.get("schema") != SCHEMA:
        raise _of_another_schema(run.get("schema"), where)
    _check_names(run, _OF_RUN, _OF_RUN, where)
    _check_kinds(run, where)
    _check_kinds(run["machine"], where)
    return Run(**run)


def _check_names(fields: Mapping[str, Any], known: Collection[str], needed: Iterable[str], where: str) -> None:
    for key in sorted(fields.keys() - set(known)):
        raise RecordError(f"{where}: unknown key {short(key)}{near(key, known)}")
    if missing := [key for key in needed if key not in fields]:
        raise RecordError(f"{where}: lacks {', '.join(missing)}")


def _build(fields: dict[str, Any], run: Run, where: str) -> Record:
    """Make the record of a line and its run. RecordError for what no record can have."""
    _check_names(fields, _FIELDS, _NEEDED, where)
    _check_kinds(fields, where)
    for key, allowed in (("source", SOURCES), ("status", STATUSES)):
        if fields[key] not in allowed:
            raise RecordError(f"{where}: {key} must be one of {', '.join(allowed)}, not {short(fields[key])}")
    _check_times({**_DEFAULTS, **fields}, where)
    return Record(**{**fields, "run": run, "samples_seconds": tuple(fields.get("samples_seconds", ()))})


def _decode(line: str) -> Any:
    """Decode JSON. ValueError or RecursionError for text that Python cannot keep, print and write again."""
    fields = _DECODER.decode(line)
    if line.count("[") + line.count("{") > MOST_NESTED and _depth(fields) > MOST_NESTED:
        raise ValueError("nested too deeply")
    if "\\u" in line:
        json.dumps(fields, ensure_ascii=False).encode()
    return fields


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key stands twice")
    return content


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=int)  # of NaN and Infinity, which int refuses


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, parts), default=0)


def _check_kinds(values: Mapping[str, Any], where: str) -> None:
    """Check that the values are of their kinds, and whole numbers within bounds."""
    if name := _of_another_kind(tuple(values), tuple(map(type, values.values()))):
        kind = _KINDS[name][0]
        raise _damaged(where, f"{name} must be {kind}, not {short(values[name])}; the file was edited")
    for name, least in _LEAST.items():
        if (value := values.get(name)) is not None and not least <= value <= MOST:
            raise _damaged(where, f"{name} must be from {least} to {MOST:.0e}, not {short(value)}; it was edited")


@functools.cache
def _of_another_kind(names: tuple[str, ...], types: tuple[type, ...]) -> str:
    """Return the first name whose value is not of its kind, or nothing; most records of a file have the same types."""
    return next(
        (name for name, its in zip(names, types, strict=True) if name in _KINDS and its not in _KINDS[name][1]), ""
    )


def _check_times(fields: dict[str, Any], where: str) -> None:
    """Check times: only a record that says why may be without one, and a time may be without an interval."""
    samples, median = fields["samples_seconds"], fields["median_seconds"]
    if samples and not ({*map(type, samples)} <= {int, float} and 0 <= min(samples) <= max(samples) < LONGEST_SECONDS):
        raise _damaged(where, f"samples_seconds must be numbers from 0 to {LONGEST_SECONDS:.0e}; it was edited")
    if median is None:
        if fields["status"] in ("ok", "unstable"):
            raise _damaged(where, f"lacks its time, and its status is {fields['status']}; the file was edited")
        return
    low, high = (median if fields[name] is None else fields[name] for name in ("low_seconds", "high_seconds"))
    if not 0 < low <= median <= high < LONGEST_SECONDS:
        raise RecordError(
            f"{where}: median_seconds must be above 0, finite and within [low_seconds, high_seconds], "
            f"not {short(median)} in [{short(low)}, {short(high)}]; the file was edited, or a clock stood still: "
            "measure that cell again"
        )


def read_file(path: str | Path) -> list[Record]:
    """Read all records of a file in order. A torn last line is dropped with a warning; RecordError for other faults."""
    try:
        lines = _read_bytes(path).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: byte {error.start} is no text; the file was overwritten or is no records") from None
    torn = lines.pop()  # what follows the last newline
    if torn:
        warnings.warn(f"{path}: the last line is torn, its cell is dropped", stacklevel=2)
    return [*parse_lines(lines, path)]


def _read_bytes(path: str | Path) -> bytes:
    """Read a file. RecordError where that cannot be done."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None


def read_folder(folder: str | Path, machine: str | None = None, here: str = "") -> list[Record]:
    """Read the records of every ``*.jsonl`` below a folder, one of each cell and machine, as ``select`` has it.

    ``machine`` keeps those of one machine. RecordError if nothing is left, naming the machines that are there; ``here``
    is the one that asks.
    """
    if machine is not None and (own := read_machine(folder, machine)):
        return own
    records = [record for path in list_files(Path(folder), "**/*.jsonl") for record in read_file(path)]
    if not records:
        other = ", or name a folder that has some: --results FOLDER" if has_benchmarks() else ""
        raise NoRecordsError(f"{folder}: no records here; {how_to_measure('sweep --preset quick')}{other}")
    if machine is not None:
        there = sorted({record.machine_key for record in records})
        raise RecordError(
            f"{folder}: no records of machine {machine}, only of {', '.join(there)}; ask with --machine {there[0]}, or "
            f"{f'on machine {machine} ' * (machine != here)}{how_to_measure('sweep --preset quick')}"
        )
    return select(records)


def read_machine(folder: str | Path, machine: str) -> list[Record]:
    """Read the records of a machine, as ``read_folder`` does, from the files alone that name it; none where none do."""
    files, name = list_files(Path(folder), "**/*.jsonl"), json.dumps(machine).encode()
    found = (record for path in files if name in _read_bytes(path) for record in read_file(path))
    return select(record for record in found if record.machine_key == machine)


def in_order(found: Iterable[Stamped], utc: Callable[[Stamped], str] = operator.attrgetter("utc")) -> list[Stamped]:
    """Sort records, or others with a time stamp, so that the last one of a key is the one that counts: the latest.

    Stamps from the future, by more than ``AHEAD``, are of a clock that was wrong, and stand before all others. Equal
    stamps keep their order.
    """
    latest = (datetime.datetime.now(datetime.UTC) + AHEAD).isoformat()
    return sorted(found, key=lambda record: ((stamp := utc(record)) <= latest, stamp))


def select(records: Iterable[Record]) -> list[Record]:
    """Select one record of each cell and machine: the last ``in_order``, but no disturbed one in place of a quiet one.

    What was measured under load (``LOAD``) counts only where no other run of the machine measured its primitive, of its
    workload. Of one run the latest record of a cell counts. Of several runs a quiet run's counts before a noisy one's;
    else the latest, but of one code never an unstable time, or none, in place of a stable one. A run is noisy where its
    A/A twins differ by more than ``NOISY``, or where most of its times are unstable. The sentinels of a noisy run count
    where a cell of it does.
    """
    known = in_order(records)
    quiet = {_kind(record) for record in known if LOAD not in record.machine}
    answering = [record for record in known if LOAD not in record.machine or _kind(record) not in quiet]
    latest = {(record.run.key, record.cell): record for record in answering}
    runs: dict[tuple[Any, ...], list[Record]] = {}
    for record in latest.values():
        runs.setdefault(record.run.key, []).append(record)
    noisy = {run for run, own in runs.items() if _is_noisy(own)}
    chosen: dict[tuple[str, str], Record] = {}
    for record in in_order(latest.values()):
        old = chosen.get(identity_of(record), record)
        is_louder = record.run.code == old.run.code and old.status == "ok" and record.status != "ok"
        if (old.run.key in noisy, not is_louder) >= (record.run.key in noisy, True):
            chosen[identity_of(record)] = record
    settled = [record for record in chosen.values() if record.primitive != SENTINEL or record.run.key not in noisy]
    counting = {record.run.key for record in settled}
    return [record for record in chosen.values() if record.run.key in counting]


def _kind(record: Record) -> tuple[Any, ...]:
    """What is measured with a record in one run, whatever its shape."""
    return record.machine_key, record.primitive.removesuffix("_again"), repr(record.options.get("workload"))


def _is_noisy(run: Sequence[Record]) -> bool:
    """Whether the records of a run were disturbed."""
    unstable = [record.status == "unstable" for record in run if record.median_seconds is not None]
    kinds = {record.primitive.removesuffix("_again") for record in run if record.primitive.endswith("_again")}
    floor = stats.noise_floor(pair for kind in kinds for pair in twins(run, kind))
    return 2 * sum(unstable) > len(unstable) or floor > NOISY


def has_benchmarks() -> bool:
    """Tell whether ``python -m benchmarks`` is there: in a checkout, but not where only the wheel is installed."""
    return _BENCHMARKS.is_file()


def benchmark(command: str) -> str:
    """Write a command of ``python -m benchmarks`` as advice, which says so where it takes a checkout to run it."""
    return f"{'' if has_benchmarks() else 'in a checkout of Fanout: '}python -m benchmarks {command}"


def how_to_measure(command: str) -> str:
    """Advise how to measure, as a clause that begins with "measure"; ``command`` as after ``python -m benchmarks``."""
    if has_benchmarks():
        return f"measure with: python -m benchmarks {command}"
    return "measure in a checkout of Fanout, which has the benchmarks, and name its results with --results FOLDER"


def twins(found: Iterable[Record], primitive: str = "sum_tree") -> list[tuple[float, float]]:
    """Pair medians of the cells that one run measured twice: once as ``primitive``, once as its "_again"."""
    timed = [record for record in found if record.median_seconds is not None]
    first = {(record.run.key, record.cell): record.seconds for record in timed if record.primitive == primitive}
    twice = [record for record in timed if record.primitive == f"{primitive}_again"]
    again = {(twin.run.key, dataclasses.replace(twin, primitive=primitive).cell): twin.seconds for twin in twice}
    return [(first[key], seconds) for key, seconds in again.items() if key in first]


def check_writable(path: Path) -> None:
    """RecordError unless a ``Writer`` could open a file now; the file and its folder stay as they are."""
    with refusing(path, RecordError, ANOTHER):
        try_to_write(path.parent)
        if path.exists():
            with path.open("r+b") as file:
                lock(file)


class Writer:
    """A writer that appends records to a file, each flushed to disk before the next is measured.

    Opening creates the folders, cuts off a torn last line, and keeps other writers out until it is closed or its
    process ends. RecordError if the file cannot be written, has a writer, or is none of records; its content stays.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        with refusing(self.path, RecordError, ANOTHER):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._before: Record | None = None
            try:
                lock(self._file)
                self._cut_torn_line()
            except BaseException:
                os.close(self._file)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            if b"\r" in content[whole:]:
                raise RecordError(f"{self.path}: a line ends in \\r alone, not in \\n; convert the file's line ends")
            read_file(self.path)  # which warns, and refuses a file that holds something else
            os.ftruncate(self._file, whole)

    def append(self, record: Record) -> None:
        """Write one record and see it on disk. RecordError, with the file as it was, if that cannot be done."""
        end = os.fstat(self._file).st_size
        rest = record.to_json(self._before).encode() + b"\n"
        try:
            # Invariant: the file ends in the part of the line that is not in rest.
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, end)
            raise RecordError(
                f"{self.path}: cannot be written ({error.strerror}); what it holds is whole: make room and run the "
                "same command again to continue"
            ) from None
        self._before = record


def to_rows(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Flatten records to rows of a table: options and facts as text, the machine as its key, each metric that is a
    number in a column of its own; samples, curves and reports are left out."""
    for record in records:
        row = {name: getattr(record.run if name in _OF_RUN else record, name) for name in COLUMNS}
        as_text = {name: text_of(row[name]) for name in ("options", "facts")} | {"machine": record.machine_key}
        yield row | as_text | {name: value for name, value in record.metrics.items() if isinstance(value, int | float)}


def text_of(options: Mapping[str, Any]) -> str:
    """Write options as a label, which nothing reads back: "layout=plain,propagate=delta"."""
    return ",".join(f"{key}={value}" for key, value in sorted(options.items()))


def export(records: Iterable[Record], path: Path) -> None:
    """Write the records as ``.csv`` or ``.parquet``. RecordError for any other ending, and for a lack of packages."""
    if path.suffix not in (".csv", ".parquet"):
        raise RecordError(f"{path}: export writes .csv or .parquet, not {path.suffix or 'a file without an ending'}")
    try:
        import pandas  # noqa: PLC0415  # heavy, and only here

        frame = pandas.DataFrame(list(to_rows(records)))
        with refusing(path, RecordError, ANOTHER):
            (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    except ImportError:
        needs = "pandas" if path.suffix == ".csv" else "pandas and pyarrow"
        raise RecordError(f"{path}: needs {needs} to be written; install it with: pip install '.[suite]'") from None
