"""How fast are whole replay buffers, ours and other libraries', alone and shared by threads and processes?

Every buffer is checked before it is timed: records that come out are records that went in, and priorities matter.
Those that answer one question take turns, sample by sample. Libraries run in the environment that make peers makes,
where it exists. Interrupt it as you like: the same command resumes where it stopped. Records go to
results/<machine>/replay.jsonl.
"""

import dataclasses
import inspect
import itertools
import statistics
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse import stats
from dse.platforms.checkout import CORES
from dse.records import Record
from impls.replay import registry

from ...arguments import add_list, add_names, add_numbers, add_python, among, listed
from ...clock import Clock
from ...libraries.base import Buffer, roles
from ...timing import Timing
from ...topic import Topic
from ...workers import Untimed, WorkerError, has_libraries
from . import kind_of
from .cells import (
    ALONE,
    COMPILED,
    IN_PYTHON,
    LEARNED,
    PARTS,
    RETRIEVE,
    REUSED,
    SHARDED,
    STEP_PARTS,
    SUPERSEDED,
    TRAINED,
    UNTIL,
    Cell,
    Plan,
)

BALANCED = "global"  # the strategy on which rows an insertion are set, for every strategy alike


class ReplayBuffers(Topic):
    """All parts, into one file; or one part, in processes: our buffers by this Python, others by that of libraries."""

    module = "benchmarks.topics.replay.worker"
    example = "--only operations,pairs"
    epilog = f"parts:\n{listed(PARTS)}\n"
    seed_of = "records, priorities and order"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the parts, the strategies and buffers, sizes and seconds."""
        add_names(parser, "only", "part", PARTS, "parts, listed below")
        strategy = among("strategy", *registry.strategies())
        add_list(parser, "strategies", strategy, help="strategies of the compiled replay (default: all)")
        buffers = [name for name in roles(Buffer) if name != REUSED]
        chosen = f"of {', '.join(buffers)} (default: all that are here)"
        add_list(parser, "buffers", among("buffer", *buffers), help=chosen)
        add_numbers(
            parser,
            capacity=(1_000_000, "records N"),
            batch=(256, "records B of a sample in pairs"),
            iterations=(5_000, "insertions, and gradient steps, of a run of threads or processes"),
            starts=(1_000, "insertions after which learners start there"),
            sample=(0.02, "seconds of a sample"),
            budget=(0.25, "seconds of sampling a cell, 11 samples at least"),
        )
        add_python(parser)
        parser.add_argument("--no-sentinels", dest="sentinels", action="store_false", help="do not tell disturbances")

    def __init__(self, options: Namespace, part: str = "") -> None:
        super().__init__(options)
        self.plan, self.part, self.primitive, self.unit = _plan(options), part, f"replay_{part}", f"{part} cell"
        self._rows: dict[str, int] = {}  # of an insertion in pairs, by contestant
        self.asked = {name: getattr(options, name) for name in ("sample", "budget", "seed")}
        self.libraries, self.budget, self.has_sentinels = [options.python], options.budget, options.sentinels

    def parts(self) -> Sequence[Topic]:
        """Return the parts that are asked for."""
        return [self] if self.part else [type(self)(self.options, part) for part in self.options.only]

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], list[str]]:
        """Return the summary of each part, of what is asked for alone: the file may have other sizes."""
        cells = [(part, cell) for part in self.parts() for group in part.cells() for cell in group]
        asked = {part.key(one) for part, cell in cells for one in (cell, *_beside(cell))}
        content = summarize((record for record in found if record.cell in asked), self.plan.default)
        return content, [*lines(content), ""]

    def cells(self) -> list[list[Cell]]:
        """Return the groups of the part."""
        return self.plan.groups(self.part)

    def clock(self, cell: Cell, stack: ExitStack, is_twin: bool = False) -> Clock | Untimed:
        """Return the clock of a cell in the process of its buffer; of a twin in one of its own where buffers have."""
        assert self.pool is not None
        options, rows = self.options, self._rows.get(cell.contestant, 1)
        seconds = options.sample if self.part in ALONE else 2 * options.sample
        how = {"cell": cell, "seed": options.seed, "sample_seconds": seconds, "rows": rows}
        return self.pool.prepare(self._open(cell, is_twin), **how)

    def twin(self, cell: Cell, stack: ExitStack) -> Clock | Untimed:
        """Return a second clock."""
        return self.clock(cell, stack, is_twin=True)

    def _open(self, cell: Cell, is_twin: bool = False) -> tuple[object, ...]:
        """Open the process of a cell's buffer; return its key. WorkerError if it cannot be started."""
        assert self.pool is not None
        name, package = cell.contestant, kind_of(cell.contestant).package
        key = (*cell.member, is_twin) if self.part in ALONE else (name,)
        python = Path(sys.executable) if package == "numba" else self.options.python
        self.packages[name] = self.pool.open(key, python, "versions", packages=["numpy", "numba", package])
        return key

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of a group; of pairs, first those that set the rows of an insertion."""
        if self.part == "pairs":
            for contestant in dict.fromkeys(cell.contestant for cell in cells):
                if contestant not in self._rows:
                    yield from self._balance(contestant)
        yield from super().measure(cells)

    def _balance(self, contestant: str) -> Iterator[Record]:
        """Set the rows of an insertion so that it takes as long as sampling and updating: from the file, or measured.

        Yields the records of what was measured.
        """
        cells = [cell for group in self.cells() for cell in group if cell.contestant == contestant]
        cell = next((cell for cell in cells if cell.member[1] == BALANCED), cells[0])
        shape = contestant, cell.capacity
        known = [record for record in self.stamp.known(self.path) if (record.contestant, record.capacity) == shape]
        ops = "balance insert", "balance learn"
        before = [
            insert.batch
            for insert, learn in itertools.pairwise(known)
            if (insert.op, learn.op) == ops and learn.batch == cell.batch
        ]
        self._rows[contestant] = before[-1] if before else 1
        if before or self.pool is None:
            return
        try:
            answer = self.pool.ask(self._open(cell), "balance", cell=cell, seed=self.options.seed)
        except WorkerError:
            return  # its cells say why
        self._rows[contestant] = answer.get("rows", 1)
        for op, batch in (("insert", self._rows[contestant]), ("learn", cell.batch)):
            if op in answer:
                own = dataclasses.replace(cell, op=f"balance {op}", batch=batch)
                yield self.stamp_of(cell).timed(own, Timing(tuple(answer[op]), 1))

    def timed(self, cell: Cell, clock: Any, timing: Timing, **twin: Any) -> Iterator[Record]:
        """Yield the record of a cell's time and, of a flush under load, of the learner meanwhile."""
        where, reason = self.locate(cell, clock), self.explain(cell, clock, timing)
        last = clock.answers[-len(timing.samples) :]
        shares = [answer["superseded"] for answer in last if answer["superseded"] is not None]
        found = {SUPERSEDED: statistics.mean(shares)} if shares else {}
        yield self.stamp_of(cell).timed(cell, timing, where, found, reason=reason, **twin)
        for learner in () if twin else _beside(cell):
            samples = tuple(answer["beside"] for answer in last)
            yield self.stamp_of(cell).timed(learner, Timing(samples, timing.calls_per_sample), where)

    def explain(self, cell: Cell, clock: Any, timing: Timing) -> str | None:
        """Return the limits of the library, and what to know of a shared buffer's time."""
        reasons = [*kind_of(cell.contestant).limits]
        if cell.threads > CORES:
            reasons.append(f"oversubscribed: {cell.threads} on {CORES} cores")
        if self.part == "pairs":
            reasons.append(f"{self._rows[cell.contestant]} rows an insertion")
        return "; ".join([*reasons, *filter(None, [clock.prepared["note"]])]) or None


