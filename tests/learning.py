"""Tiny workloads and batches for the tests of learners, and forward passes in NumPy float64 to hold them to."""

import dataclasses

import numpy as np

from impls.training import load

ALGORITHMS = ("dqn", "ddpg", "td3", "sac")


def tiny(algorithm="dqn", hidden=(3,), **changes):
    """A workload of two observed numbers; ``changes`` go to the table that has such a key."""
    shipped = {"ddpg": "cartpole_ddpg", "td3": "hopper_ddpg", "sac": "hopper_sac", "a3c": "cartpole_a3c"}
    base = load(shipped.get(algorithm, "cartpole_dqn"))
    action = {"choices": 3, "size": 0} if base.has_choices else {"choices": 0, "size": 2}
    tables = {
        "observation": {"shape": (2,)},
        "action": action,
        "network": {"hidden": hidden},
        "learner": {"batch": 4, "gradient_clip": 0.0, "loss": "squared", "target_interval": 1, "tau": 0.5},
    }
    top = {"algorithm": algorithm}
    for key, value in changes.items():
        holder = next(
            (field.name for field in dataclasses.fields(base) if hasattr(getattr(base, field.name), key)), None
        )
        if holder in (None, "name") or hasattr(base, key):
            top[key] = value
        else:
            tables.setdefault(holder, {})[key] = value
    parts = {name: dataclasses.replace(getattr(base, name), **table) for name, table in tables.items()}
    return dataclasses.replace(base, **parts, **top)


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


def critic(weights, observations, actions, prefix=""):
    """``[B]``."""
    return dense(weights, prefix, np.concatenate((observations, actions), 1))[:, 0]


def gaussian(weights, observations, noise):
    """(actions ``[B, A]``, log density ``[B]``) of a squashed Gaussian, by the textbook's formula."""
    mean, log_deviation = np.split(dense(weights, "", observations), 2, 1)
    log_deviation = -5 + 7 * (np.tanh(log_deviation) + 1) / 2
    actions = np.tanh(mean + np.exp(log_deviation) * noise)
    density = -(noise**2) / 2 - log_deviation - np.log(2 * np.pi) / 2 - np.log(1 - actions**2)
    return actions, density.sum(1)


def slopes(loss, weights, step=1e-6):
    """Central differences of a scalar loss by each weight, in float64."""
    found = {}
    for name, value in weights.items():
        found[name] = np.empty_like(value)
        for at in np.ndindex(value.shape):
            sides = []
            for sign in (1, -1):
                moved = value.copy()
                moved[at] += sign * step
                sides.append(loss(weights | {name: moved}))
            found[name][at] = (sides[0] - sides[1]) / (2 * step)
    return found
