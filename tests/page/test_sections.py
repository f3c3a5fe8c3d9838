"""The sections of the page: numbers that their figures, tables and sentences show, from made-up records and laws.

Those of laws and of the tests' own records are kept: tests.frames.
"""

import json
import random
import re
import shutil
import types

import pytest

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

import dataclasses

import numpy as np
import pandas as pd
from scipy.stats import chi2

from dse.platforms.files import RESULTS
from dse.records import read_file
from impls.training import load
from reports import page
from reports.answer import make_answer
from reports.claims import models
from reports.frame import Data
from reports.sections import fpga, learning, mapping, papers, plugins, processes, replay, training, trees
from reports.tables import keep_latest_code, name_other
from tests import frames
from tests.committed import COMMITTED
from tests.made import alter
from tests.page_records import (
    BEST_FANOUT,
    HOSTED,
    KEY,
    RATES,
    data_of,
    record,
    sweep,
    time_cell,
    time_part,
    time_run,
    time_system,
    write_curve,
    write_curves,
)

BATCHES = (128, 1_024)


# Trees, a GPU and other libraries


def test_fanouts_whose_intervals_overlap_are_said_to_be_equal():
    cells = [cell for cell in sweep() if (cell.op, cell.batch) == ("draw", 256)]
    said = trees.describe_fanouts(data_of(*cells, record(1, capacity=100_000_000)))
    assert f"At N = 1,000,000 and B = 256 the fastest is K = {BEST_FANOUT} for draws" in said
    wide = [alter(cell, low_seconds=cell.seconds / 2) if cell.fanout == 16 else cell for cell in cells]
    assert f"is K = {BEST_FANOUT}, 16 (equally fast) for draws" in trees.describe_fanouts(data_of(*wide))


def test_a_gpu_pays_where_it_beats_the_largest_batch_of_a_core():
    gpu = [record(ns, primitive="gpu", contestant="cupy", batch=batch)
           for batch, ns in ((256, 55), (1_024, 45), (4_096, 10))]  # fmt: skip
    core = [record(60, fanout=16), record(50, batch=1_024, fanout=16)]
    assert "from B = 1,024 on" in trees.describe_gpu(data_of(*gpu, *core))
    assert "At no batch up to 256" in trees.describe_gpu(data_of(gpu[0], alter(gpu[0], op="draw", batch=128), *core))


# Our tree inside other libraries


def test_speedups_stand_beside_what_a_tree_in_no_time_would_give():
    table = plugins.compare_steps(data_of(*HOSTED)).set_index(["library", "o_task"])
    assert table["speedup"].to_dict() == pytest.approx(
        {("rllib", "buffer"): 3.0, ("rllib", "cartpole_dqn"): 1.25, ("sb3", "buffer"): 0.5}
    )
    own = table.loc["rllib", "buffer"]
    assert own[["tree_share", "own_tree_share", "most_speedup"]].to_list() == pytest.approx([0.1, 1 / 3, 1.5])
    assert own["speedup_low"] < 3 < own["speedup_high"]
    assert table["most_speedup"].isna().to_dict()["sb3", "buffer"]  # its own replay has no tree


# A shared replay


def test_only_times_of_the_latest_code_are_compared():
    rows = replay.select_processes(data_of(time_run("none", 20, code="a"), time_run("global", 10, code="bb")))
    assert rows["strategy"].to_list() == ["global"]
    far = alter(time_run("none", 5, code="a"), machine={"key": "elsewhere"})
    data = data_of(far, time_run("none", 20, code="a"), time_run("global", 10, code="bb"))
    kept = keep_latest_code(data.frame)
    assert set(kept["machine"]) == {KEY, "elsewhere"}  # each by its own latest code
    assert (len(kept), name_other(data, kept)) == (2, " on machine elsewhere")


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"global": 20, "two_lock_checked": 10, "banked": 30, "none": 5}, "two_lock_checked: a speedup of 2.00 ["),
        ({"global": 20, "two_lock_checked": 20.1}, "no correct strategy"),
    ],
)
def test_the_fastest_correct_lock_is_named_with_its_factor(times, said):
    found = replay.name_best_locks(data_of(*(time_run(name, us, 2, spread=0.05) for name, us in times.items()),
                                           *(time_run(name, us, 4) for name, us in times.items())))  # fmt: skip
    assert said in found
    assert "2 processes" in found  # which have a core each, of two


