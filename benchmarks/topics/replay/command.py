"""How fast are whole replay buffers, ours and other libraries', alone and shared by threads and processes?

Every buffer is checked before it is timed: records that come out are records that went in, and priorities matter.
Those that answer one question take turns, sample by sample. Libraries run in the environment that make peers makes,
where it exists. Interrupt it as you like: the same command resumes where it stopped. Records go to
results/<machine>/replay.jsonl.
"""

import argparse
import dataclasses
import functools
import inspect
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse import records
from dse.platforms.evidence import CORES
from dse.records import Record
from impls.replay import registry

from ...arguments import add_common, add_list, add_names, add_numbers, add_python, among, listed, parser_of
from ...libraries.base import Buffer, roles
from ...run import Stamp, Tally, file_of, latest, run, show
from ...sentinels import Sentinels
from ...timing import Timing, interleave
from ...workers import Bounded, FailedError, Untimed, WorkerError, has_libraries, refusal
from . import summary
from .buffers import kind_of
from .cells import ALONE, COMPILED, IN_PYTHON, LEARNED, PARTS, REUSED, SUPERSEDED, Cell, Plan

MODULE = "benchmarks.topics.replay.worker"


@dataclasses.dataclass(eq=False)
class Remote:
    """A cell prepared in a worker, which takes its samples; ``beside`` are those of the cell that it times besides,
    ``superseded`` the shares of samples that were superseded before their update."""

    cell: Cell
    worker: Bounded
    number: int
    affinity: list[int]
    note: str | None
    calls_per_sample: int = 0
    beside: list[float] = dataclasses.field(default_factory=list)
    superseded: list[float] = dataclasses.field(default_factory=list)

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call. FailedError where that failed."""
        try:
            answer = self.worker.ask("sample", number=self.number)
        except WorkerError as error:
            answer = {"failed": str(error)}
        if "failed" in answer:
            raise FailedError(self, answer["failed"])
        self.calls_per_sample = answer["calls"]
        for name in ("beside", "superseded"):
            if answer[name] is not None:
                getattr(self, name).append(answer[name])
        return float(answer["seconds"])


class Pool:
    """Processes that may serve several parts: those of our buffers run by this Python, others by ``python``."""

    def __init__(self, stack: ExitStack, python: Path) -> None:
        self._stack, self._python = stack, python
        self._workers: dict[tuple[str, ...], Bounded] = {}
        self.packages: dict[str, dict[str, str]] = {}  # versions, by contestant

    def worker(self, cell: Cell, is_twin: bool = False) -> Bounded:
        """Return the process of a cell's buffer. WorkerError if it cannot be started."""
        name = cell.contestant
        key = (*cell.member, str(is_twin)) if cell.part in ALONE else (name,)
        if key not in self._workers:
            python = Path(sys.executable) if kind_of(name).package == "numba" else self._python
            self._workers[key] = self._stack.enter_context(Bounded(python, module=MODULE))
        if name not in self.packages:
            packages = ["numpy", "numba", kind_of(name).package]
            self.packages[name] = self._workers[key].ask("versions", packages=packages)
        return self._workers[key]

    def drop(self, cell: Cell) -> None:
        """End the process of a cell, for it may hang; the next cell starts another."""
        for key, worker in list(self._workers.items()):
            if key == (cell.contestant,) or key[:2] == cell.member:
                worker.close()
                del self._workers[key]

    def forget(self) -> None:
        """Let every process drop its clocks."""
        for worker in self._workers.values():
            worker.ask("forget")


