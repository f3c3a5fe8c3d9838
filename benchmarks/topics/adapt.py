"""How many actors (samplers) and which batch are the fastest, searched in few looks while a loop trains?

[Hou2023, 3.4] searches both apart: samplers for the most environment steps/s at the smallest batch, then the batch for
the most records trained on per second. Each rate is taken to have one peak, so a Fibonacci search looks at a third of
the values or less; where the rates seen have another shape, the answer says so and every value is looked at. The loop
trains in actors and one learner apart, their ratio free. No look may be over a cap. With --exhaustive every pair is
measured afterwards, to see what the search lost. Each search is a run of its own: none continues another. A record of
each look goes to results/<machine>/adaptation.jsonl. To predict the answer instead: python -m dse adapt.
"""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dse import platforms, stats
from dse.records import Writer
from impls.cores import count_allowed
from impls.terminal import aligned, amount, plural
from impls.training import Workload, identity, learners, load, load_timed
from impls.training.adapting import (
    BATCH,
    BATCHES,
    GRID,
    MEMORY,
    PROCESSOR,
    SAMPLERS,
    WHOLE,
    Run,
    Search,
    Step,
    adapt_running,
)  # fmt: skip
from impls.training.arrangement import Arrangement
from impls.training.options import start_of, with_values
from impls.training.workload import MOST

from ..arguments import DEFAULT, add_common, add_list, add_workload, at_least, parser_of
from ..run import Stamp, file_of, show_cells

PRIMITIVE, FILE = "training adaptation", "adaptation.jsonl"
SETTLE_SECONDS, LOOK_SECONDS = 1.0, 3.0
HEAD = ("look", "samplers", "B", "env steps/s", "gradient steps/s", "records/s", "processor", "memory", "over its cap")


@dataclass(frozen=True)
class Look:
    """A look at a pair of samplers and a batch: number ``number`` of a run, 0 before it is taken.

    ``utc`` is when the run began; ``own`` identifies the workload before it was given actors enough for the search.
    """

    op: str
    samplers: int
    batch: int
    training: Workload
    own: str
    utc: str
    number: int = 0
    contestant: str = "apart"

    @property
    def capacity(self) -> int:
        """Records of the replay."""
        return self.training.replay.capacity

    @property
    def fanout(self) -> int:
        """K of its tree."""
        return self.training.replay.fanout

    @property
    def options(self) -> dict[str, Any]:
        """Options of the record, by which this look differs from others."""
        workload, chosen = self.training, learners.default(self.training)
        return {
            "workload": workload.name, "identity": self.own, "arrangement": "apart", "actors": self.samplers,
            "learners": 1, "environments": workload.actors.environments, "presampled": workload.replay.presampled,
            "batch": self.batch, "learner": chosen, "policy": chosen, "ratio": "free", "run": self.utc,
            "look": self.number, "most_actors": workload.actors.count,
        }  # fmt: skip


