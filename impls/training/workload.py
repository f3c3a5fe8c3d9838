"""A workload: environment, algorithm, networks, replay, actors, and every number that decides how fast they train.

The fields are the keys of a workload file, each with its range and its meaning. Nothing here needs an environment or a
network: the spaces are stated, and compared with the environment's own when one is made.
"""

import dataclasses
import hashlib
import json
import re
from dataclasses import MISSING, dataclass, field
from typing import Any

from ..strict_toml import key
from .algorithm import ALGORITHMS, Algorithm

DTYPES = ("float32", "uint8")
OPTIMIZERS = ("adam", "sgd")
MOST = 1 << 40  # largest count
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
RESULTS_ALONE = ("name", "note", "steps", "seeds", "evaluation")  # keys that no primitive's time depends on

_BOTH = ("memr", "mbpo")  # algorithms that learn from rollouts of a model

SOFT_TAU, COPY_TAU = 0.005, 1.0
"""Defaults of tau: at a target_interval of 1, as TD3 and SAC were published, and at a larger one."""


def whole(meaning: str, low: int = 1, high: int = MOST, default: Any = MISSING, **rules: Any) -> Any:
    """A whole number in [low, high]. Rules of any key: ``otherwise`` describes the default where its value alone does
    not; ``option`` is the word for its value on the command line, where it is an option called ``named``; ``only``
    names the algorithms that have the key.
    """
    return key("a whole number", default, help=meaning, low=low, high=high, **rules)


def real(meaning: str, low: float, high: float, default: Any = MISSING, **rules: Any) -> Any:
    """A number in [low, high], or (low, high] where it must be ``above`` low."""
    return key("a number", default, help=meaning, low=low, high=high, **rules)


def wholes(meaning: str, low: int, high: int, most: int, default: Any = MISSING) -> Any:
    """An array of 1 to ``most`` whole numbers in [low, high]."""
    return key("an array of whole numbers", default, help=meaning, low=low, high=high, most=most)


def text(meaning: str, choices: tuple[str, ...] = (), default: Any = MISSING, **rules: Any) -> Any:
    """Printable text, one of ``choices`` if there are any."""
    return key("text", default, help=meaning, choices=choices, **rules)


