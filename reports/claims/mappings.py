"""Map Table V of [Zhang2023] once more: eleven published mappings, what Algorithm 3 gives, and the exact optimum.

All three from the same times: those of any question about that platform (``mapping/build``), and in their place what
Tables V and VII print or imply, for the few learners whose rate they state.

A mapping is three letters, learner-RMM-storage: C (CPU), G (GPU), F (FPGA). Where several are as fast, the rule of
``solver/solve`` decides: fewest devices, then fewest bytes.
"""

import dataclasses
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dse.estimate import Estimate, Evidence
from dse.mapping.processes import ExecutionMode
from dse.mapping.question import MappingQuestion
from dse.platforms import load as load_platform
from dse.solver.law import EPSILONS
from dse.solver.problem import LOOP, Configuration, Option, Part, Problem
from dse.solver.solve import Infeasible, Search, Solution, solve
from impls.fpga.learner import ledger
from impls.training import Workload, load
from impls.training.weights import layout_of

from .greedy_mapping import ACTORS, LEARNER, RMM, DeviceTable, printed, printed_storage, traffic_words
from .learner_points import published
from .quoted import Quoted

TABLE = "seed3_mapping.table_v"
PLATFORM = "u200"
MODE = ExecutionMode("pipelined")  # actors, replay and learners, all at the same time
FIXED = {"arrangement": "pipelined", "fanout": 2, "threads": 1, "actors": 1, "learner_implementation": "torch"}
TAKEN = 2  # cores, by actors and the replay
DEVICES = {"C": "cpu", "G": "gpu", "F": "fpga"}
LETTERS = {device: letter for letter, device in DEVICES.items()}


def asked(quoted: Quoted) -> list[tuple[str, int]]:
    """List (workload, batch) of every configuration, as quoted."""
    names = (name.removeprefix(f"{TABLE}.").split(".") for name in quoted.numbers if name.startswith(f"{TABLE}."))
    return list(dict.fromkeys((workload, int(batch)) for workload, batch, _ in names))


def pins(quoted: Quoted, name: str, batch: int) -> dict[str, Estimate]:
    """Return a learner's time by device, where it need not be modeled from the device alone.

    Quoted, where Table VII prints a rate: a mapping that is s times slower than the optimal one takes s / rate. That is
    its learner's time where it waits for the learner, as the text says of these; not where both share a GPU. CartPole's
    learner on the FPGA is at other batches the design that its rate implies, by the cycle law of [Zhang2023].
    """
    is_cartpole = name == "cartpole_ddpg"
    where = f"{'seed3' if is_cartpole else 'seed3_learner'}.table_vii.{name.partition('_')[0]}"
    if quoted[f"{where}.batch"] != batch:
        if not is_cartpole:
            return {}
        seconds = ledger(published(quoted), batch).seconds
        return {"fpga": Estimate(seconds, seconds, seconds, Evidence("the design that Table VII implies", "modeled"))}
    rate = quoted[f"{where}.watts"] * quoted[f"{where}.gps_per_watt"]
    times = {}
    for mapping, behind in sorted(quoted.table(f"{TABLE}.{name}.{batch}").items()):
        learner, rmm, _ = mapping.split("-")
        if (learner, rmm) != ("G", "G"):
            seconds = behind / rate
            evidence = Evidence(f"{mapping} in Tables V and VII", "quoted")
            times[DEVICES[learner]] = Estimate(seconds, seconds, seconds, evidence)
    return times


@functools.lru_cache(maxsize=32)
def _built(results: Path, name: str, batch: int) -> tuple[Problem, Workload]:
    platform, fix = load_platform(PLATFORM, results), {**FIXED, "batch": batch}
    question = MappingQuestion(platform, load(name), fix=fix, results=results)
    problem = question.built().problems[MODE]
    left = problem.budgets["cpu.cores"] - TAKEN
    fitting = (one for one in problem.options["learner"] if one.needs.get("cpu.cores", 0.0) <= left)
    return problem.having("learner", *fitting), question.workload


def problem_of(
    quoted: Quoted, results: Path, name: str, batch: int, pinned_too: bool = True
) -> tuple[Problem, Workload]:
    """Pose a problem with pinned times for modeled ones: a device's fastest learner takes it, others in proportion.

    Without ``pinned_too`` every time stays as modeled.
    """
    problem, workload = _built(results, name, batch)
    for device, pinned in pins(quoted, name, batch).items() if pinned_too else ():
        factor = pinned.value / _learner_times(problem)[LETTERS[device]].value
        options = problem.options["learner"]
        problem = problem.having(
            "learner", *(slower(one, factor, pinned) if one.device == device else one for one in options)
        )
    return problem, workload


