"""Actors, environments and the serial loop: what is inserted, with which priority, in which order; what is refused."""

import contextlib
import dataclasses
import sys
from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from impls.replay import PrioritizedBuffer, Replay
from impls.training import TrainingError, load

torch = pytest.importorskip("torch", reason="actors need the extra `train`")
pytest.importorskip("gymnasium", reason="actors need the extra `train`")
from gymnasium.spaces import Box  # noqa: E402

from impls.training.actor import beta_at, evaluate, explore_at, seed_of  # noqa: E402
from impls.training.environments import Environment  # noqa: E402
from impls.training.learners import torch_learner as algorithms  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402
from impls.training.weights import layout_of  # noqa: E402
from tests.committed import ROOT  # noqa: E402
from tests.learning import change, refused  # noqa: E402

torch.set_num_threads(1)


def fake(name="Fine-v0", **tables):
    """The shipped CartPole on an environment that misbehaves."""
    small = {"shape": (2,), "hidden": (4,), "batch": 4, "learning_starts": 16, "capacity": 64}
    base = change(load("cartpole_dqn"), environment=f"tests.fake_environments:{name}", **small)
    parts = {table: dataclasses.replace(getattr(base, table), **keys) for table, keys in tables.items()}
    return dataclasses.replace(base, **parts)


def loop_after(turns, workload):
    """A serial loop of a workload after some turns."""
    loop = SerialLoop(workload, contestant="numpy")
    for _ in range(turns):
        loop.advance()
    return loop


def spy(of, name, calls, *noted):
    """Let a method of an object add what is ``noted`` of each of its calls to a list."""
    plain = getattr(of, name)
    setattr(of, name, lambda *given: (calls.append(noted[0](*given) if noted else name), plain(*given))[1])


# Environments


UNSUITED = [
    (change(fake(), environment="CartPole-v0815"), "'CartPole-v0815'"),
    (change(fake(), environment="Grid-v0"), "'Grid-v0' MODULE:ID"),
    (change(fake(), environment="no_such_module:Fake-v0"), "no_such_module:Fake-v0 PYTHONPATH"),
    (fake(action={"choices": 3}), "2 3 choices"),
    (fake(action={"choices": 0, "size": 2}), "2 size"),
    (fake("Bits-v0"), "MultiBinary 2"),
    (fake("Unbounded-v0", action={"choices": 0, "size": 2}), "-inf inf"),
    (fake(observation={"shape": (3,)}), "[2] [3]"),
    (change(fake(), environment="FrozenLake-v1", choices=4), "[16] [2]"),
]


def test_an_environment_of_another_form_is_refused():
    for workload, facts in UNSUITED:
        with refused(facts):
            Environment(workload)


def test_an_observation_of_choices_is_one_hot():
    for name, choices, size, ones in (("FrozenLake-v1", 4, 16, 1), ("Blackjack-v1", 2, 45, 3)):
        environment = Environment(change(fake(), environment=name, choices=choices, shape=(size,)))
        for seen in (environment.reset(0), environment.step(1)[0]):
            assert (seen.shape, seen.dtype, sorted(seen)[-ones:]) == ((size,), np.float32, [1.0] * ones)
            assert seen.sum() == ones
        assert environment.vector(3) is None  # gymnasium's own would show the numbers


def test_choices_begin_where_the_environment_says():
    workload = fake("FromOne-v0")
    assert [Environment(workload)._action(choice) for choice in (0, 1)] == [1, 2]
    environment = Environment(change(workload, algorithm="ddpg"))
    assert [environment._action(np.array([number])) for number in (-1.0, 1.0)] == [1, 2]


def test_an_action_that_is_no_number_is_the_policys_fault():
    for name, action in (("Bounded-v0", {"choices": 0, "size": 2}), ("Fine-v0", {})):
        environment = Environment(change(fake(name, action=action), algorithm="ddpg"))
        environment.reset(0)
        with pytest.raises(TrainingError, match=r"policy.* nan; .*diverged"):
            environment.step(np.array([np.nan, 0.0], np.float32))


def test_an_evaluation_ends_where_an_episode_does_not(monkeypatch):
    workload = fake("Endless-v0")
    policy, environment = algorithms.make(workload), Environment(workload)
    monkeypatch.setattr("impls.training.actor.LONGEST", 40)
    with pytest.raises(TrainingError, match=r"40 steps; .*max_"):
        evaluate(workload, policy, environment, 1, 0)
    workload = fake()  # whose episodes end after 10
    monkeypatch.setattr("impls.training.actor.LONGEST", 10)
    assert evaluate(workload, policy, Environment(workload), 1, 0) == [55.0]


