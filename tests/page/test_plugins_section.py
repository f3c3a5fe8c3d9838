"""What the section on other libraries on our trees computes, from made-up records."""

import pytest

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

from reports.sections import plugins
from tests.sections import data_of, time_cell


def step(host, task, kind, us, tree_us=None, **more):
    options = {"task": task, "kind": kind, **more}
    made = [time_cell("plugin", host, "step", us, batch=64, spread=0.1, **options)]
    return made + ([time_cell("plugin", host, "tree", tree_us, batch=64, **options)] if tree_us else [])


RECORDS = [
    *step("rllib", "buffer", "theirs", 900, 300), *step("rllib", "buffer", "ours", 300, 30),
    *step("sb3", "buffer", "uniform", 100), *step("sb3", "buffer", "ours", 200, 20),
    *step("rllib", "cartpole_dqn", "theirs", 1_000, 100), *step("rllib", "cartpole_dqn", "ours", 800, 8),
]  # fmt: skip


def test_speedups_stand_beside_what_a_tree_in_no_time_would_give():
    table = plugins.compare_steps(data_of(*RECORDS)).set_index(["library", "o_task"])
    assert table["speedup"].to_dict() == pytest.approx(
        {("rllib", "buffer"): 3.0, ("rllib", "cartpole_dqn"): 1.25, ("sb3", "buffer"): 0.5}
    )
    own = table.loc["rllib", "buffer"]
    assert own[["tree_share", "own_tree_share", "most_speedup"]].to_list() == pytest.approx([0.1, 1 / 3, 1.5])
    assert own["speedup_low"] < 3 < own["speedup_high"]
    assert table["most_speedup"].isna().to_dict()["sb3", "buffer"]  # its own replay has no tree


def test_the_answer_says_gains_and_losses():
    said = plugins.say_speedups(data_of(*RECORDS))
    assert "3.00 [" in said
    assert "1.25 [" in said
    assert "sb3 (uniform) 0.50 [" in said
    assert "no difference" not in said
    tie = step("tianshou", "buffer", "theirs", 100, 10), step("tianshou", "buffer", "ours", 101, 10)
    assert plugins.say_speedups(data_of(*RECORDS, *tie[0], *tie[1])).count("no difference is shown in tianshou") == 1


def test_a_bar_is_drawn_for_each_replay_of_a_step():
    rows = data_of(*RECORDS).select(plugins.SECTIONS[0].figures[0])
    bars = {(row.what, row.step): row.us for row in rows.itertuples() if row.whose.startswith("our")}
    assert bars == pytest.approx(
        {
            ("a step of the buffer", "rllib"): 300,
            ("a step of the buffer", "sb3, uniform"): 200,
            ("a training step", "rllib, cartpole_dqn"): 800,
        }
    )


def test_a_seed_that_is_not_solved_counts_as_beyond_its_last_evaluation():
    ends = [
        {"solved_steps": 4_000, "points": [[4_000, 1, 480.0]]},
        {"solved_steps": None, "points": [[9_000, 1, 90.0]]},
    ]
    runs = [time_cell("plugin run", "sb3", "step", 10, task="cartpole_dqn", kind="ours", seed=seed, metrics=end)
            for seed, end in enumerate(ends)]  # fmt: skip
    (row,) = plugins.list_learned(data_of(*runs)).itertuples(index=False)
    assert row[3] == "1 of 2"
    assert row[-1] == 480
    assert "4,000" in row[4]
    assert "9,000" in row[4]
