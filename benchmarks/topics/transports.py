"""What do transports of experience and weights cost, one hand-over at a time and inside a running training system?

The system is [Hou2023, Table 3]'s on a small scale: actors (samplers) and one learner as processes of their own, whose
ratio is free, for each transport and 1 or 64 rows a hand-over (a local storage). "queue n" is emptied whenever the
learner samples, "fill n" whole and only when it is full. Interrupt it as you like: the same command resumes where it
stopped. Records go to results/<machine>/transports-<preset>.jsonl. On two idle cores quick takes about 6 minutes, full
under 20; a filled queue of 50,000 records takes as long as eleven of its transfers.
"""

import dataclasses
import itertools
import multiprocessing
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.platforms.checkout import CORES
from dse.records import Record
from impls import replay as replays
from impls.replay import Replay
from impls.replay.block import Handle, Memory, allocate
from impls.terminal import plural
from impls.training import TrainingError, Workload, identity, load
from impls.training.actor import Inserted
from impls.training.arrangement import Arrangement
from impls.training.weights import spans

from ..arguments import DEFAULT, add_list, add_names, at_least, listed
from ..clock import ALL_CPUS, CallClock, Clock, pin
from ..libraries.rows import LAYOUT, made
from ..timing import Timing
from ..topic import Topic
from ..workers import Untimed
from .profile.cells import Cell
from .profile.command import try_environments, workload_of

if TYPE_CHECKING:  # numba
    from impls.training.parallel.board import Board
    from impls.training.parallel.loop import ParallelLoop
    from impls.training.parallel.transports import RecordTransport, Send

PARTS = {
    "hand-over": "one hand-over of records, and of weights, by each transport, in one process",
    "system": "actors and a learner as processes, in the columns of [Hou2023, Table 3]",
}
MICRO, SYSTEM = "transport", "training transport"
COLUMNS = {
    "environment step": "wall seconds of an environment step: sampling Hz is 1 over it",
    "gradient step": "wall seconds of a gradient step: update Hz is 1 over it, update frame Hz the batch over it",
    "cycle": "mean age in seconds of the newest record that the learner can sample, when it samples",
    "transfer": "the learner's seconds in transfer for a gradient step: its loss is this over a gradient step",
    "cpu": "CPU seconds of all processes for a second of wall time",
    "interval": "seconds between two transfers that brought records, the transfer cycle; shared memory has none",
}
INTERVAL = "interval"
ROWS, BATCHES = (1, 64), (128, 1024)
STARTS, CAPACITY, MOST_SAMPLERS = 1_000, 100_000, 64
SIZES = (500, 2_000, 5_000)  # records that a queue takes
WEIGHTS = ("shared", "file", "torch")
ADDED = "add to weights"  # 1, in one tensor of torch's, in memory of its own or in what torch shares


@dataclass(frozen=True)
class Preset:
    """Seconds of a running system before its first block, of a block, and how many blocks; of sampling a small cell."""

    warm_seconds: float
    block_seconds: float
    blocks: int
    budget_seconds: float


MOST = {"batches": CAPACITY, "queue_size": CAPACITY, "cores": CORES, "samplers": MOST_SAMPLERS}
AXES = {
    "batches": (BATCHES, "records of a gradient step (default: 128,1024)"),
    "samplers": ((1,), "actors; where they and the learner outnumber the cores, a row says so (default: 1)"),
    "queue-size": (SIZES, "records that a queue takes (default: 500,2000,5000)"),
    "cores": ((CORES,), "how many cores the processes may use together (default: all)"),
}


PRESETS = {"quick": Preset(1.0, 0.5, 11, 0.15), "full": Preset(5.0, 2.5, 11, 0.5)}


def hand_overs() -> Iterator[list[Cell]]:
    """Yield groups of hand-overs of as many rows, and of weights, that are timed in alternation."""
    for rows in ROWS:
        yield [Cell(name, op, batch=rows) for name in ("shared", "queue", "pipe") for op in ("send", "hand over")]
    for op in ("publish", "fetch"):
        yield [Cell(name, f"{op} weights") for name in WEIGHTS]
    yield [Cell(name, ADDED) for name in ("private", "torch")]