class Team:
    """The measuring of one part, by the processes of a pool."""

    def __init__(self, pool: Pool, stamp: Stamp, seed: int) -> None:
        self.pool, self._stamp, self._seed = pool, stamp, seed
        self.rows: dict[str, int] = {}  # of an insertion in pairs, by contestant

    def clock(self, cell: Cell, sample_seconds: float, is_twin: bool = False) -> Remote | Untimed:
        """Return a cell ready to be timed, or why it cannot be."""
        try:
            worker = self.pool.worker(cell, is_twin)
            how = {"seed": self._seed, "sample_seconds": sample_seconds, "rows": self.rows.get(cell.contestant, 1)}
            answer = worker.ask("prepare", cell=dataclasses.asdict(cell), **how)
        except WorkerError as error:
            self.pool.drop(cell)
            return Untimed("failed", str(error))
        if refused := refusal(answer):
            return refused
        return Remote(cell, worker, answer["number"], answer["affinity"], answer["note"])

    def stamp(self, cell: Cell) -> Stamp:
        """Return the stamp of a cell's records: its part, and the versions of what it was made with."""
        machine = {**self._stamp.machine, "packages": self.pool.packages.get(cell.contestant, {})}
        return dataclasses.replace(self._stamp, machine=machine)

    def measure(
        self, cells: Sequence[Cell], sample_seconds: float, budget_seconds: float, also: Callable[..., Any]
    ) -> Iterator[Record]:
        """Yield the records of cells that take turns: those that cannot be timed and why, the timed ones, the A/A twin
        of the first, and what ``also`` makes of the samples that were taken with them."""
        left = list(cells)
        # Invariant: cells that are not in ``left`` have a record.
        while left:
            ready: list[Remote] = []
            for cell in list(left):
                clock = self.clock(cell, sample_seconds)
                if isinstance(clock, Remote):
                    ready.append(clock)
                    continue
                left.remove(cell)
                yield self.stamp(cell).record(cell, clock.status, reason=clock.reason)
            twin = self.clock(ready[0].cell, sample_seconds, is_twin=True) if ready else None
            clocks = [*ready, twin] if isinstance(twin, Remote) else ready
            try:
                timings = interleave(clocks, budget_seconds * len(clocks), self._seed)
            except FailedError as error:
                failed, reason = error.clock, str(error)
                self.pool.drop(failed.cell)
                left.remove(failed.cell)
                yield self.stamp(failed.cell).record(failed.cell, "failed", reason=reason)
                continue
            self.pool.forget()
            for clock, timing in zip(clocks, timings, strict=True):
                yield from self._timed(clock, timing, clock is twin)
                if clock is not twin:
                    yield from also(self.stamp(clock.cell), clock, timing)
            return

    def _timed(self, clock: Remote, timing: Timing, is_twin: bool) -> Iterator[Record]:
        stamp, cell = self.stamp(clock.cell), clock.cell
        again = {"primitive": f"{stamp.primitive}_again"} if is_twin else {}
        where: dict[str, Any] = {"affinity": clock.affinity}
        if clock.superseded:
            where[SUPERSEDED] = statistics.mean(clock.superseded)
        yield stamp.timed(cell, timing, where, reason=reason_of(clock, self.rows), **again)


def reason_of(clock: Remote, rows: dict[str, int]) -> str | None:
    """Return what to know of a cell's time, if anything."""
    cell = clock.cell
    reasons = [*kind_of(cell.contestant).limits]
    if cell.threads > CORES:
        reasons.append(f"oversubscribed: {cell.threads} on {CORES} cores")
    if cell.part == "pairs":
        reasons.append(f"{rows[cell.contestant]} rows an insertion")
    return "; ".join([*reasons, *([clock.note] if clock.note else [])]) or None


FILE = "replay.jsonl"
BALANCED = "global"  # the strategy on which rows an insertion are set, for every strategy alike


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code: 0 done, 1 where cells failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    path = file_of(options, FILE)
    plan = _plan(options)
    if not options.dry_run and sys.stderr is not None and sys.stderr.isatty():
        print("Making and filling buffers first; where kernels are compiled, it takes minutes ...", file=sys.stderr)
    with ExitStack() as stack:
        pool = Pool(stack, options.python)
        tally = sum((_measured(part, plan, path, options, pool) for part in options.only), Tally(0))
    found = summary.of(latest(_stamp("", options).known(path)), plan.default)
    return show(tally, path, options, found, [*summary.lines(found), ""])


def _plan(options: argparse.Namespace) -> Plan:
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


def _stamp(part: str, options: argparse.Namespace) -> Stamp:
    asked = {"sample": options.sample, "budget": options.budget, "seed": options.seed}
    return Stamp.of_this_run(__name__, f"replay_{part}", [options.python], asked)


