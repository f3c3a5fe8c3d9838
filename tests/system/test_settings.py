"""Settings of training: random ones resolve to what was kept (``tests/settings.py``), a table of others is refused."""

from impls.training.__main__ import main
from tests.nursery import run_python
from tests.settings import CHUNKS, list_changes, read_hashes, read_keys

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


def test_a_changed_chunk_is_listed():
    before, after = ["aa-bb", "cc-dd", "ee-ff"], ["aa-bb", "cd-dd", "ee-fe"]
    assert list(list_changes(before, after)) == ["chunk 1: other outcomes", "chunk 2: other facts of refusals"]


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
