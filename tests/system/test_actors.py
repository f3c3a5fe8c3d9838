"""Actors and environments: what is inserted, with which priority, and one sentence for whatever goes wrong."""

import contextlib
import dataclasses
import importlib.util
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from impls.training import TrainingError, load

torch = pytest.importorskip("torch", reason="actors need the extra `train`")
pytest.importorskip("gymnasium", reason="actors need the extra `train`")
from gymnasium.spaces import Box  # noqa: E402

from impls.training.actor import Actor, beta_at, evaluate, explore_at, seed_of  # noqa: E402
from impls.training.environments import Environment  # noqa: E402
from impls.training.learners import torch_learner as algorithms  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402
from impls.training.weights import layout_of  # noqa: E402
from tests.learning import change  # noqa: E402

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


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (change(fake(), environment="CartPole-v0815"), "knows no environment 'CartPole-v0815' "),
        (
            change(fake(), environment="no_such_module:Fake-v0"),
            "^no_such_module:Fake-v0: there is no module 'no_such_module' to import; put .* on PYTHONPATH, or install",
        ),
        (fake(action={"choices": 3}), "an action has 2 choices, the workload says 3 choices"),
        (fake(action={"choices": 0, "size": 2}), "an action has 2 choices, the workload says size 2"),
        (fake("Bits-v0"), "an action has the space MultiBinary, the workload says 2 choices"),
        (
            fake("Unbounded-v0", action={"choices": 0, "size": 2}),
            "an action reaches from -inf to inf; .* finite bounds",
        ),
        (fake(observation={"shape": (3,)}), r"observations have the shape \[2\], the workload says \[3\]"),
    ],
)
def test_an_environment_that_is_not_the_workloads_is_one_sentence(workload, words):
    with pytest.raises(TrainingError, match=words):
        Environment(workload)


@pytest.mark.parametrize(("name", "choices", "size", "ones"), [("FrozenLake-v1", 4, 16, 1), ("Blackjack-v1", 2, 45, 3)])
def test_an_observation_of_choices_is_one_hot(name, choices, size, ones):
    workload = change(fake(), environment=name, choices=choices, shape=(size,))
    environment = Environment(workload)
    for seen in (environment.reset(0), environment.step(1)[0]):
        assert (seen.shape, seen.dtype, sorted(seen)[-ones:]) == ((size,), np.float32, [1.0] * ones)
        assert seen.sum() == ones
    assert environment.vector(3) is None  # gymnasium's own would show the numbers
    with pytest.raises(TrainingError, match=rf"have the shape \[{size}\], the workload says \[2\]"):
        Environment(change(workload, shape=(2,)))


def test_choices_begin_where_the_environment_says():
    workload = fake("FromOne-v0")
    assert [Environment(workload)._action(choice) for choice in (0, 1)] == [1, 2]
    environment = Environment(change(workload, algorithm="ddpg"))
    assert [environment._action(np.array([number])) for number in (-1.0, 1.0)] == [1, 2]


@pytest.mark.parametrize(("name", "action"), [("Bounded", {"choices": 0, "size": 2}), ("Fine", {})])
def test_an_action_that_is_no_number_is_the_policys_fault(name, action):
    environment = Environment(change(fake(f"{name}-v0", action=action), algorithm="ddpg"))
    environment.reset(0)
    with pytest.raises(TrainingError, match=r"^the policy's action is nan; training has diverged"):
        environment.step(np.array([np.nan, 0.0], np.float32))


def test_an_environment_that_cannot_be_closed_hides_nothing():
    Environment(fake("CloseRaises-v0")).close()


