"""Measuring on several nodes: what is given to whom, and what becomes of it when nodes are lost, slow, other or new.

The nodes are threads of this process that make their records up; ``test_ray_sweep.py`` has a cluster.
"""

import json
import threading
import time
from collections import Counter

import pytest

from benchmarks.nodes import Driver, Greeting, LostError, Part
from dse.records import read_file
from tests.made import make_record

STAMP = ("c0ffee", False, "made up")
EVIDENCE = {"code": "same"}


def record_of(key, op, seconds=1e-5, primitive="sum_tree", node=""):
    cell = {"contestant": "numba", "op": op, "capacity": 1000, "batch": 32, "primitive": primitive}
    times = {"median_seconds": seconds, "low_seconds": seconds, "high_seconds": seconds, "samples_seconds": (seconds,)}
    machine = {"key": key, "evidence": EVIDENCE}
    how = {
        "source": "measured",
        "status": "ok",
        "calls_per_sample": 1,
        "utc": f"2026-11-01T00:00:00.{time.monotonic_ns()}",
    }
    return make_record(
        **cell, **times, **how, commit="c0ffee", command="made up", machine=machine, facts={"node": node}
    )


GROUPS = [[record_of("", f"{group}-{cell}").cell for cell in range(3)] for group in range(8)]
NAMES = {record_of("", f"{group}-{cell}").cell: f"{group}-{cell}" for group in range(8) for cell in range(3)}


class Fake:
    """A node that takes ``seconds`` a group and is lost in group ``lost_at``; its sentinel takes ``level`` seconds."""

    def __init__(self, name, key="aaaa", seconds=0.02, lost_at=None, level=None, code="ours", load=""):
        self.name, self._key, self._seconds, self._lost_at, self._level = name, key, seconds, lost_at, level
        self._code, self._load, self.measured = code, load, 0

    def greet(self):
        part = Part({"key": self._key, "evidence": EVIDENCE}, "sum_tree", True, GROUPS)
        return Greeting(self._code, self._load, "quick.jsonl", [part])

    def measure(self, place, keys, seconds):
        time.sleep(self._seconds)
        if self.measured == self._lost_at:
            raise LostError("it was killed")
        self.measured += 1
        found = [record_of(self._key, NAMES[key], node=self.name) for key in keys]
        if self._level:
            found.append(record_of(self._key, "draw", self._level, "sentinel", node=self.name))
        return [record.to_json() for record in found]


def measure(tmp_path, *nodes, find=None, resumes=True):
    said = []
    driver = Driver(tmp_path, "ours", STAMP, resumes, said.append)
    driver.run(find or (lambda: nodes))
    return driver.works, said


def cells_of(tmp_path, key="aaaa"):
    return Counter(NAMES[one.cell] for one in read_file(tmp_path / key / "quick.jsonl") if one.cell in NAMES)


ONCE = dict.fromkeys(NAMES.values(), 1)


def test_three_nodes_measure_each_cell_once(tmp_path):
    nodes = [Fake(name) for name in "abc"]
    works, said = measure(tmp_path, *nodes)
    assert cells_of(tmp_path) == ONCE
    assert all(node.measured for node in nodes)
    tally = works["aaaa"].tally
    assert (tally.cells, tally.resumed, tally.by_status["ok"], tally.left) == (24, 0, 24, 0)
    assert len([line for line in said if "of 24 cells" in line]) == 8


def test_the_group_of_a_lost_node_goes_to_another(tmp_path):
    works, said = measure(tmp_path, Fake("a", lost_at=1), Fake("b", seconds=0.05), Fake("c", lost_at=0))
    assert cells_of(tmp_path) == ONCE
    assert works["aaaa"].tally.left == 0
    assert sorted(line for line in said if "lost" in line) == [
        "node a is lost: it was killed",
        "node c is lost: it was killed",
    ]


def test_what_nobody_could_measure_is_measured_by_the_next_command(tmp_path):
    works, _ = measure(tmp_path, Fake("a", lost_at=2), Fake("b", lost_at=1))
    assert works["aaaa"].tally.left == 24 - 3 * 3
    works, _ = measure(tmp_path, Fake("c"))
    assert (works["aaaa"].tally.resumed, works["aaaa"].tally.left) == (9, 0)
    assert cells_of(tmp_path) == ONCE
    works, _ = measure(tmp_path, Fake("d"))
    assert works["aaaa"].tally.resumed == 24
    assert cells_of(tmp_path) == ONCE


