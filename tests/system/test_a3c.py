"""A3C: gradients against differences in float64, advantages by hand, a copy's own n steps, and what it refuses."""

import contextlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

pytest.importorskip("numba")
torch = pytest.importorskip("torch", reason="learners need the extra `train`")
from impls.training import TrainingError, load  # noqa: E402
from impls.training.arrangement import Arrangement  # noqa: E402
from impls.training.copies.loop import CopiesLoop, Copy  # noqa: E402
from impls.training.learners import make  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402
from impls.training.parallel.board import Row  # noqa: E402
from impls.training.rollouts import Rollouts  # noqa: E402
from impls.training.run import Plan, start  # noqa: E402
from impls.training.weights import spans  # noqa: E402
from tests.learning import change, dense, tiny, weights_of  # noqa: E402
from tests.parallel_runs import advance, small  # noqa: E402
from tests.system.test_copies import of, running  # noqa: E402
from tests.system.test_learners import WEIGHTS, check, doubles  # noqa: E402

torch.set_num_threads(1)
NAMES = ("dense", "torch")


def rollouts(n, **changes):
    """A small workload that learns from each n steps."""
    return small(
        **dict.fromkeys(("batch", "update_interval", "learning_starts"), n) | {"capacity": 0} | changes, algorithm="a3c"
    )


def steps_of(*rows, choices=3, cut=()):
    """Steps of (observation, next observation, reward, terminated), with actions in turn; ``cut`` were truncated."""
    seen, led, reward, terminated = zip(*rows, strict=True)
    return {
        "observation": np.array(seen, np.float32).reshape(len(rows), -1),
        "next_observation": np.array(led, np.float32).reshape(len(rows), -1),
        "action": np.arange(len(rows), dtype=np.uint8) % choices,
        "reward": np.array(reward, np.float32),
        "terminated": np.array(terminated),
        "over": np.array(terminated) | np.isin(np.arange(len(rows)), cut),
    }


@pytest.mark.parametrize("name", NAMES)
def test_advantages_are_cut_where_an_episode_terminates_or_is_truncated(name):
    """By hand: V(s) = s, gamma and lambda a half; the second step terminated, the third was truncated."""
    learner = make(tiny("a3c", hidden=(1,), shape=(1,), gamma=0.5, gae_lambda=0.5), name)
    learner.load_weights(np.array([1, 0, 1, 0, *[0] * 8], np.float32))  # the policy's are all 0, so its chances equal
    begun = (1, 5, 1, False)  # where the next episode begins, too
    rows = steps_of((2, 4, 1, False), (4, 1, 3, True), begun, (5, 6, 2, False), (6, 8, 0, False), cut=[2])
    errors = np.array([1 + 0.5 * 4 - 2, 3 - 4, 1 + 0.5 * 5 - 1, 2 + 0.5 * 6 - 5, 0.5 * 8 - 6])
    advantages = errors + np.array([0.25 * errors[1], 0, 0, 0.25 * errors[4], 0])
    assert_allclose(learner.priorities(rows), np.abs(advantages))
    given = learner.rows(rows, np.ones(5, np.float32))
    derived = {phase.network: learner.gradient(phase, given) for phase in learner.phases()}
    assert derived["critic"].loss == pytest.approx((advantages**2).mean() / 2)
    assert derived["critic"].gradient[3] == pytest.approx(-advantages.mean())  # by the last bias
    entropy = learner.workload.learner.entropy * np.log(3)
    assert derived["policy"].loss == pytest.approx(advantages.mean() * np.log(3) - entropy)
    by_bias = [-(advantages * ((rows["action"] == each) - 1 / 3)).mean() for each in range(3)]
    assert_allclose(learner.gradient(learner.phases()[0], given).gradient[-3:], by_bias, rtol=1e-5)
    del rows["over"]  # nothing says that an episode goes on
    assert learner.priorities(rows)[0] == 1 + 0.5 * 4 - 2


