"""Records of a workload of one's own, whose file may be gone: they hold what it stated, and no section costs a page."""

import dataclasses
import json

import pytest

from benchmarks.timing import Timing
from benchmarks.topics.profile.cells import facts_of, groups
from dse.__main__ import main as dse
from dse.records import Writer
from dse.times.cells import of_records, workloads
from impls.training import identity, load
from impls.training.settings import of_stated, stated
from reports import laws
from tests.learning import change
from tests.made import alter
from tests.profiled import MACHINE, NOISE, TINY, seconds, stamp, write_workload
from tests.system.test_new_tree import PLATFORM

KEY = MACHINE["key"]


@pytest.fixture
def tiny(tmp_path):
    return load(write_workload(tmp_path))


def named(workload, name):
    """The workload under another name, with a network of its own."""
    return change(workload, name=name, hidden=(5 + len(name),))


def profile(of, **facts):
    """Made-up records of a profile of a workload, whose machine has these facts."""
    made = dataclasses.replace(stamp(), machine={**MACHINE, **facts})
    cells = [cell for group in groups(of, TINY, 2, ("torch", "dense")) for cell in group]
    return [made.timed(cell, Timing(tuple(seconds(cell) * one for one in NOISE), 10)) for cell in cells]


def write(folder, found):
    with Writer(folder / KEY / "profile-tiny-quick.jsonl") as writer:
        for one in found:
            writer.append(one)
    (folder / KEY / "platform.toml").write_text(PLATFORM.replace('"here"', f'"{KEY}"'))
    return folder


def test_what_a_workload_states_makes_it_again(tiny):
    for workload in (tiny, load("pong_dqn"), load("hopper_sac")):
        assert of_stated(json.loads(json.dumps(stated(workload)))) == workload


@pytest.mark.parametrize("keys", [None, {}, [], "tiny", {"name": "tiny"}, {"name": 1, "nosuch": {}}])
def test_what_no_workload_states_makes_none(keys):
    assert of_stated(keys) is None


def test_records_tell_their_workload_or_that_nothing_does(tiny):
    other = named(tiny, "other")
    found = [*profile(tiny, **facts_of(tiny)), *profile(other), *profile(load("cartpole_dqn"))]
    told = {name: workload for (name, _), workload in workloads(found).items()}
    assert told == {"tiny": tiny, "other": None, "cartpole_dqn": load("cartpole_dqn")}


def test_records_that_hold_another_workload_than_they_are_of_tell_none(tiny):
    larger = change(tiny, capacity=900)
    assert list(workloads(profile(tiny, **facts_of(larger))).values()) == [None]


def test_a_workload_of_which_some_records_hold_it_is_told_by_those(tiny):
    found = profile(tiny)
    found[3] = alter(found[3], machine={**MACHINE, **facts_of(tiny)})
    assert workloads(found) == {("tiny", identity(tiny)): tiny}


def test_a_profile_answers_another_batch_when_its_file_is_gone(tiny):
    larger = change(tiny, batch=12)
    table = of_records(profile(tiny, **facts_of(tiny)), KEY, larger)
    assert (table.workload, table.differs) == ("tiny", ("learner.batch",))
    assert of_records(profile(tiny), KEY, larger).rows == ()


def test_recommend_answers_by_a_profile_whose_file_is_gone(tiny, tmp_path, capsys):
    results = write(tmp_path / "results", profile(tiny, **facts_of(tiny)))
    old = tmp_path / "tiny.toml"
    (tmp_path / "moved.toml").write_text(old.read_text().replace("batch = 8", "batch = 12"))
    old.unlink()
    asked = ["--platform", str(results / KEY / "platform.toml"), "--results", str(results), "--json"]
    assert dse(["recommend", "--workload", str(tmp_path / "moved.toml"), *asked]) == 0
    sources = {part["part"]: part["source"] for part in json.loads(capsys.readouterr().out)["rows"] if "part" in part}
    assert sources["actors"] == "measured"
    assert sources["learner"] == "interpolated"


def test_laws_are_held_against_profiles_of_ones_own_and_name_what_is_left_out(tiny, tmp_path):
    found = [*profile(tiny, **facts_of(tiny)), *profile(named(tiny, "gone"))]
    results = write(tmp_path / "results", found)
    assert {one.workload for one in laws.cells(results)} == {"tiny"}
    assert laws.untold(results) == (f"gone on {KEY}",)


def test_serial_loops_are_of_workloads_that_records_tell(tiny, tmp_path):
    def loops(of, **facts):
        steps = [one for one in profile(of, **facts) if one.contestant == "loop"]
        return [dataclasses.replace(one, primitive="serial_step") for one in steps]

    other, gone = named(tiny, "other"), named(tiny, "gone")
    found = [record for one in (tiny, other) for make in (profile, loops) for record in make(one, **facts_of(one))]
    results = write(tmp_path / "results", [*found, *profile(gone), *loops(gone)])
    assert {one.workload for one in laws.serial_loops(results)} == {"tiny", "other"}


def test_runs_of_a_workload_of_ones_own_are_predicted_from_its_profile(tiny):
    workload, table = laws.table_of(profile(tiny, **facts_of(tiny)), KEY, "tiny")
    assert workload == tiny
    assert table.rows


def test_the_page_says_which_profiles_it_leaves_out(tiny, tmp_path):
    command = pytest.importorskip("reports.__main__", reason="reports need pandas")
    pytest.importorskip("seaborn", reason="reports need seaborn")
    results = write(tmp_path / "results", [*profile(tiny, **facts_of(tiny)), *profile(named(tiny, "gone"))])
    assert command.main(["--results", str(results), "--machine", KEY, "--out", str(tmp_path / "out")]) == 0
    assert f"gone on {KEY}" in (tmp_path / "out" / "index.html").read_text()
