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

import argparse
import dataclasses
import functools
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dse import platforms, records, stats
from dse.records import Record, Status, twins
from impls import training

from ...arguments import add_common, add_list, add_numbers, add_python, among, at_least, parser_of
from ...libraries.base import Loop, roles
from ...run import Stamp, Tally, exit_code, file_of, show_cells
from ...timing import Timing
from ...workers import Bounded, WorkerError, refusal
from ..profile.cells import Cell
from . import WORKLOAD, names, workload

MODULE = "benchmarks.topics.loops.worker"
PRIMITIVE = "loop_peer"
OPS = ("clean", "median", "cpu")  # seconds of an environment step with its gradient step, by these clocks
RATIO_WITHIN = 0.01  # of one gradient step an environment step


def loop_of(name: str, environments: int, batch: int = 0) -> Cell:
    """Return a training loop with N environments, under the names of a record; its ``op`` is to be a clock.

    ``batch`` records of a gradient step; 0: as many as the workload has.
    """
    kind, own = roles(Loop)[name], workload(batch)
    options = {"workload": WORKLOAD, "identity": training.identity(own)}
    options |= {"environments": environments, "replay": kind.replay} | ({"batch": batch} if batch else {})
    return Cell(name, "", options, own.learner.batch, capacity=own.replay.capacity, fanout=kind.fanout)


