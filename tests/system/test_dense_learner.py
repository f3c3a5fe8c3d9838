"""The dense learner: gradients against automatic derivatives in float64, steps and actions against torch's."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from impls.training import TrainingError, load
from impls.training.actor import Actor
from impls.training.learners import default, make, names, prepare
from impls.training.learners import dense_learner as package
from impls.training.learners.dense_learner import learner as calling
from impls.training.loop import SerialLoop
from impls.training.weights import spans
from tests.learning import assert_goes_on, change

torch = pytest.importorskip("torch")
pytest.importorskip("numba")

CARTPOLE, HOPPER = load("cartpole_dqn"), load("hopper_sac")
SEED = 11


def workload(algorithm, batch=7, hidden=(19, 5), inputs=3, size=2, **changes):
    base = {"dqn": CARTPOLE, "a3c": load("cartpole_a3c")}.get(algorithm, HOPPER)
    plain = {
        "loss": "squared",
        "gradient_clip": 0.0,
        "learning_rate": 1e-3,
        "target_interval": 1,
        "tau": 0.01,
    }
    plain |= {
        "batch": batch,
        "hidden": hidden,
        "shape": (inputs,),
        "choices" if base.has_choices else "size": size,
    }
    return change(base, algorithm=algorithm, **plain | changes)


def batches(workload, count=1, seed=0):
    """Random transitions of a workload's batch size, with importance weights."""
    rng, rows = default_rng(seed), workload.learner.batch
    shape = (rows, *workload.observation.stacked)
    for _ in range(count):
        seen = [
            rng.integers(256, size=shape).astype(np.uint8)
            if workload.observation.dtype == "uint8"
            else rng.standard_normal(shape).astype(np.float32)
            for _ in range(2)
        ]
        action = rng.uniform(-1, 1, (rows, workload.action_size)).astype(np.float32)
        if workload.has_choices:
            action = rng.integers(workload.action.choices, size=rows)
        if workload.algorithm == "a3c":  # most rows begin where the one before has led
            seen[0][1:] = np.where(rng.random((rows - 1, 1)) < 0.7, seen[1][:-1], seen[0][1:])
        reward = (3 * rng.standard_normal(rows)).astype(np.float32)  # on both sides of Huber's bends
        parts = ("observation", "next_observation", "action", "reward", "terminated")
        yield (
            dict(zip(parts, (*seen, action, reward, rng.random(rows) < 0.3), strict=True)),
            rng.random(rows).astype(np.float32),
        )


def exact_gradients(workload, before, after, transitions, weights):
    """(gradient [P], priorities [B]) in float64 by torch; a phase sees the weights that the one before it left."""
    twin = make(workload, "torch", seed=SEED)
    twin.load_state_dict(before)
    rows = twin.rows(transitions, weights)
    for module in (module for network in (twin.networks, twin.targets) for module in network.double().modules()):
        if getattr(module, "_scale", 1.0) != 1.0:  # of bytes, which it would divide in float32
            module._scale = 1.0
            rows |= {name: part / 255.0 for name, part in rows.items() if part.dtype == torch.uint8}
    rows = {name: part.double() if part.is_floating_point() else part for name, part in rows.items()}
    gradient, errors, parts = np.zeros(len(after)), None, spans(workload)
    for phase in twin.phases():
        gradients, _, new_errors = twin.gradients(phase, rows)
        gradient[parts[phase.network]] = torch.cat([each.ravel() for each in gradients]).numpy()
        errors = new_errors if errors is None else errors
        left = torch.from_numpy(after[parts[phase.network]]).double()
        torch.nn.utils.vector_to_parameters(left, twin.networks[phase.network].parameters())
    return gradient, errors.abs().numpy()


