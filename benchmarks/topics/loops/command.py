"""How fast are whole training loops, ours and other libraries'?

CartPole-v1 by DQN, as the shipped workload cartpole_dqn has it: the same network, batch, buffer and learning rate, one
gradient step an environment step, on one core. Every loop is in a process of its own; their blocks of time are
interleaved. A loop whose library is not installed, that has another network or another ratio of gradient steps is a
record with the reason. Records go to results/<machine>/training-peers.jsonl; each run measures all anew, for only times
of one run are compared.

clean   the 10th percentile of the times of steps in a block: steps that nothing disturbed
median  their median
cpu     CPU time of the process over the steps of a block

With --batches, as [Zhang2023, Fig. 14] has it, loops of every batch take turns, and those of one are compared.
"""

import dataclasses
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from dse import platforms, stats
from dse.records import Record, in_order, twins
from impls import training
from impls.terminal import aligned

from ...arguments import add_list, add_numbers, add_python, among, at_least
from ...libraries.base import Loop, roles
from ...timing import Timing
from ...topic import Topic
from ...workers import Bounded, Untimed, WorkerError, explain_death, refusal
from ..profile.cells import Cell
from . import WORKLOAD, names, workload

MODULE = "benchmarks.topics.loops.worker"
OPS = ("clean", "median", "cpu")  # seconds of an environment step with its gradient step, by these clocks
RATIO_WITHIN = 0.01  # of one gradient step an environment step
ROUNDS, BLOCK_SECONDS, WARM_UP = 15, 1.0, 1_500
OURS = "fanout"
SAID = {"clean": "by clean steps", "cpu": "by CPU time"}


class Member:
    """A loop in a process of its own; ``untimed`` says why it has no time, once it has none."""

    def __init__(self, loop: Cell, options: Namespace, stack: ExitStack) -> None:
        """Start the process, make the loop there and let it take the environment steps of the warm-up."""
        kind = roles(Loop)[loop.contestant]
        self.loop, self.blocks = loop, list[dict[str, Any]]()
        self.untimed: Untimed | None = None
        python = Path(sys.executable) if kind.is_ours else options.python
        if not python.exists():
            reason = f"{python}: no such interpreter; install the libraries first: make peers"
            self.untimed = Untimed("skipped", reason)
            return
        self._worker = stack.enter_context(Bounded(python, module=MODULE))
        stack.callback(self.ask, "close")
        asked = {"environments": loop.options["environments"], "batch": loop.batch}
        about = self.ask("prepare", name=loop.contestant, **asked, seed=options.seed, warm_up=options.warmup)
        self.affinity, self.packages = about.get("affinity"), about.get("packages", {})
        self.notes = "; ".join(filter(None, [*kind.limits, about.get("remark")])) or None

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Ask the process, unless the loop has failed; return its answer."""
        if self.untimed:
            return {}
        try:
            answer = self._worker.ask(what, **arguments)
        except WorkerError as error:
            answer = {"failed": explain_death(error)}
        self.untimed = refusal(answer)
        return answer

    def run(self, seconds: float) -> None:
        """Let the loop run for a block, unless it has failed."""
        if "steps" in (block := self.ask("block", seconds=seconds)):
            self.blocks.append(block)

    def total(self, name: str) -> Any:
        """Add up what blocks counted: steps, updates or seconds."""
        return sum(block[name] for block in self.blocks)


class Loops(Topic):
    """All loops, whose blocks of time take turns; the records of a run have one moment."""

    primitive, unit, has_sentinels, resumes = "loop_peer", "", False, False
    file = "training-peers.jsonl"
    example = "--contestants fanout,tianshou"
    seed_of = "environments, weights and order"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the loops, their batches, and how long each runs."""
        add_list(parser, "contestants", among("loop", *names()), help=f"of {', '.join(names())} (default: all)")
        batches = f"records of a gradient step B (default: the workload's, {workload().learner.batch})"
        add_list(parser, "batches", at_least(1, "B"), default=(0,), help=batches)
        warm_up = "environment steps before the first block, the first 1,000 without gradient steps"
        blocks = {"rounds": (ROUNDS, "blocks of each loop"), "block": (BLOCK_SECONDS, "seconds of a block")}
        add_numbers(parser, **blocks, warmup=(WARM_UP, warm_up))
        add_python(parser)

    def __init__(self, options: Namespace) -> None:
        if (most := max(options.batches)) > (room := workload().replay.capacity):
            raise ValueError(f"--batches is at most {room}, the records of the replay, not {most}")
        super().__init__(options)
        self.libraries = [options.python]

    def cells(self) -> list[list[Cell]]:
        """Return the clocks of each loop of each batch, in one group."""
        chosen = [name for name in names() if name in (self.options.contestants or names())]
        sizes = [(name, count) for name in chosen for count in roles(Loop)[name].environments]
        return [[_cell(*size, batch, op) for batch in self.options.batches for size in sizes for op in OPS]]

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of all loops, and of an A/A twin of the first that runs."""
        rng, options = np.random.default_rng(self.options.seed), self.options
        loops, members = cells[:: len(OPS)], list[Member]()
        with ExitStack() as stack:
            for at, loop in enumerate(loops, 1):
                self._say(f"{at} of {len(loops)}: {label(loop)}")
                members.append(Member(loop, options, stack))
            first = [member.loop for member in members if not member.untimed][:1]
            twins = [Member(loop, options, stack) for loop in first]
            running = [member for member in (*members, *twins) if not member.untimed]
            seconds = options.rounds * options.block * len(running)
            self._say(f"{options.rounds} rounds of {len(running)} loops, {seconds:.0f} s")
            for _ in range(options.rounds):
                for at in rng.permutation(len(running)):
                    running[at].run(options.block)
        fields = {"utc": platforms.now()}
        for member in members:
            yield from self._records(member, **fields)
        for member in twins:
            yield from self._records(member, **fields, primitive=f"{self.primitive}_again")

    def _say(self, sentence: str) -> None:
        if not self.options.json:
            print(sentence, file=sys.stderr, flush=True)

    def _records(self, member: Member, **fields: Any) -> Iterator[Record]:
        """Yield a record for each clock."""
        steps, updates = member.total("steps"), member.total("updates")
        if not member.untimed and abs(updates / steps - 1) > RATIO_WITHIN:
            ratio = f"{updates / steps:.3f} gradient steps an environment step, not 1 within {RATIO_WITHIN:g}"
            member.untimed = Untimed("failed", ratio)
        for op in OPS:
            cell = dataclasses.replace(member.loop, op=op)
            if member.untimed:
                yield self.stamp.record(cell, member.untimed.status, reason=member.untimed.reason, **fields)
                continue
            stamp, where = self.stamp.for_packages(member.packages), {"affinity": member.affinity}
            counts = {"steps": steps, "gradient_steps": updates, "seconds": member.total("seconds")}
            timing = Timing(tuple(block[op] for block in member.blocks), steps // len(member.blocks))
            yield stamp.timed(cell, timing, where, counts, reason=member.notes, **fields)

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the rates of the latest run, the fastest first, and how they compare with each of ours."""
        summary = summarize([record for record in found if record.utc == in_order(found)[-1].utc])
        return summary, [*write(summary), ""]


