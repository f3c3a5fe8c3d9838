"""``python -m dse cores``, ``depth``, ``adapt`` and ``learners``: how many of each to take."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable
from typing import Any

from impls.terminal import count, plural
from impls.training.adapting import WHOLE

from ..answer import Answer, Note, Row, evidence_notes, notes_of_records
from ..estimate import Estimate, Evidence, weakest
from ..platforms.reading import HERE
from ..tuning.cores import STEPS_HZ, RateCurve, platform_split, split_cores
from ..tuning.depth import LOSS, SPREAD, NothingFits, own_depth, platform_depth
from ..tuning.learners import LearnerScaling, learner_scaling
from ..tuning.samplers import PROCESS_BYTES, answer_samplers, replay
from .mapping_answer import mapping_answer
from .options import add_command, add_fix, add_system, add_verbose, pairs, system_of
from .printer import show

RECORDS_HZ = "records/s"
CURVES = "--actors 1:900,2:1700 --learners 1:400,2:700 --cores 4"
OWN = {
    "sampling": "of sampling and gathering a batch",
    "training": "of a gradient step",
    "updating": "of new priorities (default: 0)",
    "transfer": "there, and as much back (default: 0)",
}
NEEDED = ("sampling", "training")  # of these times
LEAST_US, MOST_US = 1e-3, 1e12
HARDLY, PARTLY = 1.1, 1.5  # speedups by two learners, below which a second one is hardly, or partly, worth it


def add_to(commands: Any) -> None:
    """Add the four commands to the commands of a parser."""
    system = "--platform u200 --workload hopper_ddpg"
    splitting = add_command(
        commands,
        "cores",
        "how many cores to actors and how many to learners",
        _about(_split),
        f"cores {system} --update-interval 16 --reserved 1",
    )
    add = splitting.add_argument
    add("--actors", type=curve, metavar="X:HZ,...", help="environment steps/s on x cores")
    add("--learners", type=curve, metavar="X:HZ,...", help="gradient steps/s on x cores")
    add("--cores", type=count, metavar="M", help="cores to share out (default: the platform's)")
    add(
        "--update-interval", type=count, metavar="U", help="environment steps a gradient step (default: the workload's)"
    )
    add("--reserved", type=count, default=0, metavar="R", help="cores for anything else (default: %(default)s)")
    example = "depth --platform edge --workload cartpole_ddpg --fix arrangement=pipelined --exclude fpga"
    ahead = add_command(commands, "depth", "how many batches to sample ahead", _about(_depth), example)
    add = ahead.add_argument
    add("--exclude", action="append", default=[], metavar="DEVICE", help="may be repeated")
    for name, words in OWN.items():
        add(f"--{name}-us", type=float, metavar="US", help=words)
    add("--together", action="store_true", help="all of your own times on one engine")
    varying = "of times that vary; 0: none do (default: %(default)g)"
    add("--spread", type=float, default=SPREAD, metavar="CV", help=varying)
    summary = "how many samplers and which batch, by few looks"
    adapting = add_command(commands, "adapt", summary, _about(_adapt), f"adapt {system} --memory-gb 64")
    add = adapting.add_argument
    add("--memory-gb", type=float, metavar="GB", help="memory to use at most (default: what the platform states)")
    add(
        "--cpu-percent",
        type=float,
        default=WHOLE,
        metavar="P",
        help="share of the cores to use (default: %(default)g)",
    )
    example = f"learners {system} --device gpu --most 4"
    scaling = add_command(commands, "learners", "whether a second learner is worth it", _about(_learners), example)
    add = scaling.add_argument
    add("--most", type=count, default=8, metavar="L", help="learners at most (default: %(default)s)")
    add("--longest-period", type=count, default=25, metavar="H", help="steps between averages (default: %(default)s)")
    add("--device", metavar="NAME", help="device that each learner runs on (default: a core of the processor)")
    for parser, has_own_numbers in ((splitting, True), (ahead, True), (adapting, False), (scaling, False)):
        add_system(parser, is_required=not has_own_numbers, default=HERE if has_own_numbers else "")
        add_fix(parser)
        add_verbose(parser)


def _about(answer: Callable[[argparse.Namespace], Answer]) -> str:
    """Return the help of a command, which its function begins with."""
    return (answer.__doc__ or "").format(LOSS=LOSS, PROCESS_GB=PROCESS_BYTES / 1e9)


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


def _records(answer: Any, sources: Iterable[Evidence]) -> tuple[Note, ...]:
    """Return the notes on whose records answer, and what it rests on."""
    return (*notes_of_records(answer.machine_note, answer.profile_notes), *evidence_notes(sources))


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

    A batch is sampled by priorities that are D gradient steps old, so sample no more ahead than helps.
    """
    own = {name: value for name in OWN if (value := getattr(options, f"{name}_us")) is not None}
    if not own and not options.together:
        if not options.workload:
            raise ValueError("name a --workload, or give times of your own: --sampling-us 1000 --training-us 2000")
        asked = {name: getattr(options, name) for name in ("exclude", "results", "machine")}
        platform, fix = options.platform or HERE, pairs(options.fix, "--fix")
        return platform_depth(platform, options.workload, options.spread, fix=fix, **asked)
    why = "goes with times of a workload, not with your own; leave one of them out"
    _refuse(options, ("workload", "platform", "machine", "fix", "exclude"), why)
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
    return own_depth(sampling, training, updating, transfer, options.together, options.spread)


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

    def tell(batch: int) -> None:
        if is_shown:
            print(f"\rpredicting B = {batch:<6,}", end="", file=sys.stderr, flush=True)

    memory = None if options.memory_gb is None else options.memory_gb * 1e9
    question = system_of(options)
    answer = answer_samplers(question, replay(question, memory, options.cpu_percent, tell))
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
    return scaling_answer(learner_scaling(system_of(options), options.most, options.longest_period, options.device))


