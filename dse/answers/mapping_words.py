"""Say in words what an answer about a mapping is: where parts run, how fast, and what would change it."""

import re
from collections.abc import Iterator, Sequence
from typing import cast

from impls.terminal import listed, plural

from ..estimate import off, weakest, written
from ..mapping.alternatives import Decides, Other
from ..mapping.answer import MappingAnswer, PartAnswer, Rate
from ..mapping.options import implementation_of
from ..mapping.step_shares import StepShare
from ..platforms.reading import HERE
from ..records import Source
from .text import in_words, roughly, rounded, wrapped

EVIDENCE = {
    "loop": "whole loops on {0}{1} take",
    "T_train": "the learner on {0}{1} takes",
    "learners": "several learners on {0}{1} take",
    "f_a": "actors on {0}{1} take",
    "tree": "the tree on {0}{1} takes",
    "RMM": "the tree on {0}{1} takes",
    "storage": "the records on {0}{1} take",
}
"""Evidence in words, by how its number begins: the device, and what else the number says."""
UNCHANGED = "no single time, anywhere within its uncertainty, makes another choice better"
VARYING = "times that vary as their mean"
DIGITS, NEAR = 2, 0.1
"""Digits of a factor, and how near to 1 it has one more."""


def headline(answer: MappingAnswer) -> str:
    """Write the choice in one sentence, with its rate as far as that is known."""
    where = f"{answer.workload} (B = {answer.batch:,}) on {platform(answer)}"
    return f"Train {where} {_placed(answer)}: {expected(answer)}."


def expected(answer: MappingAnswer) -> str:
    """Write the rate in words, rounded to what is known."""
    ends = in_words(answer.value, answer.low, answer.high, answer.interval, source_of(answer.parts))
    return f"{about(answer)} {unit(answer)}{_with_actors(answer)}, {ends}"


def _with_actors(answer: MappingAnswer) -> str:
    return "" if answer.objective == "ratio" else f" ({rounded(answer.hz, answer.low, answer.high)}/s with actors)"


def source_of(parts: Sequence[PartAnswer]) -> Source:
    """Name the least sure source of parts."""
    return weakest(cast(Source, part.source) for part in parts)


def time_of(parts: Sequence[PartAnswer]) -> str:
    """Write what parts of one device take together, rounded to what is known, with their ends or factor."""
    middle, low, high = (1e6 * sum(getattr(part, end) for part in parts) for end in ("seconds", "low", "high"))
    text, kind = f"{rounded(middle, low, high)} us", parts[0].interval
    if kind == "factor":
        return written(text, float(f"{off(middle, low, high):.2g}"), kind)
    return f"{text} [{rounded(low, low, high)}, {rounded(high, low, high)}]"


def about(answer: MappingAnswer) -> str:
    most = "at most " * answer.upper_bound
    return f"{most}about {rounded(answer.value, answer.low, answer.high)}"


def unit(answer: MappingAnswer) -> str:
    if answer.objective == "per_watt":
        return "gradient steps/J"
    return "gradient steps/s" + (", actors aside" if answer.objective == "training" else "")


def platform(answer: MappingAnswer) -> str:
    is_here = answer.machine and answer.platform in (HERE, answer.machine)
    return f"machine {answer.machine}" if is_here else answer.platform


def _placed(answer: MappingAnswer) -> str:
    """Say which parts are on which device, the learner's first."""
    part = {one.part: one for one in answer.parts}
    learner, actors, processes = part["learner"], part["actors"], part["actors"].details.get("processes", 1)
    threads, by, policy = (
        learner.details.get("threads"),
        *(one.details.get("implementation") for one in (learner, actors)),
    )
    kind = ", ".join([str(by)] * bool(by) + [plural(threads or 1, "thread")] * bool(threads))
    if answer.learners > 1:
        kind = ", ".join([*[kind] * bool(kind), combined(answer)])
    words = {
        "learner": (f"{answer.learners} learners" if answer.learners > 1 else "the learner") + f" ({kind})" * bool(kind)
    }
    if part["sampling"].device == part["updating"].device:
        words |= {"sampling": "the tree", "storage": "the records"}
    else:
        words |= {"sampling": "sampling", "updating": "updating", "storage": "the records"}
    on: dict[str, list[str]] = {}
    for name, what in words.items():
        on.setdefault(_where(part[name]), []).append(what)
    acting = plural(processes, "actor process")
    acting += f" (policy {policy})" if policy else ""
    if answer.arrangement == "serial":
        here = on.pop(_where(actors), [])
        away = "".join(f", {listed(all_of)} on {where}" for where, all_of in on.items())
        is_here = "learner" in " ".join(here)
        return f"in one process on the {actors.device}{_by(answer, is_here)}{away}"
    if answer.arrangement == "apart":
        groups = [f"{listed(all_of)} on {where}" for where, all_of in on.items()]
        inside = "one process" if answer.learners == 1 else f"each of {answer.learners} processes"
        return f"with {listed(groups)} serially in {inside}, and {acting} on the {actors.device}"
    on.setdefault(_where(actors), []).append(acting)
    *groups, last = (f"{listed(all_of)} on {where}" for where, all_of in on.items())
    return f"with {', '.join([*groups, f'and {last}' if groups else last])}"