def systems(workload: str, capacity: int, fanout: int, axes: Mapping[str, Sequence[int]]) -> Iterator[list[Cell]]:
    """Yield the columns of each row of the table; a queue that is filled first is handed single rows, as there.

    ``axes``: values of ``cores``, ``samplers``, ``batches`` and ``queue_size``.
    """
    for used, count, batch, rows in itertools.product(axes["cores"], axes["samplers"], axes["batches"], ROWS):
        options = {"workload": workload, "rows": rows} | ({"samplers": count} if count > 1 else {})
        options |= {"cores": used} if used < CORES else {}
        queues = [
            f"{kind} {size}" for kind in ("queue", *(["fill"] if rows == 1 else [])) for size in axes["queue_size"]
        ]
        for name in ("shared", *queues, "pipe"):
            ops = [op for op in COLUMNS if (name, op) != ("shared", INTERVAL)]
            yield [Cell(name, op, options, batch, count + 1, capacity, fanout) for op in ops]


def oversubscribed(options: Mapping[str, Any]) -> str | None:
    """Say that a system with these options has more processes than cores; None where it has not."""
    processes, cores = options.get("samplers", 1) + 1, options.get("cores", CORES)
    return f"oversubscribed: {processes} processes on {plural(cores, 'core')}" if processes > cores else None


SAMPLE_SECONDS = 0.002
_ROW = 0


class HandOverClock:
    """Times hand-overs one by one: the sender's part ("send"), or until the receiver has inserted it ("hand over")."""

    def __init__(self, send: Callable[[], object], receive: Callable[[], int], rows: int, is_whole: bool) -> None:
        self._send, self._receive, self._rows, self._is_whole = send, receive, rows, is_whole
        self.calls_per_sample = 1
        for _ in range(3):
            seconds = self.sample()
        self.calls_per_sample = max(1, round(SAMPLE_SECONDS / max(seconds, 1e-7)))

    def sample(self) -> float:
        """Take one more sample; return the seconds of a hand-over."""
        total = 0.0
        for _ in range(self.calls_per_sample):
            began = time.perf_counter()
            self._send()
            sent = time.perf_counter()
            left = self._rows
            # Invariant: ``left`` rows of the hand-over are not in the replay yet.
            while left > 0:
                left -= self._receive()
            total += (time.perf_counter() if self._is_whole else sent) - began
        return total / self.calls_per_sample


def clock_of(cell: Cell, stack: ExitStack) -> Clock:
    """Make the clock of a cell; what it opens is closed with the stack."""
    return _weights_clock(cell, stack) if cell.op.endswith("weights") else _records_clock(cell, stack)


def _records_clock(cell: Cell, stack: ExitStack) -> Clock:
    from impls.training.parallel import transports  # noqa: PLC0415  # numba
    from impls.training.parallel.board import Board  # noqa: PLC0415

    replay = stack.enter_context(replays.make(CAPACITY, LAYOUT, alpha=0.6, epsilon=1e-3, shared=True))
    transport = transports.make_record_transport(load("hopper_td3"), Arrangement(transport=cell.contestant))
    stack.callback(transport.close)
    send = transport.make_sender(replay, Board(1, 1, 1), _ROW, 0)
    inserted = Inserted(made(np.arange(cell.batch)), None, np.ones(cell.batch, np.bool_))

    def receive() -> int:
        return cell.batch if cell.contestant == "shared" else transport.receive(replay)

    return HandOverClock(lambda: send(inserted), receive, cell.batch, cell.op == "hand over")


def _weights_clock(cell: Cell, stack: ExitStack) -> Clock:
    from impls.training.parallel import transports  # noqa: PLC0415  # numba
    from impls.training.parallel.board import Board  # noqa: PLC0415

    part = spans(load("hopper_td3"))["policy"]
    weights: Any = np.random.default_rng(0).standard_normal(part.stop - part.start).astype(np.float32)
    if cell.op == ADDED:
        return _tensor_clock(weights, cell.contestant == "torch")
    target = np.empty_like(weights)
    transport = transports.make_weight_transport(Arrangement(weights=cell.contestant), len(weights))
    if transport is None:
        board = Board(1, 1, len(weights))
        board.publish(weights)
        publish, fetch = (lambda turn: board.publish(weights)), (lambda turn: board.fetch(target, -2))
    else:
        stack.callback(transport.close)
        transport.publish(weights, 0)
        publish, fetch = (lambda turn: transport.publish(weights, turn)), (lambda turn: transport.fetch(target, -2))
    return CallClock(publish if cell.op.startswith("publish") else fetch, SAMPLE_SECONDS)


def _tensor_clock(weights: Any, is_shared: bool) -> CallClock:
    import torch  # noqa: PLC0415  # heavy

    tensor = torch.from_numpy(weights)
    if is_shared:
        tensor.share_memory_()
    return CallClock(lambda turn: tensor.add_(1.0), SAMPLE_SECONDS)


LEAST_SECONDS = 1e-12  # a record's time is above 0


