"""A multilayer perceptron on a slice of the flat vector of weights: dense layers with ReLU between them.

Activations are feature-major, ``[units, batch]``: a layer's rows follow the rows of the layer before it, from the
inputs to the outputs, so a pass is one array ``[sum of sizes, batch]``. ``sizes`` are the units of each layer, inputs
and outputs too. Weights lie layer by layer, ``[out, in]`` and then the bias ``[out]``.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .product import inside, multiply, turn

# NaN must go through every kernel as it does in torch, so no flag may assume that there is none.
LOOSE = {"reassoc", "contract"}


def initial(sizes: Sequence[int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Weights ``[P]`` of layers of these sizes, uniform in +-1/sqrt(inputs of the layer)."""
    layers = [rng.uniform(-1, 1, (a + 1) * b) / math.sqrt(a) for a, b in itertools.pairwise(sizes)]
    return np.concatenate(layers).astype(np.float32)


@inside(fastmath=LOOSE, error_model="numpy")
def forward(weights: Any, sizes: Any, layers: Any, columns: int) -> Any:
    """Fill the layers ``[sum of sizes, >= columns]`` from their inputs, the first rows; returns the outputs' rows."""
    at = row = 0
    for layer in range(len(sizes) - 1):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        last = layer == len(sizes) - 2
        bias = weights[at + inputs * outputs : at + (inputs + 1) * outputs]
        after = layers[row + inputs : row + inputs + outputs]
        multiply(weights[at : at + inputs * outputs].reshape(outputs, inputs), layers[row:], after, columns)
        for unit in range(outputs):
            values, shift = after[unit], bias[unit]
            for b in range(columns):
                value = values[b] + shift
                values[b] = np.float32(0) if value < 0 and not last else value
        at += (inputs + 1) * outputs
        row += inputs
    return layers[row:]


@inside(fastmath=LOOSE, error_model="numpy")
def backward(
    weights: Any, sizes: Any, layers: Any, slopes: Any, columns: int, turned: Any, gradient: Any, first: int
) -> None:
    """Derive a loss by the weights and by the inputs, given its derivatives by the outputs.

    ``layers`` are those that ``forward`` filled; ``slopes`` has the same shape, its last rows the derivatives by the
    outputs. Fills ``gradient``, shaped as the weights (none is wanted of an empty one), and the rows of ``slopes`` of
    the hidden layers and of the inputs from ``first`` on. ``turned`` is scratch ``[columns, largest size]``.
    """
    at, row = len(weights), sizes.sum() - sizes[-1]
    for layer in range(len(sizes) - 2, -1, -1):
        # Invariant: ``slopes`` holds the derivatives by all that comes after the layer.
        inputs, outputs = sizes[layer], sizes[layer + 1]
        at -= (inputs + 1) * outputs
        end, after = at + inputs * outputs, slopes[row : row + outputs]
        row -= inputs
        before, into = layers[row : row + inputs], slopes[row : row + inputs]
        if len(gradient):
            turn(before, columns, turned)
            multiply(after[:, :columns], turned, gradient[at:end].reshape(outputs, inputs), inputs)
            for unit in range(outputs):
                total, slope = np.float32(0), after[unit]
                for b in range(columns):
                    total += slope[b]
                gradient[end + unit] = total
        matrix = weights[at:end].reshape(outputs, inputs)
        if layer == 0:
            multiply(matrix[:, first:].T, after, into[first:], columns)
            return
        multiply(matrix.T, after, into, columns)
        for unit in range(inputs):
            slope, value = into[unit], before[unit]
            for b in range(columns):
                slope[b] = np.float32(0) if value[b] <= 0 else slope[b]


@inside()
def load(observations: Any, layers: Any, start: int) -> None:
    """Put observations ``[B, inputs]`` into the columns of the first rows, from ``start`` on."""
    for b in range(len(observations)):
        for i in range(observations.shape[1]):
            layers[i, start + b] = observations[b, i]


@inside()
def copy(source: Any, rows: int, target: Any) -> None:
    """target[:rows] = source[:rows], as far as the target has columns.

    With a slice numba compiles the text of its error, too, in seconds.
    """
    for i in range(rows):
        for b in range(target.shape[1]):
            target[i, b] = source[i, b]