def combined(answer: MappingAnswer) -> str:
    """Say how several learners combine."""
    words = [answer.sync, *[f"averaged every {plural(answer.period, 'step')}"] * bool(answer.period)]
    return ", ".join([*words, *[plural(answer.banks, "bank")] * (answer.banks > 1)])


def _by(answer: MappingAnswer, is_here: bool) -> str:
    """Say by which implementations one process learns and acts, where there is a choice, and by how many threads."""
    learner, actors = (next(one for one in answer.parts if one.part == name) for name in ("learner", "actors"))
    words = [f"{answer.environments:,} environments an actor"] * (answer.environments != 1)
    count = learner.details.get("threads") if is_here else None
    threads = plural(count, "thread") if count else ""
    if "implementation" not in {**actors.details, **learner.details}:
        words = [*([f"with {threads} of torch"] if threads else []), *words]
    else:
        words = [f"policy {implementation_of(actors.details)}", *([threads] if threads else []), *words]
        words = [*([f"learner {implementation_of(learner.details)}"] if is_here else []), *words]
    return "".join(f", {word}" for word in words)


def shares(answer: MappingAnswer) -> Iterator[str]:
    """Say how the step of a serial loop is spent, in microseconds and per cent."""
    if answer.shares:
        parts = ", ".join(f"{one.what} {share(one)}" for one in answer.shares)
        yield from wrapped(f"a step of {_us(sum(one.seconds for one in answer.shares))}: {parts}")


def share(one: StepShare) -> str:
    """Write a share of a step.

    >>> share(StepShare("learner", 240e-6, 0.615))
    '240 us (62 %)'
    """
    return f"{_us(one.seconds)} ({100 * one.share:.0f} %)"


def _us(seconds: float) -> str:
    return f"{float(f'{seconds * 1e6:.{DIGITS}g}'):,.10g} us"


def implementations(answer: MappingAnswer) -> Iterator[str]:
    """Say what each implementation, and each number of learners, would give, a line each, then of environments."""
    for one in answer.by_implementation:
        yield from wrapped(f"learner and policy by {one.implementation}: {_expected(one)} {unit(answer)}")
    for one in answer.by_learners:
        how = f" ({one.sync})" * bool(one.sync)
        alone = "; a sync is chosen by its rate alone, not by what it does to learning" * bool(one.sync)
        yield from wrapped(f"with {plural(one.learners, 'learner')}{how}: {_expected(one)} {unit(answer)}{alone}")
    if others := [
        f"with {plural(one.environments, 'environment')} an actor: {_expected(one)}" for one in answer.by_environments
    ]:
        yield from wrapped(f"{'; '.join(others)}; that changes learning slightly (--free environments)")


def _expected(one: Rate) -> str:
    ends = f" [{rounded(one.low, one.low, one.high)}, {rounded(one.high, one.low, one.high)}]"
    most, words = "at most " * one.upper_bound, value(one).removeprefix("at most ")
    return f"{most}about {words}{ends if one.interval == '95 %' else ''}"


def _where(part: PartAnswer) -> str:
    """Name the device of a part, or all of them where they share a batch."""
    devices = list(dict.fromkeys([part.device, *(device for device, _ in part.also)]))
    return f"the {devices[0]}" if len(devices) == 1 else f"{listed(devices)} together"


def bound(answer: MappingAnswer, brief: bool = False) -> Iterator[str]:
    """Say what bounds the rate, unless ``brief`` what a simulation makes of that, and the cores it takes."""
    bound = f"bottleneck: {answer.bottleneck}"
    most = answer.value if answer.objective == "training" else answer.hz  # a run is above its bound by chance alone
    simulated = [
        f"{rounded(min(one.hz, most), answer.low, answer.high)} with {VARYING if one.cv else 'steady times'}"
        for one in answer.simulated
    ]
    if simulated and answer.upper_bound and not brief:
        bound += f"; simulated: about {', '.join(simulated)}"
    yield from wrapped(f"{bound}; {taken(answer)}")


