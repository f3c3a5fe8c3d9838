"""Settings: random ones resolve to what was kept (``tests/settings.py``), others are refused; workloads of one's own.

Records of such a workload, whose file may be gone, hold what it stated, and no section costs a page.
"""

import dataclasses
import json

import pytest

from benchmarks.timing import Timing
from benchmarks.topics.profile.cells import facts_of, groups
from dse.records import Writer
from dse.times.cells import of_records, workloads
from impls.training import identity, load
from impls.training.__main__ import main
from impls.training.settings import of_stated, stated
from reports import laws
from tests.learning import change
from tests.made import alter
from tests.nursery import run_python
from tests.profiled import MACHINE, NOISE, TINY, seconds, stamp, write_workload
from tests.settings import CHUNKS, read_hashes, read_keys
from tests.system.test_new_tree import PLATFORM

DAILY = (0, 41, 99)
REFUSED = """
cartpole_dqn --seed=99999999999999999999999 -> --seed 4,294,967,296 99999999999999999999999
cartpole_dqn --arrangement=apart --contestant=numpy -> numba 'numpy'
cartpole_dqn --arrangement=apart --compile -> --compile
cartpole_dqn --transport=queue -> --transport changes nothing --arrangement apart pipelined
cartpole_dqn --arrangement=apart --learners=2 --sync=local --weights-of-banks=exact -> --weights-of-banks --banks 2
cartpole_dqn --arrangement=pipelined --units=two --presampled=1023 -> 1,024 --presampled 1,022 --learners --units
cartpole_dqn --actor-nodes=2 -> --actor-nodes changes nothing --arrangement nodes
cartpole_dqn --arrangement=apart --weights=server -> weight server --arrangement nodes
cartpole_dqn --arrangement=nodes --learners=3 -> 64 3 --sync local
cartpole_dqn --arrangement=nodes --learners=2 --sync=lock -> lock --sync local
cartpole_dqn --arrangement=nodes --presampled=2 -> --presampled changes nothing --arrangement nodes
pendulum_td3 --split --compile -> --split --compile
pendulum_td3 --split --arrangement=apart --learners=2 -> --learners
pendulum_td3 --split --learner=dense -> --split --learner dense
cartpole_a3c --split --arrangement=copies --processes=2 -> --split copies --arrangement serial
cartpole_a3c --arrangement=apart -> a3c policy apart --arrangement copies
cartpole_a3c --actors=2 -> a3c actor copies
cartpole_a3c learner.batch=64 -> a3c batch update_interval learning_starts 64 128
cartpole_a3c replay.capacity=500 -> a3c [replay]
cartpole_a3c exploration.random_steps=9 -> a3c [exploration]
cartpole_a3c observation.frames=4 -> a3c frames
cartpole_a3c action.choices= action.size=1 -> a3c [action] choices size
cartpole_dyna_q model.updates=3 -> dyna_q updates memr
cartpole_dyna_q observation.dtype="uint8" -> dyna_q images float32
cartpole_dyna_q clip_rewards=true -> dyna_q clip_rewards
cartpole_dyna_q --arrangement=serial -> dyna_q serial --arrangement copies
cartpole_dyna_q --processes=2 -> dyna_q 2 --processes --model-workers
cartpole_dyna_q --sync=server --every=episode -> --every
cartpole_dyna_q --model-workers=0 --cap=2 -> --cap --model-workers
cartpole_dyna_q --model-workers=0 --experience=queue -> --experience --model-workers
cartpole_dyna_q --priorities=swept --alpha=0 -> --alpha --priorities kept
cartpole_dyna_q --experience=queue model.batch=2001 -> 2,000 2,001 [model] batch
cartpole_dqn --priorities=swept -> --priorities dqn dyna_q
cartpole_dyna_q model.kind="parted" model.hidden=[1] -> parted 2 1
cartpole_dqn model.kind="parted" -> dqn [model]
pendulum_memr --arrangement=apart -> memr apart --arrangement serial
pendulum_memr observation.frames=4 actors.local_storage=32 -> memr frames
pendulum_memr replay.initial_priority="td_error" -> memr initial_priority
pendulum_memr action.size= action.choices=3 -> memr [action] 3 size
pendulum_memr model.horizon=2 -> memr mbpo horizon
pendulum_memr model.members=3 -> members ensemble
pendulum_mbpo --alpha=0.6 -> mbpo alpha 0 0.6
""".strip().splitlines()
"""What is asked of a workload, flags and keys of its file, and the facts that its refusal names; others are drawn."""


def test_settings_resolve_to_what_was_kept():
    """Resolve them in a process of its own, where no other test has set anything."""
    code = f"from tests.settings import hash_chunk; print(*map(hash_chunk, {DAILY}))"
    kept = read_hashes()
    assert len(kept) == CHUNKS
    assert run_python("-c", code).stdout.split() == [kept[chunk] for chunk in DAILY]


def test_settings_that_clash_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("impls.training.run.Run.run", lambda run, **_: None)  # what is not refused ends at once
    for row in REFUSED:
        asked, facts = row.split(" -> ")
        workload, *words = asked.split()
        changes = dict(word.split("=") for word in words if not word.startswith("--"))
        keys = (read_keys(workload) | changes).items()
        (tmp_path / "mine.toml").write_text("".join(f"{name} = {value}\n" for name, value in keys if value))
        flags = [word for word in words if word.startswith("--")]
        assert main(["train", str(tmp_path / "mine.toml"), *flags, "--out", str(tmp_path / "out")]) == 2, row
        said = capsys.readouterr().err
        assert [fact for fact in facts.split() if fact not in said] == [], row
        assert said.count("\n") == 1, row
        assert not (tmp_path / "out").exists()


# Records of a workload of one's own


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


def test_laws_are_held_against_profiles_of_ones_own(tiny, tmp_path):
    """A workload that no record tells is left out by its name; no file of one is needed."""
    (tmp_path / "tiny.toml").unlink()
    larger = change(tiny, batch=12)
    answered = of_records(profile(tiny, **facts_of(tiny)), KEY, larger)
    assert (answered.workload, answered.differs) == ("tiny", ("learner.batch",))
    assert of_records(profile(tiny), KEY, larger).rows == ()

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