CASES = {
    "dqn": {"algorithm": "dqn", "double": False},
    "double": {"algorithm": "dqn", "size": 5, "loss": "huber"},
    "dueling": {
        "algorithm": "dqn",
        "dueling": True,
        "size": 3,
        "loss": "huber",
        "gradient_clip": 0.01,
    },
    "dueling, one layer": {"algorithm": "dqn", "dueling": True, "hidden": (33,), "double": False},
    "bytes": {"algorithm": "dqn", "dtype": "uint8", "batch": 37, "inputs": 50},
    "one row": {"algorithm": "dqn", "batch": 1, "hidden": (8, 8, 8)},
    "wide": {"algorithm": "dqn", "batch": 65, "hidden": (128, 130), "inputs": 4},
    "ddpg": {"algorithm": "ddpg", "batch": 33},
    "ddpg, huber": {"algorithm": "ddpg", "batch": 1, "hidden": (17,), "size": 1, "loss": "huber"},
    "td3": {"algorithm": "td3", "policy_delay": 1, "batch": 40, "size": 3},
    "td3, delayed": {"algorithm": "td3", "policy_delay": 2, "loss": "huber"},
    "sac": {"algorithm": "sac", "batch": 35, "size": 3, "inputs": 11},
    "sac, fixed": {"algorithm": "sac", "temperature": 0.3, "hidden": (40,), "loss": "huber"},
    "sac, one row": {"algorithm": "sac", "batch": 1, "size": 1, "gradient_clip": 1.0},
    "a3c": {"algorithm": "a3c", "batch": 37, "size": 3, "gae_lambda": 0.9, "entropy": 0.1},
    "a3c, huber": {
        "algorithm": "a3c",
        "batch": 65,
        "gamma": 0.9,
        "gae_lambda": 1.0,
        "loss": "huber",
        "dtype": "uint8",
    },
    "a3c, one row": {
        "algorithm": "a3c",
        "batch": 1,
        "size": 9,
        "hidden": (2,),
        "inputs": 1,
        "gradient_clip": 0.1,
    },
    "sac, more actions than units": {"algorithm": "sac", "size": 9, "hidden": (2,), "inputs": 1},
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_and_priorities_are_those_of_automatic_derivatives_in_float64(case):
    shape = workload(**CASES[case])
    learner, other = (make(shape, "dense", seed=seed) for seed in (SEED, SEED + 1))
    learner.target_parameters[:] = other.target_parameters  # or else both would choose alike
    for transitions, weights in batches(shape, 3):
        before = learner.state_dict()
        stepped = learner.step(transitions, weights)
        gradient, errors = exact_gradients(shape, before, learner.weights(), transitions, weights)
        assert_allclose(stepped.priorities, errors, rtol=1e-5, atol=1e-5)
        for name, span in spans(shape).items():
            if name in stepped.losses:  # sums of up to 130 terms, each rounded to float32
                largest = np.abs(gradient[span]).max()
                assert_allclose(
                    learner._state.gradient[span],
                    gradient[span],
                    rtol=1e-4,
                    atol=5e-6 * largest,
                )


RUNS = {
    "dqn": {
        "algorithm": "dqn",
        "dueling": True,
        "loss": "huber",
        "gradient_clip": 1.0,
        "hidden": (32, 32),
    },
    "copied targets": {"algorithm": "dqn", "target_interval": 7, "tau": 1.0},
    "ddpg": {"algorithm": "ddpg", "policy_learning_rate": 1e-4, "gradient_clip": 0.5},
    "td3": {"algorithm": "td3", "target_interval": 2},
    "sac": {"algorithm": "sac", "gradient_clip": 2.0},
    "a3c": {"algorithm": "a3c", "gradient_clip": 0.5, "policy_learning_rate": 3e-4},
}


@pytest.mark.parametrize("run", RUNS)
def test_a_hundred_steps_are_those_of_torch(run):
    """Adam divides by the size of the gradient, so rounding alone can move a weight whose gradient is near 0 by as
    much as the learning rate: TD errors, which hardly depend on such a weight, agree to 1e-3 after 100 steps, and no
    weight differs by as much as two steps of 1e-3."""
    shape = workload(batch=16, **RUNS[run])
    dense, reference = (make(shape, name, seed=SEED) for name in ("dense", "torch"))
    for count, (transitions, weights) in enumerate(batches(shape, 100), 1):
        ours, theirs = dense.step(transitions, weights), reference.step(transitions, weights)
        assert_allclose(ours.priorities, theirs.priorities, rtol=1e-3, atol=1e-3)
        assert ours.losses.keys() == theirs.losses.keys()
        assert list(ours.losses.values()) == pytest.approx(
            list(theirs.losses.values()),
            rel=1e-3,
            abs=1e-3,
        )
        assert dense.steps == reference.steps == count
    assert_allclose(dense.weights(), reference.weights(), atol=2e-3)
    assert_allclose(dense._targets(), reference._targets(), atol=2e-3)
    assert dense.state_dict()["updates"] == reference.state_dict()["updates"]


@pytest.mark.parametrize("algorithm", ("dqn", "ddpg", "td3", "sac", "a3c"))
@pytest.mark.parametrize("dtype", ("float32", "uint8"))
def test_actions_and_priorities_are_those_of_torch(algorithm, dtype):
    shape = workload(algorithm, batch=9, dtype=dtype, dueling=algorithm == "dqn")
    dense, reference = (make(shape, name, seed=SEED) for name in ("dense", "torch"))
    ((transitions, _),) = batches(shape)
    assert_allclose(
        dense.priorities(transitions),
        reference.priorities(transitions),
        rtol=1e-5,
        atol=1e-5,
    )
    for count in (9, 1, 4):
        seen = transitions["observation"][:count]
        for explore, seed in ((0.0, None), (0.5, 3)):
            rngs = (None if seed is None else default_rng(seed) for _ in range(2))
            ours, theirs = (
                each.act(
                    seen,
                    explore,
                    rng,
                )
                for each, rng in zip((dense, reference), rngs, strict=True)
            )
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            assert_allclose(ours, theirs, atol=0 if shape.has_choices else 2e-6)


@pytest.mark.parametrize("algorithm", ("dqn", "ddpg", "td3", "sac", "a3c"))
@pytest.mark.parametrize("name", names())
def test_a_resumed_learner_goes_on_bit_for_bit(algorithm, name):
    shape = workload(algorithm)
    first, second = (make(shape, name, seed=seed) for seed in (1, 2))
    steps = list(batches(shape, 7))
    for batch in steps[:3]:
        first.step(*batch)
    assert_goes_on(first, second, lambda learner: learner.step(*steps[learner.steps]), 4)


@pytest.mark.parametrize("algorithm", ("dqn", "td3", "sac"))
@pytest.mark.parametrize("order", (("dense", "torch"), ("torch", "dense")))
def test_states_of_both_implementations_load_into_each_other(algorithm, order):
    shape = workload(algorithm)
    first, second = (make(shape, name, seed=seed) for seed, name in enumerate(order))
    *steps, last = batches(shape, 4)
    for transitions, weights in steps:
        first.step(transitions, weights)
    second.load_state_dict(first.state_dict())
    assert_array_equal(first.weights(), second.weights())
    ours, theirs = first.step(*last), second.step(*last)
    assert_allclose(ours.priorities, theirs.priorities, rtol=1e-5, atol=1e-5)
    assert_allclose(first.state_dict()["mean"], second.state_dict()["mean"], atol=1e-6)
    assert first.state_dict()["updates"] == second.state_dict()["updates"]
    assert first.state_dict()["rng"] == second.state_dict()["rng"]


def test_a_policy_shares_the_memory_of_a_learner():
    shape = workload("dqn")
    learner = make(shape, "dense", seed=1)
    policy = make(shape, "dense", seed=2, share=learner)
    ((transitions, weights),) = batches(shape)
    for _ in range(30):
        learner.step(transitions, weights)
    seen = transitions["observation"]
    assert_array_equal(policy.act(seen, 0, None), learner.act(seen, 0, None))
    assert np.shares_memory(policy.parameters, learner.parameters)


def test_batches_of_any_size_follow_one_another():
    shape = workload("ddpg", batch=40)
    learner, ((transitions, _),) = make(shape, "dense"), batches(shape)
    whole = learner.priorities(transitions)
    for count in (1, 40, 13):
        part = learner.priorities({name: values[:count] for name, values in transitions.items()})
        assert_array_equal(part, whole[:count])
    assert len(learner.priorities({name: values[:0] for name, values in transitions.items()})) == 0


@pytest.mark.parametrize("algorithm", ("dqn", "ddpg", "td3", "sac", "a3c"))
def test_a_learner_that_diverged_says_so_by_its_priorities_and_losses(algorithm):
    shape = workload(algorithm, policy_delay=1, gradient_clip=1.0)
    learner = make(shape, "dense")
    ((transitions, weights),) = batches(shape)
    transitions["reward"][2] = np.inf
    stepped = learner.step(transitions, weights)
    assert np.isinf(stepped.priorities[2])
    assert not np.isfinite(stepped.losses["action_values" if algorithm == "dqn" else "critic"])
    stepped = learner.step(transitions, weights)
    assert np.isnan(stepped.priorities).all()
    assert all(np.isnan(loss) for loss in stepped.losses.values())


@pytest.mark.parametrize("algorithm", ("dqn", "sac", "a3c"))
def test_parts_of_a_batch_that_do_not_fit_are_refused(algorithm):
    shape = workload(algorithm)
    learner, ((transitions, weights),) = make(shape, "dense"), batches(shape)
    for name, part in transitions.items():
        for wrong in (part[:-1], np.stack((part, part))):
            with pytest.raises(ValueError, match="reshape"):
                learner.step(transitions | {name: wrong}, weights)
    with pytest.raises(ValueError, match="reshape"):
        learner.step(transitions, weights[1:])
    with pytest.raises(ValueError, match="reshape"):
        learner.act(transitions["observation"][0], 0, None)
    assert learner.steps == sum(learner.state_dict()["updates"].values()) == 0
    if shape.has_choices:
        with pytest.raises(IndexError, match="none of the choices"):
            learner.step(transitions | {"action": np.full(7, 2)}, weights)


@pytest.mark.parametrize("name", names())
def test_a_clipped_reward_is_its_sign(name):
    shape = workload("dqn", clip_rewards=True)
    learner, ((transitions, _),) = make(shape, name), batches(shape)
    rewards = np.array([3, -0.2, 0, 0.5, -7, 1, -1], np.float32)
    given, signs = (transitions | {"reward": values} for values in (rewards, np.sign(rewards)))
    assert_array_equal(learner.priorities(given), learner.priorities(signs))


def test_the_default_is_dense_where_it_can_learn():
    assert "dense" in names()
    assert default(CARTPOLE) == "dense"
    assert default(CARTPOLE, "cuda") == default(load("pong_dqn")) == "torch"
    assert make(CARTPOLE).implementation == "dense"


def test_what_it_cannot_do_is_one_sentence_with_the_remedy(monkeypatch):
    with pytest.raises(TrainingError, match="the learner dense has no convolutions; choose --learner torch"):
        make(load("pong_dqn"), "dense")
    with pytest.raises(TrainingError, match="computes on the cpu, not on cuda; choose --learner torch"):
        make(CARTPOLE, "dense", device="cuda")
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(TrainingError, match="needs the package numba, which is not installed; install the extra"):
        make(CARTPOLE, "dense")


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("count", (1, 5))
def test_weights_of_another_number_are_refused_and_change_nothing(name, count):
    learner = make(CARTPOLE, name, seed=1)
    before = learner.weights()
    with pytest.raises(ValueError, match=f"weights of cartpole_dqn are 17,410, not {count}"):
        learner.load_weights(np.zeros(count, np.float32))
    assert_array_equal(learner.weights(), before)


def test_of_equal_action_values_the_first_is_taken():
    shape = workload("dqn", size=5)
    for learner in (make(shape, name) for name in names()):
        learner.load_weights(np.zeros_like(learner.weights()))
        assert (learner.act(np.ones((3, 3), np.float32), 0.0, None) == 0).all()


def test_critics_of_equal_value_share_the_slope_of_sacs_policy():
    shape = workload("sac")
    parts, means = spans(shape), []
    for name in ("dense", "torch"):
        learner = make(shape, name, seed=1)
        weights = learner.weights()
        first, second = np.split(weights[parts["critic"]], 2)
        second[:] = first
        learner.load_weights(weights)
        ((transitions, _),) = batches(shape)
        learner.step(transitions, np.zeros(len(transitions["reward"]), np.float32))  # which leaves the critics as is
        means.append(learner.state_dict()["mean"][parts["policy"]])
    assert_allclose(*means, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["cartpole_dqn", "cartpole_ddpg", "hopper_td3", "hopper_sac"])
def test_what_actors_and_learners_call_is_compiled_before_they_are_started(name, monkeypatch):
    """Many processes that start at once would each compile the same; here as in ``Actor`` and in a gradient step."""
    workload, asked = load(name), set()

    def run(compile_it, signature):
        asked.add((compile_it.__self__.__name__, signature))
        return compile_it(signature)

    monkeypatch.setattr(calling.compiler, "run", run)
    prepare(workload, "dense")
    prepared, begun = set(asked), Actor(workload, 0, 0)
    asked.clear()
    policy, rng = make(workload, "dense"), default_rng(0)
    turns = [begun.step(policy, 1.0, False) for _ in range(workload.actors.local_storage * 3)]
    begun.close()
    buffer = SerialLoop(workload, contestant="numpy").buffer
    for turn in turns:
        if turn.inserted:
            records, _, drawable = turn.inserted
            buffer.insert(records, None, drawable)
    batch = buffer.sample(4, 0.4, rng)
    policy.priorities(batch.rows)
    policy.step(batch.rows, batch.weights)
    rows = policy.rows(batch.rows, batch.weights)
    for phase in policy.phases():
        policy.apply(phase, policy.gradient(phase, rows).gradient.copy())
    policy.move_targets(0.5)
    assert asked <= prepared
    assert prepared
