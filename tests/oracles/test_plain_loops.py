"""The search beside plain loops over every configuration: what is best, what ties, what lacks, what decides."""

import dataclasses
import itertools
import math
import operator
import resource
import time
from typing import Any

import numpy as np
import pytest

from dse.solver import solve as search
from dse.solver.deciding import deciding, spreads
from dse.solver.law import OBJECTIVES
from dse.solver.problem import PARTS, Problem
from dse.solver.solve import Candidate, Infeasible, Search, Solution, solve
from tests.matrix import slow
from tests.oracles import plain_loops as plain
from tests.solver_cases import EPSILONS, doubtful, machine, option, random_problem, with_equal, with_trees

MOST = 3000  # configurations that loops look at


def drawn(seed):
    """(problem, all of its rows, objective, epsilon), in a third of the problems with equal devices."""
    random = np.random.default_rng(seed)
    problem = random_problem(random)
    problem = with_trees(problem, random) if random.random() < 0.5 else problem
    problem = with_equal(problem, random) if seed % 3 == 0 else problem
    objective, epsilon = OBJECTIVES[seed % 4], EPSILONS[seed % 5]
    configurations = list(plain.every(problem))
    rows = [plain.judged(problem, one, objective) for one in configurations] if len(configurations) < MOST else []
    return problem, rows, objective, epsilon


def differences(seed):
    """What the search says of a problem and plain loops do not; None of one that is too large."""
    problem, rows, objective, epsilon = drawn(seed)
    if not rows:
        return None
    found, fitting = solve(problem, objective, epsilon), [row for row in rows if not row.broken]
    if isinstance(found, Infeasible):
        return _lacking(problem, rows, found) if not fitting else ["fits"]
    first, *rest = plain.by_the_rule(fitting, epsilon)
    home = plain.mirrored(problem, first.mapping)
    tied = list(dict.fromkeys(plain.mirrored(problem, row.mapping) for row in rest if row.mapping))
    away = plain.by_the_rule([row for row in fitting if plain.mirrored(problem, row.mapping) != home], epsilon)
    pairs = {
        "best": (max(row.value for row in fitting), found.best),
        "answer": (first.key, key_of(problem, found.answer)),
        "value": (first.value, found.value),
        "ties": ([one for one in tied if one != home], [plain.mirrored(problem, one.mapping) for one in found.ties]),
        "elsewhere": (
            away[0].key if away else None,
            found.best_other_mapping and key_of(problem, found.best_other_mapping),
        ),
    }
    wrong = [
        f"{what}: {mine} by loops, {theirs} by the search" for what, (mine, theirs) in pairs.items() if mine != theirs
    ]
    return wrong + ["bound"] * (found.best > found.bound * (1 + 1e-12))


def key_of(problem, answer: Candidate):
    return plain.judged(problem, answer.configuration, "ratio").key


def _lacking(problem, rows, found):
    mine = plain.repairs(problem, rows)
    theirs = {}
    for repair in found.repairs:
        broken = {**{name: need for name, (_, need) in repair.budgets.items()}, **dict.fromkeys(repair.ways)}
        name = plain.mirrored(problem, next(iter(broken))) if len(broken) == 1 else repr(sorted(map(repr, broken)))
        theirs[name] = [need for _, need in sorted((one, need) for one, (_, need) in repair.budgets.items())]
    if len(next(iter(found.repairs)).budgets) + len(found.repairs[0].ways) > 1 and problem.equal:
        return []  # mirror images of several limits have no one name here
    return [] if {name: least[1:] for name, least in mine.items()} == theirs else [f"lacks: {mine} by loops, {theirs}"]


@pytest.mark.parametrize("seeds", [range(200), slow(range(1000, 1600))])
def test_the_search_says_what_plain_loops_do(seeds):
    said = {seed: wrong for seed in seeds if (wrong := differences(seed)) is not None}
    assert not {seed: wrong for seed, wrong in said.items() if wrong}
    assert len(said) > 0.6 * len(seeds)


def test_the_frontier_takes_least_of_what_is_worth_each_share():
    def frugal(key):
        return key[0], key[3], key[1], key[2], *key[4:]

    for seed in range(40):
        problem = random_problem(np.random.default_rng(seed))
        rows = [row for row in (plain.judged(problem, one, "ratio") for one in plain.every(problem)) if not row.broken]
        best, least = max((row.value for row in rows), default=0.0), {}
        for share, row in itertools.product(search.SHARES if rows else (), rows):
            if row.value >= best * share:
                key = least.setdefault((share, row.mapping), frugal(row.key))
                least[share, row.mapping] = min(key, frugal(row.key))
        told = Search({"": problem}, "ratio").frontier(best, len(PARTS)) if rows else ()
        assert {frugal(key_of(problem, one)) for one in told} == set(least.values())


