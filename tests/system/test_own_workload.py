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
    for keys in (None, {}, [], "tiny", {"name": "tiny"}, {"name": 1, "nosuch": {}}):  # what none states
        assert of_stated(keys) is None


def test_records_tell_their_workload_or_that_nothing_does(tiny):
    other = named(tiny, "other")
    found = [*profile(tiny, **facts_of(tiny)), *profile(other), *profile(load("cartpole_dqn"))]
    by_name = {name: workload for (name, _), workload in workloads(found).items()}
    assert by_name == {"tiny": tiny, "other": None, "cartpole_dqn": load("cartpole_dqn")}
    larger = change(tiny, capacity=900)  # which the records hold, and are not of
    assert list(workloads(profile(tiny, **facts_of(larger))).values()) == [None]
    found = profile(tiny)
    found[3] = alter(found[3], machine={**MACHINE, **facts_of(tiny)})  # one of them tells for all
    assert workloads(found) == {("tiny", identity(tiny)): tiny}


def test_recommend_answers_by_a_profile_whose_file_is_gone(tiny, tmp_path, capsys):
    larger = change(tiny, batch=12)
    table = of_records(profile(tiny, **facts_of(tiny)), KEY, larger)
    assert (table.workload, table.differs) == ("tiny", ("learner.batch",))
    assert of_records(profile(tiny), KEY, larger).rows == ()
    results = write(tmp_path / "results", profile(tiny, **facts_of(tiny)))
    old = tmp_path / "tiny.toml"
    (tmp_path / "moved.toml").write_text(old.read_text().replace("batch = 8", "batch = 12"))
    old.unlink()
    asked = ["--platform", str(results / KEY / "platform.toml"), "--results", str(results), "--json"]
    assert dse(["recommend", "--workload", str(tmp_path / "moved.toml"), *asked]) == 0
    sources = {part["part"]: part["source"] for part in json.loads(capsys.readouterr().out)["rows"] if "part" in part}
    assert (sources["actors"], sources["learner"]) == ("measured", "interpolated")


def test_laws_are_held_against_profiles_of_ones_own(tiny, tmp_path):
    """A workload that no record tells is left out by its name."""

    def loops(of, **facts):
        steps = [one for one in profile(of, **facts) if one.contestant == "loop"]
        return [dataclasses.replace(one, primitive="serial_step") for one in steps]

    other, gone = named(tiny, "other"), named(tiny, "gone")
    found = [record for one in (tiny, other) for make in (profile, loops) for record in make(one, **facts_of(one))]
    results = write(tmp_path / "results", [*found, *profile(gone), *loops(gone)])
    assert {one.workload for one in laws.cells(results)} == {"tiny", "other"}
    assert {one.workload for one in laws.serial_loops(results)} == {"tiny", "other"}
    assert laws.untold(results) == (f"gone on {KEY}",)
    workload, table = laws.table_of(profile(tiny, **facts_of(tiny)), KEY, "tiny")  # by which runs are predicted
    assert workload == tiny
    assert table.rows
