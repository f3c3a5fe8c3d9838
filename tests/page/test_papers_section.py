"""The section on models, papers and records: a history of made-up commits, errors of laws, counts of claims."""

import json
import types

import pytest

from dse.records import RecordError
from reports.frame import Data
from reports.sections import papers

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


def test_history_names_the_file_that_asv_did_not_write(tmp_path):
    data = write_history(tmp_path, [(1e-5, 2e-5)])
    (tmp_path / "asv" / "made-up" / "0.json").write_text('{"results": 1}')
    with pytest.raises(RecordError, match=r"0\.json"):
        papers.read_history(data)


def test_verdicts_are_counted_by_document(tmp_path):
    claims = [types.SimpleNamespace(paper=paper, verdict=verdict) for paper, verdict in
              (("[A]", "refuted"), ("[A]", "confirmed"), ("[B]", "refuted"))]  # fmt: skip
    data = Data(tmp_path, "made-up", [])
    vars(data)["claims"] = papers.pd.DataFrame(map(vars, claims), columns=[*papers.REFUTED, "verdict"])
    assert papers.count_verdicts(data).values.tolist() == [["[A]", 1, 1], ["[B]", 0, 1]]
    assert list(papers.list_refuted(data)["paper"]) == ["[A]", "[B]"]
    assert papers.say_verdicts(data) == "Of 3 claims of 2 documents: 2 refuted, 1 confirmed."