def flag(meaning: str, default: bool, **rules: Any) -> Any:
    """A truth value: true or false."""
    return key("true or false", default, help=meaning, **rules)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Observations of the environment."""

    shape: tuple[int, ...] = wholes(
        "sizes of an observation or a frame; [n] for one of n choices, which is one-hot", 1, 4096, 3
    )
    dtype: str = text("type of its values in the replay buffer", DTYPES, "float32")
    frames: int = whole("frames stacked into an observation; a record then stores one frame alone", 1, 16, 1)

    @property
    def stacked(self) -> tuple[int, ...]:
        """Shape of what a network takes."""
        return (self.frames, *self.shape) if self.frames > 1 else self.shape


@dataclass(frozen=True, kw_only=True)
class Action:
    """Actions that the environment takes: one of choices, or size numbers."""

    choices: int = whole("actions to choose from", 2, 4096, 0, otherwise="needed, or else size")
    size: int = whole(
        "numbers of an action, each in [-1, 1] and stretched to the environment's bounds",
        *(1, 4096, 0),
        otherwise="needed, or else choices",
    )


@dataclass(frozen=True, kw_only=True)
class Network:
    """The networks, all of one shape."""

    kind: str = text(
        "mlp: dense layers; convolution: those of [Zhang2022, Table 5.1], then dense ones",
        ("mlp", "convolution"),
        "mlp",
    )
    hidden: tuple[int, ...] = wholes("units of each hidden dense layer", 1, 65536, 16)
    dueling: bool = flag("dqn: a value and advantages instead of action values at once", False)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Gradient steps and their hyperparameters."""

    batch: int = whole("B, records of a gradient step", 1, 1 << 20, option="B")
    update_interval: int = whole("environment steps for each gradient step", 1)
    learning_starts: int = whole("environment steps before the first gradient step")
    gamma: float = real("discount", 0, 1, 0.99)
    optimizer: str = text("optimizer of every network: Adam, or plain gradient descent", OPTIMIZERS, "adam")
    learning_rate: float = real("step size of the optimizer", 0, 1, 1e-3, above=True)
    policy_learning_rate: float = real("step size of the policy's optimizer; 0 takes learning_rate", 0, 1, 0.0)
    loss: str = text(
        "loss of a TD error: half its square, or Huber's with its bend at 1", ("squared", "huber"), "squared"
    )
    gradient_clip: float = real("largest norm of a gradient; 0 leaves it as it is", 0, 1e9, 0.0)
    target_interval: int = whole("gradient steps from one target update to the next", 1, MOST, 1)
    tau: float = real(
        "share of the trained weights in a target update; 1 copies them",
        *(0, 1, 0.0),
        above=True,
        otherwise=f"default {SOFT_TAU:g} where target_interval is 1, else {COPY_TAU:g}",
    )
    double: bool = flag("dqn: the trained network chooses the next action, the target network values it", True)
    policy_delay: int = whole("td3: gradient steps of the critics for one of the policy", 1, MOST, 2)
    target_noise: float = real("td3: standard deviation of the noise on the target's action", 0, 10, 0.2)
    noise_clip: float = real("td3: bound of that noise", 0, 10, 0.5)
    temperature: float = real("sac: weight of the entropy; 0 tunes it", 0, 100, 0.0)
    entropy: float = real("a3c: weight of the policy's entropy", 0, 100, 0.01)
    gae_lambda: float = real("a3c: decay of later TD errors in an advantage; 1: returns of n steps", 0, 1, 1.0)

    def __post_init__(self) -> None:
        """Set the default tau, which depends on target_interval."""
        if not self.tau:
            object.__setattr__(self, "tau", SOFT_TAU if self.target_interval == 1 else COPY_TAU)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The prioritized replay buffer."""

    capacity: int = whole("N, records", 1, 1 << 33, 0, otherwise="needed, but for a3c, which has no replay")
    fanout: int = whole("K, children of a node of the sum tree", 2, 1 << 20, 16, option="K")
    alpha: float = real("exponent of a priority; 0 samples uniformly", 0, 4, 0.6, option="ALPHA")
    beta: float = real("exponent of the importance weights", 0, 4, 0.4)
    beta_end: float = real("beta at the last step, linear in between; 0 keeps beta as it is", 0, 4, 0.0)
    epsilon: float = real("number added to |TD error| before alpha", 0, 1e6, 1e-3, above=True)
    initial_priority: str = text(
        "priority of a new record: the largest seen, or from the actor's own TD error", ("max", "td_error"), "max"
    )
    presampled: int = whole("D, batches sampled ahead of the gradient step; 0 for none", 0, 65536, 0, option="D")


@dataclass(frozen=True, kw_only=True)
class Model:
    """The model of the environment that some algorithms learn: from state and action to next state, reward and end."""

    kind: str = text(
        "mlp: dense layers; parted: one each for state and action first; ensemble: of Gaussians",
        *(("mlp", "parted", "ensemble"), "mlp"),
    )
    members: int = whole("E, networks of an ensemble", 1, 64, 5)
    hidden: tuple[int, ...] = wholes("units of each hidden layer", 1, 65536, 16, (64, 64))
    learning_rate: float = real("step size of its optimizer, Adam", 0, 1, 1e-3, above=True)
    batch: int = whole("records of one of its gradient steps, for each network", 1, 1 << 20, 64)
    interval: int = whole("memr, mbpo: environment steps from one of its trainings to the next", 1, MOST, 1, only=_BOTH)
    rollouts: int = whole("memr, mbpo: M, rollouts that begin in an environment step", 1, 1 << 20, 64, only=_BOTH)
    horizon: int = whole("mbpo: k, steps of a rollout", 1, 1_000, 1, only=("mbpo",))
    segments: int = whole(
        "memr, mbpo: K, environment steps whose rollouts are kept, each a segment of memr",
        *(1, 1 << 20, 1_000),
        only=_BOTH,
    )
    epochs: int = whole("memr: D, steps of the density of actions on each segment", 1, 1_000, 5, only=("memr",))
    updates: int = whole("memr, mbpo: G, gradient steps for each environment step", 1, 1_000, 1, only=_BOTH)


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Exploration around the policy: the chance of a random action (dqn), or the noise's deviation (ddpg, td3)."""

    start: float = real("value at the first step", 0, 10, 1.0)
    end: float = real("value at the last step of the schedule and from there on", 0, 10, 0.05)
    steps: int = whole("steps of the schedule, linear in between", 1, MOST, 1)
    random_steps: int = whole("environment steps of random actions before all else", 0, MOST, 0)


