"""How many of a processor's cores to actors, and how many to learners?

On x cores actors make f_a(x) environment steps/s, and learners f_l(x) gradient steps. Eq. 5 of [Zhang2021]
asks for f_a(x_a) = update_interval f_l(x_l) within the cores there are. Whole cores seldom make both sides equal, so
here the slower side is made as fast as it can be; of what is within 1 % of that the fewest cores are chosen.

The curves are those of a workload on a platform, from a machine's records where there are some, else modeled; or your
own, steps/s by cores, where a scaling law fills in the numbers of cores that they lack. Past their last point
laws part, so intervals widen, and the answer says which number of cores to time next. Curves are of each side alone;
of a workload, the rate of a split is what `recommend` predicts of a run by it, where it predicts one:

  python -m dse cores --actors 1:900,2:1700,4:3000 --learners 1:400,2:700 --cores 8

In brackets stand 95 % intervals of what was measured; ~ and (x2) mean an error bound of a factor of 2 that a model
assumes, which nothing here tested. Devices other than the processor take no part: python -m dse recommend --help asks
about those.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

from impls.terminal import count, plural

from ..estimate import Estimate, off
from ..platforms.reading import HERE
from ..tuning.core_question import EQUAL, CoreSplit, platform_split, split_cores
from ..tuning.core_split import LEAST_HZ, MOST_HZ, Allocation, RateCurve
from .mapping import add_fix, add_system, pairs
from .text import add_command, error_bound, interval, rests_on, rounded, show, with_ends, wrapped

EXAMPLE = "--actors 1:900,2:1700 --learners 1:400,2:700 --cores 4"
SHOWN = 5  # ties


def curve(text: str) -> dict[int, float]:
    """Parse rates by cores, such as 1:900,2:1700. ArgumentTypeError for anything else."""
    rates: dict[int, float] = {}
    for point in text.split(","):
        cores, colon, rate = point.partition(":")
        try:
            hz = float(rate)
        except ValueError:
            colon = ""
        if not colon:
            raise argparse.ArgumentTypeError(f"{point[:40]!r} is no rate of a number of cores; write 1:900,2:1700")
        if count(cores) in rates:
            raise argparse.ArgumentTypeError(f"{plural(count(cores), 'core')} with two rates; leave one of them out")
        rates[count(cores)] = hz
    return rates


def add_to(commands: Any) -> None:
    """Add ``cores`` to the commands of a parser."""
    example = "cores --platform u200 --workload hopper_ddpg --update-interval 16 --reserved 1"
    parser = add_command(commands, "cores", "how many cores to actors and how many to learners", __doc__, example)
    add_system(parser, is_required=False, default=HERE)
    add_fix(parser)
    add = parser.add_argument
    add("--actors", type=curve, metavar="X:HZ,...", help="environment steps/s on x cores")
    add("--learners", type=curve, metavar="X:HZ,...", help="gradient steps/s on x cores")
    add("--cores", type=count, metavar="M", help="cores to share out (default: the platform's)")
    add(
        "--update-interval", type=count, metavar="U", help="environment steps a gradient step (default: the workload's)"
    )
    add("--reserved", type=count, default=0, metavar="R", help="cores for anything else (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code 0. Raises as ``platform_split``."""
    answer = _asked(options)
    show(options, answer, _dict(answer), _text(answer))
    return 0


def _dict(answer: CoreSplit) -> dict[str, Any]:
    """Give plain values, for JSON."""
    plain = dataclasses.asdict(answer)
    plain["choice"] |= {"interval": answer.choice.interval}
    plain["turns"] |= {"interval": answer.turns.interval}
    for several in ("around", "ties"):
        pairs = zip(plain[several], getattr(answer, several), strict=True)
        plain[several] = [split | {"interval": of.interval} for split, of in pairs]
    for side, curve in (("f_a", answer.f_a), ("f_l", answer.f_l)):
        plain[side]["rates"] = {x: with_ends("hz", rate) | {"source": rate.source} for x, rate in curve.rates.items()}
    return plain


def _asked(options: argparse.Namespace) -> CoreSplit:
    own = {"--actors": options.actors, "--learners": options.learners}
    if not any(own.values()):
        if not options.workload:
            raise ValueError(f"name a --workload, or give curves of your own: {EXAMPLE}")
        asked = {
            name: getattr(options, name) for name in ("cores", "update_interval", "reserved", "results", "machine")
        }
        fix = pairs(options.fix, "--fix")
        return platform_split(options.platform or HERE, options.workload, fix=fix, **asked)
    for flag in ("workload", "platform", "machine", "fix"):
        if getattr(options, flag):
            raise ValueError(f"--{flag} has curves of its own; leave it out, or --actors and --learners")
    if missing := [flag for flag, value in {**own, "--cores": options.cores}.items() if not value]:
        raise ValueError(f"curves of your own need {' and '.join(missing)} too: {EXAMPLE}")
    for flag, rates in own.items():
        for cores, hz in rates.items():
            if not LEAST_HZ <= hz <= MOST_HZ:
                raise ValueError(f"{flag} {cores}:{hz:g}: a rate is from {LEAST_HZ:g} to {MOST_HZ:g} steps/s")
    f_a, f_l = (RateCurve.of(flag, rates) for flag, rates in own.items())
    u = 1 if options.update_interval is None else options.update_interval
    return split_cores(f_a, f_l, u, options.cores, options.reserved)


