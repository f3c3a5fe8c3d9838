"""The GPU tree on a real device."""

import numpy as np
import pytest

import impls
from tests.walk import walk

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(impls.why_not("cupy") is not None, reason=str(impls.why_not("cupy"))),
]
OPTIONS = [
    {},
    {"propagate": "delta"},
    {"lanes": 1, "fused": False},
    {"lanes": 32, "fused": False},
    {"lanes": 16, "fused": True, "aligned": False},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("capacity", "fanout"), [(1, 2), (257, 16), (1000, 7), (5000, 64), (100_000, 16)])
def test_walk(capacity, fanout, options):
    tree = impls.make("cupy", capacity, fanout=fanout, **options)
    walk(tree, seed=capacity, steps=200, integers=False, exact="propagate" not in options)


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