def _beside(cell: Cell) -> list[Cell]:
    """Return the learner that is timed during the flush of a cell, if one is."""
    options = {**cell.options, "beside": cell.op, "rows": cell.batch}
    learner = dataclasses.replace(cell, op="learn", batch=LEARNED, options=options)
    return [learner] if cell.options.get("beside") == "learner" else []


def _plan(options: Namespace) -> Plan:
    """Return what is asked for; libraries are omitted where there is no interpreter that has them."""
    strategies = list(options.strategies or registry.strategies())
    usual = inspect.signature(registry.make).parameters["strategy"].default
    default = usual if usual in strategies else strategies[0]
    others = [name for name in roles(Buffer) if name not in (COMPILED, REUSED)]
    strategies = strategies if COMPILED in (options.buffers or (COMPILED,)) else []
    chosen = [name for name in others if name in (options.buffers or others)]
    theirs = [name for name in chosen if kind_of(name).package != "numba"]
    if not has_libraries(options, is_needed=bool(options.buffers and theirs)):
        chosen = [name for name in chosen if name not in theirs]
    sizes = {name: getattr(options, name) for name in ("capacity", "batch", "iterations", "starts")}
    ordered = sorted(strategies, key=lambda name: name != default)
    plan = Plan(ordered, default, sorted(chosen, key=lambda name: name != IN_PYTHON), **sizes)
    cells = [(part, cell) for part in options.only for group in plan.groups(part) for cell in group]
    timed = {name for part, cell in cells for name in (part, cell.contestant, cell.options.get("strategy"))}
    asked = [*(options.buffers or ()), *(options.strategies or ()), *(options.only if options.buffers else ())]
    if idle := [name for name in asked if name not in {*timed, *({} if options.only != tuple(PARTS) else PARTS)}]:
        raise ValueError(f"--only, --buffers and --strategies leave nothing to measure of {', '.join(idle)}")
    return plan