class Counts(NamedTuple):
    """What a system has done so far: seconds by its clocks, steps, and what its transport noted."""

    wall: float
    cpu: float
    steps: int
    updates: int
    transfer: float
    age: float
    looks: int
    transfers: int = 0


ENTRIES = 1 << 17  # more hand-overs than are ever under way
_COUNT, _RECORDS, _FIRST = 0, 1, 8  # words of the ledger: hand-overs begun, their records; then of each these and when


class Ledger:
    """When each hand-over was begun, in shared memory: actors write, one at a time, and the receiver reads."""

    def __init__(self, memory: "Memory | None" = None, lock: Any = None) -> None:
        self._lock = lock or multiprocessing.get_context("spawn").Lock()
        self._memory = allocate(8 * (_FIRST + 2 * ENTRIES), True) if memory is None else memory
        self._words = self._memory.view(0, (_FIRST,), np.int64)
        self._entries = self._memory.view(8 * _FIRST, (ENTRIES, 2), np.int64)
        self._at = 0

    def begin(self, records: int) -> None:
        """Note that an actor hands a given number of records over."""
        with self._lock:
            count = int(self._words[_COUNT])
            self._words[_RECORDS] += records
            self._entries[count % ENTRIES] = self._words[_RECORDS], time.perf_counter_ns()
            self._words[_COUNT] = count + 1

    def newest(self, received: int | None) -> int | None:
        """Nanoseconds at which the newest of ``received`` records was handed off, of all by default; None before."""
        count = int(self._words[_COUNT])
        if received is None:
            self._at = count
        while self._at < count and received is not None and self._entries[self._at % ENTRIES, 0] <= received:
            # Invariant: the hand-overs before ``at`` have been received.
            self._at += 1
        return int(self._entries[(self._at - 1) % ENTRIES, 1]) if self._at else None

    def handle(self) -> tuple["Handle", Any]:
        """What an actor's process attaches by."""
        return self._memory.handle(), self._lock

    @classmethod
    def attach(cls, handle: tuple["Handle", Any]) -> "Ledger":
        """The ledger of a handle, in an actor's process."""
        return cls(handle[0].attach(), handle[1])


class Watched:
    """A transport, timed where it receives: ``transfer_ns`` of the learner, and the ages of its newest record."""

    def __init__(self, inner: "RecordTransport", ledger: "Ledger | tuple[Handle, Any]", is_direct: bool) -> None:
        self._inner, self._ledger, self._is_direct = inner, ledger, is_direct
        self.is_polled, self.after_kill = True, inner.after_kill
        self.transfer_ns, self.transfers, self.received, self.age_ns, self.looks = 0, 0, 0, 0, 0

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self._ledger, Ledger)
        return Watched, (self._inner, self._ledger.handle(), self._is_direct)

    def make_sender(self, replay: "Replay | None", board: "Board", row: int, number: int) -> "Send":
        """The transport's own, noted in the ledger."""
        send = self._inner.make_sender(replay, board, row, number)
        assert not isinstance(self._ledger, Ledger)  # in a child it is a handle
        ledger = Ledger.attach(self._ledger)

        def noted(inserted: "Inserted") -> None:
            ledger.begin(len(inserted.can_sample))
            send(inserted)

        return noted

    def receive(self, replay: "Replay") -> int:
        """Receive by the transport, timed; then look how old the newest record is."""
        assert isinstance(self._ledger, Ledger)
        began = time.perf_counter_ns()
        count = self._inner.receive(replay)
        ended = time.perf_counter_ns()
        self.transfer_ns += ended - began
        self.transfers += count > 0
        self.received += count
        newest = self._ledger.newest(None if self._is_direct else self.received)
        if newest is not None:
            self.age_ns += max(0, ended - newest)
            self.looks += 1
        return count

    def is_drained(self, replay: "Replay") -> bool:
        """What the transport says."""
        return self._inner.is_drained(replay)

    def close(self) -> None:
        """Close the transport that is watched."""
        self._inner.close()


def system_of(workload: Workload, cell: Cell) -> tuple[Workload, Arrangement]:
    """Return a workload whose actors hand N rows over at once, and its arrangement with a free ratio."""
    replace, options = dataclasses.replace, cell.options
    changed = replace(
        workload,
        steps=1 << 40,
        learner=replace(workload.learner, batch=cell.batch, learning_starts=STARTS),
        replay=replace(workload.replay, capacity=CAPACITY, presampled=0),
        exploration=replace(workload.exploration, random_steps=0),
        actors=replace(
            workload.actors, count=options.get("samplers", 1), environments=1, local_storage=options["rows"]
        ),
    )
    kind, _, size = cell.contestant.partition(" ")
    cores = tuple(ALL_CPUS[: options.get("cores", 0)])  # by default all that the loop itself finds
    arrangement = Arrangement(name="apart", ratio="free", transport=kind, queue_size=int(size or 2_000), cores=cores)
    return changed, arrangement


