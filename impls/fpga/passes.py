"""Stages of a learner's pipeline: the passes of a gradient step through its networks, by algorithm.

Each pass has a stage for each layer. FW is forward; LOSS compares outputs with targets; BW is backward to the inputs of
every layer but the first, and to the actions among the first layer's inputs where the policy learns from them; WA are
the gradients of the weights. All passes of a gradient step use the weights from before it.
"""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .network import Gemm, Layer, Network


class Pass(NamedTuple):
    """``kinds`` of stages through the ``layers`` of a ``network``, which begin when the passes ``after`` have ended.

    Passes of one ``name`` follow one another. ``actions``: how many inputs BW goes on to, the actions.
    """

    name: str
    network: str
    kinds: tuple[str, ...]
    after: str = ""
    actions: int = 0
    layers: tuple[Layer, ...] = ()


ALONE = Pass("", "value", ("FW", "LOSS", "BW", "WA"))
"""One network and no target: the pipeline of [Zhang2023, Fig. 3]."""
DQN = (Pass("target", "value", ("FW",)), ALONE)
DOUBLE_DQN = (Pass("next", "value", ("FW",)), *DQN)
"""The trained network chooses among the next states' actions, and the target values that choice."""
ACTOR_CRITIC = (
    Pass("next policy", "policy", ("FW",)),
    Pass("target critic", "critic", ("FW",), after="next policy"),
    Pass("critic", "critic", ALONE.kinds, after="next policy"),
    Pass("policy", "policy", ("FW",)),
    Pass("action's critic", "critic", ("FW", "BW"), after="policy", actions=1),
    Pass("policy", "policy", ("BW", "WA"), after="action's critic"),
)
"""DDPG, TD3 and SAC; the passes of a critic are there for each, but that TD3's policy learns from one critic alone. The
next action is the target policy's, of SAC the policy's own; noise and entropy take no multiply-accumulate."""


@dataclass(frozen=True)
class Stage:
    """A tensor unit: ``kind`` is "FW", "LOSS", "BW" or "WA", ``layer`` counts from 1 (0 for the loss).

    ``depth``: in which round of its pipeline a sample is there, from 1. ``words``: weights or gradients that it keeps.
    ``network``: whose weights they are, or whose target's. ``positions``: how often a sample uses each.
    """

    kind: str
    layer: int
    gemm: Gemm
    name: str
    depth: int
    words: int
    network: str
    positions: int

    def __str__(self) -> str:
        return " ".join(filter(None, [self.name, self.kind, str(self.layer or "")]))


@dataclass(frozen=True)
class Step(Network):
    """The passes of a gradient step; ``layers`` are those of the networks that it trains."""

    passes: tuple[Pass, ...]

    __hash__ = Network.__hash__  # of the layers; equal where everything is


def make_step(
    name: str, networks: Mapping[str, Network], critics: int = 1, judges: int = 1, double: bool = False
) -> Step:
    """Make the gradient step of an algorithm: actor-critic for a "critic" and a "policy", DQN for a "value" network.

    ``critics``: how many, each with a target and with actions among its inputs; ``judges``: from how many of them the
    policy learns. ``double``: of DQN, that the trained network chooses the next action.
    """
    passes, trained = list[Pass](), dict[str, tuple[Layer, ...]]()
    for row in ACTOR_CRITIC if "policy" in networks else DOUBLE_DQN if double else DQN:
        layers, count = networks[row.network].layers, critics if row.network == "critic" else 1
        actions = layers[0].inputs - networks["policy"].layers[0].inputs if row.actions else 0
        for mark in ("", *(f" {number}" for number in range(2, 1 + (judges if row.actions else count)))):
            trained[row.network + mark] = layers
            passes.append(Pass(row.name + mark, row.network + mark, row.kinds, row.after, actions, layers))
    return Step(name, tuple(itertools.chain(*trained.values())), tuple(passes))


def list_passes(network: Network) -> tuple[Pass, ...]:
    """List the passes of a gradient step, or the one of a network alone."""
    return network.passes if isinstance(network, Step) else (ALONE._replace(layers=network.layers),)


@functools.cache
def stages(network: Network) -> tuple[Stage, ...]:
    """Return the stages of a pipeline, pass after pass: 3 L for a network of L layers alone.

    LOSS counts as one MAC per output.
    """
    ends, found = dict[str, int](), list[Stage]()
    for row in list_passes(network):
        # Invariant: ends has the depth at which every pass before this one ends, by its name.
        before = [name for name in ends if name == row.name or (row.after and name.startswith(row.after))]
        depth, numbered = max((ends[name] for name in before), default=0), [*enumerate(row.layers, 1)]
        backward = numbered[:0:-1] if not row.actions else numbered[::-1]
        order = {"FW": numbered, "LOSS": [(0, row.layers[-1])], "BW": backward, "WA": numbered[::-1]}
        for kind, (number, layer) in ((name, numbered) for name in row.kinds for numbered in order[name]):
            depth += 1
            is_first = kind == "BW" and number == 1
            gemms = {"FW": layer.forward, "LOSS": Gemm(1, layer.outputs, 1), "WA": layer.weight_gradient}
            gemm = Gemm(1, row.actions, layer.filters) if is_first else gemms.get(kind, layer.backward)
            words = row.actions * layer.filters if is_first else layer.parameters if number else 0
            found.append(Stage(kind, number, gemm, row.name, depth, words, row.network, layer.positions))
        ends[row.name] = depth
    return tuple(found)