SUMMED = ("insert(1)", "sample(256)", "update(256)")
LAST = {"sample": "weights", "update": "tree", "insert": "row and tree"}  # the last step of each operation
BASES = ("global", "none")  # strategies with one lock and with none, which the others are compared with
SHARED_WITH = (
    f"An upper bound: the step is of the buffers, {TRAINED}'s environment, M actions and one gradient step, timed in "
    "alternation, without the model."
)


def summarize(found: Iterable[Record], default: str) -> dict[str, Any]:
    """Return the summary of each part that has records, as JSON takes it."""
    parts: dict[str, list[Record]] = {}
    for record in found:
        if record.median_seconds is not None:
            parts.setdefault(record.primitive.removeprefix("replay_"), []).append(record)
    return {part: make(parts[part], default) for part, make in zip(PARTS, _SUMMARIES, strict=True) if part in parts}


def label(record: Record) -> str:
    """Name a record's implementation: a library, or a strategy of the compiled replay."""
    reused = ", arrays reused" if record.contestant == REUSED else ""
    return str(record.options.get("strategy", record.contestant)) + reused


def _rows(cells: Iterable[tuple[str, object, float]]) -> dict[str, dict[str, float]]:
    """Cells as rows by name of numbers by column."""
    rows: dict[str, dict[str, float]] = {}
    for name, column, number in cells:
        rows.setdefault(name, {})[str(column)] = number
    return rows


def _operations(found: Sequence[Record], default: str) -> dict[str, Any]:
    rows = _rows((label(record), f"{record.op}({record.batch})", 1e6 * record.seconds) for record in found)
    sums = {name: sum(map(row.get, SUMMED)) for name, row in rows.items() if {*SUMMED} <= {*row}}
    for name, total in sums.items():
        rows[name]["sum"] = total
    steps = {label(record): record for record in found if record.op == "step"}
    ours = {label(record) for record in found if record.contestant in (COMPILED, REUSED, IN_PYTHON)}
    peers = sorted(sums.keys() - ours, key=sums.__getitem__)
    result: dict[str, Any] = {"us": rows}
    for role, name in [*(("best_peer", peer) for peer in peers[:1]), ("python", IN_PYTHON)]:
        if {name, default} <= {*sums}:
            step = {"step": stats.speedup(steps[name], steps[default])} if {name, default} <= {*steps} else {}
            result[f"times_{role}"] = {"name": name, "sum": sums[name] / sums[default], **step}
    return result


def _parts_of(found: Sequence[Record], default: str) -> dict[str, Any]:
    """Return what each step adds to the one before."""
    rows: dict[str, dict[str, float]] = {}
    for op, steps in UNTIL.items():
        us = {record.options["until"]: 1e6 * record.seconds for record in found if record.op == op}
        if set(us) == set(steps):
            before = [0.0, *(us[step] for step in steps)]
            names = [*steps[:-1], LAST[op]]
            rows[op] = {name: us[step] - last for name, step, last in zip(names, steps, before, strict=False)}
    return {"us": rows}


def _batches(found: Sequence[Record], default: str) -> dict[str, Any]:
    return {"us": _rows((f"{label(record)} {record.op}", record.batch, 1e6 * record.seconds) for record in found)}


def _memr(found: Sequence[Record], default: str) -> dict[str, Any]:
    """Return what rollouts take of each buffer, and the share of that in an environment step whose parts were all
    timed."""
    rest = [record for record in found if "workload" in record.options]
    steps: dict[int, list[float]] = {}  # us of the other parts, by M
    for record in rest:
        steps.setdefault(record.options["rollouts"], []).append(1e6 * record.seconds)
    whole = {count: sum(parts) for count, parts in steps.items() if len(parts) == len(STEP_PARTS)}
    of_rest = [
        (f"{record.options['workload']} {label(record)} {record.op}", record.options["rollouts"], 1e6 * record.seconds)
        for record in rest
    ]
    cells = [
        (label(record), record.batch, 1e6 * record.seconds) for record in found if "workload" not in record.options
    ]
    shares = ((name, count, 100 * us / (us + whole[count])) for name, count, us in cells if count in whole)
    return {"us": _rows([*of_rest, *cells]), "percent": _rows(shares), "source": SHARED_WITH}