def _text(answer: CoreSplit) -> Iterator[str]:
    choice, u = answer.choice, answer.update_interval
    yield from wrapped(_first(answer), "")
    whose = f"{answer.workload} (B = {answer.batch:,}) on {answer.platform}, " if answer.workload else ""
    reserved = f", {answer.reserved} of them reserved" if answer.reserved else ""
    steps = plural(u, "environment step")
    yield from wrapped(f"{whose}{plural(answer.cores, 'core')}{reserved}, {steps} a gradient step:", "")
    yield ""
    yield f"  {_split(choice)}" + (f", {choice.idle} idle" if choice.idle else "")
    yield f"  {_hz(choice)} gradient steps/s, {_bound(choice)}"
    acting, learning = answer.f_a.rates[choice.actors], answer.f_l.rates[choice.learners]
    yield from wrapped(
        f"actors feed {_rate(acting, 1 / u)}, learners take {_rate(learning, 1)} gradient steps/s; if neither "
        f"waited: {rounded(acting.value / learning.value)} environment steps a gradient step, wanted {u:g}"
    )
    if not choice.in_turns and answer.turns.hz > choice.hz:
        yield from wrapped(
            f"both sides serially on the same {plural(answer.turns.cores, 'core')} would make "
            f"{_hz(answer.turns)}, more than any split"
        )
    for name, cores in answer.to_decide:
        yield from wrapped(_measure_next(answer, name, cores))
    yield ""
    yield from _table(answer)
    yield ""
    yield from _others(answer)
    if answer.sources:
        yield from rests_on(answer.sources)


def _first(answer: CoreSplit) -> str:
    """Say the answer in one sentence, with its rate rounded to what is known."""
    choice = answer.choice
    split = f"Let both sides take turns on {plural(choice.cores, 'core')}"
    if not choice.in_turns:
        split = f"Give {plural(choice.actors, 'core')} to actors and {plural(choice.learners, 'core')} to learners"
    known = choice.interval == "95 %" or choice.low == choice.high
    within = "" if known else f", {error_bound(off(choice.hz, choice.low, choice.high))}"
    rate = rounded(choice.hz, choice.low, choice.high)
    return f"{split}: about {rate} gradient steps/s{within}, {_bound(choice)}."


def _measure_next(answer: CoreSplit, name: str, cores: int) -> str:
    """Say which rate to time next, and why."""
    curve, at = (answer.f_a, answer.choice.actors), (answer.f_l, answer.choice.learners)
    full, chosen = curve if curve[0].name == name else at
    rate = full.rates[chosen]
    larger = " of a larger machine" if answer.cores_there and cores > answer.cores_there else ""
    return (
        f"time {name} on {plural(cores, 'core')}{larger} to decide: on {chosen} it may be from {rounded(rate.low)} to "
        f"{rounded(rate.high)} steps/s"
    )


def _split(split: Allocation) -> str:
    if split.in_turns:
        return f"{plural(split.cores, 'core')} for both, serially"
    return f"{plural(split.actors, 'core')} to actors, {plural(split.learners, 'core')} to learners"


def _hz(split: Allocation) -> str:
    return interval(split.hz, split.low, split.high, split.interval)


def _rate(rate: Estimate, factor: float) -> str:
    value, low, high = (factor * one for one in (rate.value, rate.low, rate.high))
    return f"{interval(value, low, high, rate.interval)} ({_source(rate.source)})"


def _source(*sources: str) -> str:
    return ", ".join("given" if one == "quoted" else one for one in dict.fromkeys(sources))


def _bound(split: Allocation) -> str:
    return {"neither": "both sides are equal", "both serially": "each side waits for the other"}.get(
        split.bottleneck, f"bottleneck: {split.bottleneck}"
    )


def _table(answer: CoreSplit) -> Iterator[str]:
    """Lay out the choice and the splits around it."""
    yield "  actors  learners         steps/s      feed      take  bottleneck     sources"
    for split in (answer.choice, *answer.around, *([] if answer.choice.in_turns else [answer.turns])):
        feed = answer.f_a.rates[split.actors].value / answer.update_interval
        take = answer.f_l.rates[split.learners].value
        hz = "~" * (split.interval == "factor" and split.low < split.high) + rounded(split.hz)
        yield (
            f"  {split.actors:>6,}  {split.learners:>8,}  {hz:>14}  {rounded(feed):>8}  "
            f"{rounded(take):>8}  {split.bottleneck:13}  {_source(*split.sources)}"
        )


def _others(answer: CoreSplit) -> Iterator[str]:
    """Add ties, eq. 5 as printed, and what these rates leave out."""
    if any(split.hz > answer.choice.hz for split in answer.around):
        yield "  of splits within 1 % of the most the one of the fewest cores is taken"
    if answer.ties:
        shown = ", ".join(f"{one.actors} + {one.learners}" for one in answer.ties[:SHOWN])
        more = f" and {len(answer.ties) - SHOWN} more, see --json" if len(answer.ties) > SHOWN else ""
        yield from wrapped(f"may be as fast (actors + learners): {shown}{more}")
    pairs, fastest = answer.printed
    if fastest:
        yield from wrapped(
            f"eq. 5 of [Zhang2021] as printed, both sides within {EQUAL:.0%}: {plural(pairs, 'pair')}, the fastest "
            f"{fastest.actors} + {fastest.learners} with {rounded(fastest.hz)}"
        )
    if answer.cores_there:
        yield from wrapped(
            f"note: the machine has {plural(answer.cores_there, 'core')}; rates on more of them are carried on by a "
            "law, from what coherence alone would leave of them to all that cores could give"
        )
