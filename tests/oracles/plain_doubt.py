"""A second reading of what cannot be told apart, and of what would change a choice: by large samples and by solving.

Sharing no line with ``dse.solver``, and no sample either, so what lies near a boundary is for either side to say: a
configuration is ``sure`` to be in a group, or to be out of it, or neither.
"""

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dse.solver.problem import Configuration, Hop, Option, Problem
from tests.oracles import plain_answers as plain

LINKS = {"measured": 1.1, "quoted": 1.3, "modeled": 2.0, "extrapolated": 2.0}
"""How far off a link's time may be, by its source."""
DRAWS, WITHIN = 4000, 1.959964
IN, OUT = 0.05, 0.008
"""A quotient reaches a threshold with its 95 % interval if it does so in 2.5 % of cases: surely in, surely out."""
WORTH, GIVEN_UP = 2.0, 0.2


@dataclass(frozen=True)
class Work:
    """What a part or a transfer asks of engines: seconds, as (number, factor down, factor up) says how sure."""

    engines: tuple[str, ...]
    seconds: float
    number: str
    down: float
    up: float
    waits: bool
    acting: bool
    what: str


def works(problem: Problem, configuration: Configuration) -> Iterator[Work]:
    """All that a gradient step asks of engines."""
    chosen = {part: getattr(configuration, part) for part in plain.ORDER}
    for flow in problem.flows:
        ends = (chosen[flow.source].device, chosen[flow.target].device)
        if ends[0] == ends[1] or not flow.nbytes:
            continue
        for hop in problem.ways[ends]:
            seconds = flow.times * hop.alpha_seconds + flow.nbytes * hop.seconds_per_byte
            factor = LINKS[hop.rests_on.source]
            sent = f"{flow.source} to {flow.target}"
            acting = "actors" in (flow.source, flow.target)
            yield Work((hop.engine,), seconds, hop.rests_on.number, 1 / factor, factor, flow.waits, acting, sent)
    for part, option in chosen.items():
        time, engines = option.time, tuple(engine for _, engine in option.where)
        ends = (time.rests_on.number, time.low / time.value, time.high / time.value)
        yield Work(engines, plain.slowed(problem, chosen, part), *ends, part in plain.ROUND, part == "actors", part)


def normal(number: str) -> np.ndarray:
    """Standard normal numbers [DRAWS], the same ones whenever the same evidence is asked for."""
    return np.random.default_rng(zlib.crc32(number.encode())).standard_normal(DRAWS)


def values(problem: Problem, row: plain.Row, objective: str, exact: Mapping[str, float] | None = None) -> np.ndarray:
    """Values of a row where all evidence is drawn jointly; or where it is wrong by ``exact`` factors, [1]."""
    busy: dict[str, np.ndarray] = {}
    loop = np.zeros(1)
    for work in works(problem, row.configuration):
        if work.acting and objective == "training":
            continue
        if exact is None:
            off = normal(work.number) / WITHIN
            seconds = work.seconds * np.where(off > 0, work.up ** np.abs(off), work.down ** np.abs(off))
        else:
            seconds = np.array([work.seconds * exact.get(work.number, 1.0)])
        for engine in work.engines:
            busy[engine] = busy.get(engine, 0.0) + seconds
        loop = loop + seconds * work.waits
    longest = np.maximum.reduce([*busy.values(), loop / (row.configuration.depth + 1)])
    return 1 / longest / (row.watts if objective == "per_watt" else 1.0)


@dataclass(frozen=True)
class Judge:
    """What the doubt rule says of one problem's configurations, as far as a sample can."""

    problem: Problem
    objective: str
    epsilon: float
    best: plain.Row

    def reach(self, row: plain.Row) -> float:
        """The probability that a row's value is at least (1 - epsilon) times the best's."""
        both = [values(self.problem, one, self.objective) for one in (row, self.best)]
        return float(np.mean(both[0] / both[1] >= (1 - self.epsilon) * (1 - 1e-12)))

    def sure(self, row: plain.Row) -> bool | None:
        """Whether a row cannot be told apart from the best and is worth it; None where a sample cannot say."""
        share = row.value(self.objective) / self.best.value(self.objective)
        if share >= 1 - self.epsilon:
            return True
        if math.isclose(share, 1 / WORTH, rel_tol=1e-9):
            return None
        if share < 1 / WORTH:
            return False
        reach = self.reach(row)
        return True if reach > IN else False if reach < OUT else None

    def told_apart(self, row: plain.Row) -> bool:
        """Whether a row surely can be told apart from the best, whatever it is worth."""
        share = row.value(self.objective) / self.best.value(self.objective)
        return share < 1 - self.epsilon and self.reach(row) < OUT


def around(rows: list[plain.Row], problem: Problem, row: plain.Row) -> list[plain.Row]:
    """Rows that differ from one in one part, or in the tree, at the same depth."""

    def unlike(other: plain.Row) -> set[str]:
        pairs = ((part, getattr(row.configuration, part), getattr(other.configuration, part)) for part in plain.ORDER)
        return {
            "tree" if problem.trees and part in ("sampling", "updating") else part for part, a, b in pairs if a != b
        }

    return [one for one in rows if one.configuration.depth == row.configuration.depth and len(unlike(one)) == 1]