def _pairs(found: Sequence[Record], default: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for work in dict.fromkeys(str(record.options["work"]) for record in found):
        cells = {(label(record), record.op): record for record in found if record.options["work"] == work}
        result[work] = rows = {}
        for name, two in ((name, two) for (name, op), two in cells.items() if op == "two"):
            factors = {other: cells[name, other] for other in ("one", "apart") if (name, other) in cells}
            factors |= {other: cells[other, "two"] for other in BASES if (other, "two") in cells and other != name}
            rows[name] = {"pairs_per_second": 1 / two.seconds, **_factors(factors, two)}
    return result


def _factors(bases: dict[str, Record], record: Record) -> dict[str, Any]:
    """Return the speedups of a record over each of the bases."""
    return {f"times_{other}": stats.speedup(base, record) for other, base in bases.items()}


def _parallel(found: Sequence[Record], default: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    shapes: dict[str, dict[str, Record]] = {}
    for record in found:
        shape = f"{record.threads}, {1e6 * record.options['work_seconds']:.0f} us of work"
        shapes.setdefault(shape + ", priorities retrieved" * (record.op == RETRIEVE), {})[label(record)] = record
    for shape, cells in shapes.items():
        result[shape] = rows = {}
        for name, record in cells.items():
            rows[name] = {"us": 1e6 * record.seconds, "oversubscribed": record.is_oversubscribed}
            rows[name] |= _factors({other: cells[other] for other in BASES if other in cells and other != name}, record)
            if SUPERSEDED in record.metrics:
                rows[name][SUPERSEDED] = record.metrics[SUPERSEDED]
    return result


def _flush(found: Sequence[Record], default: str) -> dict[str, Any]:
    def cell(record: Record) -> tuple[str, object, float]:
        during = "learner during" if record.op == "learn" else f"{record.op} under load from"
        column = record.options["rows"] if record.op == "learn" else record.batch
        return f"{label(record)} {during} {record.options['beside']}", column, 1e9 * record.seconds / record.batch

    return {"ns_per_row": _rows(map(cell, found))}


def _sharded(found: Sequence[Record], default: str) -> dict[str, Any]:
    steps = {record.contestant: record for record in found}
    us = _rows((name, "step", 1e6 * record.seconds) for name, record in steps.items())
    ours = steps.pop(SHARDED, None)
    return {"us": us} | (
        {"speedups": {name: stats.speedup(record, ours) for name, record in steps.items()}} if ours else {}
    )


_SUMMARIES = (_operations, _sharded, _parts_of, _batches, _memr, _pairs, _parallel, _parallel, _flush)
"""What makes the summary of each part, in their order."""


def lines(found: dict[str, Any]) -> list[str]:
    """Return the summary as text."""
    text: list[str] = []
    for part, content in found.items():
        text += ["", f"{part}:"]
        if rows := content.get("us") or content.get("ns_per_row"):
            text += _table(rows, "us" if "us" in content else "ns per row")
            text += _table(content["percent"], "% of a step") if content.get("percent") else []
            text += [f"  {content['source']}"] if content.get("percent") else []
            text += [
                f"  a speedup of {_times(times)} over {name}" for name, times in content.get("speedups", {}).items()
            ]
            for times in (content[role] for role in ("times_best_peer", "times_python") if role in content):
                step = f", a whole step {_times(times['step'])}" if "step" in times else ""
                text.append(f"  a speedup of {times['sum']:.2f} over {times['name']}{step}")
            continue
        for shape, rows in content.items():
            text.append(f"  {shape}:")
            text += [f"    {name:18} {_described(row)}" for name, row in rows.items()]
    return text


def _table(rows: dict[str, dict[str, float]], unit: str) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    ordered = sorted(rows.items(), key=lambda item: item[1].get("sum", statistics.median(item[1].values())))
    return [f"  {unit:44}" + "".join(f"{column:>14}" for column in columns)] + [
        f"  {name:44}" + "".join(f"{row[column]:14,.1f}" if column in row else " " * 14 for column in columns)
        for name, row in ordered
    ]


def _described(row: dict[str, Any]) -> str:
    words = [f"{row['pairs_per_second']:,.0f} pairs/s" if "pairs_per_second" in row else f"{row['us']:,.1f} us a step"]
    for name, text in (("one", "one process"), ("apart", "two buffers"), ("global", "global"), ("none", "none")):
        words += [f"{_times(row[f'times_{name}'])} of {text}"] if f"times_{name}" in row else []
    words += [f"{row[SUPERSEDED]:.2%} of samples superseded before their update"] if SUPERSEDED in row else []
    return ", ".join(words) + (", oversubscribed" if row.get("oversubscribed") else "")


def _times(times: Sequence[float]) -> str:
    median, low, high = times
    return f"{median:.2f}x [{low:.2f}, {high:.2f}]"