def test_the_gradients_are_those_of_differences():
    workload = tiny("a3c", gamma=0.9, gae_lambda=0.8, entropy=0.3)
    learner, rng = make(workload, "torch", seed=1), np.random.default_rng(0)
    seen = rng.standard_normal((5, 2))
    rows = steps_of(*((seen[at], seen[at + 1], rng.standard_normal(), at == 1) for at in range(4)), cut=[2])
    rows["next_observation"][2] += 1
    real, action, (given, policy) = doubles(rows), rows["action"], map(weights_of, learner.networks.values())
    values, led = (dense(given, "", real[name])[:, 0] for name in ("observation", "next_observation"))
    errors = real["reward"] + 0.9 * led * (1 - real["terminated"]) - values
    advantages = errors + np.array([0.72 * errors[1], 0, 0, 0])  # the second step terminated, the third was truncated

    def critic_loss(weights):
        return (WEIGHTS * (dense(weights, "", real["observation"])[:, 0] - values - advantages) ** 2).mean() / 2

    def policy_loss(weights):
        chances = np.exp(dense(weights, "", real["observation"]))
        chances /= chances.sum(1, keepdims=True)
        gain = np.log(chances[np.arange(4), action]) * advantages
        return -(gain - 0.3 * (chances * np.log(chances)).sum(1)).mean()

    batch = learner.rows(rows, WEIGHTS)
    found = check(critic_loss, given, learner, batch, "critic")
    assert_allclose(found, -advantages, rtol=1e-5)
    check(policy_loss, policy, learner, batch, "policy")


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_its_phases_and_the_policy_learns_by_the_critic_as_it_was(name):
    workload = tiny("a3c", learning_rate=0.1)
    one, other = (make(workload, name, seed=1) for _ in range(2))
    rows = steps_of(*(((at, 1), (at + 1, 1), 1, False) for at in range(4)))
    for _ in range(3):
        stepped, given = one.step(rows, WEIGHTS), other.rows(rows, WEIGHTS)
        assert [phase.network for phase in other.phases()] == ["policy", "critic"]
        for phase in other.phases():
            derived = other.gradient(phase, given)
            assert derived.loss == pytest.approx(stepped.losses[phase.network], rel=1e-6)
            other.apply(phase, derived.gradient.copy())
        assert_array_equal(derived.priorities, stepped.priorities)
        other.finish()
        assert_allclose(one.parameters, other.parameters, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_drawn_by_the_chances_of_the_policy_and_the_largest_is_tested(name):
    learner = make(tiny("a3c", hidden=(1,), shape=(1,)), name)
    learner.load_weights(np.array([0] * 9 + [np.log(6), np.log(3), 0], np.float32))
    seen = np.zeros((20_000, 1), np.float32)
    drawn = learner.act(seen, 1.0, np.random.default_rng(0))
    assert_allclose(np.bincount(drawn) / len(seen), [0.6, 0.3, 0.1], atol=0.01)
    assert set(learner.act(seen, 1.0, None)) == {0}


def test_rollouts_are_in_order_and_forgotten_and_an_error_that_is_no_number_is_told():
    buffer = Rollouts(rollouts(3))
    rows = steps_of(*(((at, 0), (at + 1, 0), at, at == 1) for at in range(3)), cut=[0])
    for at in range(3):
        assert not buffer.is_full
        buffer.insert({name: part[at : at + 1] for name, part in rows.items()})
        if at == 0:
            buffer.cut()
            again = Rollouts(rollouts(3))
            again.load_state_dict(buffer.state_dict())
            buffer = again
    batch = buffer.sample(3, 0.4)
    assert_equal(batch.rows, rows)
    assert batch.weights.tolist() == [1, 1, 1]
    assert not buffer.is_full
    assert len(buffer.sample(3, 0.4).weights) == 0
    with pytest.raises(ValueError, match="is nan; training has diverged"):
        buffer.update_priorities(batch.sequence, np.array([0, np.nan, 1], np.float32))


def test_a_loop_learns_from_each_n_steps_and_one_copy_does_the_same():
    serial, copy = SerialLoop(rollouts(3), seed=3), CopiesLoop(rollouts(3), of(), seed=3)
    for at in range(1, 92):
        serial.advance()
        copy.advance()
        assert serial.updates == copy.updates == at // 3
    assert_array_equal(copy.learner.parameters, serial.learner.parameters)
    copy.close()


def test_a_loop_marks_the_step_at_which_an_episode_was_cut():
    loop = SerialLoop(rollouts(64), seed=3)
    while not loop.advance():
        pass
    environment, ended = loop._actors[0]._episodes.environment, loop.step
    step = environment.step
    environment.step = lambda action: (*step(action)[:3], loop.step == ended + 2)
    for _ in range(5):
        loop.advance()
    rows = loop.buffer.sample(64, 0.4).rows
    assert np.flatnonzero(rows["over"]).tolist() == [ended - 1, ended + 2]
    loop.close()


def test_each_copy_learns_from_n_steps_of_its_own():
    workload = rollouts(5)
    loop = CopiesLoop(workload, of(processes=2))
    other = Copy(workload, loop.arrangement, 1, loop.board, loop.shared, make(workload, seed=0), None, None, seed=9)
    for _ in range(2):  # so that the steps of both together are no multiple of n when one copy's are
        other.turn()
    for turns, updates in ((4, 0), (1, 1), (4, 1), (1, 2)):
        for _ in range(turns):
            loop._copy.turn()
        assert (loop.updates, len(loop.buffers)) == (updates, 0)
    for _ in range(3):
        other.turn()
    assert (loop.step, loop.updates, other.updates) == (15, 3, 1)
    other.close()
    loop.close()


def test_two_copies_in_processes_of_their_own_learn_and_resume():
    workload = rollouts(8, steps=100_000, hidden=(8,))
    with running(workload, processes=2, sync="hogwild") as loop:
        advance(loop, lambda: loop.board.rows[:2, Row.TURNS].min() >= 24)
        saved = loop.state_dict()
    own = saved["numbers"]["steps"]
    assert own.sum(0)[:2].tolist() == [saved["step"], saved["updates"]]
    assert (own[:, 1] == own[:, 0] // 8).all()
    again = CopiesLoop(workload, of(processes=2, sync="hogwild"))
    again.load_state_dict(saved)
    assert (again.step, again.updates) == (saved["step"], saved["updates"])
    assert_array_equal(again.learner.parameters, saved["learner"]["weights"])
    again.close()


def test_a_policy_that_diverges_alone_is_told():
    with contextlib.closing(SerialLoop(load("cartpole_a3c"))) as loop:
        loop.learner.parameters[spans(loop.workload)["policy"]] = np.nan
        with pytest.raises(TrainingError, match=r"after 128 steps .* diverged, try a smaller learning_rate"):
            while loop.step < 200:
                loop.advance()


def test_weights_that_would_never_meet_are_refused_and_a_summary_names_no_tree(tmp_path):
    copies = Arrangement(name="copies", processes=2, every=24)
    with pytest.raises(TrainingError, match=r"never meet: every is 24, .* about 23 gradient steps; .* --every"):
        copies.check(change(load("cartpole_a3c"), steps=6_000))
    copies.check(change(load("cartpole_a3c"), steps=6_144))
    short = change(load("cartpole_a3c"), steps=200)
    with contextlib.closing(start(short, Plan(tmp_path, test_episodes=0, live=False))) as run:
        summary = run.run()
    assert (summary["contestant"], summary["fanout"], summary["alpha"]) == (None, None, None)