def scaling_answer(found: LearnerScaling) -> Answer:
    """Return whether to take more learners as an answer."""
    names = ("platform", "workload", "machine", "device", "by", "held", "longest")
    processes = found.processes
    where = {"batch": found.terms.batch, "actors": processes.actors, "cores": processes.cores}
    second, averaged, gathered = found.second()
    single = 1 / found.hz
    faster = single / averaged
    worth = "not" if faster <= 1 else "hardly" if faster < HARDLY else "partly" if faster < PARTLY else "well"
    gain = {"worth": worth, "horizon": second, "faster": faster, "per_learner": faster / 2}
    gain |= {"seconds": averaged, "gathering_seconds": gathered, "gathering_faster": single / gathered}
    notes = [Note("second_learner", gain, "first")]
    notes.append(
        Note(
            "formulas_alone" if found.terms.shared_link else "learners_run_next_to",
            {**where, "by": found.by, "device": found.device},
            "first",
        )
    )
    if found.held == 1 and max(found.counts) > 1:
        notes.append(Note("one_device_there", {"device": found.device}))
    rows = list[Row]()
    for point in sorted(found.points, key=lambda point: point.learners):
        if point.learners > 1:
            key = point.learners, point.horizon
            factors = {"as_run": found.factor(*key), "alone": found.factor(*key, are_alone=True)}
            factors |= {"cores_are_shared": processes.is_crowded(point.learners)}
            factors |= {"exact": point.exact, "printed": point.printed}
            label = {"learners": point.learners, "horizon": point.horizon}
            rows.append(Row(label, more={"seconds": found.seconds(*key), **factors}))
    for term in found.sources:
        law = {**dataclasses.asdict(term.law), "per": term.per, "factor": term.factor}
        rows.append(Row({"term": term.rests_on.id}, more={**law, "source": term.rests_on.source}))
    rows += [
        Row({"run_of": learners, "averaged_every": horizon}, more={"seconds": taken})
        for (learners, horizon), seconds in found.ran.items()
        for taken in seconds
    ]
    choice, others = _learners_row(found, 1, 1, "one_learner"), list[Row]()
    if 1 / found.seconds(*found.choice) >= HARDLY * found.hz:
        choice = _learners_row(found, *found.choice, "more_learners")
    elif found.choice[0] > 1:
        others = [_learners_row(found, *found.choice, "other_learners")]
    question = {name: getattr(found, name) for name in names} | where
    return Answer(
        question,
        choice,
        tuple(rows),
        tuple(others),
        notes=(*notes, *_records(found, (term.rests_on for term in found.sources))),
    )


def _learners_row(found: LearnerScaling, learners: int, horizon: int, says: str) -> Row:
    seconds = found.seconds(learners, horizon)
    low, high = (end / found.hz / seconds for end in found.ends)
    if learners > 1:  # no term is further off than the least sure
        factor = max(term.factor or 1.0 for term in found.sources)
        low, high = min(low, 1 / factor / seconds), max(high, factor / seconds)
    evidence = Evidence("step", weakest(term.rests_on.source for term in found.sources))
    more: dict[str, Any] = {"seconds": seconds, "acting_hz": found.acting_hz, "single_hz": found.hz}
    more |= {"single_seconds": found.single_seconds, "by": found.by, "device": found.device}
    label, rate = {"learners": learners, "horizon": horizon}, Estimate(1 / seconds, low, high, evidence)
    return Row(label, rate, STEPS_HZ, more, says)


_ANSWER = {"cores": _split, "depth": _depth, "adapt": _adapt, "learners": _learners}