def _cell(name: str, environments: int, batch: int, op: str) -> Cell:
    """Return a clock of a training loop; ``batch`` records of a gradient step, 0: as many as the workload has."""
    kind, own = roles(Loop)[name], workload(batch)
    options = {"workload": WORKLOAD, "identity": training.identity(own)}
    options |= {"environments": environments, "replay": kind.replay} | ({"batch": batch} if batch else {})
    return Cell(name, op, options, own.learner.batch, capacity=own.replay.capacity, fanout=kind.fanout)


def summarize(found: Sequence[Record]) -> dict[str, Any]:
    """Return the summary of a run's records, as JSON takes it: rows, the fastest first, and ratios to each of ours.

    Rates and ratios are [median, low, high] with their 95 % intervals over blocks.
    """
    own = [record for record in found if record.primitive == Loops.primitive]
    loops: dict[str, dict[str, Record]] = {}
    for record in own:
        loops.setdefault(label(record), {})[record.op] = record
    timed = {name: ops for name, ops in loops.items() if all(ops[op].samples_seconds for op in OPS)}
    ordered = sorted(timed, key=lambda name: timed[name]["clean"].seconds)
    absent = [(name, ops["clean"]) for name, ops in loops.items() if name not in timed]
    return {
        "workload": own[0].options["workload"] if own else None,
        "noise_floor": stats.noise_floor(twins(found, Loops.primitive)),
        "rows": [_row(name, timed[name]) for name in ordered],
        "times": {
            name: {
                other: {op: stats.speedup(timed[other][op], timed[name][op]) for op in OPS}
                for other in ordered
                if other != name and timed[other]["clean"].batch == timed[name]["clean"].batch
            }
            for name in sorted(ordered)
            if timed[name]["clean"].contestant == OURS
        },
        "absent": [{"loop": name, "status": record.status, "reason": record.reason} for name, record in absent],
    }


