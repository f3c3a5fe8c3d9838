"""``python -m dse adapt`` and ``learners``: arguments, and answers about numbers of samplers, records and learners."""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from impls.terminal import count, plural
from impls.training import WorkloadError

from ..platforms import PlatformError
from ..platforms.reading import RESULTS
from ..records import RecordError
from ..tuning.adapt import MEMORY, PROCESS_BYTES, PROCESSOR, WHOLE, Adaptation, adapted
from ..tuning.learners import LearnerScaling, learner_scaling
from ..tuning.looks import Search
from ..tuning.multi_learner import FactorPoint, data_parallel_seconds, spo_seconds
from .mapping import add_machine
from .text import show, with_ends, wrapped

HARDLY, PARTLY = 1.1, 1.5  # times as fast with two learners, below which a second one is hardly, or partly, worth it
ADAPT = f"""How many samplers (processes of actors) and which batch, found as training could find them: by few looks.

The published way (seed 2, section 3.4) searches both apart: samplers for the most environment steps a second, then the
batch for the most records trained on a second. Each rate is taken to have one peak, so a Fibonacci search looks at a
third of the values or less; what was seen against that shape is told, and then every value is looked at.

Nothing runs: a look is what the solver predicts, from this machine's records where there are some. FPGAs take no part,
for a design is built for its batch. For comparison all pairs are weighed by records trained a second at the workload's
update_interval, which neither search knows of: the loss is what searching apart costs.

No look may be over a cap. A sampler takes a core, and the learner at least one; in memory everything counts as if the
host held it: the records, a tree, the batches under way, and {PROCESS_BYTES / 1e9:g} GB a process."""
LEARNERS = """Is a second learner worth it? Scaling factors of L learners side by side, averaged every H gradient steps.

In data parallel training one learner draws all B records, sends each other one B / L of them, and gathers gradients at
every step (seed 4, eq. 5.1). In SPO each draws from a bank of its own, and only weights meet, every H steps (5.5). The
factor is the speed-up divided by L: 1 is perfect, 1 / L gains nothing. `exact` follows from the step's own terms,
`printed` are eqs. 5.3 and 5.6, which leave some of them out.

A larger H never makes a step longer, but weights go stale meanwhile: --longest-period is the limit you set. Of what is
within 1 % of the shortest step, the fewest learners are chosen, then the smallest H."""