def _measured(part: str, plan: Plan, path: Path, options: argparse.Namespace, pool: Pool) -> Tally:
    """Measure one part; where each buffer has a process of its own, they end with the part."""
    stamp = _stamp(part, options)
    seconds = options.sample if part in ALONE else 2 * options.sample
    with ExitStack() as stack:
        team = Team(Pool(stack, options.python) if part in ALONE else pool, stamp, options.seed)
        groups = plan.groups(part)
        if part == "pairs" and not options.dry_run:
            _balance(team, stamp, [cell for group in groups for cell in group], path, options.seed)
        measure = functools.partial(team.measure, sample_seconds=seconds, budget_seconds=options.budget, also=_beside)
        sentinels = Sentinels() if options.sentinels else None
        return run(groups, path, stamp, measure, options, unit=f"{part} cell", sentinels=sentinels)


def _beside(stamp: Stamp, clock: Remote, timing: Timing) -> Iterator[Record]:
    """Yield the record of the learner during a flush."""
    cell = clock.cell
    if cell.part == "flush" and cell.options["beside"] == "learner":
        options = {**cell.options, "beside": cell.op, "rows": cell.batch}
        learner = dataclasses.replace(cell, op="learn", batch=LEARNED, options=options)
        last = tuple(clock.beside[-len(timing.samples) :])
        yield stamp.timed(learner, Timing(last, timing.calls_per_sample), {"affinity": clock.affinity})


def _balance(team: Team, stamp: Stamp, cells: Sequence[Cell], path: Path, seed: int) -> None:
    """Set the rows of an insertion so that it takes as long as sampling and updating: from the file, or measured."""
    known = stamp.known(path)
    for contestant in dict.fromkeys(cell.contestant for cell in cells):
        cell = _balanced(next(cell for cell in cells if cell.contestant == contestant), cells)
        before = [one for one in known if _is_balance(one, contestant)]
        if before:
            team.rows[contestant] = before[-1].batch
            continue
        team.rows[contestant] = 1
        asked = {"contestant": contestant, "strategy": cell.member[1], "capacity": cell.capacity, "batch": cell.batch}
        answer = team.pool.worker(cell).ask("balance", **asked, seed=seed)
        if "rows" not in answer:
            continue  # its cells say why
        team.rows[contestant] = answer["rows"]
        with records.Writer(path) as writer:
            for op, batch in (("insert", answer["rows"]), ("learn", cell.batch)):
                own = dataclasses.replace(cell, op=f"balance {op}", batch=batch)
                writer.append(team.stamp(cell).timed(own, Timing(tuple(answer[op]), 1)))


def _is_balance(record: Record, contestant: str) -> bool:
    return record.primitive == "replay_pairs" and (record.contestant, record.op) == (contestant, "balance insert")


def _balanced(cell: Cell, cells: Iterable[Cell]) -> Cell:
    """Return the cell of the strategy that rows are set on, if there is one."""
    same = [one for one in cells if one.contestant == cell.contestant and one.member[1] == BALANCED]
    return (same or [cell])[0]


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("replay", __doc__, "--only operations,pairs", f"parts:\n{listed(PARTS)}\n")
    add_names(parser, "only", "part", PARTS, "parts, listed below")
    strategy = among("strategy", *registry.strategies())
    add_list(parser, "strategies", strategy, help="strategies of the compiled replay (default: all)")
    buffers = [name for name in roles(Buffer) if name != REUSED]
    add_list(parser, "buffers", among("buffer", *buffers), help=f"of {', '.join(buffers)} (default: all that are here)")
    sizes = {
        "capacity": (1_000_000, "records N"),
        "batch": (256, "records B of a sample in pairs"),
        "iterations": (5_000, "insertions, and gradient steps, of a run of threads or processes"),
        "starts": (1_000, "insertions after which learners start there"),
    }
    seconds = {
        "sample": (0.02, "seconds of a sample"),
        "budget": (0.25, "seconds of sampling a cell, 11 samples at least"),
    }
    add_numbers(parser, **sizes, **seconds)
    add_python(parser)
    parser.add_argument("--no-sentinels", dest="sentinels", action="store_false", help="do not tell disturbances")
    return add_common(parser, seed_of="records, priorities and order")
