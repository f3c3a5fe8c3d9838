"""How many batches should be sampled ahead of the one that is trained on?

While the learner trains on a batch, the replay manager can sample others ([Zhang2023, V-A]): D of them ahead. A batch
passes all parts in a round; each engine (a device, or the cores of a process) does one part at a time. By the closed
form D* = (round / the busiest engine's part of it), rounded up, less 1, is enough. That is a bound, up to half too
high at D = 1, so the loop is simulated as well: with exact times, and with times that vary (--spread: their deviation
over their mean). There a D is enough that is within {LOSS} of the most, as noise hides less; in brackets stands the
simulation's own noise at 95 %, and the D for either end of it, not the uncertainty of the times. Actors are omitted.

The times are those of the mapping that `recommend` gives, measured where records have them, else modeled, and the
first line has its rate at that depth; or your own, microseconds of one batch, sampling and updating on one engine and
the learner on another:

  python -m dse depth --sampling-us 1000 --training-us 2000 --updating-us 500 --transfer-us 300

A batch is sampled by priorities that are D gradient steps old, so sample no more ahead than helps.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

from impls.terminal import plural

from ..estimate import off, written
from ..platforms.reading import HERE
from ..tuning import presampling
from ..tuning.presampling import LOSS, STEPS, Busy, DepthAnswer, Enough
from .mapping import add_fix, add_system, pairs
from .mapping import show as show_mapping
from .text import add_command, error_bound, interval, rests_on, rounded, show, with_ends, wrapped

OWN = {
    "sampling": "of sampling and gathering a batch",
    "training": "of a gradient step",
    "updating": "of new priorities (default: 0)",
    "transfer": "there, and as much back (default: 0)",
}
NEEDED = ("sampling", "training")  # of these times
LEAST_US, MOST_US = 1e-3, 1e12
SIMULATED = "95 % of the simulation's own noise"  # whatever the times it was given are worth
STALE = (
    "a batch is sampled by priorities that are D gradient steps old, so more ahead than helps only grow stale; "
    "[Zhang2023] prints no loss of reward at D = 50, and one at D = 200 on Hopper (quoted, its Fig. 10)"
)


def add_to(commands: Any) -> None:
    """Add ``depth`` to the commands of a parser."""
    example = "depth --platform edge --workload cartpole_ddpg --fix arrangement=pipelined --exclude fpga"
    about = (__doc__ or "").format(LOSS=f"{LOSS:.0%}")
    parser = add_command(commands, "depth", "how many batches to sample ahead", about, example)
    add_system(parser, is_required=False, default=HERE)
    add_fix(parser)
    parser.add_argument("--exclude", action="append", default=[], metavar="DEVICE", help="may be repeated")
    for name, words in OWN.items():
        parser.add_argument(f"--{name}-us", type=float, metavar="US", help=words)
    parser.add_argument("--together", action="store_true", help="all of your own times on one engine")
    varying = "of times that vary; 0: none do (default: %(default)g)"
    parser.add_argument("--spread", type=float, default=presampling.SPREAD, metavar="CV", help=varying)


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 1 nothing fits. Raises as ``platform_depth``."""
    try:
        answer = _asked(options)
    except presampling.NothingFits as error:
        return show_mapping(error.shortage, options.json)
    show(options, answer, _dict(answer), _text(answer))
    return 0


def _asked(options: argparse.Namespace) -> DepthAnswer:
    own = {name: value for name in OWN if (value := getattr(options, f"{name}_us")) is not None}
    if not own and not options.together:
        if not options.workload:
            raise ValueError("name a --workload, or give times of your own: --sampling-us 1000 --training-us 2000")
        asked = {name: getattr(options, name) for name in ("exclude", "results", "machine")}
        platform, fix = options.platform or HERE, pairs(options.fix, "--fix")
        return presampling.platform_depth(platform, options.workload, options.spread, fix=fix, **asked)
    for flag in ("workload", "platform", "machine", "fix", "exclude"):
        if getattr(options, flag):
            raise ValueError(f"--{flag} goes with times of a workload, not with your own; leave one of them out")
    for name in OWN:
        least = LEAST_US if name in NEEDED else 0
        if name not in own and least:
            raise ValueError(f"times of your own need --{name}-us too: --sampling-us 1000 --training-us 2000")
        if not (own.get(name, 0.0) == least or LEAST_US <= own.get(name, 0.0) <= MOST_US):
            raise ValueError(
                f"--{name}-us must be {'0 or ' * (not least)}from {LEAST_US:g} to {MOST_US:g}, not {own[name]:g}"
            )
    if options.together and own.get("transfer"):
        raise ValueError("--together has nothing to transfer; leave --transfer-us out")
    sampling, training, updating, transfer = (own.get(name, 0.0) / 1e6 for name in OWN)
    loop = presampling.published_loop(sampling, training, updating, transfer, options.together)
    every = {"sampling": sampling, "there": transfer, "training": training, "back": transfer, "updating": updating}
    named = zip((name for name, seconds in every.items() if seconds), loop.round, strict=True)
    times = (Busy(name, visit.engine, visit.seconds, None, None, "quoted") for name, visit in named)
    return dataclasses.replace(presampling.depth_of(loop, options.spread), times=tuple(times))


def _dict(answer: DepthAnswer) -> dict[str, Any]:
    """Give plain values, for JSON: all rates are modeled, from the times, which have a source each."""
    loss = {f"depth_{at}": _losses(answer, at) for at in (0, 1, answer.depth)}
    more = {"most_hz": answer.most_hz, "source": "modeled", "steps": STEPS, "enough_within": LOSS, "loss": loss}
    plain = dataclasses.asdict(answer) | more | {"staleness": STALE}
    for point, rates in zip(plain["points"], (point.simulated for point in answer.points), strict=True):
        point["simulated"] = [with_ends("hz", rate) | {"steps": STEPS, "interval": SIMULATED} for rate in rates]
    for time, busy in zip(plain["times"], answer.times, strict=True):
        time["interval"] = busy.interval
    return plain


