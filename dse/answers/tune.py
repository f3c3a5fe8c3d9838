"""``python -m dse cores``, ``depth``, ``adapt`` and ``learners``: how many of each to take."""

import argparse
import sys
from typing import Any

from impls.terminal import count, plural
from impls.training.adapting import WHOLE

from ..answer import Answer
from ..platforms.files import HERE
from ..tuning.cores import RateCurve, platform_split, split_cores
from ..tuning.depth import LOSS, SPREAD, NothingFits, own_depth, platform_depth, published_visits
from ..tuning.learners import answer_learners
from ..tuning.samplers import PROCESS_BYTES, answer_samplers, replay
from .mapping_answer import mapping_answer
from .options import add_command, add_fix, add_system, add_verbose, pairs, system_of
from .printer import show

CURVES = "--actors 1:900,2:1700 --learners 1:400,2:700 --cores 4"
OWN = {
    "sampling": "of sampling and gathering a batch",
    "training": "of a gradient step",
    "updating": "of new priorities (default: 0)",
    "transfer": "there, and as much back (default: 0)",
}
NEEDED = ("sampling", "training")  # of these times
LEAST_US, MOST_US = 1e-3, 1e12


def add_to(commands: Any) -> None:
    """Add the four commands to the commands of a parser."""

    def add_parser(name: str, summary: str, example: str) -> argparse.ArgumentParser:
        about = (_ANSWER[name].__doc__ or "").format(LOSS=LOSS, PROCESS_GB=PROCESS_BYTES / 1e9)
        return add_command(commands, name, summary, about, f"{name} {example}")

    system = "--platform u200 --workload hopper_ddpg"
    example = f"{system} --update-interval 16 --reserved 1"
    splitting = add_parser("cores", "how many cores to actors and how many to learners", example)
    add = splitting.add_argument
    add("--actors", type=curve, metavar="X:HZ,...", help="environment steps/s on x cores")
    add("--learners", type=curve, metavar="X:HZ,...", help="gradient steps/s on x cores")
    add("--cores", type=count, metavar="M", help="cores to share out (default: the platform's)")
    own = "environment steps a gradient step (default: the workload's)"
    add("--update-interval", type=count, metavar="U", help=own)
    add("--reserved", type=count, default=0, metavar="R", help="cores for anything else (default: %(default)s)")
    example = "--platform edge --workload cartpole_ddpg --fix arrangement=pipelined --exclude fpga"
    ahead = add_parser("depth", "how many batches to sample ahead", example)
    add = ahead.add_argument
    add("--exclude", action="append", default=[], metavar="DEVICE", help="may be repeated")
    for name, words in OWN.items():
        add(f"--{name}-us", type=float, metavar="US", help=words)
    add("--together", action="store_true", help="all of your own times on one engine")
    varying = "of times that vary; 0: none do (default: %(default)g)"
    add("--spread", type=float, default=SPREAD, metavar="CV", help=varying)
    add("--queues", type=count, default=0, metavar="Q", help="batches that the learner's queue takes (printed: 200)")
    adapting = add_parser("adapt", "how many samplers and which batch, by few looks", f"{system} --memory-gb 64")
    add = adapting.add_argument
    add("--memory-gb", type=float, metavar="GB", help="memory to use at most (default: what the platform states)")
    used = "share of the cores to use (default: %(default)g)"
    add("--cpu-percent", type=float, default=WHOLE, metavar="P", help=used)
    scaling = add_parser("learners", "whether a second learner is worth it", f"{system} --device gpu --most 4")
    add = scaling.add_argument
    add("--most", type=count, default=8, metavar="L", help="learners at most (default: %(default)s)")
    add("--longest-period", type=count, default=25, metavar="H", help="steps between averages (default: %(default)s)")
    add("--device", metavar="NAME", help="device that each learner runs on (default: a core of the processor)")
    for parser, takes_own_numbers in ((splitting, True), (ahead, True), (adapting, False), (scaling, False)):
        add_system(parser, is_required=not takes_own_numbers, default=HERE if takes_own_numbers else "")
        add_fix(parser)
        add_verbose(parser)


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 1 nothing fits. Raises as the functions of ``dse.tuning``."""
    try:
        return show(_ANSWER[options.command](options), options)
    except NothingFits as error:
        return show(mapping_answer(error.shortage), options)


def curve(text: str) -> dict[int, float]:
    """Parse rates by cores, such as 1:900,2:1700. ArgumentTypeError for anything else."""
    rates: dict[int, float] = {}
    for point in text.split(","):
        cores, _, rate = point.partition(":")
        try:
            hz = float(rate)
        except ValueError:
            why = f"{point[:40]!r} is no rate of a number of cores; write 1:900,2:1700"
            raise argparse.ArgumentTypeError(why) from None
        if count(cores) in rates:
            raise argparse.ArgumentTypeError(f"{plural(count(cores), 'core')} with two rates; leave one of them out")
        rates[count(cores)] = hz
    return rates


def _refuse(options: argparse.Namespace, flags: tuple[str, ...], why: str) -> None:
    """Raise ValueError where an option of a system is given next to own numbers."""
    for flag in flags:
        if getattr(options, flag):
            raise ValueError(f"--{flag} {why}")


def _split(options: argparse.Namespace) -> Answer:
    """How many of a processor's cores to actors, and how many to learners?

    On x cores actors make f_a(x) environment steps/s, and learners f_l(x) gradient steps. Eq. 5 of [Zhang2021] asks
    for f_a(x_a) = update_interval f_l(x_l) within the cores there are. Whole cores seldom make both sides equal, so
    here the slower side is made as fast as it can be; of what is within 1 % of that the fewest cores are chosen.

    The curves are those of a workload on a platform, from a machine's records where there are some, else modeled;
    or your own, steps/s by cores, where a scaling law fills in the numbers of cores that they lack. Past their last
    point laws part, so intervals widen, and the answer says which number of cores to time next. Curves are of each
    side alone; of a workload, the rate of a split is what `recommend` predicts of a run by it, where it predicts
    one:

      python -m dse cores --actors 1:900,2:1700,4:3000 --learners 1:400,2:700 --cores 8

    Ranges of measured rates are 95 % intervals; of modeled rates they are error bounds that the model assumes. Devices
    other than the processor take no part: python -m dse recommend --help asks about those.
    """
    own = {"--actors": options.actors, "--learners": options.learners}
    if not any(own.values()):
        if not options.workload:
            raise ValueError(f"name a --workload, or give curves of your own: {CURVES}")
        names = ("cores", "update_interval", "reserved", "results", "machine")
        asked = {name: getattr(options, name) for name in names}
        fix = pairs(options.fix, "--fix")
        return platform_split(options.platform or HERE, options.workload, fix=fix, **asked)
    why = "has curves of its own; leave it out, or --actors and --learners"
    _refuse(options, ("workload", "platform", "machine", "fix"), why)
    if missing := [flag for flag, value in {**own, "--cores": options.cores}.items() if not value]:
        raise ValueError(f"curves of your own need {' and '.join(missing)} too: {CURVES}")
    f_a, f_l = (RateCurve.of(flag, rates) for flag, rates in own.items())
    u = 1 if options.update_interval is None else options.update_interval
    return split_cores(f_a, f_l, u, options.cores, options.reserved)


def _depth(options: argparse.Namespace) -> Answer:
    """How many batches should be sampled ahead of the one that is trained on?

    While the learner trains on a batch, the replay manager can sample others ([Zhang2023, V-A]): D of them ahead. A
    batch passes all parts in a round; each engine (a device, or the cores of a process) does one part at a time. By
    the closed form D* = (round / the busiest engine's part of it), rounded up, less 1, is enough. That is a bound,
    up to half too high at D = 1, so the loop is simulated as well: with exact times, and with times that vary
    (--spread: their deviation over their mean). There a D is enough that is within {LOSS:.0%} of the most, as noise
    hides less. Ranges of simulated rates are the simulation's own noise at 95 %, not the uncertainty of the times.
    Actors take no part in that loop; of a workload, the first line has the rate with them.

    The times are those of the mapping that `recommend` gives, measured where records have them, else modeled, and
    the first line has its rate at that depth; or your own, microseconds of one batch, sampling and updating on one
    engine and the learner on another:

      python -m dse depth --sampling-us 1000 --training-us 2000 --updating-us 500 --transfer-us 300

    With --queues the loop is of the processing units of [Zhang2023, Table II and Fig. 7], the tree, the storage and the
    learner, each with a queue that it takes batches from: of 1,024 requests, and of Q batches before the learner (200
    for Pong, 10 for Hopper). --verbose prints how long the queues are, for which unit their batches wait, and how many
    batches found a queue full. Fix a printed mapping, such as Pong's G-C-G, by --fix arrangement=pipelined
    --fix learner=gpu --fix sampling=cpu --fix updating=cpu --fix storage=gpu.

    A batch is sampled by priorities that are D gradient steps old, so sample no more ahead than helps.
    """
    own = {name: value for name in OWN if (value := getattr(options, f"{name}_us")) is not None}
    if not own and not options.together:
        if not options.workload:
            raise ValueError("name a --workload, or give times of your own: --sampling-us 1000 --training-us 2000")
        asked = {name: getattr(options, name) for name in ("spread", "exclude", "results", "machine")}
        asked["data_queue"] = options.queues
        return platform_depth(options.platform or HERE, options.workload, fix=pairs(options.fix, "--fix"), **asked)
    why = "goes with times of a workload, not with your own; leave one of them out"
    _refuse(options, ("workload", "platform", "machine", "fix", "exclude", "queues"), why)
    for name in OWN:
        is_needed, us = name in NEEDED, own.get(name, 0.0)
        if name not in own and is_needed:
            raise ValueError(f"times of your own need --{name}-us too: --sampling-us 1000 --training-us 2000")
        if not (LEAST_US <= us <= MOST_US or (us == 0 and not is_needed)):
            zero = "" if is_needed else "0 or "
            raise ValueError(f"--{name}-us must be {zero}from {LEAST_US:g} to {MOST_US:g}, not {us:g}")
    if options.together and own.get("transfer"):
        raise ValueError("--together has nothing to transfer; leave --transfer-us out")
    seconds = (own.get(name, 0.0) / 1e6 for name in OWN)
    return own_depth(published_visits(*seconds, together=options.together), options.spread)


def _adapt(options: argparse.Namespace) -> Answer:
    """How many samplers (processes of actors) and which batch would training find by itself, in few looks?

    [Hou2023, 3.4] searches both apart: samplers for the most environment steps/s, then the batch for the most records
    trained on per second. Each rate is taken to have one peak, so a Fibonacci search looks at a third of the values or
    less; where the rates seen have another shape, the answer says so and every value is looked at.

    Nothing runs: a look is what the solver predicts, from this machine's records where there are some. To measure while
    a loop trains: `python -m benchmarks run adapt`. FPGAs take no part, for a design is built for its batch. The answer
    is not that of these searches: all pairs are weighed by records trained per second at the workload's
    update_interval, which neither search knows of, and the smallest batch near the saturated rate is chosen, with the
    fewest samplers that keep up. The loss is what searching apart costs.

    No look may be over a cap. A sampler takes a core, and the learner at least one; in memory everything counts as if
    the host held it: the records, a tree, the batches under way, and {PROCESS_GB:g} GB a process.
    """
    is_shown = sys.stderr.isatty()

    def announce(batch: int) -> None:
        if is_shown:
            print(f"\rpredicting B = {batch:<6,}", end="", file=sys.stderr, flush=True)

    memory = None if options.memory_gb is None else options.memory_gb * 1e9
    question = system_of(options)
    answer = answer_samplers(question, replay(question, memory, options.cpu_percent, announce))
    if is_shown:
        print(f"\r{'':24}\r", end="", file=sys.stderr)
    return answer


def _learners(options: argparse.Namespace) -> Answer:
    """Is a second learner worth it? Scaling factors of L learners side by side, averaged every H gradient steps.

    Learners are processes, as `python -m impls.training train --arrangement apart --learners L` has them, of the
    implementation that would run; --fix learner_implementation=torch names another. In data parallel training they
    gather gradients at every step (eq. 5.1 of [Zhang2022], where one of them samples for all). In SPO each samples from
    a bank of its own, and only weights meet, every H steps (5.5). The factor is the speed-up divided by L: 1 is
    perfect, 1 / L gains nothing.

    The tables have it four times: in a run, next to actors on the same cores, and with waits for each other; alone,
    while actors stand still; by an exact formula, from the terms of a step, a core for each learner; by the printed
    formula, eqs. 5.3 and 5.6, which leave some terms out.

    A larger H never makes a step longer, but weights go stale meanwhile: --longest-period is the limit you set. Of what
    is within 1 % of the shortest step as run, the fewest learners are chosen, then the smallest H.
    """
    return answer_learners(system_of(options), options.most, options.longest_period, options.device)


_ANSWER = {"cores": _split, "depth": _depth, "adapt": _adapt, "learners": _learners}
