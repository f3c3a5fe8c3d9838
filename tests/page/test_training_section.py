"""What the section on a training step computes, from made-up records."""

import pytest

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

from reports.sections import training
from tests.sections import data_of, time_cell


def part(contestant, op, us, batch=1, **options):
    options = {"workload": "cartpole_dqn", "update_interval": 2, **options}
    return time_cell("serial_step", contestant, op, us, batch=batch, spread=0.2, **options)


def profiled(contestant, op, us, batch=1, workload="cartpole_dqn", **options):
    return time_cell("training", contestant, op, us, batch=batch, spread=0.1, workload=workload, **options)


def test_a_tree_has_its_share_of_learning_and_of_the_actors_steps():
    numba = [part("numba", "tree", 5, 64), part("numba", "learning", 80, 64)]
    python = [part("python", "tree", 40, 64), part("python", "learning", 140, 64)]
    loops = [part("loop", "step", 125), part("loop", "step", 50, learner="dense")]
    table = training.list_shares(data_of(*numba, *python, part("actor", "step", 10), *loops)).set_index("tree")
    assert table["share"].to_dict() == pytest.approx({"numba": 0.05, "python": 0.25})
    assert table["most_speedup"].to_dict() == pytest.approx({"numba": 1 / 0.95, "python": 4 / 3})
    assert table.loc["numba", "whole beyond its parts (%)"] == pytest.approx(25)
    assert table.loc["numba", "dense_us"] == pytest.approx(50)
    assert table["whole_us"].isna()["python"]  # whose loop was not timed
    low, high = table.loc["python", ["share_low", "share_high"]]
    assert 0.23 < low <= 0.25 <= high < 0.27  # tree and learning vary together, the actor alone


def test_parts_of_two_runs_make_no_share():
    cells = [part("numba", "tree", 5, 64), part("numba", "learning", 80, 64)]
    assert training.share_trees(cells).empty  # without the actor
    other = time_cell("serial_step", "actor", "step", 10, code="bb", workload="cartpole_dqn", update_interval=2)
    assert training.share_trees([*cells, other]).empty


def test_a_slowdown_is_of_one_run_and_as_wide_as_both_intervals():
    alone = profiled("learner", "step", 100, 64, beside="nothing")
    beside = profiled("learner", "step", 250, 64, beside="actor", cores="shared")
    (row,) = training.compare_beside(data_of(alone, beside)).itertuples()
    assert (row.part, row.slowdown) == ("learner", pytest.approx(2.5))
    assert (row.slowdown_low, row.slowdown_high) == pytest.approx((2.5 * 0.9 / 1.1, 2.5 * 1.1 / 0.9))


def test_a_line_over_the_batch_is_fitted():
    steps = [profiled("learner", "step", 100 + 2 * batch, batch) for batch in (1, 16, 256)]
    beside = profiled("learner", "step", 9_999, 64, beside="actor", cores="own")
    (row,) = training.fit_batches(data_of(*steps, beside)).itertuples(index=False)
    assert row[4:7] == pytest.approx((50, 100, 2))


def test_at_most_four_workloads_are_drawn_from_the_smallest_to_the_largest():
    sizes = {"f": 600, "a": 100, "b": 200, "c": 300, "d": 400, "e": 500}
    steps = [profiled("learner", "step", macs * batch, batch, workload=name, macs=macs)
             for name, macs in sizes.items() for batch in (8, 64)]  # fmt: skip
    rows = training.select_gradient_steps(data_of(*steps))
    assert [name[0] for name in rows["workload"].cat.categories] == ["a", "c", "d", "f"]
    assert len(rows) == 8
    assert data_of(steps[0]).select(training.SECTIONS[0].figures[0]).empty  # a single batch makes no line


def test_weights_are_averaged_by_the_number_of_models():
    models = [profiled("weights", "average", 10 * count, models=count, parameters=121) for count in (2, 4)]
    (row,) = training.list_averages(data_of(*models)).to_dict("records")
    assert (row["us of 2 models"], row["us of 4 models"]) == pytest.approx((20, 40))
