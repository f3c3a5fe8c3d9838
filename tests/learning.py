"""Tiny workloads and batches for tests of learning, and passes in NumPy float64 and states to hold learners to."""

import contextlib
import copy
import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_equal

from impls.training import TrainingError, load

ALGORITHMS = ("dqn", "ddpg", "td3", "sac")


@contextlib.contextmanager
def refused(facts):
    """See that what follows raises TrainingError, in one line that has these facts."""
    with pytest.raises(TrainingError) as caught:
        yield
    said = str(caught.value)
    assert ([fact for fact in facts.split() if fact not in said], said.count("\n")) == ([], 0), said


def change(base, **changes):
    """Change the keys of a workload, each in the first table that has such a key, or in the workload's own."""
    tables = {name: table for name, table in vars(base).items() if dataclasses.is_dataclass(table)}
    for key in changes.keys() - vars(base).keys():
        name = next(name for name, table in tables.items() if hasattr(table, key))
        tables[name] = dataclasses.replace(tables[name], **{key: changes[key]})
    own = {key: value for key, value in changes.items() if hasattr(base, key)}
    return dataclasses.replace(base, **tables | own)


def tiny(algorithm="dqn", hidden=(3,), **changes):
    """A workload of two observed numbers; ``changes`` go to the table that has such a key."""
    shipped = {"ddpg": "cartpole_ddpg", "td3": "hopper_ddpg", "sac": "hopper_sac", "a3c": "cartpole_a3c"}
    base = load(shipped.get(algorithm, "cartpole_dqn"))
    action = {"choices": 3, "size": 0} if base.has_choices else {"choices": 0, "size": 2}
    plain = {"batch": 4, "gradient_clip": 0.0, "loss": "squared", "target_interval": 1, "tau": 0.5}
    return change(base, **{"algorithm": algorithm, "shape": (2,), "hidden": hidden, **action, **plain, **changes})


def batch_of(workload, size=4, seed=0):
    """Random transitions ``[B, ...]``, some of which terminated."""
    rng, shape = np.random.default_rng(seed), (size, *workload.observation.stacked)
    action = rng.integers(3, size=size) if workload.has_choices else rng.uniform(-1, 1, (size, 2))
    return {
        "observation": rng.standard_normal(shape).astype(np.float32),
        "next_observation": rng.standard_normal(shape).astype(np.float32),
        "action": action.astype(np.uint8 if workload.has_choices else np.float32),
        "reward": rng.standard_normal(size).astype(np.float32),
        "terminated": np.arange(size) % 3 == 0,
    }


def weights_of(module):
    """Every weight of a module by its name, float64."""
    return {name: value.detach().numpy().astype(np.float64) for name, value in module.state_dict().items()}


def dense(weights, prefix, inputs):
    """Dense layers with ReLU between them, ``[B, inputs]`` to ``[B, outputs]``."""
    names = [name for name in weights if name.startswith(f"{prefix}dense.") and name.endswith("weight")]
    for at, name in enumerate(names):
        inputs = inputs @ weights[name].T + weights[name.replace("weight", "bias")]
        if at < len(names) - 1:
            inputs = np.maximum(inputs, 0)
    return inputs


def slope(loss, value, step=1e-6):
    """Central differences of a scalar loss by each number of an array, in float64."""
    found = np.empty_like(value)
    for at in np.ndindex(value.shape):
        sides = []
        for sign in (1, -1):
            moved = value.copy()
            moved[at] += sign * step
            sides.append(loss(moved))
        found[at] = (sides[0] - sides[1]) / (2 * step)
    return found


def assert_goes_on(first, second, advance, turns):
    """Load the state of a loop, learner or actor into a second, and see both go on alike, bit for bit."""
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for _ in range(turns):
        assert_equal(advance(first), advance(second))
    assert_equal(first.state_dict(), second.state_dict())
