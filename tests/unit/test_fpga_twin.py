"""The FPGA tree is the hardware's twin: the same batches, the same leaves and sums, in the simulated hardware."""

import numpy as np
import pytest

import impls

pytest.importorskip("amaranth", reason="amaranth is not installed; it comes with the extra rtl")

from tests.oracles.rtl.simulate import simulate

FRACTION_BITS = 7


@pytest.mark.parametrize("micro", ["scan", "wide"])
@pytest.mark.parametrize(
    ("capacity", "fanout", "banks"), [(1, 2, 1), (300, 3, 1), (256, 16, 1), (97, 4, 2), (500, 8, 4)]
)
def test_the_twin_and_the_hardware_agree_bit_for_bit(capacity, fanout, banks, micro):
    options = {"leaf_bits": 18, "fraction_bits": FRACTION_BITS, "micro": micro, "banks": banks, "banking": "contiguous"}
    tree = impls.make("fpga", capacity, fanout=fanout, dtype="float64", **options)
    rng = np.random.default_rng(capacity)
    indices = np.append(rng.integers(0, capacity, 100), np.full(3, capacity - 1))
    priorities = rng.random(indices.size) * (rng.random(indices.size) < 0.8) * tree.largest_priority + 1e-9
    tree.update(indices, priorities)
    masses = rng.random(64) * tree.total()

    quanta = np.rint(tree.rounded(priorities) * 2**FRACTION_BITS).astype(int).tolist()
    updates = list(zip(indices.tolist(), quanta, strict=True))
    run = simulate(tree.design, updates=updates, masses=np.floor(masses * 2**FRACTION_BITS).astype(int).tolist())
    assert list(run.leaves) == tree.prefix_sum_index(masses).tolist()
    assert sum(bank[-1][0] for bank in run.tree) == tree.total() * 2**FRACTION_BITS
    if banks == 1:
        levels = zip(run.tree[0], tree._levels, strict=True)
        assert all(list(held) == twin[: len(held)].tolist() for held, twin in levels)
