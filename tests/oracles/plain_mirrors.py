"""Which devices of a mapping problem are equal, by trying every exchange of names: for ``plain_answers.py``."""

import itertools
import re
from collections.abc import Mapping

from dse.solver.problem import Hop, Option, Problem

ORDER = ("actors", "sampling", "storage", "learner", "updating")
Names = dict[str, str]
Place = tuple[tuple[str, tuple[str, str, frozenset[tuple[str, str]]]], ...]


def renamed(text: str, names: Names) -> str:
    """A text with every whole word (of letters and digits) replaced that stands in ``names``."""
    return re.sub(r"[A-Za-z0-9]+", lambda word: names.get(word[0], word[0]), text)


def images(problem: Problem) -> list[Names]:
    """Every renaming of equal devices: those that can be exchanged, two by two, without changing the problem."""
    devices = sorted({device for option in every(problem) for device, _ in option.where})
    classes: list[list[str]] = []
    for device in devices:
        home = next((some for some in classes if all(exchangeable(problem, device, one) for one in some)), None)
        home.append(device) if home else classes.append([device])
    orders = itertools.product(*(itertools.permutations(names) for names in classes))
    return [dict(zip(itertools.chain(*classes), itertools.chain(*order), strict=True)) for order in orders]


def exchangeable(problem: Problem, a: str, b: str) -> bool:
    """Whether two devices with each other's names leave all as it is, and have the same options in the same places.

    A place of which there is no mirror image (a set of learners always led by the first one) says nothing, and
    devices without any are not equal.
    """
    names = {a: b, b: a}
    if surroundings(problem) != surroundings(problem, names):
        return False
    before, after = in_places(problem), in_places(problem, names)
    mirrored = [place for place in before.keys() & after.keys() if {a, b} & devices_of(place)]
    return bool(mirrored) and all(before[place] == after[place] for place in mirrored)


def devices_of(place: Place) -> set[str]:
    """All devices of a place."""
    return {device for _, (first, _, also) in place for device in (first, *(other for other, _ in also))}


def in_places(problem: Problem, names: Names | None = None) -> dict[Place, set[object]]:
    """What there is to choose by where it runs, with other names."""
    known: dict[Place, set[object]] = {}
    for choice in itertools.chain(*axes(problem)):
        facts_of = tuple(told_option(option, names or {}) for option in choice)
        known.setdefault(tuple((part, where) for part, _, where, *_ in facts_of), set()).add(facts_of)
    return known


def every(problem: Problem) -> list[Option]:
    """All options, of trees too."""
    return [option for choice in itertools.chain(*axes(problem)) for option in choice]


def axes(problem: Problem) -> list[list[tuple[Option, ...]]]:
    """What there is to choose, one of each: a tree is two options at once."""
    alone = [[(option,) for option in problem.options[part]] for part in ORDER if part in problem.options]
    return [*alone, list(problem.trees)] if problem.trees else alone


def surroundings(problem: Problem, names: Names | None = None) -> tuple[object, ...]:
    """All that a problem says but its options, with other names, in no order."""
    names = names or {}

    def new(text: str) -> str:
        return renamed(text, names)

    def hop(h: Hop) -> tuple[object, ...]:
        return (new(h.engine), h.alpha_seconds, h.seconds_per_byte, new(h.rests_on.number))

    return (
        frozenset((new(name), amount) for name, amount in problem.budgets.items()),
        frozenset((new(a), new(b), tuple(map(hop, hops))) for (a, b), hops in problem.ways.items()),
        frozenset((p, q, new(d), factor) for (p, q, d), factor in problem.slowdown.items() if factor != 1),
        frozenset((new(d), watts) for d, watts in problem.watts.items()),
        frozenset(map(new, problem.hosts)),
        frozenset((new(e), amounts(needs, names)) for e, needs in problem.engines.items() if any(needs.values())),
    )


def told_option(option: Option, names: Names) -> tuple[object, ...]:
    """All that an option says, with other names; the words of its own name in no order."""
    also = frozenset((renamed(device, names), renamed(engine, names)) for device, engine in option.also)
    where = (renamed(option.device, names), renamed(option.engine, names), also)
    time = (option.time.value, option.time.low, option.time.high, renamed(option.time.rests_on.number, names))
    taken = (amounts(option.needs, names), amounts(option.ahead, names))
    return (option.part, tuple(sorted(renamed(option.name, names).split())), where, time, taken)


def amounts(table: Mapping[str, float], names: Names) -> frozenset[object]:
    """What is taken of budgets, with other names; nothing taken is nothing said."""
    return frozenset((renamed(name, names), amount) for name, amount in table.items() if amount)
