"""``python -m dse adapt`` and ``learners``: how many samplers, records and learners; arguments in, text or JSON out."""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from impls.terminal import count, plural
from impls.training.adapting import MEMORY, PROCESSOR, WHOLE, Search

from ..estimate import Estimate
from ..times.multi_learner import FactorPoint
from ..tuning.adapt import PROCESS_BYTES, Adaptation, adapted
from ..tuning.learners import LearnerScaling, learner_scaling
from .mapping import add_fix, add_system, system_of
from .text import add_command, error_bound, rests_on, roughly, rounded, show, wrapped

LOOK = ("source", "interval", "factor")  # told of the time behind each look
HARDLY, PARTLY = 1.1, 1.5  # speedups by two learners, below which a second one is hardly, or partly, worth it


def add_to(commands: Any) -> None:
    """Add ``adapt`` and ``learners`` to the commands of a parser."""
    system = "--platform u200 --workload hopper_ddpg"
    about = (_adapt.__doc__ or "").format(PROCESS_GB=PROCESS_BYTES / 1e9)
    summary = "how many samplers and which batch, by few looks"
    adapting = add_command(commands, "adapt", summary, about, f"adapt {system} --memory-gb 64")
    add = adapting.add_argument
    add("--memory-gb", type=float, metavar="GB", help="at most so much (default: what the platform states)")
    add("--cpu-percent", type=float, default=WHOLE, metavar="P", help="of the processor's cores (default: %(default)g)")
    example = f"learners {system} --device gpu --most 4"
    scaling = add_command(commands, "learners", "whether a second learner is worth it", _learners.__doc__, example)
    add = scaling.add_argument
    add("--most", type=count, default=8, metavar="L", help="learners at most (default: %(default)s)")
    add("--longest-period", type=count, default=25, metavar="H", help="steps between averages (default: %(default)s)")
    add("--device", metavar="NAME", help="what each learner runs on (default: a core of the processor)")
    for parser in (adapting, scaling):
        add_system(parser, is_required=True)
        add_fix(parser)


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code 0. Raises as ``recommend_mapping``."""
    return {"adapt": _adapt, "learners": _learners}[options.command](options)


def _adapt(options: argparse.Namespace) -> int:
    """How many samplers (processes of actors) and which batch would training find by itself, in few looks?

    [Hou2023, 3.4] searches both apart: samplers for the most environment steps/s, then the batch for the most records
    trained on per second. Each rate is taken to have one peak, so a Fibonacci search looks at a third of the values or
    less; where the rates seen have another shape, the answer says so and every value is looked at.

    Nothing runs: a look is what the solver predicts, from this machine's records where there are some. To measure while
    a loop trains: `python -m benchmarks adapt`. FPGAs take no part, for a design is built for its batch. The answer is
    not that of these searches: all pairs are weighed by records trained per second at the workload's update_interval,
    which neither search knows of, and the smallest batch near the saturated rate is chosen, with the fewest samplers
    that keep up. The loss is what searching apart costs.

    No look may be over a cap. A sampler takes a core, and the learner at least one; in memory everything counts as if
    the host held it: the records, a tree, the batches under way, and {PROCESS_GB:g} GB a process.
    """
    shown = sys.stderr.isatty()

    def tell(batch: int) -> None:
        if shown:
            print(f"\rpredicting B = {batch:<6,}", end="", file=sys.stderr, flush=True)

    memory = None if options.memory_gb is None else options.memory_gb * 1e9
    answer = adapted(system_of(options), memory, options.cpu_percent, tell)
    if shown:
        print(f"\r{'':24}\r", end="", file=sys.stderr)
    show(options, answer, _adapted_dict(answer), _adapted_text(answer))
    return 0


def _adapted_dict(answer: Adaptation) -> dict[str, Any]:
    """Give plain values, for JSON."""
    plain: dict[str, Any] = {name: getattr(answer, name) for name in ("platform", "workload", "caps")}
    for name, search, values, times in _searches(answer):
        more = {what: {value: getattr(time, what) for value, time in times.items()} for what in LOOK}
        plain[name] = dataclasses.asdict(search) | {"values": values} | more
    for name, pair in (("choice", answer.choice), ("pair", answer.pair), ("best", answer.best)):
        plain |= {name: pair, f"{name}_records_hz": answer.rates.records_hz(*pair)}
    plain |= {
        "notes": answer.notes,
        "knee": {batch: rate / answer.knee.most for batch, rate in answer.knee.rates.items()},
    }
    return plain | {"loss": answer.loss, "pairs": answer.tried, "left_out": answer.left_out, "upper_bound": True}


def _searches(answer: Adaptation) -> Iterator[tuple[str, Search, tuple[int, ...], Mapping[int, Estimate]]]:
    """Yield (name, search, all values, the time that each look's rate rests on)."""
    looks, least, chosen = answer.rates.looks, answer.batches[0], answer.pair[0]
    first, second = answer.found.samplers, answer.found.batch
    acting = {x: looks[x, least].actors for x in first.seen if (x, least) in looks}
    yield "samplers", first, answer.samplers, acting
    learning = {batch: looks[chosen, batch].learner for batch in second.seen if (chosen, batch) in looks}
    yield "batch", second, answer.batches, learning


def _adapted_text(answer: Adaptation) -> Iterator[str]:
    yield from wrapped(_adapted_first(answer), "")
    u = plural(answer.rates.update_interval, "environment step")
    yield f"  {answer.workload} on {answer.platform}, at {u} a gradient step"
    for note in answer.notes:
        yield from wrapped(f"note: {note}")
    yield ""
    yield "samplers and batch searched apart over predicted rates, as published:"
    yield from _searches_text(answer)
    yield ""
    yield from _apart_text(answer)
    for device in answer.left_out:
        yield from wrapped(f"note: {device} is omitted: a design is built for its batch, which no look can change")
    yield from wrapped(
        "note: rates are upper bounds, as of parts that never wait for each other where they run at the same time; "
        "(x2): an error bound of a factor of 2 that a model assumes, not tested here"
    )
    look = answer.rates.looks[answer.choice]
    yield from rests_on([look.actors.rests_on, look.learner.rests_on])


def _searches_text(answer: Adaptation) -> Iterator[str]:
    """Write both searches, look by look."""
    heads = {
        "samplers": ("samplers", "environment steps/s", f"B = {answer.batches[0]}"),
        "batch": ("B", "records trained on per second", plural(answer.pair[0], "sampler")),
    }
    for name, search, values, times in _searches(answer):
        letter, unit, other = heads[name]
        yield ""
        yield f"  {letter:>8}  {unit}, with {other}, in the order of looks"
        for value, hz in search.seen.items():
            yield f"  {value:>8,}  {hz:>12,.0f}  {_source(times[value]) if value in times else 'nothing can run it'}"
        if search.stopped_by:
            beyond = values[len(search.allowed)]
            yield f"  {beyond:>8,}  over the cap on {_cap(answer, search.stopped_by)}; not looked at"
        shape = f"not one peak: {search.not_unimodal}" if search.not_unimodal else "the rates seen have one peak"
        looks = len(search.allowed)
        yield f"  found {search.best:,} by {len(search.seen)} of {plural(looks, 'look')}; {shape}"
        if search.best == search.allowed[-1] and looks > 1:
            more = f"the cap on {search.stopped_by}" if search.stopped_by else "what is tried"
            yield f"  the rate still rises there: {more} is the limit, not a peak"


def _apart_text(answer: Adaptation) -> Iterator[str]:
    """Write what searching apart finds, and the most that any pair trains."""
    pair, best = answer.rates.records_hz(*answer.pair), answer.rates.records_hz(*answer.best)
    yield from wrapped(f"together they find {_pair(answer.pair)}: {pair:,.0f} records trained per second")
    if answer.pair == answer.best:
        yield from wrapped(
            f"all {answer.tried} pairs under the caps have none faster: searching apart loses nothing here"
        )
    else:
        extra = answer.pair[0] - answer.best[0]
        yield from wrapped(
            f"the fastest of all {answer.tried} pairs under the caps, {_pair(answer.best)}: {best:,.0f}; searching "
            f"apart loses {answer.loss:.1%}"
            + (f", and samplers take {plural(extra, 'core')} more" if extra > 0 else "")
        )


def _adapted_first(answer: Adaptation) -> str:
    """Say in one sentence which pair is the choice, and how much it trains."""
    rate, learner = answer.rates.records_hz(*answer.choice), answer.rates.looks[answer.choice].learner
    factor = learner.factor if learner.interval == "factor" else None
    within = f", {error_bound(factor)}" if factor else ""
    shown = rounded(rate, rate / (factor or 1.0), rate * (factor or 1.0))
    return f"Take {_pair(answer.choice)}: about {shown} records trained per second{within}."


def _source(time: Estimate) -> str:
    """Write where a look's rate comes from, with its factor where no stopwatch backs it."""
    return f"{time.source} (x{time.factor:.3g})" if time.interval == "factor" else time.source


def _cap(answer: Adaptation, name: str) -> str:
    most = answer.caps[name]
    return {PROCESSOR: f"the processor ({most:g} %)", MEMORY: f"memory ({most / 1e9:,.3g} GB)"}[name]


def _pair(pair: Sequence[int]) -> str:
    return f"{plural(pair[0], 'sampler')}, B = {pair[1]:,}"


def _learners(options: argparse.Namespace) -> int:
    """Is a second learner worth it? Scaling factors of L learners side by side, averaged every H gradient steps.

    Learners are processes, as `python -m impls.training train --arrangement apart --learners L` has them, of the
    implementation that would run; --fix learner_implementation=torch names another. In data parallel training they
    gather gradients at every step (eq. 5.1 of [Zhang2022], where one of them samples for all). In SPO each samples from
    a bank of its own, and only weights meet, every H steps (5.5). The factor is the speed-up divided by L: 1 is
    perfect, 1 / L gains nothing.

    `as run`: next to actors on the same cores, and with waits for each other; `alone`: while actors stand still.
    `exact` follows from the terms of a step, a core for each learner; `printed` are eqs. 5.3 and 5.6, which leave some
    of them out.

    A larger H never makes a step longer, but weights go stale meanwhile: --longest-period is the limit you set. Of what
    is within 1 % of the shortest step as run, the fewest learners are chosen, then the smallest H.
    """
    answer = learner_scaling(system_of(options), options.most, options.longest_period, options.device)
    show(options, answer, _scaling_dict(answer), _scaling_text(answer))
    return 0


def _scaling_dict(answer: LearnerScaling) -> dict[str, Any]:
    """Give plain values, for JSON."""
    horizon, averaged, gathered = answer.second()
    sources = [
        {"name": term.rests_on.number, "law": dataclasses.asdict(term.law), "per": term.per}
        | {"source": term.rests_on.source, "told": term.rests_on.told, "factor": term.factor}
        for term in answer.sources
    ]
    points = [dataclasses.asdict(one) for one in answer.points]
    for one in points:
        key = one["learners"], one["horizon"]
        one |= {"seconds": answer.seconds(*key), "as_run": answer.factor(*key), "alone": answer.factor(*key, True)}
    ran = [{"learners": key[0], "horizon": key[1], "seconds": seconds} for key, seconds in answer.ran.items()]
    return dataclasses.asdict(answer) | {
        "sources": sources,
        "points": points,
        "ran": ran,
        "single_seconds": answer.single_seconds,
        "best_seconds": answer.seconds(*answer.choice),
        "second_learner": {"horizon": horizon, "spo_seconds": averaged, "data_parallel_seconds": gathered},
        "verdict": _verdict(answer),
    }


def _scaling_text(answer: LearnerScaling) -> Iterator[str]:
    yield from wrapped(_scaling_first(answer), "")
    processes, who = answer.processes, f"{answer.by} learners, a process each"
    if answer.terms.shared_link:
        who = f"learners, a {answer.device} each, by the formulas"
    shared = f"next to {plural(processes.actors, 'actor')} on {plural(processes.cores, 'core')}"
    yield from wrapped(f"{answer.workload} (B = {answer.terms.batch:,}) on {answer.platform}: {who}, {shared}:", "")
    yield ""
    yield "      L  meet every             us  as run  alone  exact  printed"
    for one in sorted(answer.points, key=lambda point: point.learners):
        if one.learners > 1:
            yield _scaling_row(answer, one)
    yield ""
    learners, horizon = answer.choice
    single, chosen = (1e6 * answer.seconds(*key) for key in ((1, None), answer.choice))
    choice = f"L = {learners}, H = {horizon} (limit {answer.longest}): {chosen:,.0f} us a gradient step instead of"
    alone = f"one learner, {single:,.0f} us a gradient step"
    yield from wrapped(f"choice: {choice} {single:,.0f}" if learners > 1 else f"choice: {alone}")
    yield from wrapped(_verdict(answer))
    yield from _notes(answer)
    yield "  terms:"
    for term in answer.sources:
        fixed, each = (1e6 * part for part in (term.law.fixed_seconds, term.law.each_seconds))
        law = f"{fixed:,.4g} us" if not each else f"{each:,.4g} us a {term.per}"
        law = f"{fixed:,.4g} us + {each:,.4g} us a {term.per}" if fixed and each else law
        evidence = term.rests_on
        within = f" (x{term.factor:.3g})" if term.factor else ""
        yield from wrapped(f"{evidence.number}: {law}{within}; {evidence.source}, {evidence.told}", "    ")


def _scaling_row(answer: LearnerScaling, point: FactorPoint) -> str:
    learners, horizon = point.learners, point.horizon
    meets = "step: gradients" if horizon is None else f"{plural(horizon, 'step')}: weights"
    alone = answer.factor(learners, horizon, are_alone=True)
    times = f"{1e6 * answer.seconds(learners, horizon):>9,.0f} {answer.factor(learners, horizon):>7.2f} {alone:>6.2f}"
    crowded = "  cores are shared" * answer.processes.is_crowded(learners)
    return f"  {learners:>5}  {meets:17}{times} {point.exact:>6.2f} {point.printed:>8.2f}{crowded}"


def _scaling_first(answer: LearnerScaling) -> str:
    """Say in one sentence whether to take more learners."""
    learners, horizon = answer.choice
    best = 1 / answer.seconds(*answer.choice)
    averaged = f"{plural(learners, 'learner')} averaged every {plural(horizon, 'step')}"
    alone = f"Stay with one learner: about {roughly(answer.hz)} gradient steps/s"
    if learners == 1:
        return f"{alone}; none that was tried is faster."
    if best / answer.hz < HARDLY:
        return f"{alone}; {averaged} would make about {roughly(best)}."
    return f"Take {averaged}: about {roughly(best)} gradient steps/s instead of {roughly(answer.hz)}."


def _verdict(answer: LearnerScaling) -> str:
    """Say whether a second learner is worth it."""
    horizon, averaged, gathered = answer.second()
    single = 1 / answer.hz
    faster = single / averaged
    worth = "not" if faster <= 1 else "hardly" if faster < HARDLY else "partly" if faster < PARTLY else "well"
    return (
        f"a second learner is {worth} worth it: {faster:.2f} times the gradient steps, {faster / 2:.2f} a learner, if "
        f"weights are averaged every {plural(horizon, 'step')}; {single / gathered:.2f} times if "
        "gradients are gathered at each"
    )


def _notes(answer: LearnerScaling) -> Iterator[str]:
    if answer.held == 1 and max(answer.counts) > 1:
        yield from wrapped(f"note: this platform has one {answer.device}; more of them are as if they were bought")
    for (number, horizon), seconds in answer.ran.items():
        how = "gathering gradients" if horizon is None else f"averaging every {plural(horizon, 'step')}"
        took = ", ".join(f"{1e6 * each:,.0f}" for each in seconds)
        yield from wrapped(f"measured in training, us a step of {plural(number, 'learner')} {how}: {took}")
