"""What sentinels tell: by how much a machine changes between runs, and which cells it disturbed."""

import dataclasses
import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import run as runs
from benchmarks import sentinels
from benchmarks.cases import Case
from benchmarks.run import Stamp
from benchmarks.timing import Timing
from dse import stats
from dse.drift import LEAST_VISITS, USUAL, WORTH, Drift, drift
from dse.records import SENTINEL, read_file, read_folder
from dse.times.tree_times import Question, Table
from dse.tree import _choose, ranked
from tests.made import alter
from tests.system.test_records import measurement
from tests.unit.test_recommend import DEFAULT

NAMES = (("numba", "draw"), ("gather", "read"), ("python", "draw"))
OPTIONS = SimpleNamespace(json=False, dry_run=False)


def visit(factors, minute, command="sweep"):
    """Records of a visit: sentinel i takes i + 1 milliseconds times its factor."""
    found = []
    for place, ((name, op), factor) in enumerate(zip(NAMES, factors, strict=True)):
        seconds = 1e-3 * (place + 1) * factor
        moment = f"2026-01-01T{minute // 60:02}:{minute % 60:02}:{place:02}+00:00"
        times = {"median_seconds": seconds, "low_seconds": seconds, "high_seconds": seconds}
        cell = {"primitive": SENTINEL, "contestant": name, "op": op, "command": command}
        found.append(measurement(**cell, **times, utc=moment))
    return found


def several(factors, minute, command="sweep", visits=LEAST_VISITS):
    """Records of a run's visits, a minute apart."""
    return [record for n in range(visits) for record in visit(factors, minute + n, command)]


def pooled(runs_seen, seen, usual):
    return pytest.approx(math.sqrt((runs_seen * seen**2 + WORTH * usual**2) / (runs_seen + WORTH)))


def test_without_two_runs_drift_is_the_usual_one():
    for within_a_run in ([], [*several((1, 1, 1), 0), *several((2, 2, 2), 10)]):
        assert drift(within_a_run) == Drift(pytest.approx(USUAL.common), pytest.approx(USUAL.own), 0)


@pytest.mark.parametrize(
    ("factors", "common", "own"),
    [
        ((1.5, 1.5, 1.5), 1.5, 1),
        ((1, 1.5, 1 / 1.5), 1, 1.5),
        ((1, 1, 1.9), 1, 1),  # a call that has two speeds
    ],
)
def test_what_all_sentinels_share_is_common_and_the_rest_own(factors, common, own):
    found = drift([*several((1, 1, 1), 0), *several(factors, 90, "profile")])
    assert found == Drift(pooled(2, math.log(common), USUAL.common), pooled(2, math.log(own), USUAL.own), 2)


def test_a_tree_of_other_code_tells_nothing_of_the_machine():
    later = several((0.6, 1.5, 1.5), 90, "profile")
    changed = [alter(one, machine=one.machine | {"evidence": {"code": "new"}}) for one in later]
    assert drift([*several((1, 1, 1), 0), *changed]) == drift([])  # one call alone is left, which two runs cannot share
    alike = [alter(one, command="replay") for one in changed]
    assert drift([*changed, *alike]).runs == 2


def test_of_many_pairs_of_runs_nearly_the_largest_change_counts():
    runs_seen = [several((factor,) * 3, 30 * n, f"run {n}") for n, factor in enumerate([1.0] * 19 + [2.0])]
    pairs = [0.0] * 171 + [math.log(2)] * 19
    expected = float(np.quantile(pairs, 0.95))
    assert expected == pytest.approx(math.log(2))
    assert drift(itertools.chain.from_iterable(runs_seen)).common == pooled(20, expected, USUAL.common)


QUIET = [*several((1, 1, 1), 0), *several((1, 1, 1), 90, "profile")]


def test_a_disturbed_visit_and_a_glimpse_change_nothing():
    assert drift([*QUIET, *visit((1.8, 1.8, 1.8), 30)]) == drift(QUIET)
    glimpse = several((1.7, 1.7, 1.7), 200, "share", visits=4)
    assert drift([*QUIET, *glimpse]) == drift(QUIET)
    assert drift([*QUIET, *glimpse, *visit((1.7, 1.7, 1.7), 210, "share")]).runs == 3
    assert drift([*glimpse, *several((1, 1, 1), 0)]).runs == 0  # one run is compared with none


def test_many_quiet_runs_outweigh_what_is_usual():
    quiet = drift(itertools.chain.from_iterable(several((1, 1, 1), 30 * n, f"run {n}") for n in range(40)))
    assert quiet.common < USUAL.common / 3 and quiet.own < USUAL.own / 3


def test_half_an_interval_adds_independent_errors():
    assert Drift(0.3, 0.4).half_width(0.0) == pytest.approx(0.5)
    assert Drift(0.0, 0.0).half_width(0.1) == pytest.approx(0.196)


