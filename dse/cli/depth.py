"""``python -m dse depth``: arguments, and the answer how many batches to draw ahead."""

import argparse
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from impls.terminal import plural
from impls.training import WorkloadError

from ..platforms import PlatformError
from ..platforms.reading import HERE, RESULTS
from ..records import RecordError
from ..tuning.presampling import LOSS, SPREAD, STEPS, Busy, DepthAnswer, DepthPoint, Enough, depth_of, platform_depth
from ..tuning.presampling import published_loop as loop_of
from .mapping import add_machine, pairs
from .text import interval, rests_on, rounded, show, with_ends, wrapped

ABOUT = f"""How many batches should be drawn ahead of the one that is trained on?

While the learner trains on a batch, the replay can draw others (seed 3, section V-A): D of them ahead. A batch passes
all parts in a round; each engine (a device, or the cores of a process) does one part at a time. By the closed form
D* = (round / the busiest engine's part of it), rounded up, less 1, is enough. That is a bound, up to half too high at
D = 1, so the loop is simulated as well: with exact times, and with times that vary (--spread: their deviation over
their mean). There a D is enough that is within {LOSS:.0%} of the most, as noise hides less; in brackets, the D for
either end of the rates' 95 % intervals. Actors are left out.

The times are those of the best mapping of a workload on a platform, measured where records have them, else modeled:

  python -m dse depth --platform u200 --workload hopper_ddpg
  python -m dse depth --platform edge --workload cartpole_ddpg --fix arrangement=pipelined --exclude fpga

or your own, microseconds of one batch, sampling and updating on one engine and the learner on another:

  python -m dse depth --sampling-us 1000 --training-us 2000 --updating-us 500 --transfer-us 300

A batch is drawn by priorities that are D gradient steps old, so draw no more ahead than helps."""
GIVEN = ("sampling", "training", "updating", "transfer")
LEAST_US, MOST_US = 1e-3, 1e12
STALE = (
    "a batch is drawn by priorities that are D gradient steps old, so more ahead than helps only grow stale; seed 3 "
    "prints no loss of reward at D = 50, and one at D = 200 on Hopper (quoted, its Fig. 10)"
)


def add_to(commands: Any) -> None:
    """``depth``."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser("depth", help="how many batches to draw ahead", description=ABOUT, formatter_class=raw)
    parser.add_argument("--workload", metavar="NAME", help="a workload's name or file")
    parser.add_argument("--platform", metavar="NAME", help=f"a platform's name or file (default: {HERE})")
    parser.add_argument("--fix", action="append", default=[], metavar="KEY=VALUE", help="as recommend; may be repeated")
    parser.add_argument("--exclude", action="append", default=[], metavar="DEVICE", help="may be repeated")
    for name, told in zip(
        GIVEN, ("of a draw and its gather", "of a gradient step", "of new priorities", ""), strict=True
    ):
        words = f"{told} (default: 0)" if name == "updating" else told or "there, and as much back (default: 0)"
        parser.add_argument(f"--{name}-us", type=float, metavar="US", help=words)
    parser.add_argument("--together", action="store_true", help="all of your own times on one engine")
    parser.add_argument(
        "--spread",
        type=float,
        default=SPREAD,
        metavar="CV",
        help="of times that vary; 0: none do (default: %(default)g)",
    )
    add_machine(parser)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 2 cannot be asked (a sentence says why)."""
    try:
        given = _asked(options)
    except (PlatformError, WorkloadError, RecordError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"error: the simulation needs {error.name}; install it with: pip install '.[suite]'", file=sys.stderr)
        return 2
    show(options, given.machine, given.machine_note, _dict(given), _text(given), given.workload != "")
    return 0


def _asked(options: argparse.Namespace) -> DepthAnswer:
    own = {name: value for name in GIVEN if (value := getattr(options, f"{name}_us")) is not None}
    if not own and not options.together:
        if not options.workload:
            raise ValueError("name a --workload, or give times of your own: --sampling-us 1000 --training-us 2000")
        return platform_depth(
            options.platform or HERE,
            options.workload,
            options.spread,
            fix=pairs(options.fix, "--fix"),
            exclude=options.exclude,
            results=options.results,
            machine=options.machine,
        )
    for flag in ("workload", "platform", "machine", "fix", "exclude"):
        if getattr(options, flag):
            raise ValueError(f"--{flag} goes with times of a workload, not with your own; leave one of them out")
    for name in GIVEN:
        least = LEAST_US if name in GIVEN[:2] else 0
        if name not in own and least:
            raise ValueError(f"times of your own need --{name}-us too: --sampling-us 1000 --training-us 2000")
        if not (own.get(name, 0.0) == least or LEAST_US <= own.get(name, 0.0) <= MOST_US):
            raise ValueError(
                f"--{name}-us must be {'0 or ' * (not least)}from {LEAST_US:g} to {MOST_US:g}, not {own[name]:g}"
            )
    if options.together and own.get("transfer"):
        raise ValueError("--together has nothing to transfer; leave --transfer-us out")
    sampling, training, updating, transfer = (own.get(name, 0.0) / 1e6 for name in GIVEN)
    loop = loop_of(sampling, training, updating, transfer, options.together)
    names = [
        "sampling",
        *(["there"] * bool(transfer)),
        "training",
        *(["back"] * bool(transfer)),
        *(["updating"] * bool(updating)),
    ]
    pairs_of = zip(names, loop.round, strict=True)
    times = (Busy(name, one.engine, one.seconds, None, None, "quoted") for name, one in pairs_of)
    return dataclasses.replace(depth_of(loop, options.spread), times=tuple(times))