def test_an_evaluation_ends_where_an_episode_does_not(monkeypatch):
    workload = fake("Endless-v0")
    policy, environment = algorithms.make(workload), Environment(workload)
    monkeypatch.setattr("impls.training.actor.LONGEST", 40)
    with pytest.raises(TrainingError, match="episode has not ended after 40 steps; register the environment with max_"):
        evaluate(workload, policy, environment, 1, 0)
    workload = fake()  # whose episodes end after 10
    monkeypatch.setattr("impls.training.actor.LONGEST", 10)
    assert evaluate(workload, policy, Environment(workload), 1, 0) == [55.0]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("lunarlander_dqn", "Box2D"),
        ("hopper_ddpg", "mujoco"),
        ("pong_dqn", "ale_py"),
        ("pong_dqn", "cv2"),
        ("cartpole_dqn", "gymnasium"),
    ],
)
def test_a_missing_package_is_one_sentence(name, module, monkeypatch):
    for loaded in list(sys.modules):
        if loaded.startswith(("gymnasium.envs.box2d", "gymnasium.envs.mujoco")):
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TrainingError) as told:
        Environment(load(name))
    assert "\n" not in str(told.value)
    assert "pip install '.[train]'" in str(told.value)


def test_what_a_module_of_the_users_own_lacks_is_not_in_our_extra(monkeypatch, tmp_path):
    (tmp_path / "grid_of_mine.py").write_text("import library_that_is_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TrainingError) as told:
        Environment(change(fake(), environment="grid_of_mine:Grid-v0"))
    assert "grid_of_mine:Grid-v0 needs the module 'library_that_is_nowhere'" in str(told.value)
    assert "[train]" not in str(told.value)
    with pytest.raises(TrainingError, match=r"knows no environment 'Grid-v0'.*; if a module of yours .* MODULE:ID$"):
        Environment(change(fake(), environment="Grid-v0"))


class Upright:
    """A policy for CartPole that needs no network: it pushes to where the pole falls."""

    def act(self, observations, explore, rng):
        actions = (observations[:, 2] + observations[:, 3] > 0).astype(np.int64)
        random = rng.random(len(actions)) < explore
        return np.where(random, rng.integers(2, size=len(actions)), actions)


def test_an_actor_of_one_environment_repeats_what_it_did_when_it_could_have_no_more():
    actor, episodes, actions = Actor(load("cartpole_dqn"), 1, seed=7), [], []
    for turn in range(1000):
        steps, inserted, ended = actor.step(Upright(), 0.7, turn < 100)
        actions.append(int(inserted.records["action"][0]))
        episodes += [episode.length for episode in ended]
        assert steps == 1
    assert episodes == [
        10, 19, 12, 25, 21, 14, 21, 27, 12, 54, 74, 34, 28, 30, 88, 18, 11, 124, 43, 86, 53, 31, 47, 111,
    ]  # fmt: skip
    assert sum(turn * action for turn, action in enumerate(actions)) == 246636


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


def test_weights_are_fetched_every_t_sync_steps():
    workload = fake(actors={"count": 2, "sync_interval": 10, "local_storage": 2})
    loop = SerialLoop(workload, contestant="numpy")
    fetched = []
    take = loop.policy.load_weights
    loop.policy.load_weights = lambda weights: (fetched.append(loop.step), take(weights))
    for _ in range(64):
        loop.advance()
    assert fetched == [0, 20, 40, 60]  # every tenth step of each of two actors


def test_schedules():
    plan = {"start": 1.0, "end": 0.2, "steps": 100}
    workload = change(fake(exploration=plan), beta=0.4, beta_end=1.0, steps=100)
    assert_allclose([explore_at(workload, step) for step in (0, 50, 100, 1000)], [1.0, 0.6, 0.2, 0.2])
    assert_allclose([beta_at(workload, step) for step in (0, 50, 100)], [0.4, 0.7, 1.0])


def test_random_steps_come_first():
    workload = fake(exploration={"start": 0.0, "end": 0.0, "random_steps": 12})
    loop = SerialLoop(workload, contestant="numpy")
    asked = []
    act = loop.learner.act
    loop.learner.act = lambda *given: (asked.append(loop.step), act(*given))[1]
    for _ in range(16):
        loop.advance()
    assert asked == [12, 13, 14, 15]


BOXES = [
    "-4 1 f4", "-0.1 0.2 f4", "0.1 0.1 f4", "-3e38 3e38 f4", "-60000 60000 f2", "-1.7e308 1.7e308 f8", "-1 1 i8",
    "0 3 i4", "-128 127 i1", "-20000 20000 i2", "0 255 u1", f"{-(2**63)} {2**63 - 1} i8",
]  # fmt: skip


@pytest.mark.parametrize("box", BOXES)
def test_actions_lie_in_their_space_and_reach_its_ends(box):
    *bounds, kind = box.split()
    environment = Environment(load("pendulum_sac"))
    space = environment._made.action_space = Box(*np.array(bounds)[:, None].astype(kind), dtype=kind)
    own = environment.own_actions(np.linspace(-1, 1, 4097, dtype=np.float32)[:, None])
    assert all(map(space.contains, own))
    assert [own[0], own[-1]] == [space.low, space.high]
    middle = np.mean([space.low, space.high], dtype=float)
    assert_allclose(own[2048].astype(float), middle, atol=1)  # of whole numbers, next to it
    environment.close()


@pytest.mark.parametrize("count", [2, 3, 256])
def test_whole_numbers_have_equal_shares_of_the_actions(count):
    environment = Environment(load("pendulum_sac"))
    environment._made.action_space = Box(-1, count - 2, (1,), np.int64)
    evenly = (np.arange(100 * count, dtype=np.float32)[:, None] + 0.5) / (50 * count) - 1
    own, each = np.unique(environment.own_actions(evenly), return_counts=True)
    assert own.tolist() == list(range(-1, count - 1))
    assert np.abs(each - 100).max() <= 1
    environment.close()


def test_seeds_decide_and_differ():
    seeds = {seed_of(0, use, actor, episode) for use in range(4) for actor in range(4) for episode in range(50)}
    assert len(seeds) == 800
    workload = fake()
    policy, environment = algorithms.make(workload), Environment(workload)
    assert evaluate(workload, policy, environment, 3, 1, 2) == evaluate(workload, policy, environment, 3, 1, 2)


@pytest.mark.parametrize("name", ["lunarlander_dqn", "hopper_sac", "cartpole_ddpg", "pong_dqn"])
def test_the_shipped_environments_run_and_begin_as_their_seed_says(name):
    needed = {"lunarlander_dqn": "Box2D", "hopper_sac": "mujoco", "pong_dqn": "cv2"}.get(name, "gymnasium")
    if importlib.util.find_spec(needed) is None:  # not imported here: Box2D crashes where warnings are errors
        pytest.skip(f"{needed} is not installed")
    workload = load(name)

    def play(environment, number):
        """Play an episode of at most 30 steps by random actions."""
        rng = np.random.default_rng(number)
        turns = [(environment.reset(seed_of(7, number)),)]
        while len(turns) < 31 and not any(turns[-1][2:]):
            numbers = rng.uniform(-1, 1, workload.action_size)
            turns.append(environment.step(rng.integers(workload.action.choices) if workload.has_choices else numbers))
        return turns

    with contextlib.closing(Environment(workload)) as one, contextlib.closing(Environment(workload)) as other:
        play(one, 0)  # the other environment has no past
        turns = play(one, 1)
        assert_equal(turns, play(other, 1))
    assert turns[0][0].shape == workload.observation.stacked
    assert turns[0][0].dtype == workload.observation.dtype


def test_frames_of_an_environment_come_back_as_its_stacks():
    workload = fake(
        "Frames-v0", observation={"shape": (84, 84), "dtype": "uint8", "frames": 4}, actors={"local_storage": 4}
    )
    assert layout_of(workload).record_bytes == 84 * 84 + 6
    rows = loop_after(45, workload).buffer.sample(64, 0.4, np.random.default_rng(0)).rows
    seen, following = (rows[name][:, :, 0, 0].astype(int) for name in ("observation", "next_observation"))
    assert_array_equal(seen[:, 1:], following[:, :-1])
    assert_array_equal(following[:, -1], seen[:, -1] + 1)  # frames of a fake count upward
    assert np.isin(np.diff(seen, axis=1), (0, 1)).all()  # the first frame is repeated before an episode's first
