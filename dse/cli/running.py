"""``python -m dse adapt --running``: samplers and batch searched on a loop that trains on this machine."""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from impls.cores import count_allowed
from impls.terminal import aligned, amount, plural
from impls.training import Workload, identity, learners, load, load_timed
from impls.training.parallel.adapting import (
    BATCH,
    BATCHES,
    MEMORY,
    PROCESSOR,
    SAMPLERS,
    Run,
    Step,
    adapt_running,
)
from impls.training.parallel.arrangement import Arrangement

from .. import platforms, stats
from ..platforms.reading import HERE
from ..records import Measurement, Writer
from ..solver.problem import ProblemError
from .text import wrapped

PRIMITIVE, FILE = "training adaptation", "adaptation.jsonl"
SETTLE_SECONDS, LOOK_SECONDS = 1.0, 3.0
MOST_STEPS = 1 << 40  # of a loop that ends with the search, not by its steps
HEAD = ("look", "samplers", "B", "env steps/s", "gradient steps/s", "records/s", "processor", "memory", "over its cap")


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options of a search on a running loop."""
    group = parser.add_argument_group("on a running loop, with --platform this")
    add = group.add_argument
    add("--running", action="store_true", help="train, and search by measured rates; the ratio is free meanwhile")
    add("--samplers", type=_numbers, metavar="A,B,..", help="to choose from (default: 1 to 2 a core)")
    add("--batches", type=_numbers, default=BATCHES, metavar="A,B,..", help="(default: 32,64,.. to 2048)")
    add("--seconds", type=amount, default=LOOK_SECONDS, help="of a look, after one to settle (default: %(default)g)")
    add("--exhaustive", action="store_true", help="then measure every pair, to see what the search lost")
    add("--keep", action="store_true", help=f"append each look as a record to FOLDER/<machine>/{FILE}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def run(options: argparse.Namespace) -> int:
    """Train and search; returns the exit code 0. ProblemError for options that do not go together."""
    if options.platform != HERE:
        raise ProblemError(f"--running measures the machine that runs it: ask with --platform {HERE}")
    cores = count_allowed()
    samplers = options.samplers or tuple(range(1, 2 * cores + 1))
    workload = _workload(options.workload, max(samplers))
    with contextlib.ExitStack() as stack:
        keep = stack.enter_context(_writer(options)) if options.keep else None
        path = _Path(workload, identity(load(options.workload)), keep, not options.json and sys.stderr.isatty())
        measure = stack.enter_context(_loop(workload, samplers[0], options.seconds))
        answer = adapt_running(
            measure, samplers, options.batches, _caps(options), cores, exhaustive=options.exhaustive, tell=path.tell
        )
    if options.json:
        print(json.dumps(as_dict(answer, workload)))
    else:
        print("\n".join(as_text(answer, workload)))
        if keep:
            print(f"  records: {keep.path}")
    return 0


def _workload(name: str, actors: int) -> Workload:
    """Load a workload, with a given number of actors, and without an end."""
    workload = load_timed(name)
    return dataclasses.replace(workload, steps=MOST_STEPS, actors=dataclasses.replace(workload.actors, count=actors))


def _caps(options: argparse.Namespace) -> dict[str, float]:
    most = {PROCESSOR: options.cpu_percent}
    memory = options.memory_gb * 1e9 if options.memory_gb else platforms.fingerprint().get("memory_bytes")
    return most | ({MEMORY: float(memory)} if memory else {})


def _loop(workload: Workload, samplers: int, seconds: float) -> contextlib.AbstractContextManager[Any]:
    """Begin a loop with a given number of samplers; its context gives what changes and measures it."""
    from impls.training.parallel.changing import measuring  # noqa: PLC0415  # loads what trains

    return measuring(workload, Arrangement(name="apart"), samplers, seconds, min(SETTLE_SECONDS, seconds))


def _writer(options: argparse.Namespace) -> Writer:
    return Writer(Path(options.results) / str(platforms.fingerprint()["key"]) / FILE)


class _Path:
    """The looks of a run as they come: each a record where they are kept, and a line for people."""

    def __init__(self, workload: Workload, own: str, keep: Writer | None, shown: bool) -> None:
        self._of, self._keep, self._shown, self._count = (workload, own, platforms.now()), keep, shown, 0

    def tell(self, step: Step) -> None:
        """Keep a look, and show it."""
        self._count += 1
        if self._keep:
            self._keep.append(record_of(step, *self._of, self._count))
        if self._shown:
            print("  ".join(_row(step)), file=sys.stderr, flush=True)


@cache
def _commit() -> tuple[str | None, bool | None]:
    return platforms.commit(Path(__file__).parent, is_told=False)  # where this is installed, there is no checkout


def record_of(step: Step, workload: Workload, own: str, utc: str, look: int) -> Measurement:
    """Make the record of a look, number ``look`` of the run that began at ``utc``; its time is of a gradient step.

    ``own`` is the identity of the workload before it was given actors enough for the search.
    """
    rates, interval = step.rates, stats.median_interval(step.rates.seconds)
    samplers, batch = step.pair
    commit, dirty = _commit()
    chosen = learners.default(workload)
    options = {
        "workload": workload.name, "identity": own, "arrangement": "apart",
        "actors": samplers, "learners": 1, "environments": workload.actors.environments,
        "presampled": workload.replay.presampled, "batch": batch, "learner": chosen, "policy": chosen,
        "ratio": "free", "run": utc, "look": look, "most_actors": workload.actors.count,
    }  # fmt: skip
    names = ("sampling_hz", "update_hz", "frames_hz", "cpu_percent")
    measured = {name: getattr(rates, name) for name in names} | {"used_bytes": rates.memory_bytes, "over": step.over}
    return Measurement(
        source="measured", status="ok", primitive=PRIMITIVE, contestant="apart", op=step.search,
        capacity=workload.replay.capacity, batch=batch, fanout=workload.replay.fanout, options=options,
        samples_seconds=rates.seconds, calls_per_sample=1, median_seconds=interval.median,
        low_seconds=interval.low, high_seconds=interval.high,
        machine={**platforms.fingerprint(), **measured},
        commit=commit, dirty=dirty, utc=platforms.now(), command=platforms.command_line(),
    )  # fmt: skip


def as_dict(answer: Run, workload: Workload) -> dict[str, Any]:
    """Give plain values, for JSON."""

    def plain(step: Step) -> Mapping[str, Any]:
        rates = dataclasses.asdict(step.rates)
        return {"search": step.search, **rates, "memory_bytes": step.rates.memory_bytes, "over": step.over}

    losses = {name: dataclasses.asdict(loss) for name, loss in answer.losses.items()}
    return {
        "workload": workload.name, "platform": HERE, "caps": answer.caps, "samplers": answer.samplers,
        "batches": answer.batches, "choice": answer.pair, "path": [plain(step) for step in answer.path],
        "searches": {name: dataclasses.asdict(getattr(answer.searches, name)) for name in (SAMPLERS, BATCH)},
        "grid": [plain(step) for step in answer.grid], "losses": losses, "repeats": answer.repeats,
    }  # fmt: skip


def as_text(answer: Run, workload: Workload) -> Iterator[str]:
    """Write the answer, the path to it, and what it lost."""
    samplers, batch = answer.pair
    last = next(step.rates for step in reversed(answer.path) if step.pair == answer.pair)
    yield from wrapped(
        f"Take {plural(samplers, 'sampler')}, B = {batch:,}: {last.sampling_hz:,.0f} environment steps and "
        f"{last.frames_hz:,.0f} records trained on per second (measured).",
        "",
    )
    yield f"  {workload.name} on this machine, actors and one learner apart, their ratio free"
    yield ""
    yield "looks, in their order:"
    yield from aligned([HEAD, *(_row(step) for step in answer.path)], "  ")
    for name, search in ((SAMPLERS, answer.searches.samplers), (BATCH, answer.searches.batch)):
        shape = f"not one peak: {search.not_unimodal}" if search.not_unimodal else "the rates seen have one peak"
        stopped = f"; larger ones are over the cap on {search.stopped_by}" if search.stopped_by else ""
        yield from wrapped(
            f"{name}: {search.best:,} by {len(search.seen)} looks at {len(search.allowed)} values; {shape}{stopped}"
        )
    if answer.grid:
        yield ""
        yield from _compared(answer)


def _compared(answer: Run) -> Iterator[str]:
    """Write what measuring every pair shows."""
    yield f"all {len(answer.grid)} pairs measured, besides {plural(answer.looks, 'look')} of the search:"
    for name, loss in answer.losses.items():
        yield from wrapped(
            f"{name}: {loss.found:,} found, {loss.best:,} fastest of those measured; the search loses {loss.share:.1%}"
        )
    if answer.repeats:
        yield from wrapped(f"two looks at one pair differ by up to {answer.repeats - 1:.1%}")
    for what, of in (("environment steps", "sampling_hz"), ("records trained on", "frames_hz")):
        step = max(answer.grid, key=lambda step, of=of: getattr(step.rates, of))  # type: ignore[misc]
        yield from wrapped(
            f"most {what} of all pairs: {getattr(step.rates, of):,.0f} per second, by "
            f"{plural(step.pair[0], 'sampler')} with B = {step.pair[1]:,}"
        )


def _row(step: Step) -> tuple[str, ...]:
    rates = step.rates
    return (
        step.search, f"{step.pair[0]}", f"{step.pair[1]:,}", f"{rates.sampling_hz:,.0f}", f"{rates.update_hz:,.0f}",
        f"{rates.frames_hz:,.0f}", f"{rates.cpu_percent:.0f} %", f"{rates.memory_bytes / 1e6:,.0f} MB", step.over,
    )  # fmt: skip