def slower(option: Option, factor: float, pinned: Estimate | None = None) -> Option:
    """Multiply an option's time by a factor; with ``pinned``, take the source of that time."""
    time = option.time.scaled(factor)
    if pinned:
        time = Estimate(time.value, time.value, time.value, pinned.rests_on)
    return dataclasses.replace(option, time=time)


def _learner_times(problem: Problem) -> dict[str, Estimate]:
    """Give the time of each device's fastest learner, by letter."""
    return _fastest_time((option.device, option.time) for option in problem.options["learner"])


def rmm_times(problem: Problem) -> dict[str, Estimate]:
    """Give the time of each device's fastest sum tree, which samples and updates there, by letter."""
    alone = (pair for pair in problem.trees if pair[0].device == pair[1].device)
    return _fastest_time((sampling.device, sampling.time + updating.time) for sampling, updating in alone)


def _fastest_time(times: Iterable[tuple[str, Estimate]]) -> dict[str, Estimate]:
    return {LETTERS[device]: time for device, time in sorted(times, key=lambda pair: -pair[1].value)}


EPSILON = EPSILONS["training"]
WORD_BYTES = 4  # of E in [Zhang2023]
FACTORS = tuple(2.0 ** (power / 2) for power in range(-8, 9))
"""Factors on all times of a device, for robustness."""


@dataclass(frozen=True)
class Judged:
    """A mapping with its best configuration; ``lacks`` says why there is none, and then ``hz`` is 0.

    ``bottleneck``: the engine that is always busy if actors keep up, with its parts.
    """

    mapping: str
    hz: float = 0.0
    bottleneck: str = ""
    devices: int = 0
    bytes_moved: float = 0.0
    lacks: str = ""

    @property
    def pair(self) -> str:
        """The learner-RMM pair in letters."""
        return self.mapping.rpartition("-")[0]


@dataclass(frozen=True)
class Row:
    """A configuration of Table V.

    ``ties``: other mappings as fast as ours, by the tie rule. ``learner``, ``rmm``: the fastest by letter, of those
    that run there. ``limit_hz``: of the fastest learner alone. ``baselines``: other mappings that are printed, each
    with how many times slower than the published one it is, as printed. ``holds``: by letter, the factors (first,
    last) on all times of that device with which the published learner-RMM pair is the answer; None where it never is.
    """

    workload: str
    batch: int
    published: Judged
    greedy: Judged
    ours: Judged
    ties: tuple[Judged, ...]
    learner: Mapping[str, Estimate]
    rmm: Mapping[str, Estimate]
    limit_hz: float
    baselines: tuple[tuple[Judged, float], ...]
    holds: Mapping[str, tuple[float, float] | None]

    @property
    def agrees(self) -> bool:
        """True where ours is the published mapping."""
        return self.ours.mapping == self.published.mapping

    @property
    def reason(self) -> str:
        """The reason why ours is another one, or how this one came to be chosen, from the numbers alone."""
        if self.agrees:
            return _chosen(self.ours, self.ties)
        return _differs(self.published, self.ours) + ("" if self.same_pair else self._what_it_takes())

    @property
    def same_pair(self) -> bool:
        """True where learner and RMM are on the published devices."""
        return self.ours.pair == self.published.pair

    def _what_it_takes(self) -> str:
        """Say on which device's times, and by how much, the published pair depends."""
        needed = []
        for letter, ends in self.holds.items():
            if ends and not ends[0] <= 1 <= ends[1]:
                bound = f"at most {ends[1]:.2g}" if ends[1] < 1 else f"at least {ends[0]:.2g}"
                needed.append(f"{DEVICES[letter]} times {bound} of these")
        return f"; {self.published.pair} would take {', or '.join(needed)}" if needed else ""


def rows(quoted: Quoted, results: Path) -> list[Row]:
    """Compute all configurations that are quoted, in the order of the table."""
    return [row(quoted, results, *where) for where in asked(quoted)]


@dataclass(frozen=True)
class Agreement:
    """How many configurations of Table V come out as printed: learner and RMM, and the data storage as well."""

    pairs: int
    mappings: int
    rows: int