class Looks:
    """The looks of a run as they come: a record of each, and a line for people."""

    def __init__(self, first: Look, stamp: Stamp, writer: Writer, is_shown: bool) -> None:
        self._look, self._stamp, self._writer, self._is_shown = first, stamp, writer, is_shown

    def tell(self, step: Step) -> None:
        """Keep a look as a record, whose time is of a gradient step, and show it."""
        rates, interval = step.rates, stats.median_interval(step.rates.seconds)
        (samplers, batch), number = step.pair, self._look.number + 1
        self._look = dataclasses.replace(self._look, op=step.search, samplers=samplers, batch=batch, number=number)
        names = ("sampling_hz", "update_hz", "frames_hz", "cpu_percent")
        measured = {name: getattr(rates, name) for name in names} | {"used_bytes": rates.memory_bytes}
        record = self._stamp.record(
            self._look, "ok", samples_seconds=rates.seconds, calls_per_sample=1, median_seconds=interval.median,
            low_seconds=interval.low, high_seconds=interval.high,
            metrics=measured | {"over": step.over},
        )  # fmt: skip
        self._writer.append(record)
        if self._is_shown:
            print("  ".join(_row(step)), file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code 0. ValueError for a pair that cannot be."""
    options = _parser().parse_args(arguments)
    if not options.seconds:
        raise ValueError("--seconds must be above 0, not 0: nothing is measured in no time")
    cores = count_allowed()
    samplers = options.samplers or tuple(range(1, 2 * cores + 1))
    workload, stamp = _load_workload(options.workload, max(samplers)), Stamp.of_this_run(__name__, PRIMITIVE)
    began = "" if options.dry_run else platforms.now()
    first = Look(GRID, samplers[0], options.batches[0], workload, identity(load(options.workload)), began)
    path = file_of(options, FILE)
    if options.dry_run:
        pairs = [dataclasses.replace(first, samplers=few, batch=many) for few in samplers for many in options.batches]
        return show_cells([stamp.cell(pair) for pair in pairs], 0, options)
    with Writer(path) as writer, measure_loop(workload, samplers[0], options.seconds) as measure:
        looks = Looks(first, stamp, writer, not options.json and sys.stderr.isatty())
        answer = adapt_running(
            measure, samplers, options.batches, _list_caps(options), cores, exhaustive=options.exhaustive,
            tell=looks.tell,
        )  # fmt: skip
    if options.json:
        print(json.dumps({"file": str(path), **make_plain(answer, workload)}))
    else:
        print(*describe_run(answer, workload), f"records: {path}", sep="\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("adapt", __doc__, "--workload cartpole_dqn --exhaustive")
    add_workload(parser)
    add_list(
        parser, "samplers", at_least(1, "samplers"), help="numbers of samplers to choose from (default: 1 to 2 a core)"
    )
    add_list(
        parser,
        "batches",
        at_least(1, "B"),
        default=BATCHES,
        help="batches B to choose from (default: 32,64,.. to 2048)",
    )
    add = parser.add_argument
    add("--seconds", type=amount, default=LOOK_SECONDS, help=f"seconds of a look, after one to settle ({DEFAULT})")
    add("--memory-gb", type=amount, metavar="GB", help="cap on memory (default: what the machine has)")
    add("--cpu-percent", type=amount, default=WHOLE, metavar="P", help=f"cap on the processor's cores ({DEFAULT})")
    add("--exhaustive", action="store_true", help="then measure every pair, to see what the search lost")
    return add_common(parser)


def _load_workload(name: str, actors: int) -> Workload:
    """Load a workload, with a given number of actors, and without an end."""
    workload, values = load_timed(name), {("actors", "count"): actors, ("", "steps"): MOST}
    return with_values(workload, {**values, ("learner", "learning_starts"): start_of(workload, values)})


def _list_caps(options: argparse.Namespace) -> dict[str, float]:
    most = {PROCESSOR: options.cpu_percent}
    memory = options.memory_gb * 1e9 if options.memory_gb else platforms.fingerprint().get("memory_bytes")
    return most | ({MEMORY: float(memory)} if memory else {})


def measure_loop(workload: Workload, samplers: int, seconds: float) -> contextlib.AbstractContextManager[Any]:
    """Begin a loop with a given number of samplers; its context gives what changes and measures it."""
    from impls.training.parallel.changing import measuring  # noqa: PLC0415  # loads what trains

    return measuring(workload, Arrangement(name="apart"), samplers, seconds, min(SETTLE_SECONDS, seconds))


def make_plain(answer: Run, workload: Workload) -> dict[str, Any]:
    """Make plain values of a run, for JSON."""

    def plain(step: Step) -> Mapping[str, Any]:
        rates = dataclasses.asdict(step.rates)
        return {"search": step.search, **rates, "memory_bytes": step.rates.memory_bytes, "over": step.over}

    losses = {name: dataclasses.asdict(loss) for name, loss in answer.losses.items()}
    return {
        "workload": workload.name, "caps": answer.caps, "samplers": answer.samplers,
        "batches": answer.batches, "choice": answer.pair, "path": [plain(step) for step in answer.path],
        "searches": {name: dataclasses.asdict(getattr(answer.searches, name)) for name in (SAMPLERS, BATCH)},
        "grid": [plain(step) for step in answer.grid], "losses": losses, "repeats": answer.repeats,
    }  # fmt: skip


def describe_run(answer: Run, workload: Workload) -> Iterator[str]:
    """Write the answer, the path to it, and what it lost."""
    samplers, batch = answer.pair
    last = next(step.rates for step in reversed(answer.path) if step.pair == answer.pair)
    yield f"Take {plural(samplers, 'sampler')}, B = {batch:,}, on this machine for {workload.name}:"
    yield f"{last.sampling_hz:,.0f} environment steps/s and {last.frames_hz:,.0f} records trained on per second."
    yield ""
    yield "looks, in their order:"
    yield from aligned([HEAD, *(_row(step) for step in answer.path)], "  ")
    yield from _describe(SAMPLERS, answer.searches.samplers)
    yield from _describe(BATCH, answer.searches.batch)
    if answer.grid:
        yield f"all {len(answer.grid)} pairs measured after {plural(answer.looks, 'look')} of the search:"
        for name, loss in answer.losses.items():
            yield f"  {name}: {loss.found:,} found, {loss.best:,} fastest; the search loses {loss.share:.1%}"
        if answer.repeats:
            yield f"  two looks at one pair differ by up to {answer.repeats - 1:.1%}"


def _describe(name: str, search: Search) -> Iterator[str]:
    """Describe what a search looked at, whether the rates seen have one peak, and what ended it."""
    yield f"  {name}: {search.best:,} by {len(search.seen)} looks at {len(search.allowed)} values"
    yield f"    {f'not one peak: {search.not_unimodal}' if search.not_unimodal else 'the rates seen have one peak'}"
    if search.stopped_by:
        yield f"    larger ones are over the cap on {search.stopped_by}"


def _row(step: Step) -> tuple[str, ...]:
    rates = step.rates
    return (
        step.search, f"{step.pair[0]}", f"{step.pair[1]:,}", f"{rates.sampling_hz:,.0f}", f"{rates.update_hz:,.0f}",
        f"{rates.frames_hz:,.0f}", f"{rates.cpu_percent:.0f} %", f"{rates.memory_bytes / 1e6:,.0f} MB", step.over,
    )  # fmt: skip