def _dict(given: DepthAnswer) -> dict[str, Any]:
    """Plain values, for JSON: all rates are modeled, from the times, which have a source each."""
    loss = {f"depth_{at}": _losses(given, at) for at in (0, 1, given.depth)}
    more = {"most_hz": given.most_hz, "source": "modeled", "steps": STEPS, "enough_within": LOSS, "loss": loss}
    plain = dataclasses.asdict(given) | more | {"staleness": STALE}
    for point, rates in zip(plain["points"], (one.simulated for one in given.points), strict=True):
        point["simulated"] = [with_ends("hz", rate) | {"steps": STEPS} for rate in rates]
    return plain


def _losses(given: DepthAnswer, at: int) -> dict[str, Any]:
    """Shares of the most steps a second that are lost at a D: by the bound, and simulated with their intervals."""
    point = next(one for one in given.points if one.depth == at)
    simulated = [
        {
            "cv": enough.cv,
            "loss": 1 - rate.value / given.most_hz,
            "high": 1 - rate.low / given.most_hz,
            "low": 1 - rate.high / given.most_hz,
        }
        for enough, rate in zip(given.simulated, point.simulated, strict=True)
    ]
    return {"bound": 1 - point.bound_hz / given.most_hz, "simulated": simulated}


def _text(given: DepthAnswer) -> Iterator[str]:
    if given.workload:
        devices = ", ".join(f"{part} on {device}" for part, device in (given.mapping or {}).items())
        yield from wrapped(
            f"{given.workload} (B = {given.batch:,}) on {given.platform}, {given.arrangement}: {devices}", ""
        )
    else:
        yield "a loop of the times given:"
    yield ""
    ahead = (
        f"draw {plural(given.depth, 'batch').replace('batchs', 'batches')} ahead" if given.depth else "draw none ahead"
    )
    yield from wrapped(
        f"{ahead}: D* = {given.depth} by the closed form, {rounded(given.most_hz)} gradient steps a second at most, "
        "modeled"
    )
    for one in given.simulated:
        yield from wrapped(_enough(one))
    for at in (0, 1) if len(given.busy) > 1 else ():
        yield from wrapped(_lost(given, at))
    yield from wrapped(_sure(given))
    yield ""
    yield from _table(given)
    yield ""
    engine = max(given.busy, key=lambda name: given.busy[name])
    part = given.busy[engine]
    yield from wrapped(f"a round takes {_us(given.round_seconds)}, {_us(part)} of it on the busiest engine, {engine}")
    if len(given.busy) == 1:
        yield from wrapped("everything takes turns on one engine, so drawing ahead gains nothing")
    if given.presampled is not None:
        yield from wrapped(f"note: the workload draws {given.presampled} ahead; {STALE}")
    else:
        yield from wrapped(f"note: {STALE}")
    if given.sources:
        yield from rests_on(given.sources)


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


def _lost(given: DepthAnswer, at: int) -> str:
    lost = _losses(given, at)
    told = [f"{_percent(lost['bound'])} by the closed form"]
    for one in lost["simulated"]:
        ends = f" [{_percent(one['low'])}, {_percent(one['high'])}]" if one["cv"] else ""
        told.append(f"{_percent(one['loss'])}{ends} simulated with {_times(one['cv'])}")
    return f"depth {at} loses {'; '.join(told)}"


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.2g} %" if share >= 0.0005 else "0 %"


def _sure(given: DepthAnswer) -> str:
    if not given.workload:
        return "as sure as the times given"
    if given.least == given.most:
        return f"D* is {given.depth} for any times within their intervals"
    return f"D* is from {given.least} to {given.most} for times anywhere within their intervals"


def _table(given: DepthAnswer) -> Iterator[str]:
    heads = ["closed form", *(f"simulated, {_times(one.cv)}" for one in given.simulated)]
    yield "  " + "  ".join([f"{'D':>3}", *(f"{head:>32}" if place else head for place, head in enumerate(heads))])
    for point in given.points:
        yield "  " + "  ".join([f"{point.depth:>3}", *_cells(point)])


def _cells(point: DepthPoint) -> Iterator[str]:
    yield f"{rounded(point.bound_hz):>11}"
    for one in point.simulated:
        yield interval(one.value, one.low, one.high).rjust(32)