@dataclass(eq=False)
class Member:
    """A loop in a process of its own; ``reason`` says why it has no time, once it has none."""

    loop: Cell
    stamp: Stamp
    worker: Bounded | None = None
    status: Status = "ok"
    reason: str | None = None
    affinity: list[int] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)

    def start(self, stack: ExitStack, python: Path, seed: int, warm_up: int) -> None:
        """Start its process, there make the loop, and let it take a given number of environment steps."""
        kind = roles(Loop)[self.loop.contestant]
        own = Path(sys.executable) if kind.is_ours else python
        if not own.exists():
            self.status, self.reason = "skipped", f"{own}: no such interpreter; install the libraries first: make peers"
            return
        self.worker = stack.enter_context(Bounded(own, module=MODULE))
        asked = {"environments": self.loop.options["environments"], "batch": self.loop.batch}
        answer = self._ask("prepare", name=self.loop.contestant, **asked, seed=seed, warm_up=warm_up)
        if self.reason is None:
            self.affinity = answer["affinity"]
            self.stamp = dataclasses.replace(self.stamp, machine={**self.stamp.machine, "packages": answer["packages"]})
            self._notes = [*kind.limits, *filter(None, [answer["remark"]])]

    def run(self, seconds: float) -> None:
        """Let the loop run for a block, unless it has failed."""
        if self.reason is None and "steps" in (answer := self._ask("block", seconds=seconds)):
            self.blocks.append(answer)

    def end(self) -> None:
        """End what the process has started, and the process."""
        if self.worker:
            if self.reason is None:
                self._ask("close")
            self.worker.close()

    def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        assert self.worker is not None
        try:
            answer = self.worker.ask(what, **arguments)
        except WorkerError as error:
            answer = {"failed": str(error)}
        if refused := refusal(answer):
            self.status, self.reason = refused.status, refused.reason
        return answer

    def records(self, utc: str, again: bool = False) -> Iterator[Record]:
        """Yield a record for each clock; all of a run have the same ``utc``."""
        steps, updates = (sum(block[name] for block in self.blocks) for name in ("steps", "updates"))
        if self.reason is None and abs(updates / steps - 1) > RATIO_WITHIN:
            self.status = "failed"
            self.reason = f"{updates / steps:.3f} gradient steps an environment step, not 1 within {RATIO_WITHIN:g}"
        named = {"utc": utc, **({"primitive": f"{PRIMITIVE}_again"} if again else {})}
        for op in OPS:
            cell = dataclasses.replace(self.loop, op=op)
            if self.reason is not None:
                yield self.stamp.record(cell, self.status, reason=self.reason, **named)
                continue
            seconds = sum(block["seconds"] for block in self.blocks)
            where = {"affinity": self.affinity}
            counts = {"steps": steps, "gradient_steps": updates, "seconds": seconds}
            timing = Timing(tuple(block[op] for block in self.blocks), steps // len(self.blocks))
            yield self.stamp.timed(cell, timing, where, counts, reason="; ".join(self._notes) or None, **named)


FILE = "training-peers.jsonl"
ROUNDS, BLOCK_SECONDS, WARM_UP = 15, 1.0, 1_500


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code: 0 done, 1 where loops failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    if (most := max(options.batches)) > (room := workload().replay.capacity):
        raise ValueError(f"--batches is at most {room}, the records of the replay, not {most}")
    chosen = [name for name in names() if name in (options.contestants or names())]
    sizes = [(name, count) for name in chosen for count in roles(Loop)[name].environments]
    loops = [loop_of(*size, batch) for batch in options.batches for size in sizes]
    path, stamp = file_of(options, FILE), Stamp.of_this_run(__name__, PRIMITIVE)
    if options.dry_run:
        return show_cells([stamp.cell(dataclasses.replace(loop, op=op)) for loop in loops for op in OPS], 0, options)
    with records.Writer(path) as writer:
        for record in _measured(loops, stamp, options):
            writer.append(record)
    found = summary(latest(path))
    print(json.dumps({"file": str(path), **found}) if options.json else "\n".join([*lines(found), str(path)]))
    failures = [f"{row['loop']}, {row['reason']}" for row in found["absent"] if row["status"] == "failed"]
    skipped = Counter(row["reason"] for row in found["absent"] if row["status"] == "skipped")
    return exit_code(Tally(len(loops), reasons=skipped, failures=failures), path)


def latest(path: Path) -> list[Record]:
    """Return the records of the latest run in a file: those of the last moment."""
    found = [record for record in records.read_file(path) if record.primitive.startswith(PRIMITIVE)]
    return [record for record in found if record.utc == records.in_order(found)[-1].utc]


def _measured(loops: Sequence[Cell], stamp: Stamp, options: argparse.Namespace) -> Iterator[Record]:
    """Yield the records of all loops, and of an A/A twin of the first that runs."""
    rng = np.random.default_rng(options.seed)
    with ExitStack() as stack:
        start = functools.partial(Member.start, stack=stack, python=options.python, seed=options.seed)
        members = [Member(loop, stamp) for loop in loops]
        for at, member in enumerate(members, 1):
            _told(options, f"{at} of {len(members)}: {label(member.loop)}")
            start(member, warm_up=options.warmup)
            stack.callback(member.end)
        twin = next((Member(member.loop, stamp) for member in members if member.reason is None), None)
        twins = [twin] if twin else []
        for member in twins:
            start(member, warm_up=options.warmup)
            stack.callback(member.end)
        running = [member for member in (*members, *twins) if member.reason is None]
        seconds = options.rounds * options.block * len(running)
        _told(options, f"{options.rounds} rounds of {len(running)} loops, {seconds:.0f} s")
        for _ in range(options.rounds):
            for at in rng.permutation(len(running)):
                running[at].run(options.block)
    utc = platforms.now()
    for member in (*members, *twins):
        yield from member.records(utc, again=member in twins)


def _told(options: argparse.Namespace, sentence: str) -> None:
    if not options.json:
        print(sentence, file=sys.stderr, flush=True)


OURS = "fanout"
SAID = {"clean": "by clean steps", "cpu": "by CPU time"}


def summary(found: Sequence[Record]) -> dict[str, Any]:
    """Return the summary of a run's records, as JSON takes it: rows, the fastest first, and ratios to each of ours.

    Rates and ratios are [median, low, high] with their 95 % intervals over blocks.
    """
    own = [record for record in found if record.primitive == PRIMITIVE]
    by_loop: dict[str, dict[str, Record]] = {}
    for record in own:
        by_loop.setdefault(label(record), {})[record.op] = record
    timed = {name: ops for name, ops in by_loop.items() if all(ops[op].samples_seconds for op in OPS)}
    ordered = sorted(timed, key=lambda name: timed[name]["clean"].seconds)
    absent = [(name, ops["clean"]) for name, ops in by_loop.items() if name not in timed]
    return {
        "workload": own[0].options["workload"] if own else None,
        "noise_floor": stats.noise_floor(twins(found, PRIMITIVE)),
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
        "absent": [{"loop": name, "status": one.status, "reason": one.reason} for name, one in absent],
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
        "is_ours": record.contestant in (name for name, kind in roles(Loop).items() if kind.is_ours),
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


def lines(found: dict[str, Any]) -> list[str]:
    """Return the summary as text, the answer first."""
    rates = {row["loop"]: row["steps_per_second"] for row in found["rows"]}
    text = []
    for name, times in found["times"].items():
        for op, how in SAID.items():
            beside = [_factor(ratios[op], other, found["noise_floor"]) for other, ratios in times.items()]
            rate = f"{name}, {rates[name][op][0]:,.0f} steps/s {how}"
            text.append(f"{rate}: {'; '.join(beside)}" if beside else rate)
        text.append(_lost(name, times, found["rows"]))
    text += ["", *_table(found["rows"]), "", *_throughput(found["rows"]), ""]
    text += [f"{row['loop']}: {row['note']}" for row in found["rows"] if row["note"]]
    text += [f"not timed, {row['loop']}: {row['reason']}" for row in found["absent"]]
    floor = f"a loop timed twice differs by up to {found['noise_floor']:.1%}" if found["rows"] else "nothing was timed"
    return [*text, f"{floor}; * unstable, its interval is wide"]


def _lost(name: str, times: dict[str, dict[str, Sequence[float]]], rows: Sequence[dict[str, Any]]) -> str:
    """Say which libraries' loops are faster, by any clock."""
    theirs = [row["loop"] for row in rows if row["loop"] in times and not row["is_ours"]]
    ahead = [f"{other} {how}" for other in theirs for op, how in SAID.items() if times[other][op][0] < 1]
    return f"{name} is slower than {', '.join(ahead)}" if ahead else f"no library's loop is faster than {name}"


def _factor(times: Sequence[float], other: str, floor: float) -> str:
    name, bracket, qualified = other.partition(" (")
    tie = ", a tie within the noise" if abs(math.log(times[0])) <= floor else ""
    return f"{times[0]:.2f} times {name}'s{bracket}{qualified}{tie}"


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    head = (
        f"{'steps/s':34}{'clean':>9}{'[95 % interval]':>20}{'median':>9}{'CPU':>9}{'steps':>10}{'ratio':>8}  versions"
    )
    text = [head]
    for row in rows:
        rate = row["steps_per_second"]
        marks = {op: "*" if op in row["unstable"] else " " for op in OPS}
        clean, low, high = rate["clean"]
        packages = ", ".join(f"{name} {version}" for name, version in row["packages"].items())
        text.append(
            f"{row['loop']:34}{clean:8,.0f}{marks['clean']}{f'[{low:,.0f}, {high:,.0f}]':>20}"
            f"{rate['median'][0]:8,.0f}{marks['median']}{rate['cpu'][0]:8,.0f}{marks['cpu']}{row['steps']:10,}"
            f"{row['gradient_steps_per_step']:8.3f}  {packages}"
        )
    return text


def _throughput(rows: Sequence[dict[str, Any]]) -> list[str]:
    """List the columns of [Hou2023, Table 2]: over the wall time of a loop's blocks, CPU in percent of all cores."""
    text = [f"{'loop':34}{'CPU %':>8}{'sampling Hz':>13}{'frame Hz':>11}{'update Hz':>11}"]
    for row in rows:
        rates = f"{row['sampling_hz']:13,.0f}{row['update_frame_hz']:11,.0f}{row['update_hz']:11,.0f}"
        text.append(f"{row['loop']:34}{row['cpu_percent']:8.0f}{rates}")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("peers --training", __doc__, "--contestants fanout,tianshou")
    add_list(parser, "contestants", among("loop", *names()), help=f"of {', '.join(names())} (default: all)")
    batches = f"records of a gradient step B (default: the workload's, {workload().learner.batch})"
    add_list(parser, "batches", at_least(1, "B"), default=(0,), help=batches)
    add_numbers(
        parser,
        rounds=(ROUNDS, "blocks of each loop"),
        block=(BLOCK_SECONDS, "seconds of a block"),
        warmup=(WARM_UP, "environment steps before the first block, the first 1,000 without gradient steps"),
    )
    add_python(parser)
    return add_common(parser, seed_of="environments, weights and order")