def add_to(commands: Any) -> None:
    """``adapt`` and ``learners``."""
    raw = argparse.RawDescriptionHelpFormatter
    ask = commands.add_parser(
        "adapt", help="how many samplers and which batch, by few looks", description=ADAPT, formatter_class=raw
    )
    ask.add_argument(
        "--memory-gb", type=float, metavar="GB", help="at most so much (default: what the platform states)"
    )
    ask.add_argument(
        "--cpu-percent", type=float, default=WHOLE, metavar="P", help="of the processor's cores (default: %(default)g)"
    )
    more = commands.add_parser(
        "learners", help="whether a second learner is worth it", description=LEARNERS, formatter_class=raw
    )
    more.add_argument("--most", type=count, default=8, metavar="L", help="learners at most (default: %(default)s)")
    more.add_argument(
        "--longest-period", type=count, default=25, metavar="H", help="steps between averages (default: %(default)s)"
    )
    more.add_argument("--device", metavar="NAME", help="what each learner runs on (default: a core of the processor)")
    for parser in (ask, more):
        parser.add_argument("--platform", required=True, metavar="NAME", help="a platform's name or file, or `this`")
        parser.add_argument("--workload", required=True, metavar="NAME", help="a workload's name or file")
        add_machine(parser)
        parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s")
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 2 cannot be asked (a sentence says why)."""
    try:
        return {"adapt": _adapt, "learners": _learners}[options.command](options)
    except (PlatformError, WorkloadError, RecordError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _adapt(options: argparse.Namespace) -> int:
    shown = sys.stderr.isatty()

    def tell(batch: int) -> None:
        if shown:
            print(f"\rpredicting B = {batch:<6,}", end="", file=sys.stderr, flush=True)

    given = adapted(
        options.platform,
        options.workload,
        None if options.memory_gb is None else options.memory_gb * 1e9,
        options.cpu_percent,
        results=options.results,
        tell=tell,
        machine=options.machine,
    )
    if shown:
        print(f"\r{'':24}\r", end="", file=sys.stderr)
    show(options, given.machine, given.machine_note, _adapted_dict(given), _adapted_text(given))
    return 0


def _adapted_dict(given: Adaptation) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {
        "platform": given.platform,
        "workload": given.workload,
        "caps": given.caps,
        **{
            name: dataclasses.asdict(search) | {"values": values, "source": source}
            for name, search, values, source in _searches(given)
        },
        "pair": given.pair,
        "pair_records_hz": given.rates.records_hz(*given.pair),
        "best": given.best,
        "best_records_hz": given.rates.records_hz(*given.best),
        "loss": given.loss,
        "pairs": given.tried,
        "left_out": given.left_out,
    }


def _searches(given: Adaptation) -> Iterator[tuple[str, Search, tuple[int, ...], dict[int, str]]]:
    """(name, search, all values, what each look's rate is)."""
    looks, (samplers, _) = given.rates.looks, given.pair
    first, second = given.found.samplers, given.found.batch
    pairs = {x: (x, given.batches[0]) for x in first.seen}
    yield (
        "samplers",
        first,
        given.samplers,
        {x: looks[pair].actors.source for x, pair in pairs.items() if pair in looks},
    )
    pairs = {batch: (samplers, batch) for batch in second.seen}
    yield "batch", second, given.batches, {b: looks[pair].learner.source for b, pair in pairs.items() if pair in looks}


def _adapted_text(given: Adaptation) -> Iterator[str]:
    samplers = given.pair[0]
    yield f"{given.workload} on {given.platform}, samplers and batch searched apart over predicted rates:"
    told = {
        "samplers": ("samplers", "environment steps a second", f"B = {given.batches[0]}"),
        "batch": ("B", "records trained on a second", plural(samplers, "sampler")),
    }
    for name, search, values, source in _searches(given):
        letter, unit, beside = told[name]
        yield ""
        yield f"  {letter:>8}  {unit}, with {beside}, in the order of looks"
        for value, hz in search.seen.items():
            yield f"  {value:>8,}  {hz:>12,.0f}  {source.get(value, 'nothing can run it')}"
        if search.stopped_by:
            beyond = values[len(search.allowed)]
            yield f"  {beyond:>8,}  over the cap on {_cap(given, search.stopped_by)}; not looked at"
        shape = f"not one peak: {search.not_unimodal}" if search.not_unimodal else "the rates seen have one peak"
        looks = len(search.allowed)
        yield f"  found {search.best:,} by {len(search.seen)} of {plural(looks, 'look')}; {shape}"
        if search.best == search.allowed[-1] and looks > 1:
            more = f"the cap on {search.stopped_by}" if search.stopped_by else "what is tried"
            yield f"  the rate still rises there: {more} is the limit, not a peak"
    yield ""
    pair, best = given.rates.records_hz(*given.pair), given.rates.records_hz(*given.best)
    u = given.rates.update_interval
    yield from wrapped(
        f"together: {_pair(given.pair)}: {pair:,.0f} records trained a second, at {plural(u, 'environment step')} a "
        "gradient step"
    )
    if given.pair == given.best:
        yield from wrapped(
            f"all {given.tried} pairs under the caps have none better: searching apart loses nothing here"
        )
    else:
        extra = samplers - given.best[0]
        yield from wrapped(
            f"best of all {given.tried} pairs under the caps: {_pair(given.best)}: {best:,.0f}; searching apart loses "
            f"{given.loss:.1%}" + (f", and samplers take {plural(extra, 'core')} more" if extra > 0 else "")
        )
    for device in given.left_out:
        yield from wrapped(f"note: {device} is left out: a design is built for its batch, which no look can change")
    yield "  rests on:"
    look = given.rates.looks[given.pair]
    for one in (look.actors, look.learner):
        yield from wrapped(f"{one.number}: {one.source}, {one.told}", "    ")


def _cap(given: Adaptation, name: str) -> str:
    most = given.caps[name]
    return {PROCESSOR: f"the processor ({most:g} %)", MEMORY: f"memory ({most / 1e9:,.3g} GB)"}[name]


def _pair(pair: Sequence[int]) -> str:
    return f"{plural(pair[0], 'sampler')}, B = {pair[1]:,}"


def _learners(options: argparse.Namespace) -> int:
    given = learner_scaling(
        options.platform,
        options.workload,
        options.most,
        options.longest_period,
        options.device,
        results=options.results,
        machine=options.machine,
    )
    show(options, given.machine, given.machine_note, _scaling_dict(given), _scaling_text(given))
    return 0


def _scaling_dict(given: LearnerScaling) -> dict[str, Any]:
    """Plain values, for JSON."""
    horizon, averaged, gathered = given.second()
    sources = [
        {"name": one.rests_on.number, "law": dataclasses.asdict(one.law), "per": one.per}
        | {"source": one.rests_on.source, "told": one.rests_on.told}
        for one in given.sources
    ]
    return dataclasses.asdict(given) | {
        "sources": sources,
        "ran": [{"learners": count} | with_ends("seconds", step) for count, step in given.ran.items()],
        "single_seconds": given.single_seconds,
        "best_seconds": given.best_seconds,
        "second_learner": {"horizon": horizon, "spo_seconds": averaged, "data_parallel_seconds": gathered},
        "verdict": _verdict(given),
    }


def _scaling_text(given: LearnerScaling) -> Iterator[str]:
    terms = given.terms
    yield from wrapped(
        f"{given.workload} (B = {terms.batch:,}), learners side by side on {given.platform}, each on "
        f"{'a core of ' * (given.held > 1)}{given.device}:",
        "",
    )
    yield ""
    by = {(one.learners, one.horizon): one for one in given.points}
    columns: list[int | None] = [None, *given.horizons]
    heads = ["data parallel", *(f"SPO, H = {horizon:,}" for horizon in given.horizons)]
    yield "  " + "  ".join([" " * 5, *(head.ljust(22) for head in heads)]).rstrip()
    yield "  " + "  ".join(["    L", *["us    exact  printed".rjust(22)] * len(heads)])
    for learners in given.counts:
        cells = [_cell(given, by[learners, horizon]) for horizon in columns]
        rare = f"  more than {given.held}" if learners > given.held else ""
        yield "  " + "  ".join([f"{learners:>5}", *cells]) + rare
    yield ""
    learners, horizon = given.choice
    if learners == 1:
        yield from wrapped(f"choice: one learner, {given.single_seconds * 1e6:,.0f} us a gradient step")
    else:
        yield from wrapped(
            f"choice: L = {learners}, H = {horizon} (limit {given.longest}): {given.best_seconds * 1e6:,.0f} us a "
            f"gradient step instead of {given.single_seconds * 1e6:,.0f}"
        )
    yield from wrapped(_verdict(given))
    yield from _notes(given)
    yield "  terms:"
    for one in given.sources:
        fixed, each = (1e6 * part for part in (one.law.fixed_seconds, one.law.each_seconds))
        law = f"{fixed:,.4g} us" if not each else f"{each:,.4g} us a {one.per}"
        law = f"{fixed:,.4g} us + {each:,.4g} us a {one.per}" if fixed and each else law
        evidence = one.rests_on
        yield from wrapped(f"{evidence.number}: {law}; {evidence.source}, {evidence.told}", "    ")


def _cell(given: LearnerScaling, point: FactorPoint) -> str:
    if point.horizon is None:
        seconds = data_parallel_seconds(given.terms, point.learners)
    else:
        seconds = spo_seconds(given.terms, point.learners, point.horizon)
    return f"{seconds * 1e6:>7,.0f} {point.exact:>6.2f}  {point.printed:>6.2f}"


def _verdict(given: LearnerScaling) -> str:
    """In words: is a second learner worth it."""
    horizon, averaged, gathered = given.second()
    faster = given.single_seconds / averaged
    worth = "hardly" if faster < HARDLY else "partly" if faster < PARTLY else "well"
    told = (
        f"by the formulas a second learner is {worth} worth it: {faster:.2f} times as many gradient steps, "
        f"{faster / 2:.2f} a learner, if weights are averaged every {horizon} steps; "
        f"{given.single_seconds / gathered:.2f} times if gradients are gathered at each"
    )
    if against := given.contradicted():
        ran, modeled = against
        told += (
            f". What was measured says otherwise: two data parallel learners took {ran.value * 1e6:,.0f} us "
            f"[{ran.low * 1e6:,.0f}, {ran.high * 1e6:,.0f}], {ran.value / modeled:.2f} times the formula's "
            f"{modeled * 1e6:,.0f}, so believe one learner until SPO is timed too"
        )
    return told


def _notes(given: LearnerScaling) -> Iterator[str]:
    most = max(given.counts)
    if given.held == 1 and most > 1:
        yield from wrapped(f"note: this platform has one {given.device}; more of them are as if they were bought")
    elif most > given.held:
        yield from wrapped(f"note: this processor has {given.held} cores; rows of more learners are for a larger one")
    if 1 < given.held <= given.choice[0]:
        yield from wrapped("note: that takes all cores, and actors need one too")