# A training step


def test_a_tree_has_its_share_of_learning_and_acting():
    numba = [time_part("numba", "tree", 5, 64), time_part("numba", "learning", 80, 64)]
    python = [time_part("python", "tree", 40, 64), time_part("python", "learning", 140, 64)]
    loops = [time_part("loop", "step", 125), time_part("loop", "step", 50, learner="dense")]
    table = training.list_shares(data_of(*numba, *python, time_part("actor", "step", 10), *loops)).set_index("tree")
    assert table["share"].to_dict() == pytest.approx({"numba": 0.05, "python": 0.25})
    assert table["most_speedup"].to_dict() == pytest.approx({"numba": 1 / 0.95, "python": 4 / 3})
    assert table.loc["numba", "whole beyond its parts (%)"] == pytest.approx(25)
    assert table.loc["numba", "dense_us"] == pytest.approx(50)
    assert table["whole_us"].isna()["python"]  # whose loop was not timed
    low, high = table.loc["python", ["share_low", "share_high"]]
    assert 0.23 < low <= 0.25 <= high < 0.27  # tree and learning vary together, the actor alone


# Several processes


def test_predicted_rates_stand_beside_those_of_the_machine(tmp_path, monkeypatch):
    (tmp_path / KEY).mkdir()
    (tmp_path / KEY / processes.FILE).touch()

    def predict(records, platform, options):
        answer = types.SimpleNamespace(hz=1_400, low=1_000, high=1_800)
        return [answer if option["arrangement"] == "apart" else None for option in options]

    monkeypatch.setattr(processes.platforms, "load", lambda path: path)
    monkeypatch.setattr(processes.laws, "predict_runs", predict)
    rows = processes.select_best(data_of(*RATES, results=tmp_path)).query("source == 'modeled'")
    columns = ["o_arrangement", "o_update_interval", *processes.ENDS]
    assert rows[columns].values.tolist() == [["apart, predicted", 1, 1_400, 1_000, 1_800]]


def test_a_running_system_has_the_columns_of_the_quoted_table():
    found = processes.measure_systems(
        data_of(*time_system("queue 500", interval=2.0), *time_system("ring 5")[:5], *time_system("pipe")[:3])
    )
    (row,) = found.to_dict("records")  # the ring is gone, and the pipe lacks times
    wanted = {"cpu": 75, "sampled": 10_000, "updates": 1_000, "frames": 128_000, "cycle": 2.0, "age": 0.5, "loss": 10}
    assert {name: row[name] for name in wanted} == pytest.approx(wanted)


def test_a_transfer_is_divided_by_its_records():
    rows = processes.select_transfers(data_of(time_cell("transport", "pipe", "send", 640, batch=64)))
    assert rows["record_us"].to_list() == pytest.approx([10])


# Learning


def test_curves_show_the_best_return_so_far_of_both_replays(tmp_path):
    write_curve(write_curves(tmp_path), 0.6, 0, 1000, learner="dense")  # which has no uniform run
    data = data_of(results=tmp_path)
    rows = data.select(learning.CURVES)
    assert rows.groupby("replay")["seed"].nunique().to_dict() == {"prioritized": 3, "uniform": 3}
    assert list(rows[(rows["replay"] == "uniform") & (rows["seed"] == 1)]["best"]) == [101.0, 301.0, 301.0]
    said = learning.say_which_learns_faster(data)
    assert "3 prioritized runs took a median of 5,000" in said
    assert "3 uniform runs 3,000" in said
    assert "may be chance" in said


# On an FPGA

DATA = Data(RESULTS, "made-up", [])


def test_panels_add_the_draw_to_the_update():
    rows, calls = fpga.list_panels(DATA), fpga.list_calls(DATA)
    first = rows[rows["panel"] == fpga.PANELS[0]].set_index(["line", "x"])["value"]
    both = calls[(calls["design"] == "ours, K = 16") & (calls["B"] == 256)]["us"].sum()
    assert first["ours, K = 16", 256] == pytest.approx(both)
    assert set(rows["panel"]) == set(fpga.PANELS)
    assert len(rows[rows["source"] == "quoted"]) == 3
    second = rows[rows["panel"] == fpga.PANELS[1]].set_index(["line", "x"])["value"]
    banks = fpga.list_banks(DATA).query("banking == 'interleaved' and B == 1_024")["busiest bank / even share"]
    assert second["interleaved banks, worst of these", 1_024] == banks.max() > banks.min()