@pytest.mark.parametrize("unknown", ["none", "gpu"])
def test_the_front_is_all_that_no_configuration_beats(unknown):
    sizes = set()
    for seed in (seed for seed in range(120) if OBJECTIVES[seed % 4] != "per_watt"):
        pairs, modes, largest = [drawn(number)[:2] for number in (seed, seed + 1200)], {}, dict[Any, float]()
        for problem, rows in pairs if all(rows for _, rows in pairs) else ():
            known = {name: watts for name, watts in problem.watts.items() if not name.startswith(unknown)}
            modes[str(len(modes))] = dataclasses.replace(problem, watts=known)
            for row in (row for row in rows if not row.broken):
                devices = {*itertools.chain(*row.mapping), *problem.hosts}
                watts = sum(map(known.__getitem__, devices)) if devices <= known.keys() else None
                price = row.key[1], watts
                largest[price] = max(largest.get(price, 0.0), row.value)
        lacks = any(watts is None for _, watts in largest)
        trades = {(value, -moved, 0 if lacks else -watts) for (moved, watts), value in largest.items()}
        beaten = {low for low in trades for high in trades if low != high and all(map(operator.le, low, high))}
        found, unstated = Search(modes, OBJECTIVES[seed % 4]).front()
        told = [(best.value, -best.outcome.bytes_moved, 0 if lacks else -best.outcome.watts) for best in found]
        assert [value for value, *_ in told] == sorted((value for value, *_ in told), reverse=True)
        assert (sorted(told), bool(unstated)) == (sorted(trades - beaten), lacks)
        sizes.add((len(told), lacks))
    assert (max(sizes)[0] > 4, len({lacks for _, lacks in sizes})) == (True, 1 + (unknown == "gpu"))


def test_placements_in_pieces_change_nothing(monkeypatch):
    drawn = [random_problem(np.random.default_rng(seed)) for seed in range(40)]
    whole = [solve(problem) for problem in drawn]
    monkeypatch.setattr(search, "AT_ONCE", 4)
    for before, after in zip(whole, map(solve, drawn), strict=True):
        assert str(before) == str(after)


def false_statements(seed):
    """(how many ends were judged, what is said of them and plain loops do not)."""
    random = np.random.default_rng(seed)
    problem, objective, allowed = doubtful(random_problem(random), random), OBJECTIVES[seed % 4], (0.1, 0.5)[seed % 2]
    found, rows = solve(problem, objective, 0.05), list(plain.every(problem))
    if isinstance(found, Infeasible) or len(rows) > MOST:
        return 0, []
    rows = [one for one in rows if not plain.judged(problem, one, objective).broken]
    said, wrong = (
        {(one.evidence_id, one.factor): one for one in deciding({"": problem}, objective, found.answer, allowed)},
        [],
    )
    order = [(-one.gain, -abs(math.log(one.value / found.value))) for one in said.values()]
    wrong += ["what decides, or moves the value most, does not come first"] * (order != sorted(order))
    ends = [(number, end) for number, both in spreads([problem], found.choice).items() for end in both if end != 1]
    for number, end in ends:
        then = [plain.judged(problem, one, objective, {number: end}).value for one in rows]
        mine = plain.judged(problem, found.choice, objective, {number: end}).value
        one = said.get((number, end))
        better = max(then) * (1 - allowed) > mine * (1 + 1e-8)
        if one is None:
            wrong += [f"{number} x {end}: {max(then) / mine} of the choice's"] * int(better)
            continue
        told = [one.value, (1 + one.gain) * mine if one.winner else 0.0]
        told += (
            [plain.judged(problem, one.winner.configuration, objective, {number: end}).value] if one.winner else [0.0]
        )
        if told != pytest.approx([mine, *[max(then) * better] * 2], rel=1e-9):
            wrong.append(f"{number} x {end}: {told}, but {mine} and {max(then)}")
    return len(ends), wrong


@pytest.mark.parametrize("seeds", [range(40), slow(range(300, 450))])
def test_what_is_said_to_decide_does_and_nothing_else(seeds):
    told = [false_statements(seed) for seed in seeds]
    assert not [wrong for _, wrong in told if wrong]
    assert sum(count for count, _ in told) > 2 * len(seeds)


def test_devices_of_two_classes_are_no_mirror_images():
    """Storage and learner each share the work of a GPU and an FPGA: of each the same one, or two."""
    parts = {part: (option(part, part, "cpu", 1.0, {}, f"cpu.{part}"),) for part in PARTS}
    for part in ("storage", "learner"):
        parts[part] = (dataclasses.replace(parts[part][0], also=(("gpu0", "gpu0"), ("fpga0", "fpga0"))),)
    problem = Problem(parts, {}, equal=(("gpu0", "gpu1"), ("fpga0", "fpga1")))
    mappings = [plain.judged(problem, one, "ratio").mapping for one in plain.every(problem)]
    made = [placement.mapping for placement in Search({"": problem}, "ratio").placements]
    assert sorted(plain.mirrored(problem, one) for one in made) == sorted(
        {plain.mirrored(problem, one) for one in mappings}
    )


# Large machines


def test_eight_equal_gpus_and_128_cores_take_under_two_seconds():
    problem, start = machine(8), time.process_time()
    found = solve(problem)
    assert time.process_time() - start < 2
    assert isinstance(found, Solution)
    devices = {device for one in found.choice.options for device, _ in one.where if device != "cpu"}
    assert devices == {f"gpu{number}" for number in range(len(devices))}, "the first of equal ones are used"
    assert len({one.mapping for one in (found.answer, *found.ties)}) == len(found.ties) + 1


def test_1e8_configurations_take_under_a_second_and_300_mb():
    problem, start = random_problem(np.random.default_rng(0), 40, 40), time.process_time()
    found = solve(problem)
    assert found.configurations > 1e8
    assert time.process_time() - start < 1
    parts = [
        part for one in Search({"": problem}, "ratio").placements for part, _ in one.parts_worth(found.best.__le__)
    ]
    assert parts and max(math.prod(part.shape) for part in parts) <= search.AT_ONCE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1.5e6  # in kB, of all that ran in this process