def measured(
    workload: Workload, cell: Cell, preset: Preset, make_loop: Callable[..., Any] | None = None
) -> dict[str, list[float]]:
    """Run a system; return the samples of each column, one a block. TrainingError if a process of it fails."""
    from impls.training.parallel import loop as parallel  # noqa: PLC0415  # numba
    from impls.training.parallel.transports import make_record_transport  # noqa: PLC0415

    changed, arrangement = system_of(workload, cell)
    watched = Watched(make_record_transport(changed, arrangement), Ledger(), arrangement.transport == "shared")
    is_filled = arrangement.transport == "fill"
    loop = (make_loop or parallel.ParallelLoop)(changed, arrangement, transport=watched)
    try:
        while loop.updates == 0:
            loop.advance()
        _run(loop, watched, preset.warm_seconds, is_filled)
        counts = [_counts(loop, watched)]
        for _ in range(preset.blocks):
            _run(loop, watched, preset.block_seconds, is_filled)
            counts.append(_counts(loop, watched))
    finally:
        loop.close()
        pin(len(ALL_CPUS))
    return columns(counts)


def columns(counts: list[Counts]) -> dict[str, list[float]]:
    """Return the samples of each column from the counts before, between and after blocks."""
    samples: dict[str, list[float]] = {}
    for before, after in itertools.pairwise(counts):
        done = Counts(*(last - first for first, last in zip(before, after, strict=True)))  # type: ignore[arg-type]
        values = {
            "environment step": done.wall / max(1, done.steps),
            "gradient step": done.wall / max(1, done.updates),
            "cycle": done.age / max(1, done.looks),
            "transfer": done.transfer / max(1, done.updates),
            "cpu": done.cpu / done.wall,
            INTERVAL: done.wall / max(1, done.transfers),
        }
        for column, value in values.items():
            samples.setdefault(column, []).append(max(LEAST_SECONDS, value))
    return samples


def _run(loop: "ParallelLoop", watched: Watched, seconds: float, is_filled: bool) -> None:
    """Train for so long, and a gradient step at least; where a queue is filled first, until it has been moved."""
    end, updates, is_over = time.perf_counter() + seconds, loop.updates, False
    while not is_over:
        transfers = watched.transfers
        loop.advance()
        is_over = time.perf_counter() >= end and loop.updates > updates and watched.transfers >= transfers + is_filled


def _counts(loop: "ParallelLoop", watched: Watched) -> Counts:
    times = loop.cpu_seconds(), loop.step, loop.updates
    return Counts(
        time.perf_counter(), *times, 1e-9 * watched.transfer_ns, 1e-9 * watched.age_ns, watched.looks, watched.transfers
    )


class Transports(Topic):
    """Hand-overs and running systems, into one file."""

    example = "--preset quick"
    epilog = f"parts:\n{listed(PARTS)}\ncolumns of a system, each a record:\n{listed(COLUMNS)}\n"
    seed_of = "the order of hand-overs"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the parts, how long each runs, and the axes of systems."""
        add_names(parser, "only", "part", PARTS, "parts, listed below")
        parser.add_argument("--preset", choices=PRESETS, default="full", help=f"how long each runs ({DEFAULT})")
        workload = f"of the system, such as cartpole_dqn; see: python -m impls.training list ({DEFAULT})"
        parser.add_argument("--workload", default="hopper_td3", metavar="NAME|FILE", help=workload)
        for name, (default, text) in AXES.items():
            add_list(parser, name, at_least(1, name), default=default, help=text)

    def __init__(self, options: Namespace) -> None:
        for name, most in {
            "batches": CAPACITY,
            "queue_size": CAPACITY,
            "cores": CORES,
            "samplers": MOST_SAMPLERS,
        }.items():
            if (asked := max(getattr(options, name))) > most:
                raise ValueError(f"--{name.replace('_', '-')} is at most {most}, not {asked}")
        super().__init__(options)

    @property
    def file(self) -> str:
        """Name of the file of records: each preset has its own."""
        return f"transports-{self.options.preset}.jsonl"

    def parts(self) -> Sequence[Topic]:
        """Return the parts that are asked for."""
        kinds = {"hand-over": _HandOvers, "system": _Systems}
        return [kinds[name](self.options) for name in self.options.only]

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the table of the running systems."""
        rows = table(found)
        return {"table": rows}, [*lines(rows), ""] if rows else ()