def test_narrow_leaves_are_told_by_pearsons_test_of_their_draws():
    skew, bits, level = "rank^-0.2", 9, fpga.LEVEL
    draws = int(fpga.list_leaf_bits(DATA).set_index(["skew", "leaf_bits"])["needed"][skew, bits])
    leaves = models.make_priorities(skew)
    kept, wanted = models.round_leaves(leaves, bits), draws * leaves / leaves.sum()
    counts = np.random.default_rng(1).multinomial(draws, kept / kept.sum(), 20)
    statistic = ((counts - wanted) ** 2 / wanted).sum(axis=1).mean()
    assert level / 10 < chi2.sf(statistic, leaves.size - 1) < 10 * level


# Mappings


def test_storage_stands_where_the_least_is_moved():
    workload = load("pong_dqn")
    assert mapping.place_storage("G", "C", workload) == "G"  # a batch of records outweighs the rest
    alone = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=1))
    many = dataclasses.replace(alone, actors=dataclasses.replace(alone.actors, count=1_000))
    assert mapping.place_storage("G", "F", many) == "C"


# Models, papers and records

COLUMNS = ["result", "params", "version", "stats_ci_99_a", "stats_ci_99_b"]
HEADS = ("commit", "setting", "verdict")


def write_history(folder, seconds, ends=(0.995, 1.005)):
    """Write a commit for each tuple of seconds, of N = 10 and N = 1,000, with these shares of them as their ends."""
    machine = folder / "asv" / "made-up"
    machine.mkdir(parents=True, exist_ok=True)
    (machine / "machine.json").write_text("{}")
    benchmark = {"param_names": ["contestant", "capacity"], "version": "1"}
    names = {"trees.Draw.time_draw": benchmark, "trees.Draw.peakmem_draw": benchmark}
    names["trees.Draw.time_another"] = benchmark | {"version": "2"}
    (folder / "asv" / "benchmarks.json").write_text(json.dumps(names))
    for at, both in enumerate(seconds):
        low_and_high = ([one and one * factor for one in both] for factor in ends)
        stored = [list(both), [["'numba'"], ["10", "1000"]], "1", *low_and_high]
        run = {"commit_hash": f"commit-{at}", "date": 1_700_000_000_000 + at, "result_columns": COLUMNS}
        run |= {"results": dict.fromkeys(names, stored)}
        (machine / f"{at}.json").write_text(json.dumps(run))
    return Data(folder, "made-up", [])


def test_history_lists_commits_whose_intervals_lie_apart(tmp_path):
    data = write_history(tmp_path, [(1e-5, 2e-5), (1.05e-5, 3e-5), (1.05e-5, None), (5e-6, 3e-5)])
    rows = papers.read_history(data)
    assert set(rows["benchmark"]) == {"Draw.time_draw"}
    assert list(rows[rows["setting"] == "numba, N = 10"]["us"]) == pytest.approx([10, 10.5, 10.5, 5])
    assert set(rows["x_label"]) == {"commits by date, commit-0 to commit-3"}
    assert papers.list_changes(data)[[*HEADS]].values.tolist() == [
        ["commit-1", "numba, N = 1,000", "slower"],
        ["commit-3", "numba, N = 10", "faster"],
    ]
    wide = write_history(tmp_path, [(1e-5, 2e-5), (1.2e-5, 1.6e-5)], ends=(0.8, 1.1))
    assert papers.list_changes(wide).query("commit == 'commit-1'").empty


# No number survives its record: in a copy of the results every time, rate and result is changed by a factor of its own.
# A number that stays the same at its place would be typed by hand; what may stay rests on no record.