def agreement(quoted: Quoted, results: Path, pinned_too: bool) -> Agreement:
    """Count how often the optimum is the published mapping, with or without pinned learners."""
    pairs = mappings = 0
    where = asked(quoted)
    for name, batch in where:
        problem, _ = problem_of(quoted, results, name, batch, pinned_too)
        answer = solve(problem, "training")
        if not isinstance(answer, Infeasible):
            ours, published = letters(answer.choice), _published(quoted, name, batch)
            pairs += Judged(ours).pair == Judged(published).pair
            mappings += ours == published
    return Agreement(pairs, mappings, len(where))


def _published(quoted: Quoted, name: str, batch: int) -> str:
    """Return the optimal mapping of a configuration as printed."""
    speedups = quoted.table(f"{TABLE}.{name}.{batch}")
    return next(mapping for mapping, speedup in speedups.items() if speedup == 1)


def row(quoted: Quoted, results: Path, name: str, batch: int) -> Row:
    """Compute one configuration of the table."""
    problem, workload = problem_of(quoted, results, name, batch)
    speedups = quoted.table(f"{TABLE}.{name}.{batch}")
    printed_best = _published(quoted, name, batch)
    answer = solve(problem, "training")
    if isinstance(answer, Infeasible):
        raise ValueError(f"{name} at B = {batch}: {answer}")
    learner, rmm = _learner_times(problem), rmm_times(problem)
    return Row(
        name,
        batch,
        judged(problem, printed_best),
        judged(problem, _greedy(workload, learner, rmm)),
        _judged(answer),
        _ties(problem, answer),
        learner,
        rmm,
        1 / min(one.seconds for one in problem.options["learner"]),
        tuple((judged(problem, mapping), behind) for mapping, behind in speedups.items() if behind != 1),
        {letter: _holds(problem, device, printed_best) for letter, device in DEVICES.items()},
    )