def test_no_visit_replaces_another_when_records_are_read(tmp_path):
    (tmp_path / "here").mkdir()
    lines = [one.to_json() for one in [*visit((1, 1, 1), 0), *visit((2, 2, 2), 1)]]
    (tmp_path / "here" / "quick.jsonl").write_text("\n".join(lines) + "\n")
    assert len(read_folder(tmp_path)) == 6


class Machine:
    """Sentinels of a machine that was disturbed at certain looks."""

    def __init__(self, disturbed):
        self.places = disturbed

    def look(self):
        pass

    def disturbed(self):
        return self.places

    def visit(self, timed):
        yield timed(Case("numba", "draw", 8, 4), Timing((1.0,), 1), primitive=SENTINEL)


def measured(stamp, log):
    seconds = itertools.count(1)

    def measure(group):
        log.append([case.batch for case in group])
        for case in group:
            yield stamp.timed(case, Timing((float(next(seconds)),) * 3, 1))
        yield stamp.timed(group[0], Timing((float(next(seconds)),) * 3, 1), primitive=f"{stamp.primitive}_again")

    return measure


def test_groups_timed_under_a_disturbance_are_measured_again(tmp_path):
    groups = [[Case("python", "draw", 8, batch)] for batch in (1, 2, 3, 4)]
    stamp, log = Stamp.of_this_run(__name__), []
    machine = Machine([1])
    tally = runs.run(groups, tmp_path / "a.jsonl", stamp, measured(stamp, log), OPTIONS, sentinels=machine)
    assert log == [[1], [2], [3], [4], [2]]  # and not a third time, whatever the machine does
    assert (tally.by_status["ok"], tally.repeated) == (4, 1)
    trees = [record for record in read_file(tmp_path / "a.jsonl") if record.primitive == "sum_tree"]
    latest = {record.batch: record.seconds for record in trees}
    assert (len(trees), latest[2]) == (5, 9.0)
    assert sorted(tally.pairs) == [(1.0, 2.0), (5.0, 6.0), (7.0, 8.0), (9.0, 10.0)]  # an A/A pair is of one time


def test_a_machine_that_is_never_quiet_does_not_double_a_run(tmp_path):
    groups = [[Case("python", "draw", 8, batch)] for batch in range(1, 9)]
    stamp = Stamp.of_this_run(__name__)
    tally = runs.run(groups, tmp_path / "a.jsonl", stamp, measured(stamp, []), OPTIONS, sentinels=Machine(range(8)))
    assert tally.repeated == math.ceil(runs.MOST_REPEATS * len(groups))


def test_visits_are_records_of_sentinels_and_not_made_at_once(monkeypatch):
    watching, stamp = sentinels.Sentinels(), Stamp.of_this_run(__name__)
    monkeypatch.setattr(sentinels, "SAMPLE_SECONDS", 1e-5)
    monkeypatch.setattr(sentinels, "MEMORY_BYTES", 1 << 16)
    first = list(watching.visit(stamp.timed))
    assert {(one.primitive, one.status in ("ok", "unstable")) for one in first} == {(SENTINEL, True)}
    assert {"gather", "python", "matmul"} <= {one.contestant for one in first}
    assert list(watching.visit(stamp.timed)) == []
    monkeypatch.setattr(sentinels, "EVERY_SECONDS", 0.0)
    assert len(list(watching.visit(stamp.timed))) == len(first)


def looked(*levels):
    """Sentinels after looks of two clocks, of which the second is never disturbed."""
    watching, steady = sentinels.Sentinels(), itertools.repeat(5.0)
    samples = iter([level for level in levels for _ in range(sentinels.LOOK_SAMPLES)])
    clocks = [SimpleNamespace(sample=partial(next, source)) for source in (samples, steady)]
    watching.__dict__["_clocks"] = [(None, "draw", clock) for clock in clocks]
    for _ in levels:
        watching.look()
    return watching.disturbed()


def test_what_lies_beside_a_slow_look_was_disturbed():
    assert looked(*[1.0] * 12) == []
    assert looked(*[1.0] * 6, 1.5, *[1.0] * 5) == [6, 7]
    assert looked(1.5, *[1.0] * 11) == [0, 1]
    assert looked(*[1.0, 1.2] * 6) == []  # a spread of a fifth is usual
    assert looked(*[1.4] * 5, *[1.0] * 7) == [0, 1, 2, 3, 4, 5]  # what is quiet is known at the end alone
    assert looked(1.5, *[1.0] * 8) == []  # too few looks


def test_a_surer_time_is_chosen_over_one_that_is_hardly_faster():
    table = Table(DEFAULT)
    best, *others = sorted(ranked(table, Question(1_000_000, 512)), key=lambda time: time.seconds)
    assert _choose(table, [best, *others])[0] == 0
    assert _choose(table, [dataclasses.replace(best, own_sigma=2.0), *others])[0] != 0


def test_a_tree_time_ties_by_its_own_drift_alone():
    assert stats.ties([0.0, 0.1], [0.01, 0.01], 0.0, 0) == []
    assert stats.ties([0.0, 0.1], [0.01, 0.01], 0.3, 0) == [1]