def taken(answer: MappingAnswer) -> str:
    """Say how many cores a mapping takes, or how many processes share them."""
    used, have = map(int, answer.cores)
    if used > have:
        return f"{used} processes share {plural(have, 'core')}"
    return f"{answer.cores[0]:g} of {plural(have, 'core')}"


def processes(answer: MappingAnswer) -> Iterator[str]:
    """Say which processes a run has, on which cores each, and how they share the replay."""
    kinds: dict[tuple[str, tuple[int, ...]], int] = {}
    for one in answer.processes:
        kinds[one.kind, one.cores] = kinds.get((one.kind, one.cores), 0) + 1
    words = [
        f"{plural(count, kind)} on core{'s' * (len(cores) > 1)} {', '.join(map(str, cores))}"
        for (kind, cores), count in kinds.items()
    ]
    if words:
        yield from wrapped(f"processes: {'; '.join(words)}; replay shared by the strategy {answer.strategy}")


def alternative(answer: MappingAnswer, other: Other) -> str:
    gain = -other.cost
    return other.told + (f" ({gain:+.0%})" if abs(gain) > answer.epsilon else "")


def shortened(words: str, room: int) -> str:
    """Cut the last of words that commas part, outside of brackets, as long as they take more than ``room``.

    >>> shortened("tree on gpu (cupy K=32), storage on gpu", 30), shortened("a (b, c)", 3)
    ('tree on gpu (cupy K=32), ...', 'a (b, c)')
    """
    every = re.split(r", (?![^(]*\))", words)
    for count in range(len(every), 0, -1):
        cut = ", ".join([*every[:count], *["..."] * (count < len(every))])
        if len(cut) <= room or count == 1:
            return cut
    return words


def limited(answer: MappingAnswer) -> list[Decides]:
    """The ends of times that put another choice ahead."""
    return [one for one in answer.decides if one.told]


def changing(one: Decides, room: int | None = None) -> str:
    """Say at which end of one time another choice is better, and by how much.

    ``room``: characters that the sentence may have; what sets the other choice apart is cut where it takes more.
    """
    what = subject(one.number)
    may = "it may" if what.endswith("takes") else "they may"
    times = f"{one.factor:.{DIGITS + (abs(one.factor - 1) < NEAR)}g}x as long"
    rest = f" is {one.gain:.0%} better if {what} {times}, as {may}".replace(" of torch", "")
    winner = one.told.replace(" of torch", "")
    return f"{winner if room is None else shortened(winner, room - len(rest))}{rest}"


def subject(evidence_id: str) -> str:
    """Write what a number times as the subject of a sentence, with its verb.

    >>> subject("f_a(cpu) x=2"), subject("T_train(cpu), 2 threads of torch"), subject("link cpu-gpu")
    ('actors on cpu (x=2) take', 'the learner on cpu (2 threads of torch) takes', 'link cpu-gpu takes')
    """
    known = re.fullmatch(r"(\w+)\(([^(),]*)(?:, )?([^()]*)\)(?:,? )?(.*)", evidence_id)
    if not known or known[1] not in EVIDENCE:
        return f"{evidence_id} takes"
    more = ", ".join(words for words in known.groups()[2:] if words)
    return EVIDENCE[known[1]].format(known[2], f" ({more})" if more else "")


def rate(answer: MappingAnswer) -> str:
    """Write the predicted rate with its 95 % interval; with a factor where no stopwatch backs all of it."""
    middle, low, high = (rounded(one, answer.low, answer.high) for one in (answer.value, answer.low, answer.high))
    ends, about = f" [{low}, {high}] at 95 %", ""
    if answer.interval == "factor":
        factor = roughly(off(answer.value, answer.low, answer.high))
        ends, about = f", within a factor of {factor}, not tested here", "~"
    return f"{'at most ' * answer.upper_bound}{about}{middle} {unit(answer)}{ends}{_with_actors(answer)}"


def value(one: MappingAnswer | Other | Rate) -> str:
    """Write a value among others: with its factor, where it has one, and "at most" where it is an upper bound."""
    factor = float(f"{off(one.value, one.low, one.high):.2g}")
    return "at most " * one.upper_bound + written(rounded(one.value, one.low, one.high), factor, one.interval)
