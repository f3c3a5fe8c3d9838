"""How many actors (samplers) and which batch are the fastest, searched in few looks while a loop trains?

[Hou2023, 3.4] searches both apart: samplers for the most environment steps/s at the smallest batch, then the batch for
the most records trained on per second. Each rate is taken to have one peak, so a Fibonacci search looks at a third of
the values or less; where the rates seen have another shape, the answer says so and every value is looked at. The loop
trains in actors and one learner apart, their ratio free. No look may be over a cap. With --exhaustive every pair is
measured afterwards, to see what the search lost. Each search is a run of its own: none continues another. A record of
each look goes to results/<machine>/adaptation.jsonl. To predict the answer instead: python -m dse adapt.
"""

import contextlib
import dataclasses
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dse import platforms
from dse.records import Record
from impls.cores import count_allowed
from impls.terminal import aligned, amount, plural
from impls.training import Workload, adapting, identity, learners, load_timed
from impls.training.adapting import BATCH, GRID, MEMORY, PROCESSOR, SAMPLERS, Run, Search, Step, adapt_running
from impls.training.arrangement import Arrangement
from impls.training.options import start_of, with_values
from impls.training.workload import MOST

from ..arguments import DEFAULT, add_list, add_workload, at_least
from ..timing import Timing
from ..topic import Topic
from .profile.cells import Cell

if TYPE_CHECKING:
    from impls.training.parallel.changing import Rates  # which loads what trains

SETTLE_SECONDS, LOOK_SECONDS = 1.0, 3.0
HEAD = ("look", "samplers", "B", "env steps/s", "gradient steps/s", "records/s", "processor", "memory", "over its cap")


class _UnseenError(Exception):
    """A search needs a look that has not been taken, at the pair of its arguments."""


class Adapt(Topic):
    """A search, whose records are its looks."""

    primitive, unit, has_sentinels = "training adaptation", "", False
    example = "--workload cartpole_dqn --exhaustive"
    file = "adaptation.jsonl"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the workload, the values to choose from, the seconds of a look and the caps."""
        add_workload(parser)
        text = "numbers of samplers to choose from (default: 1 to 2 a core)"
        add_list(parser, "samplers", at_least(1, "samplers"), help=text)
        text = "batches B to choose from (default: 32,64,.. to 2048)"
        add_list(parser, "batches", at_least(1, "B"), default=adapting.BATCHES, help=text)
        add = parser.add_argument
        add("--seconds", type=amount, default=LOOK_SECONDS, help=f"seconds of a look, after one to settle ({DEFAULT})")
        add("--memory-gb", type=amount, metavar="GB", help="cap on memory (default: what the machine has)")
        add(
            "--cpu-percent",
            type=amount,
            default=adapting.WHOLE,
            metavar="P",
            help=f"cap on the processor's cores ({DEFAULT})",
        )
        add("--exhaustive", action="store_true", help="then measure every pair, to see what the search lost")

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        if not options.seconds:
            raise ValueError("--seconds must be above 0, not 0: nothing is measured in no time")
        self._cores = count_allowed()
        self._samplers = options.samplers or tuple(range(1, 2 * self._cores + 1))
        # The loop has actors enough for the search, and no end.
        workload, values = load_timed(options.workload), {("actors", "count"): max(self._samplers), ("", "steps"): MOST}
        self._workload = with_values(workload, {**values, ("learner", "learning_starts"): start_of(workload, values)})
        self._identity, self._began = identity(workload), "" if options.dry_run else platforms.now()
        memory = 1e9 * (options.memory_gb or 0) or platforms.fingerprint().get("memory_bytes")
        self._caps = {PROCESSOR: options.cpu_percent} | ({MEMORY: float(memory)} if memory else {})
        self._answer: Run | None = None

    def cells(self) -> list[list[Cell]]:
        """Return the first look, by which a search is found; where nothing is measured, every pair."""
        if not self.options.dry_run:
            return [[self._make_look(SAMPLERS, (self._samplers[0], self.options.batches[0]), 1)]]
        return [[self._make_look(GRID, (few, many)) for few in self._samplers for many in self.options.batches]]

    def _make_look(self, op: str, pair: tuple[int, ...], number: int = 0) -> Cell:
        workload, chosen = self._workload, learners.default(self._workload)
        (samplers, batch), replay = pair, self._workload.replay
        options = {
            "workload": workload.name, "identity": self._identity, "arrangement": "apart", "actors": samplers,
            "learners": 1, "environments": workload.actors.environments, "presampled": replay.presampled,
            "batch": batch, "learner": chosen, "policy": chosen, "ratio": "free", "run": self._began,
            "look": number, "most_actors": workload.actors.count,
        }  # fmt: skip
        return Cell("apart", op, options, batch, 1, replay.capacity, replay.fanout)

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the record of each look as it is taken."""
        # The search decides each look by those before, and the runner keeps a record before the next is measured: so
        # the search, which takes no time, begins anew with the looks so far until it needs no other.
        looks: list[Rates] = []
        with measure_loop(self._workload, self._samplers[0], self.options.seconds) as look:
            while not self._answer:
                steps = list[Step]()
                try:
                    self._answer = self._search(looks, steps.append)
                except _UnseenError as unseen:
                    pair = unseen.args
                if steps:
                    yield self._record(steps[-1], len(steps))
                if not self._answer:
                    looks.append(look(*pair))

    def _search(self, looks: Sequence["Rates"], tell: Callable[[Step], None]) -> Run:
        """Search by the looks that were taken, in their order. _UnseenError with the pair of the next look."""
        taken = iter(looks)

        def recall(*pair: int) -> "Rates":
            for rates in taken:
                return rates
            raise _UnseenError(*pair)

        how: dict[str, Any] = {"exhaustive": self.options.exhaustive, "tell": tell}
        return adapt_running(recall, self._samplers, self.options.batches, self._caps, self._cores, **how)

    def _record(self, step: Step, number: int) -> Record:
        """Show a look, and make its record, whose time is of a gradient step."""
        rates = step.rates
        if not self.options.json and sys.stderr.isatty():
            print("  ".join(_row(step)), file=sys.stderr, flush=True)
        names = ("sampling_hz", "update_hz", "frames_hz", "cpu_percent")
        metrics = {name: getattr(rates, name) for name in names} | {"used_bytes": rates.memory_bytes, "over": step.over}
        look = self._make_look(step.search, step.pair, number)
        return self.stamp.timed(look, Timing(rates.seconds, 1), metrics=metrics)

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the answer of the search, and say it with the path to it and what it lost."""
        if not self._answer:
            return {}, ()
        return make_plain(self._answer, self._workload), [*describe_run(self._answer, self._workload)]


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
