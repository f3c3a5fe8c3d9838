"""Layers of a neural network as matrix products: parameters and multiply-accumulates (MACs) from their shapes.

A convolution is a product by im2col: a row for each output position, with the inputs that its kernel covers. A dense
layer is a convolution with one position. An accumulator starts from its bias, so that biases cost no MAC.
"""

import functools
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from ..checks import closest

COUNT = r"(\d{1,7})"
IMAGE = re.compile(f"{COUNT}x{COUNT}x{COUNT}")
CONVOLUTION = re.compile(f"{COUNT}k{COUNT}(?:s{COUNT})?(?:p{COUNT})?")
NAMED = {
    "cartpole": "mlp:6-8-8-1",  # [Zhang2023, Table III]: the critic of DDPG, |S| + |A| + 1 = 4 + 1 + 1 inputs there
    "hopper": "mlp:15-256-256-1",  # the same, 11 + 3 + 1 inputs
    "pong": "conv:4x84x84-32k8s4p4-64k4s2p2-64k3p1-512-6",  # [Zhang2022, Table 5.1], with Pong's 6 actions
    "nature": "conv:4x84x84-32k8s4-64k4s2-64k3-512-6",  # [Mnih2015]: the same without padding
    "mnih2013": "conv:4x84x84-16k8s4-32k4s2-256-6",  # [Mnih2013], which is "ConvNet in [14]" of [Zhang2023, Table III]
}
SYNTAX = (
    "mlp:IN-HIDDEN-...-OUT, or conv:CxHxW-FkKsSpP-...-OUT with F filters of K x K, stride S (1) and padding P (0), or "
    f"one of {', '.join(NAMED)}"
)


class Gemm(NamedTuple):
    """A matrix product: each of ``rows`` x ``columns`` results accumulates ``depth`` products."""

    rows: int
    columns: int
    depth: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the product."""
        return self.rows * self.columns * self.depth


@dataclass(frozen=True)
class Layer:
    """``filters`` of ``kernel`` x ``kernel`` x ``channels`` over an image; by default a dense layer. ValueError for
    sizes below 1 and a kernel larger than the padded image."""

    channels: int
    filters: int
    height: int = 1
    width: int = 1
    kernel: int = 1
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        for name in ("channels", "filters", "height", "width", "kernel", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.kernel > min(self.height, self.width) + 2 * self.padding:
            raise ValueError(
                f"a kernel of {self.kernel} is larger than its {self.height} x {self.width} image padded by "
                f"{self.padding}"
            )

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of the output."""
        height, width = (
            (side + 2 * self.padding - self.kernel) // self.stride + 1 for side in (self.height, self.width)
        )
        return height, width

    @functools.cached_property
    def positions(self) -> int:
        """Positions of the kernel: each weight is used so often per sample."""
        return math.prod(self.image)

    @property
    def inputs(self) -> int:
        """Number of input activations, without padding."""
        return self.channels * self.height * self.width

    @property
    def outputs(self) -> int:
        """Number of output activations."""
        return self.filters * self.positions

    @functools.cached_property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return self.filters * (self.forward.depth + 1)

    @property
    def forward(self) -> Gemm:
        """The product that computes a sample's outputs."""
        return Gemm(self.positions, self.filters, self.channels * self.kernel**2)

    @property
    def backward(self) -> Gemm:
        """The product that computes gradients of a sample's inputs from those of its outputs."""
        return Gemm(self.positions, self.forward.depth, self.filters)

    @property
    def weight_gradient(self) -> Gemm:
        """The product that computes gradients of the weights from inputs and gradients of the outputs."""
        return Gemm(self.forward.depth, self.filters, self.positions)


@dataclass(frozen=True)
class Network:
    """A network: layers, each fed by the one before."""

    name: str
    layers: tuple[Layer, ...]

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:  # searches ask for it often; of whole numbers alone, so that it is the same everywhere
        return hash(self.layers)

    @functools.cached_property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a sample's forward pass."""
        return sum(layer.forward.macs for layer in self.layers)


def parse(text: str) -> Network:
    """The network of a text or a name. ValueError says what cannot be read.

    >>> cartpole = parse("mlp:6-8-8-1")
    >>> cartpole.parameters, cartpole.macs
    (137, 120)
    >>> parse("pong").macs
    18713600
    """
    kind, colon, shape = NAMED.get(text, text).partition(":")
    if not colon or kind not in ("mlp", "conv"):
        near = closest(text, NAMED)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"no network named {text!r}: {hint}write {SYNTAX}")
    first, *rest = shape.split("-")
    if not rest:
        raise ValueError(f"{text!r} has no layers: write {SYNTAX}")
    image = IMAGE.fullmatch(first) if kind == "conv" else None
    if kind == "conv" and not image:
        raise ValueError(f"{text!r} begins with {first!r}, not with an image CxHxW as in 4x84x84")
    channels, height, width = map(int, image.groups()) if image else (_neurons(text, first), 1, 1)
    layers: list[Layer] = []
    for token in rest:
        # Invariant: channels x height x width is the output of the layers so far.
        layer = _layer(text, token, kind, channels, height, width)
        layers.append(layer)
        channels, (height, width) = layer.filters, layer.image
    return Network(text, tuple(layers))


def _layer(text: str, token: str, kind: str, channels: int, height: int, width: int) -> Layer:
    match = CONVOLUTION.fullmatch(token) if kind == "conv" else None
    try:
        if match:
            filters, kernel, stride, padding = match.groups()
            return Layer(channels, int(filters), height, width, int(kernel), int(stride or 1), int(padding or 0))
        return Layer(channels * height * width, _neurons(text, token))
    except ValueError as error:
        raise ValueError(f"layer {token!r} of {text!r}: {error}") from None


def _neurons(text: str, token: str) -> int:
    if not re.fullmatch(COUNT, token) or int(token) < 1:
        raise ValueError(f"{token!r} is no number of neurons from 1 to 9,999,999; write {SYNTAX}")
    return int(token)