def _greedy(workload: Workload, learner: Mapping[str, Estimate], rmm: Mapping[str, Estimate]) -> str:
    """Run Algorithm 3 as printed; a primitive that a device cannot run takes forever there."""
    names = {letter: device.upper() for letter, device in DEVICES.items()}
    seconds = {
        (primitive, name): times[letter].value if letter in times else math.inf
        for primitive, times in ((LEARNER, learner), (RMM, rmm))
        for letter, name in names.items()
    }
    batch = workload.learner.batch
    chosen = printed(DeviceTable(seconds)).device
    words = traffic_words(batch, workload.actors.count, layout_of(workload).record_bytes // WORD_BYTES)
    storage, _ = printed_storage({**chosen, ACTORS: names["C"]}, words)
    return "-".join(LETTERS[device.lower()] for device in (chosen[LEARNER], chosen[RMM], storage))


def letters(configuration: Configuration) -> str:
    """Write a configuration as learner-RMM-storage; the RMM is where the tree is kept."""
    parts: tuple[Part, ...] = ("learner", "updating", "storage")
    return "-".join(LETTERS[configuration.of(part).device] for part in parts)


def judged(problem: Problem, mapping: str) -> Judged:
    """Find the best configuration of a mapping; sampling and updating are one module there."""
    learner, rmm, storage = (DEVICES[letter] for letter in mapping.split("-"))
    where: dict[Part, str] = {"learner": learner, "storage": storage}
    options = {
        part: tuple(one for one in options if part not in where or one.device == where[part])
        for part, options in problem.options.items()
    }
    pairs = tuple(pair for pair in problem.trees if all(one.device == rmm for one in pair))
    there = {
        "learner": (learner, options["learner"]),
        "sampling": (rmm, pairs),
        "storage": (storage, options["storage"]),
    }
    for name, (device, choices) in there.items():
        if not choices:
            return Judged(mapping, lacks=f"nothing runs the part {name!r} on the {device}")
    best = solve(dataclasses.replace(problem, options=options, trees=pairs), "training")
    return Judged(mapping, lacks=str(best)) if isinstance(best, Infeasible) else _judged(best)


def _ties(problem: Problem, found: Solution) -> tuple[Judged, ...]:
    """List each other mapping once: ``Found`` has one for each device of sampling, too."""
    names = dict.fromkeys(letters(tie.configuration) for tie in found.ties)
    names.pop(letters(found.choice), None)
    return tuple(judged(problem, name) for name in names)


def _judged(found: Solution) -> Judged:
    outcome = found.answer.outcome
    return Judged(letters(found.choice), found.value, _bottleneck(found), len(outcome.devices), outcome.bytes_moved)


def _bottleneck(found: Solution) -> str:
    engine, choice = found.answer.outcome.training_bottleneck, found.choice
    on = [part for part in LOOP if engine in {name for _, name in choice.of(part).where}]
    shown = [f"{part} {1e6 * choice.of(part).seconds:,.3g} us" for part in on]
    return f"{engine} ({', '.join(shown)})" if shown else engine


def _chosen(ours: Judged, ties: Sequence[Judged]) -> str:
    """Say why the published mapping is the answer."""
    if not ties:
        return f"no other mapping is as fast; {ours.bottleneck}"
    more = [tie for tie in ties if tie.devices > ours.devices]
    farther = [tie for tie in ties if tie.devices == ours.devices]
    reasons = []
    if more:
        reasons.append(f"{_names(more)} as fast, on more devices than its {ours.devices}")
    if farther:
        reasons.append(f"{_names(farther)} as fast, with more bytes than its {ours.bytes_moved / 1e3:,.1f} KB a step")
    return "; ".join(reasons)


def _names(ties: Sequence[Judged]) -> str:
    *first, last = (tie.mapping for tie in ties)
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


def _differs(published: Judged, ours: Judged) -> str:
    """Say why another one is the answer."""
    if published.lacks:
        return f"{published.mapping} cannot be had: {published.lacks}"
    pace = f"{published.hz:,.0f} against {ours.hz:,.0f} steps/s"
    if published.hz < (1 - EPSILON) * ours.hz:
        lost = f"{1 - published.hz / ours.hz:.1%}"
        return f"{published.mapping} is {lost} slower, {pace}; bottleneck: {published.bottleneck}"
    if published.devices != ours.devices:
        return f"as fast within {EPSILON:.0%} ({pace}), on {ours.devices} devices instead of {published.devices}"
    moved = f"{ours.bytes_moved / 1e3:,.1f} KB a step over links instead of {published.bytes_moved / 1e3:,.1f}"
    return f"as fast within {EPSILON:.0%} ({pace}), on as many devices, with {moved}"


def _holds(problem: Problem, device: str, published: str) -> tuple[float, float] | None:
    """Find ``Row.holds`` on a grid of factors; the ends are the last ones at which the pair still is the answer."""
    pair = Judged(published).pair

    def is_answer(factor: float) -> bool:
        return Judged(_answer(problem, device, factor)).pair == pair

    first = next(filter(is_answer, FACTORS), None)
    return first and (first, next(filter(is_answer, reversed(FACTORS))))


def _answer(problem: Problem, device: str, factor: float) -> str:
    def scaled(option: Option) -> Option:
        return slower(option, factor) if option.device == device and option.part != "actors" else option

    options = {part: tuple(map(scaled, choices)) for part, choices in problem.options.items()}
    pairs = tuple((scaled(sampling), scaled(updating)) for sampling, updating in problem.trees)
    answer = solve(dataclasses.replace(problem, options=options, trees=pairs), "training")
    return "" if isinstance(answer, Infeasible) else letters(answer.choice)


@dataclass(frozen=True)
class Pace:
    """The rate of a learner-RMM pair, with its storage where it is best; None where no configuration fits."""

    workload: str
    batch: int
    pair: str
    hz: float | None
    limit_hz: float


def paces(quoted: Quoted, results: Path) -> Iterator[Pace]:
    """Yield the rate of every pair at every configuration: what [Zhang2023, Fig. 13] shows."""
    for name, batch in asked(quoted):
        problem, _ = problem_of(quoted, results, name, batch)
        limit = 1 / min(one.seconds for one in problem.options["learner"])
        best = _fastest(problem)
        for learner, rmm in itertools.product(DEVICES, repeat=2):
            hz = max(best[learner, rmm, rmm, storage] for storage in DEVICES)
            yield Pace(name, batch, f"{learner}-{rmm}", hz or None, limit)


def _fastest(problem: Problem) -> defaultdict[tuple[str, ...], float]:
    """Find the highest rate of each mapping, by letters of learner, sampling, updating and storage; 0 if none fits."""
    parts: tuple[Part, ...] = ("learner", "sampling", "updating", "storage")
    found: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for one in Search({"": problem}, "training").placements:
        key = tuple(LETTERS[one.where[part][0][0]] for part in parts)
        found[key] = max(found[key], one.best)
    return found