def test_a_group_that_is_under_way_is_waited_for_in_case_its_node_is_lost(tmp_path):
    slow = Fake("slow", seconds=1.0, lost_at=0)
    works, _ = measure(tmp_path, slow, Fake("fast", seconds=0.001))
    assert works["aaaa"].tally.left == 0
    assert cells_of(tmp_path) == ONCE


def test_a_node_that_joins_takes_part(tmp_path):
    late, begun = Fake("late"), time.monotonic()

    def find():
        return [Fake("first", seconds=0.9)] if time.monotonic() - begun < 1 else [Fake("first"), late]

    measure(tmp_path, find=find)
    assert late.measured
    assert cells_of(tmp_path) == ONCE


def test_machines_of_other_kinds_have_files_of_their_own(tmp_path):
    works, _ = measure(tmp_path, Fake("a"), Fake("b", key="bbbb"), Fake("c", key="bbbb"))
    assert works.keys() == {"aaaa", "bbbb"}
    assert cells_of(tmp_path, "aaaa") == cells_of(tmp_path, "bbbb") == ONCE
    assert {one.machine_key for one in read_file(tmp_path / "bbbb" / "quick.jsonl")} == {"bbbb"}


@pytest.mark.parametrize(
    ("how", "why"), [({"code": "older"}, "its code is another"), ({"load": "load is 9 on 2 cores"}, "load is 9")]
)
def test_a_node_that_cannot_be_trusted_is_left_out(tmp_path, how, why):
    other = Fake("other", **how)
    _, said = measure(tmp_path, Fake("a"), other)
    assert other.measured == 0
    assert any(line.startswith("node other is left out") and why in line for line in said)
    assert cells_of(tmp_path) == ONCE


def test_a_slow_node_of_equal_machines_stops_and_its_times_do_not_count(tmp_path):
    _, said = measure(tmp_path, Fake("fast", level=1e-5, seconds=0.2), Fake("slow", level=1.5e-5, seconds=0.3))
    assert cells_of(tmp_path) == ONCE
    assert any(line.startswith("node slow stops") for line in said)
    kept = [one for one in read_file(tmp_path / "aaaa" / "quick.jsonl") if one.primitive == "sum_tree"]
    assert {one.facts["node"] for one in kept} == {"fast"}


def test_equal_nodes_with_equal_sentinels_both_count(tmp_path):
    nodes = Fake("a", level=1e-5), Fake("b", level=1.1e-5)
    measure(tmp_path, *nodes)
    assert all(node.measured > 1 for node in nodes)


def test_a_fault_of_the_measuring_ends_the_command(tmp_path):
    class Faulty(Fake):
        def measure(self, place, keys, seconds):
            raise ValueError("no such tree")

    with pytest.raises(ValueError, match="no such tree"):
        measure(tmp_path, Faulty("a"), Fake("b", seconds=0.3))


def test_two_commands_do_not_write_one_file(tmp_path):
    first = threading.Thread(target=measure, args=(tmp_path, Fake("a", seconds=0.3)))
    first.start()
    time.sleep(0.4)
    with pytest.raises(Exception, match="another command is writing it"):
        measure(tmp_path, Fake("b"))
    first.join()
    assert cells_of(tmp_path) == ONCE


def test_lines_of_a_node_are_read_as_records(tmp_path):
    class Liar(Fake):
        def measure(self, place, keys, seconds):
            return [json.dumps({"run": {}})]

    with pytest.raises(Exception, match="node a:1"):
        measure(tmp_path, Liar("a"))


def test_a_group_without_a_record_ends_all_the_same(tmp_path):
    class Silent(Fake):
        def measure(self, place, keys, seconds):
            super().measure(place, keys, seconds)
            return []

    silent = Silent("a")
    works, _ = measure(tmp_path, silent)
    assert silent.measured == len(GROUPS)
    assert works["aaaa"].records == []
