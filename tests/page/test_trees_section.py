"""The sections on trees, on a GPU and on other libraries: the numbers that they say and list, from made-up records."""

import pytest

pytest.importorskip("seaborn", reason="reports need seaborn")

from dse.records import RecordError
from reports.frame import Data
from reports.sections import libraries, trees
from tests.made import alter
from tests.page_records import BEST_FANOUT, KEY, LIBRARIES, peers, record, sweep

BATCHES = (128, 1_024)


def data_of(*records):
    return Data(None, KEY, records)


def test_fanouts_whose_intervals_overlap_are_said_to_be_equal():
    cells = [cell for cell in sweep() if (cell.op, cell.batch) == ("draw", 256)]
    said = trees.describe_fanouts(data_of(*cells, record(1, capacity=100_000_000)))
    assert f"At N = 1,000,000 and B = 256 the fastest is K = {BEST_FANOUT} for draws" in said
    wide = [alter(cell, low_seconds=cell.seconds / 2) if cell.fanout == 16 else cell for cell in cells]
    assert f"is K = {BEST_FANOUT}, 16 (equally fast) for draws" in trees.describe_fanouts(data_of(*wide))


def test_the_fastest_fanout_of_each_size_is_listed():
    best = trees.best_fanouts(data_of(*sweep(), *sweep(contestant="numpy"), record(9, batch=64)))
    assert len(best) == 8  # of the single fanout at B = 64 nothing
    assert set(best["fanout"]) == {BEST_FANOUT}
    assert best.query("op == 'draw' and capacity == 10_000 and batch == 256")["ns"].tolist() == [2.5]


def test_the_cost_models_fanout_and_sixteen_are_held_against_the_fastest():
    data = data_of(*sweep(batches=(64, 256, 2_048)))
    assert trees.validate_cost_model(data)[["op", "held-out cells"]].values.tolist() == [["draw", 24], ["update", 24]]
    regrets = trees.list_regrets(data)
    assert regrets[["capacity", "batch"]].values.tolist() == [
        [n, b] for n in (10_000, 1_000_000) for b in (64, 256, 2_048)
    ]
    assert set(regrets["best"]) == {BEST_FANOUT} and set(regrets["sixteen_regret"]) == {0.2}  # 6 / 5 - 1
    with pytest.raises(RecordError, match="too few cells"):
        trees.validate_cost_model(data_of(record(1)))


def test_a_random_read_stands_at_the_leaves_that_fill_its_buffer():
    """A buffer of 1,000 lines of 64 bytes is as large as 16,000 leaves of 4."""
    read = record(80, primitive="memory", contestant="chase", op="read", capacity=1_000, batch=1)
    rows = trees.over_capacity(data_of(*sweep(), read)).query("contestant == 'one random read'")
    assert rows[["op", "capacity", "ns"]].values.tolist() == [
        [op, 16_000, pytest.approx(80)] for op in ("draw", "update")
    ]


def test_a_gpu_pays_from_the_batch_on_at_which_it_beats_the_largest_batch_of_a_core():
    gpu = [record(ns, primitive="gpu", contestant="cupy", batch=batch)
           for batch, ns in ((256, 55), (1_024, 45), (4_096, 10))]  # fmt: skip
    core = [record(60, fanout=16), record(50, batch=1_024, fanout=16)]
    assert "from B = 1,024 on" in trees.describe_gpu(data_of(*gpu, *core))
    assert "At no batch up to 256" in trees.describe_gpu(data_of(gpu[0], alter(gpu[0], op="draw", batch=128), *core))


def test_the_fastest_library_is_compared_with_our_fastest_tree_with_checks():
    unchecked = [record(1, primitive="peer", op=op, batch=1_024, capacity=1_000_000, options={"validate": False})
                 for op in ("draw", "update")]  # fmt: skip
    said = libraries.describe_libraries(data_of(*peers(), *unchecked))
    assert "torchrl, has a slowdown of 3.1 [3, 3.3] over numba (42 ns" in said  # 2 (65 + 1) and 2 (20 + 1) ns


def test_a_slowdown_is_of_a_draw_and_an_update():
    found = [cell for cell in peers() if (cell.contestant, cell.op) != ("tianshou", "draw")]
    table = libraries.list_slowdowns(data_of(*found)).set_index("name")
    assert set(table.index) == {"numba", "torchrl", "rllib"}
    numba, rllib = ({batch: 2 * (LIBRARIES[name] + 1_000 / batch) for batch in BATCHES} for name in ("numba", "rllib"))
    for batch in BATCHES:
        assert table.loc["rllib", f"ns at B = {batch}"] == pytest.approx(rllib[batch])
        assert table.loc["rllib", f"slowdown at B = {batch}"] == pytest.approx(rllib[batch] / numba[batch])


def test_a_tree_of_several_threads_has_its_speedup():
    shared = [record(ns, primitive="peer_shared", threads=threads) for threads, ns in ((1, 90), (4, 30))]
    (row,) = libraries.list_threads(data_of(*shared)).to_dict("records")
    assert row == {"name": "numba", 1: pytest.approx(90), 4: pytest.approx(30), "speedup": pytest.approx(3)}