OURS = "8fb834d50a"
TIMES = ("median_seconds", "low_seconds", "high_seconds")
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e-?\d+)?")
OF_NO_RECORD = {
    "fpga": "laws of cycles and resources, and quoted numbers",
    "mapping_": "laws, and times that a paper implies",
    "greedy_loss": "times drawn by a seed",
    "choice": "laws for the platform of a paper",
    "front": "laws for the platform of a paper",
    "depth": "laws for the platform of a paper",
    "core_splits": "laws for the platform of a paper",
    "claims": "arithmetic on quoted numbers; tests/unit/test_claims.py has the values",
    "refuted": "arithmetic on quoted numbers; tests/unit/test_claims.py has the values",
}
"""Beginnings of figures and tables that rest on no record, or partly, each with what they rest on."""
SHAPES = {"trials", "factor", "within", "as_fitted", "printed_regret", "sixteen_regret", "predicted_regret"}
SHAPES |= {"capacity", "batch", "fanout", "threads", "seed", "step", "steps", "best", "predicted", "printed"}
"""Columns that say what was timed, and rank it: the same shape may stay the fastest."""


def shake(results, out, seed):
    """Copy results with every measured number changed."""
    for path in sorted(path for path in results.rglob("*") if path.is_file()):
        target = out / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            target.write_text("".join(_shake_record(one, seed) for one in read_file(path)))
        elif path.name == "curve.csv":
            rows, rng = pd.read_csv(path), random.Random(f"{seed}{path}")
            scores = ["mean_score", "least_score", "largest_score"]
            rows[scores] *= rng.uniform(0.5, 0.9)
            rows.to_csv(target, index=False)
        elif path.suffix == ".json" and "asv" not in path.parts:
            target.write_text(json.dumps(_shake(json.loads(path.read_text()), random.Random(f"{seed}{path.name}"))))
        else:
            shutil.copy(path, target)
    return out


def _shake_record(record, seed):
    rng = random.Random(f"{seed}{record.cell}{record.utc}")
    factor = rng.uniform(1.3, 1.9)
    other = {name: getattr(record, name) and getattr(record, name) * factor for name in TIMES}
    other["samples_seconds"] = tuple(factor * sample for sample in record.samples_seconds)
    return alter(record, **other, metrics=_shake(record.metrics, rng)).to_json() + "\n"


def _shake(value, rng):
    """Change every number that is no count."""
    if isinstance(value, dict):
        results = {name: int(1.5 * value[name]) for name in ("sample_efficiency",) if value.get(name)}
        return {name: _shake(part, rng) for name, part in value.items()} | results
    if isinstance(value, list):
        return [_shake(part, rng) for part in value]
    return value * rng.uniform(1.3, 1.9) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The data of the committed records, and of shaken ones."""
    folder = shake(COMMITTED, tmp_path_factory.mktemp("shaken"), 1)
    return [Data.read(results, OURS) for results in (COMMITTED, folder)]


def test_every_measured_number_of_a_figure_or_table_is_a_records(both):
    committed, shaken = (dict(page.to_frames(data)) for data in both)
    assert {*committed} == {*shaken}
    stayed = {}
    for name in (name for name in committed if not name.startswith(tuple(OF_NO_RECORD))):
        old, new = (rows if "source" not in rows else rows[~rows["source"].astype(str).str.startswith("quoted")]
                    for rows in (committed[name], shaken[name]))  # fmt: skip
        for column in old.select_dtypes("float").columns.difference([*SHAPES]):
            values = {value for value in old[column].dropna() if value not in (0, 1) and value != round(value)}
            same = values & set(new.get(column, ()))
            if len(same) > 0.02 * len(values):
                stayed[name, column] = sorted(same)[:3]
    assert stayed == {}


def test_every_number_that_the_page_says_is_a_records(both):
    sentences = [[make_answer(data).says, *(section.says(data) for section in page.list_sections()
                                                if section.says and "(modeled)" not in section.title)]
                 for data in both]  # fmt: skip
    for old, new in zip(*sentences, strict=True):
        numbers = [number for number in NUMBER.findall(re.sub(r"\b[NKB] = [\d,]+", "", old)) if "." in number]
        assert not numbers or old != new, old


def test_figures_and_tables_have_the_numbers_that_were_kept():
    found, kept = frames.read_frames(), json.loads(frames.FILE.read_text())
    assert frames.list_changes(kept, found) == []
    assert frames.list_changes(kept, {**found, "fanout, ns": [1, 2.0]}) != []
