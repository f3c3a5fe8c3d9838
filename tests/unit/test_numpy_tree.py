"""Where the NumPy tree's groups lie in memory."""

import pytest

import impls


def addresses(tree):
    return [(level.ctypes.data, level.strides[0]) for level in tree._groups]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fanout", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("aligned", [None, True])
def test_groups_lie_on_cache_lines(fanout, dtype, aligned):
    tree = impls.make("numpy", 10_000, fanout=fanout, dtype=dtype, aligned=aligned)
    for base, group_bytes in addresses(tree):
        assert base % 64 == 0
        assert 64 % group_bytes == 0 or group_bytes % 64 == 0


def test_the_misaligned_twin_straddles_them():
    tree = impls.make("numpy", 10_000, aligned=False)
    assert [base % 64 for base, _ in addresses(tree)] == [4, *[8] * tree.height]


def test_aligned_is_refused_only_when_insisted_on():
    assert impls.make("numpy", 100, fanout=7).fanout == 7
    with pytest.raises(ValueError, match="28 bytes neither divide 64"):
        impls.make("numpy", 100, fanout=7, aligned=True)


def test_padding_to_full_levels_costs_what_the_paper_pays():
    ragged = impls.make("numpy", 5_000, fanout=64)
    full = impls.make("numpy", 5_000, fanout=64, padding="full")
    assert ragged.num_nodes == full.num_nodes == 5_000 + 79 + 2 + 1
    assert full.nbytes > 64**3 * 4 > 10 * ragged.nbytes
    assert [level.shape[0] for level in full._groups] == [64**2, 64, 1, 1]


def test_the_root_is_padded_to_a_group():
    tree = impls.make("numpy", 100)
    assert tree._groups[-1].shape == (1, 16)
