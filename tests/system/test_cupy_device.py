"""The GPU tree on a real device."""

import numpy as np
import pytest

import impls
from benchmarks.cases import Case, prepare
from benchmarks.topics import gpu
from tests.walk import Placing, walk

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(impls.why_not("cupy") is not None, reason=str(impls.why_not("cupy")))]
OPTIONS = [
    {},
    {"propagate": "delta"},
    {"lanes": 1, "fused": False},
    {"lanes": 32, "fused": False},
    {"lanes": 16, "fused": True, "aligned": False},
]


@pytest.mark.parametrize("placed", [True, False], ids=["device", "host"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("capacity", "fanout"), [(1, 2), (257, 16), (1000, 7), (5000, 64), (100_000, 16)])
def test_walk(capacity, fanout, options, placed):
    tree = impls.make("cupy", capacity, fanout=fanout, **options)
    exact = "propagate" not in options
    walk(Placing(tree) if placed else tree, seed=capacity, steps=200, integers=False, exact=exact)


@pytest.mark.parametrize("fused", [True, False])
def test_large_batches_give_the_oracles_sums(fused):
    rng = np.random.default_rng(3)
    device, host = impls.make("cupy", 1_000_000, fused=fused), impls.make("numpy", 1_000_000)
    for _ in range(20):
        indices, values = rng.integers(0, 1_000_000, 65_536), rng.integers(0, 100, 65_536)
        device.update(indices, values)
        host.update(indices, values)
    uniforms = rng.random(65_536)
    assert device.check() == 0.0
    assert device.total() == host.total()
    assert np.array_equal(impls.to_numpy(device.sample(uniforms)[0]), host.sample(uniforms)[0])


def test_subnormal_priorities_are_kept_and_drawn():
    tree = impls.make("cupy", 10)
    tree.update([4], [1e-40])
    assert impls.to_numpy(tree.get([4])).tolist() == [float(np.float32(1e-40))]
    assert impls.to_numpy(tree.sample([0.5])[0]).tolist() == [4]


def test_what_the_device_refuses_is_named_and_changes_nothing():
    tree = impls.make("cupy", 10)
    tree.update(np.arange(10), np.arange(10.0))
    with pytest.raises(ValueError, match="nan at position 1"):
        tree.update(tree.place(np.array([1, 2])), tree.place(np.array([1.0, np.nan])))
    assert (tree.total(), tree.check()) == (45.0, 0.0)


def test_an_unchecked_draw_from_an_empty_tree_is_told_of_at_the_next_wait():
    tree = impls.make("cupy", 10, validate=False)
    assert impls.to_numpy(tree.sample(tree.place(np.array([0.5])))[0]).tolist() == [-1]
    with pytest.raises(RuntimeError, match="nothing to sample"):
        tree.synchronize()


@pytest.mark.parametrize("op", ["draw", "update"])
def test_a_captured_graph_is_as_right_as_its_calls(op):
    prepared = prepare(Case("cupy", op, 10_000, 256, options={"validate": False}))
    clock = gpu.GraphClock(prepared.call, 64)
    assert clock.sample() > 0
    assert prepared.tree.check() == 0.0