def label(record: Record | Cell) -> str:
    """Name a record's loop: its library, its environments, that it samples uniformly where it does, and its batch
    where one was asked for."""
    count = record.options["environments"]
    parts = [f"{count} environments"] * (count > 1) + ["uniform"] * (record.options["replay"] == "uniform")
    parts += [f"B = {record.batch:,}"] * ("batch" in record.options)
    return record.contestant + (f" ({', '.join(parts)})" if parts else "")


def _row(name: str, ops: dict[str, Record]) -> dict[str, Any]:
    record = ops["clean"]
    steps, updates, seconds = (record.metrics[count] for count in ("steps", "gradient_steps", "seconds"))
    return {
        "loop": name,
        "is_ours": roles(Loop)[record.contestant].is_ours,
        "replay": record.options["replay"],
        "environments": record.options["environments"],
        "steps_per_second": {op: _rate(ops[op]) for op in OPS},
        "unstable": [op for op in OPS if ops[op].status == "unstable"],
        "steps": steps,
        "gradient_steps_per_step": updates / steps,
        "packages": record.machine["packages"],
        "note": record.reason,
        "cpu_percent": 100 * ops["cpu"].seconds * steps / seconds / record.machine.get("cores", 1),
        "sampling_hz": steps / seconds,
        "update_frame_hz": record.batch * updates / seconds,
        "update_hz": updates / seconds,
    }


def _rate(record: Record) -> list[float]:
    low, high = record.low_seconds or record.seconds, record.high_seconds or record.seconds
    return [1 / record.seconds, 1 / high, 1 / low]


def write(found: dict[str, Any]) -> list[str]:
    """Write the summary as text, the answer first."""
    rates = {row["loop"]: row["steps_per_second"] for row in found["rows"]}
    text = []
    for name, times in found["times"].items():
        for op, how in SAID.items():
            compared = [_factor(ratios[op], other, found["noise_floor"]) for other, ratios in times.items()]
            rate = f"{name}, {rates[name][op][0]:,.0f} steps/s {how}"
            text.append(f"{rate}: {'; '.join(compared)}" if compared else rate)
        theirs = [row["loop"] for row in found["rows"] if row["loop"] in times and not row["is_ours"]]
        ahead = [f"{other} {how}" for other in theirs for op, how in SAID.items() if times[other][op][0] < 1]
        said = f"{name} is slower than {', '.join(ahead)}" if ahead else f"no library's loop is faster than {name}"
        text += [said] * bool(theirs)
    text += ["", *_tables(found["rows"]), ""]
    text += [f"{row['loop']}: {row['note']}" for row in found["rows"] if row["note"]]
    text += [f"not timed, {row['loop']}: {row['reason']}" for row in found["absent"]]
    floor = f"a loop timed twice differs by up to {found['noise_floor']:.1%}" if found["rows"] else "nothing was timed"
    return [*text, f"{floor}; * unstable, its interval is wide"]


def _factor(times: Sequence[float], other: str, floor: float) -> str:
    name, bracket, qualified = other.partition(" (")
    tie = ", a tie within the noise" if abs(math.log(times[0])) <= floor else ""
    return f"{times[0]:.2f} times {name}'s{bracket}{qualified}{tie}"


def _tables(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Write the rates, and the columns of [Hou2023, Table 2]: over the wall time of blocks, CPU in % of all cores."""
    rates = [("steps/s", "clean", "[95 % interval]", "median", "CPU", "steps", "ratio", "versions")]
    uses: list[tuple[str, ...]] = [("loop", "CPU %", "sampling Hz", "frame Hz", "update Hz")]
    for row in rows:
        rate = row["steps_per_second"]
        clean, median, cpu = (f"{rate[op][0]:,.0f}{'*' if op in row['unstable'] else ''}" for op in OPS)
        interval = "[{:,.0f}, {:,.0f}]".format(*rate["clean"][1:])
        packages = ", ".join(f"{name} {version}" for name, version in row["packages"].items())
        ratio = f"{row['gradient_steps_per_step']:.3f}"
        rates.append((row["loop"], clean, interval, median, cpu, f"{row['steps']:,}", ratio, packages))
        hz = (f"{row[name]:,.0f}" for name in ("cpu_percent", "sampling_hz", "update_frame_hz", "update_hz"))
        uses.append((row["loop"], *hz))
    yield from (*aligned(rates), "", *aligned(uses))
