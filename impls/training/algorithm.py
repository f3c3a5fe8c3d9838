"""The algorithms, a row each: their networks, actions and noise, and what trains them.

A new algorithm is a row here, a class of its losses in ``learners/torch_learner/losses.py`` and a workload; a dense
learner of it is one more file. Where it does more than a learner's gradient steps, its file is in ``algorithms``.
"""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """One algorithm. ``family`` names the losses, as a class in capitals, and the dense kernels that it is trained by.

    ``has_choices``: an action is one of choices, not numbers in [-1, 1]. ``has_policy``: it has critics and a policy,
    else one network of action values; ``critics`` are how many, ``outputs`` the policy's for each number of an action.
    ``targets``: networks that have a target. ``samples_by``: the noise by which it explores where it samples from its
    policy. ``noise``: random numbers of a gradient step for each number of an action and row; ``smooths`` the target's
    action by them. ``tunes``: there is a temperature. ``delays_policy``: the policy is trained every policy_delay-th
    step. ``has_replay``, ``has_model`` of the environment. ``trained_by``: arrangements, any by default. ``is_timed``:
    profiles time all its parts, and the solver answers for it (``dse/times/laws.py`` counts its passes).
    """

    family: str
    has_choices: bool = False
    has_policy: bool = True
    critics: int = 1
    outputs: int = 1
    targets: tuple[str, ...] = ()
    samples_by: Literal["", "normal", "gumbel"] = ""
    noise: int = 0
    smooths: bool = False
    tunes: bool = False
    delays_policy: bool = False
    has_replay: bool = True
    has_model: bool = False
    trained_by: tuple[str, ...] = ("serial", "apart", "pipelined", "copies", "nodes")
    is_timed: bool = False


_DQN = Algorithm(family="dqn", has_choices=True, has_policy=False, targets=("action_values",), is_timed=True)
_DDPG = Algorithm(family="ddpg", targets=("critic", "policy"), is_timed=True)
_TD3 = replace(_DDPG, family="td3", critics=2, noise=1, smooths=True, delays_policy=True)
_SAC = Algorithm(
    family="sac", critics=2, outputs=2, targets=("critic",), samples_by="normal", noise=2, tunes=True, is_timed=True
)
_ROLLING_OUT = replace(_SAC, has_model=True, trained_by=("serial",), is_timed=False)
ALGORITHMS = {
    "dqn": _DQN,
    "ddpg": _DDPG,
    "td3": _TD3,
    "sac": _SAC,
    "a3c": Algorithm(
        family="a3c", has_choices=True, samples_by="gumbel", has_replay=False, trained_by=("serial", "copies"),
    ),
    "dyna_q": replace(_DQN, has_model=True, trained_by=("copies",), is_timed=False),
    "memr": _ROLLING_OUT,
    "mbpo": _ROLLING_OUT,
}  # fmt: skip
TIMED = tuple(name for name, row in ALGORITHMS.items() if row.is_timed)
"""Algorithms that profiles time and the solver answers."""