def _losses(answer: DepthAnswer, at: int) -> dict[str, Any]:
    """Give the shares of the most steps/s that are lost at a D: by the bound, and simulated with intervals."""

    def lost(hz: float) -> float:
        return 1 - hz / answer.most_hz

    point = next(one for one in answer.points if one.depth == at)
    simulated = [
        {"cv": enough.cv, "loss": lost(rate.value), "high": lost(rate.low), "low": lost(rate.high)}
        for enough, rate in zip(answer.simulated, point.simulated, strict=True)
    ]
    return {"bound": lost(point.bound_hz), "simulated": simulated}


def _first(answer: DepthAnswer) -> str:
    """Say the answer in one sentence."""
    most, factor = _most(answer)
    hz, low, high = most, most / (factor or 1.0), most * (factor or 1.0)
    if answer.hz:
        (hz, low, high), factor = (answer.hz, *answer.ends), off(answer.hz, *answer.ends)
    within = f", {error_bound(factor)}" if factor and answer.interval == "factor" else ""
    rate = f"{'at most ' * answer.upper_bound}about {rounded(hz, low, high)}"
    return f"Sample {_batches(answer.depth)} ahead: {rate} gradient steps/s{within}."


def _batches(depth: int) -> str:
    return plural(depth, "batch") if depth else "none"


def _text(answer: DepthAnswer) -> Iterator[str]:
    yield _first(answer)
    if answer.workload:
        devices = ", ".join(f"{part} on {device}" for part, device in (answer.mapping or {}).items())
        yield from wrapped(
            f"{answer.workload} (B = {answer.batch:,}) on {answer.platform}, {answer.arrangement}: {devices}", ""
        )
    else:
        yield "a loop of the times given:"
    yield ""
    most, factor = _most(answer)
    shown = written(rounded(most), factor or 1.0, "factor" if factor else "95 %")
    yield from wrapped(
        f"sample {_batches(answer.depth)} ahead: D* = {answer.depth} by the closed form, {shown} gradient "
        f"steps/s at most{', actors left out' * bool(answer.workload)}, modeled"
    )
    for one in answer.simulated:
        yield from wrapped(_enough(one))
    for at in (0, 1) if len(answer.busy) > 1 else ():
        yield from wrapped(_lost(answer, at))
    yield from wrapped(_sure(answer))
    yield ""
    yield from _table(answer)
    yield ""
    engine = max(answer.busy, key=lambda name: answer.busy[name])
    part = answer.busy[engine]
    yield from wrapped(f"a round takes {_us(answer.round_seconds)}, {_us(part)} of it on the busiest engine, {engine}")
    if len(answer.busy) == 1:
        yield from wrapped("everything takes turns on one engine, so sampling ahead gains nothing")
    ahead = "" if answer.presampled is None else f"the workload samples {answer.presampled} ahead; "
    yield from wrapped(f"note: {ahead}{STALE}")
    if answer.sources:
        yield from rests_on(answer.sources)


def _most(answer: DepthAnswer) -> tuple[float, float | None]:
    """Find the rate of the busiest engine, with the factor of the times that keep it busy if they have one."""
    busiest = max(answer.busy, key=lambda name: answer.busy[name])
    factors = [time.factor for time in answer.times if time.engine == busiest and time.interval == "factor"]
    return answer.most_hz, max((factor or 1.0 for factor in factors), default=None)


def _us(seconds: float) -> str:
    return f"{rounded(seconds * 1e6)} us"


def _times(cv: float) -> str:
    return f"times that vary (cv = {cv:g})" if cv else "exact times"


def _enough(one: Enough) -> str:
    with_times = f"simulated with {_times(one.cv)}"
    if one.depth is None:
        return f"{with_times}: none that was tried is within {LOSS:.0%} of that"
    ends = "" if one.least == one.most else f" [{one.least}, {'more' if one.most is None else one.most}]"
    return f"{with_times}: D = {one.depth}{ends} is within {LOSS:.0%} of that"


def _lost(answer: DepthAnswer, at: int) -> str:
    lost = _losses(answer, at)
    losses = [f"{_percent(lost['bound'])} by the closed form"]
    for one in lost["simulated"]:
        ends = f" [{_percent(one['low'])}, {_percent(one['high'])}]" if one["cv"] else ""
        losses.append(f"{_percent(one['loss'])}{ends} simulated with {_times(one['cv'])}")
    return f"depth {at} loses {'; '.join(losses)}"


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.2g} %" if share >= 0.0005 else "0 %"


def _sure(answer: DepthAnswer) -> str:
    if not answer.workload:
        return "as sure as the times given"
    if answer.least == answer.most:
        return f"D* is {answer.depth} for any times within their intervals"
    return f"D* is from {answer.least} to {answer.most} for times anywhere within their intervals"


def _table(answer: DepthAnswer) -> Iterator[str]:
    heads = ["closed form", *(f"simulated, {_times(one.cv)}" for one in answer.simulated)]
    yield "  " + "  ".join([f"{'D':>3}", *(f"{head:>32}" if column else head for column, head in enumerate(heads))])
    for point in answer.points:
        rates = (interval(one.value, one.low, one.high).rjust(32) for one in point.simulated)
        yield "  " + "  ".join([f"{point.depth:>3}", f"{rounded(point.bound_hz):>11}", *rates])