@dataclass(frozen=True, kw_only=True)
class Actors:
    """Actors that step the environments."""

    count: int = whole(
        "actors, each with environments of its own, stepping in turn", *(1, 4096, 1), option="A", named="actors"
    )
    environments: int = whole("E, environments of an actor, which it steps at once", 1, 4096, 1, option="E")
    local_storage: int = whole("records of an environment that are collected before they are inserted", 1, 1 << 20, 1)
    sync_interval: int = whole("T_sync: steps of an actor from one fetch of the weights to the next", 1, MOST, 1)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Episodes without exploration, in an environment of their own."""

    interval: int = whole("environment steps from one evaluation to the next", 1)
    episodes: int = whole("episodes of an evaluation, each of at most 1,000,000 steps", 1, 10_000, 10)
    solved: float = real("mean return from which the environment counts as solved", -1e9, 1e9, 1e9)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """All of a workload file."""

    name: str = text("name in results", pattern=NAME, called="of at most 64 letters, digits, _ and -")
    note: str = text("purpose, and the source of its numbers", default="")
    environment: str = text("name in gymnasium; module:Name imports the module, whose code then runs")
    clip_rewards: bool = flag("learn from the sign of a reward alone", False)
    algorithm: str = text("algorithm of the learner", tuple(ALGORITHMS))
    steps: int = whole("environment steps of a run", option="S")
    seeds: tuple[int, ...] = wholes("seeds of the runs in results", 0, 1 << 32, 1000, (0,))
    observation: Observation
    action: Action
    network: Network
    learner: Learner
    replay: Replay = field(default_factory=Replay)
    model: Model = field(default_factory=Model)
    exploration: Exploration = field(default_factory=Exploration)
    actors: Actors = field(default_factory=Actors)
    evaluation: Evaluation

    @property
    def traits(self) -> Algorithm:
        """The row of its algorithm."""
        return ALGORITHMS[self.algorithm]

    @property
    def family(self) -> str:
        """The algorithm whose networks, actions and gradient steps it has."""
        return self.traits.family

    @property
    def has_choices(self) -> bool:
        """Whether an action is one of choices to the learner, not numbers."""
        return self.traits.has_choices

    @property
    def action_size(self) -> int:
        """Outputs of the policy, or of the action values.

        A continuous algorithm on an environment of choices has one number in [-1, 1] as its action, cut into as many
        equal intervals as there are choices (so [Zhang2023] trains CartPole, |A| = 1, by DDPG).
        """
        if self.has_choices:
            return self.action.choices
        return self.action.size or 1


def identity(workload: Workload) -> str:
    """Hash of all that a primitive's time may depend on: 8 hexadecimal digits, under which profiles record times."""
    fields = {key: value for key, value in dataclasses.asdict(workload).items() if key not in RESULTS_ALONE}
    if workload.actors.environments == 1:  # as of records made before there was the key
        del fields["actors"]["environments"]
    if workload.learner.optimizer == "adam":
        del fields["learner"]["optimizer"]
    if workload.traits.has_replay:
        del fields["learner"]["entropy"], fields["learner"]["gae_lambda"]
    if not workload.traits.has_model:
        del fields["model"]
    for name in ("kind", "members", "horizon") if workload.traits.has_model else ():
        if fields["model"][name] == getattr(Model(), name):
            del fields["model"][name]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]