@pytest.mark.parametrize(
    ("name", "module"),
    [("lunarlander_dqn", "Box2D"), ("hopper_ddpg", "mujoco"), ("pong_dqn", "ale_py"), ("cartpole_dqn", "gymnasium")],
)
def test_a_missing_package_is_one_sentence(name, module, monkeypatch):
    for loaded in list(sys.modules):
        if loaded.startswith(("gymnasium.envs.box2d", "gymnasium.envs.mujoco")):
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TrainingError, match=r"\A.*pip install '\.\[train\]'.*\Z"):
        Environment(load(name))


def test_our_extra_is_no_remedy_for_a_users_own_module(monkeypatch, tmp_path):
    (tmp_path / "grid_of_mine.py").write_text("import library_that_is_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TrainingError, match=r"grid_of_mine:Grid-v0 .*'library_that_is_nowhere'") as caught:
        Environment(change(fake(), environment="grid_of_mine:Grid-v0"))
    assert "[train]" not in str(caught.value)


BOXES = [
    "-4 1 f4", "-0.1 0.2 f4", "0.1 0.1 f4", "-3e38 3e38 f4", "-60000 60000 f2", "-1.7e308 1.7e308 f8", "-1 1 i8",
    "0 3 i4", "-128 127 i1", "-20000 20000 i2", "0 255 u1", f"{-(2**63)} {2**63 - 1} i8",
]  # fmt: skip


def test_actions_lie_in_their_space_and_reach_its_ends():
    with contextlib.closing(Environment(load("pendulum_sac"))) as environment:
        for box in BOXES:
            *bounds, kind = box.split()
            space = environment._made.action_space = Box(*np.array(bounds)[:, None].astype(kind), dtype=kind)
            own = environment.own_actions(np.linspace(-1, 1, 4097, dtype=np.float32)[:, None])
            assert all(map(space.contains, own)), box
            assert [own[0], own[-1]] == [space.low, space.high], box
            middle = np.mean([space.low, space.high], dtype=float)
            assert_allclose(own[2048].astype(float), middle, atol=1, err_msg=box)  # of whole numbers, next to it


def test_seeds_differ():
    seeds = {seed_of(0, use, actor, episode) for use in range(4) for actor in range(4) for episode in range(50)}
    assert len(seeds) == 800


# Actors


class Upright:
    """A policy for CartPole that needs no network: it pushes to where the pole falls."""

    def act(self, observations, explore, rng):
        actions = (observations[:, 2] + observations[:, 3] > 0).astype(np.int64)
        random = rng.random(len(actions)) < explore
        return np.where(random, rng.integers(2, size=len(actions)), actions)


def test_an_environment_may_show_the_same_array_again():
    arrays = loop_after(9, fake("SameArray-v0")).buffer.state_dict()["arrays"]
    assert_array_equal(arrays["observation"][:, 1] + 1, arrays["next_observation"][:, 1])


def test_an_initial_priority_is_the_actors_own_td_error():
    workload = fake(actors={"local_storage": 5}, replay={"initial_priority": "td_error"})
    loop = loop_after(5, workload)
    arrays = loop.buffer.state_dict()["arrays"]
    expected = (loop.learner.priorities(arrays) + workload.replay.epsilon) ** workload.replay.alpha
    assert_allclose(loop.buffer.tree.get(np.arange(5)), expected, rtol=1e-6)
    assert len(set(expected)) > 1


def test_frames_of_an_environment_come_back_as_its_stacks():
    frames = {"shape": (84, 84), "dtype": "uint8", "frames": 4}
    workload = fake("Frames-v0", observation=frames, actors={"local_storage": 4})
    assert layout_of(workload).record_bytes == 84 * 84 + 6
    rows = loop_after(45, workload).buffer.sample(64, 0.4, np.random.default_rng(0)).rows
    seen, following = (rows[name][:, :, 0, 0].astype(int) for name in ("observation", "next_observation"))
    assert_array_equal(seen[:, 1:], following[:, :-1])
    assert_array_equal(following[:, -1], seen[:, -1] + 1)  # frames of a fake count upward
    assert np.isin(np.diff(seen, axis=1), (0, 1)).all()  # the first frame is repeated before an episode's first


def test_schedules():
    plan = {"start": 1.0, "end": 0.2, "steps": 100}
    workload = change(fake(exploration=plan), beta=0.4, beta_end=1.0, steps=100)
    assert_allclose([explore_at(workload, step) for step in (0, 50, 100, 1000)], [1.0, 0.6, 0.2, 0.2])
    assert_allclose([beta_at(workload, step) for step in (0, 50, 100)], [0.4, 0.7, 1.0])


# The serial loop


def test_weights_are_fetched_every_t_sync_steps():
    loop, fetched = loop_after(0, fake(actors={"count": 2, "sync_interval": 10, "local_storage": 2})), []
    spy(loop.policy, "load_weights", fetched, lambda weights: loop.step)
    for _ in range(64):
        loop.advance()
    assert fetched == [0, 20, 40, 60]  # every tenth step of each of two actors


TURNS = [(1, 1, 16), (1, 3, 16), (1, 7, 20), (1, 8, 17), (4, 1, 17), (4, 3, 17), (3, 4, 17), (8, 2, 17)]
"""Environments, the interval of updates and the steps before the first."""


@pytest.mark.parametrize("name", ["Uneven-v0", "FineCarts-v0"])
def test_a_turn_is_followed_by_the_updates_due(name):
    for environments, interval, starts in TURNS:
        settings = {"update_interval": interval, "learning_starts": starts, "environments": environments}
        workload = change(fake(name), **settings, shape=(4,) if name == "FineCarts-v0" else (2,))
        loop, episodes, ended, shorter = SerialLoop(workload, contestant="numpy"), 0, 0, 0
        for turn in range(1, 101):
            before, episodes = loop.step, episodes + ended
            ended = len(loop.advance())
            shorter += environments - (loop.step - before)
            # A turn is shorter by those environments whose episodes ended in the turn before it.
            assert shorter == (episodes if environments > 1 else 0), settings
            assert (loop.turns, loop.buffer.written) == (turn, loop.step)
            assert loop.updates == sum(1 for step in range(starts, loop.step + 1) if step % interval == 0), settings
        assert loop.learner.steps == loop.updates
        assert episodes > 4
        loop.close()


def test_a_batch_is_drawn_d_gradient_steps_ahead():
    loop = SerialLoop(fake(replay={"presampled": 5}), contestant="numpy")
    drawn, learned = [], []
    sample = loop.buffer.sample
    loop.buffer.sample = lambda *given: drawn.append(sample(*given)) or drawn[-1]
    spy(loop.learner, "step", learned, lambda rows, weights: rows)
    for _ in range(60):
        loop.advance()
    assert len(drawn) == len(learned) + 5
    assert all(batch.rows is rows for batch, rows in zip(drawn, learned, strict=False))


HUGE = fake(observation={"shape": (4096, 4096)}, replay={"capacity": 1 << 33})
IMPOSSIBLE = [
    (HUGE, {"contestant": "flat"}, "8,589,934,592 GB"),
    (fake(), {"learner": ""}, "'' dense, torch"),
    (fake(), {"policy": "Dense"}, "'Dense' dense, torch"),
    (fake(), {"learner": "dense", "compiled": True}, "--compile torch dense"),
]


def test_a_loop_that_cannot_be_is_refused(monkeypatch):
    for workload, options, facts in IMPOSSIBLE:
        with refused(facts):
            SerialLoop(workload, **{"contestant": "numpy"} | options)
    monkeypatch.setattr("impls.training.learner.initial", mock.Mock(side_effect=MemoryError))
    with refused("22 weights memory"):
        SerialLoop(fake(), contestant="numpy")


def test_training_that_diverges_is_a_sentence():
    loop = SerialLoop(fake(), contestant="numpy")
    loop.learner.parameters[:] = np.nan
    with pytest.raises(TrainingError, match=r"after 16 steps and 0 gradient steps: .* nan"):
        for _ in range(20):
            loop.advance()


def test_a_compiled_tree_has_the_compiled_replay_where_it_can(monkeypatch):
    for name, kind in (("numba", Replay), ("numpy", PrioritizedBuffer)):
        assert isinstance(SerialLoop(fake(), contestant=name).buffer, kind)
    refuse = mock.Mock(side_effect=RuntimeError("robust mutexes need Linux"))
    monkeypatch.setattr("impls.training.loop.make_replay", refuse)
    assert type(SerialLoop(fake(), contestant="numba").buffer) is PrioritizedBuffer


def test_the_loop_that_the_readme_shows_learns(capsys):
    program = (ROOT / "impls/README.md").read_text().partition("```python\n")[2].partition("```")[0]
    names = {}
    exec(program.replace("range(20_000)", "range(1_500)"), names)
    assert names["learner"].steps == 500
    assert len(names["memory"]) == 1_500
    assert len(capsys.readouterr().out.splitlines()) > 20