def faults(problem: Problem, objective: str, solution: object, epsilon: float) -> Iterator[str]:
    """What a solution says that the rule does not; nothing where a sample cannot decide."""
    rows = plain.fitting_rows(problem)
    most = max(row.value(objective) for row in rows)
    fastest = [row for row in rows if row.value(objective) == most]
    best, answer = min(fastest, key=lambda row: row.key), plain.best_of(rows, objective, epsilon)
    judge = Judge(problem, objective, epsilon, best)
    choice = plain.judged(problem, solution.choice)
    if plain.broken(problem, choice):
        yield "choice does not fit"
    said_best = choice if solution.best is None else plain.judged(problem, solution.best.configuration)
    if said_best.value(objective) != most:
        yield f"best: {brief(said_best)}, {brief(best)} by loops"
    yield from _numbers(problem, objective, solution, choice)
    if len(fastest) > 1 and best is not answer:
        return  # which of several equally fast ones is compared with is not stated
    if judge.sure(choice) is False:
        yield f"choice is told apart from the best: {judge.reach(choice):.4f} of cases reach it"
    candidates = [best, *plain.frontier(problem, objective, most)]
    least = most * (1 - max(GIVEN_UP, epsilon)) * (1 + 1e-9)
    if choice.value(objective) < most * (1 - max(GIVEN_UP, epsilon)) * (1 - 1e-9):
        yield f"choice: {brief(choice)} gives up too much of {most}"
    smaller = [row for row in candidates if plain.frugal_key(row) < plain.frugal_key(choice)]
    smaller = [row for row in smaller if row.value(objective) >= least]
    for row in smaller:
        if judge.sure(row):
            yield f"choice: {brief(row)} takes less than {brief(choice)} and cannot be told apart from {brief(best)}"
            break
    for tie in solution.ties:
        if judge.told_apart(plain.judged(problem, tie.configuration)):
            yield f"ties: {brief(plain.judged(problem, tie.configuration))} can be told apart"


def brief(row: plain.Row) -> str:
    """A row in a line, for messages."""
    parts = [
        f"{getattr(row.configuration, part).name}@{getattr(row.configuration, part).engine}" for part in plain.ORDER
    ]
    return f"[{', '.join(parts)}; D={row.configuration.depth}; {row.hz:.5g}/s]"


def _numbers(problem: Problem, objective: str, solution: object, choice: plain.Row) -> Iterator[str]:
    """What is wrong with the values, ends and probabilities that a solution states."""
    if solution.value != choice.value(objective):
        yield f"value: {solution.value}, {choice.value(objective)} by loops"
    drawn = values(problem, choice, objective)
    for end, at in ((solution.low, 0.025), (solution.high, 0.975)):
        below = float(np.mean(drawn < end * (1 - 1e-9))), float(np.mean(drawn <= end * (1 + 1e-9)))
        near = math.isclose(float(np.quantile(drawn, at)), end, rel_tol=0.015)
        if not near and not below[0] - 0.025 <= at <= below[1] + 0.025:
            yield f"ends: {end} at {at} of the draws, {below} of the loops' are below"
    for other in solution.ties:
        theirs = values(problem, plain.judged(problem, other.configuration), objective)
        chance = [float(np.mean(theirs >= drawn * factor)) for factor in (1 + 1e-9, 1 - 1e-9)]
        if not chance[0] - 0.06 <= other.chance <= chance[1] + 0.06:
            yield f"chance: {other.chance} that {other.described} is as good, {chance} by loops"


def scaled(problem: Problem, number: str, factor: float) -> Problem:
    """The problem where all times resting on some evidence, of options and of links, are ``factor`` times as long."""

    def longer(option: Option) -> Option:
        return replace(option, time=option.time.scaled(factor)) if option.time.rests_on.number == number else option

    def slower(hop: Hop) -> Hop:
        if hop.rests_on.number != number:
            return hop
        return replace(hop, alpha_seconds=hop.alpha_seconds * factor, seconds_per_byte=hop.seconds_per_byte * factor)

    options = {part: tuple(map(longer, several)) for part, several in problem.options.items()}
    ways = {ends: tuple(map(slower, hops)) for ends, hops in problem.ways.items()}
    return replace(problem, options=options, ways=ways, trees=tuple((longer(a), longer(b)) for a, b in problem.trees))


FARTHEST = 30.0
"""Factors beyond it are nobody's business."""


def false_statements(problem: Problem, objective: str, solution: object, epsilon: float) -> Iterator[str]:
    """Statements about survival that solving again at other times shows to be false."""
    rows = plain.fitting_rows(problem)
    choice = plain.judged(problem, solution.choice)
    most = max(row.value(objective) for row in rows)
    keep = min(1 - epsilon, choice.value(objective) / most)

    def lost(number: str, factor: float, slack: float = 1e-7) -> bool:
        """Whether something is better than the choice by more than epsilon, or than it already was."""
        mine = values(problem, choice, objective, {number: factor})[0]
        return any(values(problem, row, objective, {number: factor})[0] * keep > mine * (1 + slack) for row in rows)

    for one in solution.survival:
        for stated, end, way in ((one.up, FARTHEST, "up"), (one.down, 1 / FARTHEST, "down")):
            last = end if stated is None else stated ** (1 - 1e-3)
            inside = next((f for f in (last, last**0.9, last**0.5, last**0.1) if lost(one.number, f)), None)
            if inside is not None:
                yield f"survival: {one.number} {way} to {stated}: something is better at {inside}"
            if stated is not None and not lost(one.number, stated ** (1 + 1e-3), 0.0):
                yield f"survival: {one.number} {way} to {stated}: nothing is better beyond"