class _HandOvers(Topic):
    """Single hand-overs of records and weights, in this process on one core."""

    primitive, unit, has_sentinels = MICRO, "hand-over cell", False

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self.asked, self.budget = {"seed": options.seed}, PRESETS[options.preset].budget_seconds

    def cells(self) -> list[list[Cell]]:
        """Return hand-overs of as many rows, and of weights, in groups."""
        return list(hand_overs())

    def clock(self, cell: Cell, stack: ExitStack) -> Clock:
        """Return the clock of a hand-over, for which this process keeps to one core."""
        stack.callback(pin, len(ALL_CPUS))
        pin(1)
        return clock_of(cell, stack)

    def locate(self, cell: Cell, clock: Clock | None) -> dict[str, Any]:
        """Return the core that this process kept to."""
        return {"affinity": list(ALL_CPUS[:1])}


class _Systems(Topic):
    """Running systems of actors and a learner, each a group of cells: its columns."""

    primitive, unit, has_sentinels = SYSTEM, "system cell", False

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self._workload = workload_of(options.workload)
        self.asked = {"workload": identity(self._workload), "seed": options.seed}

    def open(self, stack: ExitStack) -> None:
        """Make the environment once, so that what it lacks is said before anything is recorded."""
        try_environments([self._workload])

    def cells(self) -> list[list[Cell]]:
        """Return the columns of each system."""
        return list(systems(self._workload.name, CAPACITY, self._workload.replay.fanout, vars(self.options)))

    def run(self, cells: Sequence[Cell]) -> dict[str, list[float]] | Untimed:
        """Run a system; return the samples of each column."""
        try:
            return measured(self._workload, cells[0], PRESETS[self.options.preset])
        except TrainingError as error:
            return Untimed("failed", str(error))

    def explain(self, cell: Cell, clock: Clock | None, timing: Timing) -> str | None:
        """Say where a system has more processes than cores."""
        return oversubscribed(cell.options)

    def locate(self, cell: Cell, clock: Clock | None) -> dict[str, Any]:
        """Return the cores that the processes kept to."""
        return {"affinity": list(ALL_CPUS[: cell.options.get("cores")])}


def table(found: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the rows of the running systems in the columns of [Hou2023, Table 3]."""
    by_row: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in found:
        if record.primitive == SYSTEM and record.median_seconds is not None:
            key = record.batch, record.contestant, *sorted(record.options.items())
            by_row.setdefault(key, {})[record.op] = record
    return [row_of(one) for one in by_row.values() if set(COLUMNS) - {INTERVAL} <= set(one)]


def row_of(columns: dict[str, Record]) -> dict[str, Any]:
    """Return a row: its cell, percent of all cores, rates in Hz, seconds, percent of the learner's time."""
    seconds = {op: record.seconds for op, record in columns.items()}
    one = columns["cpu"]
    cores = one.machine.get("cores", 1)
    return {
        **({"samplers": 1, "cores": cores} | one.options),
        "batch": one.batch,
        "transport": one.contestant,
        "cpu_percent": 100 * seconds["cpu"] / cores,
        "sampling_hz": 1 / seconds["environment step"],
        "update_frame_hz": one.batch / seconds["gradient step"],
        "update_hz": 1 / seconds["gradient step"],
        "cycle_seconds": seconds.get(INTERVAL),
        "age_seconds": seconds["cycle"],
        "loss_percent": 100 * seconds["transfer"] / seconds["gradient step"],
        "note": one.reason,
    }


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table as text."""
    head = f"{'transport':12}{'B':>7}{'rows':>6}{'samplers':>10}{'cores':>7}{'CPU %':>8}{'sampling Hz':>13}"
    text = [f"{head}{'frame Hz':>11}{'update Hz':>11}{'cycle s':>10}{'age ms':>11}{'loss %':>9}"] if rows else []
    for row in rows:
        shape = f"{row['transport']:12}{row['batch']:7,}{row['rows']:6}{row['samplers']:10}{row['cores']:7}"
        rates = f"{row['sampling_hz']:13,.0f}{row['update_frame_hz']:11,.0f}{row['update_hz']:11,.1f}"
        cycle = "-" if row["cycle_seconds"] is None else f"{row['cycle_seconds']:,.3g}"
        times = f"{cycle:>10}{1e3 * row['age_seconds']:11,.2f}{row['loss_percent']:9.2f}"
        text.append(f"{shape}{row['cpu_percent']:8.0f}{rates}{times}  {row['note'] or ''}".rstrip())
    return text
