"""What other libraries get wrong, each a test that ours does not."""

import threading

import numpy as np
import pytest

import impls
from tests.contestants import VARIANTS

every_variant = pytest.mark.parametrize(("name", "options"), VARIANTS)
compiled = [case for case in VARIANTS if case.values[0] == "numba"]
fast = [case for case in VARIANTS if case.values[0] in ("numba", "cumsum")]


def tree_of(name, options, leaves, dtype="float32", **settings):
    tree = impls.make(name, len(leaves), dtype=dtype, **settings, **options)
    tree.update(np.arange(len(leaves)), leaves)
    return tree


@pytest.mark.parametrize(("name", "options"), fast)
def test_a_million_targets_land_on_the_exact_leaf(name, options):
    """float32 sums put 92 % of them elsewhere after the first fill alone."""
    rng = np.random.default_rng(0)
    tree = tree_of(name, options, rng.random(1_000_000))
    exact = np.cumsum(tree.get(np.arange(1_000_000)), dtype=np.longdouble)
    mass = rng.random(1_000_000) * tree.total()
    assert (tree.prefix_sum_index(mass) != np.searchsorted(exact, mass, side="right")).sum() == 0


@pytest.mark.parametrize(("name", "options"), compiled)
def test_no_leaf_starves(name, options):
    """float32 sums at 10M leaves never draw some 100,000 of them; here 2M leaves, 20M draws, of which 91 leaves are
    expected to see none."""
    capacity, draws = 2_000_000, 20_000_000
    tree = tree_of(name, options, np.ones(capacity))
    rng = np.random.default_rng(1)
    seen = np.zeros(capacity, bool)
    for _ in range(20):
        seen[tree.sample(rng.random(draws // 20))[0]] = True
    expected = capacity * np.exp(-draws / capacity)
    assert abs((~seen).sum() - expected) < 6 * np.sqrt(expected)


@pytest.mark.parametrize(("name", "options"), compiled)
def test_twenty_million_ordinary_draws_are_in_range_and_positive(name, options):
    rng = np.random.default_rng(2)
    leaves = np.where(rng.random(300_001) < 0.5, 0.0, rng.random(300_001))
    tree = tree_of(name, options, leaves)
    for _ in range(20):
        indices, priorities = tree.sample(rng.random(1_000_000))
        assert 0 <= indices.min()
        assert indices.max() < 300_001
        assert priorities.min() > 0


@every_variant
def test_the_largest_targets_are_in_range_and_the_total_itself_is_refused(name, options):
    tree = tree_of(name, options, np.random.default_rng(3).random(1_000))
    assert tree.prefix_sum_index(np.nextafter(tree.total(), 0)).tolist() == [999]
    for beyond in (tree.total(), np.nextafter(tree.total(), np.inf), 2 * tree.total()):
        with pytest.raises(ValueError, match="mass"):
            tree.prefix_sum_index(beyond)
    with pytest.raises(ValueError, match=r"uniform 1\.0"):
        tree.sample(1.0)


@every_variant
def test_an_index_outside_changes_no_leaf(name, options):
    tree = tree_of(name, options, np.arange(10.0))
    with pytest.raises(IndexError, match=r"index 20 at position 0 is outside \[0, 10\)"):
        tree.update([20], [7.0])
    assert tree.get(np.arange(10)).tolist() == list(range(10))


@pytest.mark.parametrize(("name", "options"), [case for case in VARIANTS if "full" not in case.values[1].values()])
def test_memory_does_not_double_at_a_power_of_two(name, options):
    at, beyond = (impls.make(name, capacity, **options).nbytes for capacity in (2**16, 2**16 + 1))
    assert beyond < 1.01 * at


@every_variant
def test_a_batch_larger_than_the_tree_is_sampled_with_replacement(name, options):
    tree = tree_of(name, options, [1.0, 0.0, 3.0])
    indices, _ = tree.sample(np.random.default_rng(4).random(1_000))
    assert set(indices.tolist()) == {0, 2}
    assert tree.sample(0.0)[0].tolist() == [0]


@every_variant
def test_no_slot_starts_uninitialized(name, options):
    tree = impls.make(name, 4096, **options)
    assert tree.total() == 0.0
    assert not tree.get(np.arange(4096)).any()
    tree.update(4095, 2.0)
    assert tree.sample(np.linspace(0, 1, 50, endpoint=False))[0].tolist() == [4095] * 50
    assert (tree.check(), tree.total()) == (0.0, 2.0)


@pytest.mark.parametrize(("name", "options"), compiled)
def test_threads_that_read_do_not_disturb_each_other(name, options):
    tree = tree_of(name, options, np.random.default_rng(5).random(5_000))
    uniforms = np.random.default_rng(6).random((8, 3_000))
    expected = [tree.sample(row)[0] for row in uniforms]
    results = {}

    def read(number):
        results[number] = all(np.array_equal(tree.sample(uniforms[number])[0], expected[number]) for _ in range(30))

    readers = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert results == dict.fromkeys(range(8), True)
