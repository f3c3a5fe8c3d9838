"""Networks as matrix products: counts that are known, shapes that fit, and a sentence for every text that cannot be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.fpga.network import NAMED, Layer, parse


@pytest.mark.parametrize(
    ("name", "parameters", "macs"),
    [
        ("cartpole", 137, 120),
        ("hopper", 70_145, 69_632),
        ("pong", 4_800_166, 18_713_600),
        ("nature", 1_687_206, 9_346_048),
        ("mnih2013", 677_686, 2_967_040),
    ],
)
def test_named_networks_have_their_known_counts(name, parameters, macs):
    network = parse(name)
    assert (network.parameters, network.macs) == (parameters, macs)


def test_shapes_of_the_dissertations_table_5_1():
    shapes = [(layer.channels, layer.height, layer.width) for layer in parse("pong").layers]
    assert shapes == [(4, 84, 84), (32, 22, 22), (64, 12, 12), (9216, 1, 1), (512, 1, 1)]


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3),
    st.integers(0, 2),
)  # fmt: skip
def test_a_convolution_is_the_product_its_gemm_says(channels, filters, height, width, kernel, stride, padding):
    """Every product is counted by walking over the image."""
    if kernel > min(height, width) + 2 * padding:
        with pytest.raises(ValueError, match="larger than"):
            Layer(channels, filters, height, width, kernel, stride, padding)
        return
    layer = Layer(channels, filters, height, width, kernel, stride, padding)
    rows = range(0, height + 2 * padding - kernel + 1, stride)
    columns = range(0, width + 2 * padding - kernel + 1, stride)
    assert layer.image == (len(rows), len(columns))
    positions = len(rows) * len(columns)
    weights = np.zeros((filters, channels, kernel, kernel))
    for product in (layer.forward, layer.backward, layer.weight_gradient):
        assert product.macs == positions * weights.size
    assert layer.parameters == weights.size + filters
    assert layer.forward.rows * layer.forward.columns == layer.outputs
    assert layer.weight_gradient.rows * layer.weight_gradient.columns == weights.size


def test_a_dense_layer_takes_what_a_convolution_leaves():
    network = parse("conv:2x5x5-3k3-7")
    assert network.layers[1] == Layer(3 * 3 * 3, 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cartpol", "did you mean cartpole"),
        ("", "no network named ''"),
        ("rnn:6-8", "no network named 'rnn:6-8'"),
        ("mlp:6", "has no layers"),
        ("mlp:6-x-1", "layer 'x' .*: 'x' is no number of neurons"),
        ("mlp:6-0-1", "'0' is no number of neurons"),
        ("mlp:6-99999999-1", "from 1 to 9,999,999"),
        ("mlp:6-32k3-1", "'32k3' is no number of neurons"),
        ("conv:84x84-32k8-1", "begins with '84x84', not with an image"),
        ("conv:1x4x4-3k8-1", "a kernel of 8 is larger than its 4 x 4 image"),
        ("conv:1x4x4-3k2s0-1", "stride must be at least 1, not 0"),
        ("conv:0x4x4-3", "channels must be at least 1"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(text, said):
    with pytest.raises(ValueError, match=said):
        parse(text)


@given(st.one_of(st.text(max_size=20), st.text("0123456789kspx-", max_size=20).map("conv:1x9x9-".__add__)))
def test_any_text_is_a_network_or_a_sentence(text):
    try:
        network = parse(text)
    except ValueError as error:
        assert str(error)
    else:
        assert network.macs > 0
        assert text.startswith(("mlp:", "conv:")) or text in NAMED
