"""What records rest on, and what is unstable, stands beside them: on the page, in READMEs, in the list of files."""

import dataclasses
import json
import re
from types import SimpleNamespace

import pytest

import dse
from reports import origins, page, readme_tables, tidy
from reports.chart import Material
from reports.sections import answer, gpu, peers, training, tree_figures
from tests.committed import COMMITTED
from tests.page.test_reports import KEY, NOTHING, everything, on_gpu, record, write
from tests.page.test_reports import peers as peer_records
from tests.page.test_training_reports import shares_of

OTHERS = {"References"}  # sections that rest on none
UNSTABLE = {"status": "unstable"}


def with_status(found, **where):
    """The records, those unstable whose fields are these."""
    return [
        dataclasses.replace(one, status="unstable") if all(getattr(one, k) == v for k, v in where.items()) else one
        for one in found
    ]


def test_records_are_counted_by_file_with_machine_commits_and_days(tmp_path):
    found = [record(10.0), record(20.0, capacity=20, commit="f" * 40, utc="2026-03-04T00:00:00+00:00", **UNSTABLE)]
    found.append(record(1.0, capacity=30, status="skipped", **NOTHING))
    write(tmp_path, found)
    said = origins.rests_on(origins.placed(found, tmp_path))
    count = "3 records (1 unstable, 1 skipped)"
    assert said == [f"{KEY}/quick.jsonl: {count}; machine {KEY}, at 01234567, ffffffff, 2026-01-02 to 2026-03-04"]
    (row,) = origins.listing(tmp_path)
    when = "01234567, ffffffff, 2026-01-02 to 2026-03-04"
    assert row == [f"`{KEY}/quick.jsonl`", count, when, "`python -m benchmarks sweep --preset quick`"]


def test_a_cell_that_was_measured_again_is_of_the_file_of_its_time(tmp_path):
    found = [record(10.0), record(10.0, utc="2026-03-04T00:00:00+00:00"), record(10.0, capacity=20)]
    for name, one in zip("ab", found[:2], strict=True):
        write(tmp_path / name, [one])
    (tmp_path / KEY / "below").mkdir(parents=True)
    for name in "ab":
        (tmp_path / name / KEY / "quick.jsonl").rename(tmp_path / KEY / "below" / f"{name}.jsonl")
    placed = origins.placed(found, tmp_path)
    assert [name for name, _ in placed] == [f"{KEY}/below/a.jsonl", f"{KEY}/below/b.jsonl", "records of no file"]
    said = [line.partition(";")[0] for line in origins.rests_on(reversed(placed))]
    assert said == [f"{KEY}/below/a.jsonl: 1 record", f"{KEY}/below/b.jsonl: 1 record", "records of no file: 1 record"]


def test_each_section_says_which_of_its_records_it_rests_on_and_no_others(tmp_path):
    found = list(everything())
    write(tmp_path, found)
    material = Material(found, tidy.about(found), tmp_path)
    for topic in page.topics():
        for section in topic.SECTIONS:
            assert bool(section.primitives or section.files) == (section.heading not in OTHERS)
    peers_only = next(section for section in page.sections() if section.heading == "Other libraries")
    count = sum(one.primitive.startswith("peer") for one in found)
    skipped = sum(one.primitive.startswith("peer") and one.status == "skipped" for one in found)
    assert f"{KEY}/quick.jsonl: {count} records ({skipped} skipped); machine {KEY}" in peers_only.rests_on(material)[0]
    text = page.section_html(peers_only, material)
    assert re.search(rf"<details><summary>Rests on</summary>.*{count} records", text)


def test_unstable_timings_of_libraries_are_marked_in_table_and_sentences(tmp_path):
    found = with_status(peer_records(), primitive="peer", contestant="tianshou", op="draw", batch=1_024)
    text = peers.section(found, tmp_path)
    row = next(line for line in text.splitlines() if ">tianshou</td>" in line and "0.8" in line)
    marked = re.findall(r"<td[^>]*>([^<]*\*)</td>", row)
    assert len(marked) == 3  # the ratio, the draw and both, not the update
    assert 'class="number' in re.search(r"<td[^>]*>[^<]*\*</td>", row)[0]
    ours = {"primitive": "peer", "contestant": "numba", "dtype": "float32", "options": {}, "op": "update"}
    said = peers.section(with_status(found, **ours), tmp_path)
    assert re.search(
        r"draw \+ update at B = 1,024: the best library, \w.*?, takes [\d.]+ ns and numba [\d.]+\* ns", said
    )
    assert re.search(r"at B = 1: the fastest, .*?, takes [\d.,]+ ns and numba [\d.,]+\* ns", said)
    assert len(re.findall(r"x\*</td>", peers.section(with_status(found, primitive="peer_shared"), tmp_path))) > 1
    assert peers.UNSTABLE not in peers.section(list(peer_records()), tmp_path).replace(peers.ABOUT_UNSTABLE, "")


def test_unstable_timings_on_a_gpu_are_marked_in_table_and_ratios():
    found = with_status(on_gpu(), primitive="gpu", contestant="torchrl_cuda", dtype="float32", op="sample", batch=256)
    text = gpu.section(found)
    assert len(re.findall(r"<td[^>]*>[^<]*\*</td>", text)) == 1
    assert len(re.findall(r"\dx\* at B = 256", text)) == 1
    assert gpu.section(list(on_gpu())).count("*") == 1  # the sentence about it


def test_the_share_says_how_many_rows_are_unstable_and_what_is_left_to_gain():
    records = shares_of({"numba": ((1e-5,) * 3, (8e-4,) * 3), "rllib": ((8e-4, 1e-3, 1.2e-3), (1.6e-3, 1.8e-3, 2e-3))})
    numba, rllib = training.shares(records)
    assert (numba.is_unstable, rllib.is_unstable) == (False, True)
    assert rllib.most_gain == pytest.approx(2)  # half of the step
    assert dataclasses.replace(rllib, share=0.32).most_gain == pytest.approx(1.4706, abs=1e-4)
    text = training.share_table(records)
    assert "is wide: 1 of 2 rows." in text
    assert "of at most 2.00, 1 / (1 - share): in place of rllib on cartpole_dqn, unstable." in text
    shaky = [dataclasses.replace(one, status="unstable") if one.contestant == "loop" else one for one in records]
    assert "+25% (unstable)." in training.share_table(shaky)
    assert "+25%." in text


def test_the_headlines_share_is_that_of_the_compiled_tree_beside_the_worst_librarys():
    times = {"numba": ((1e-5,) * 3, (8e-4,) * 3), "python": ((1e-3,) * 3, (2e-3,) * 3)}
    records = shares_of(times | {"rllib": ((8e-4,) * 3, (1.8e-3,) * 3)})
    share = {one.contestant: one.share for one in training.shares(records)}
    text = answer._share(SimpleNamespace(measurements=records, about=SimpleNamespace(key="made-up")))
    whose = f"Of a serial training step by torch our tree takes {share['numba']:.1%} (cartpole_dqn) on machine made-up"
    assert text.startswith(whose)
    assert "by dense" not in text  # whose loop was not timed
    loop = next(one for one in records if one.contestant == "loop")
    ends = {name: getattr(loop, name) / 4 for name in ("median_seconds", "low_seconds", "high_seconds")}
    compiled = dataclasses.replace(loop, options=loop.options | {"learner": "dense"}, **ends)
    told = answer._share(SimpleNamespace(measurements=[*records, compiled], about=SimpleNamespace(key="made-up")))
    part = 1e-5 / (loop.seconds / 4)
    assert f"by dense, a learner of compiled code, a step is 4.0 times faster, and the tree takes {part:.0%}" in told
    assert f"while rllib takes {share['rllib']:.0%} of one" in text


@pytest.mark.parametrize("part", [("actor", "step"), ("rllib", "tree"), ("rllib", "learning")])
def test_a_share_is_unstable_where_any_of_its_timings_is(part):
    records = shares_of({"rllib": ((1e-5,) * 3, (8e-4,) * 3)})
    assert not training.shares(records)[0].is_unstable
    (share,) = training.shares(with_status(records, contestant=part[0], op=part[1]))
    assert share.is_unstable


@pytest.mark.parametrize("options", [{}, {"aligned": False}])
def test_a_ratio_is_unstable_where_either_of_its_timings_is(options):
    pair = [record(10.0), record(15.0, options={"aligned": False})]
    ratios = tree_figures.layout_ratios(tidy.tidy(with_status(pair, options=options)))
    assert ratios["status"].tolist() == ["unstable"]
    assert tree_figures.layout_ratios(tidy.tidy(pair))["status"].tolist() == ["ok"]


def test_the_page_says_how_many_cells_of_the_sweep_are_unstable():
    found = list(everything())
    cells = [one for one in found if (one.primitive, one.source) == ("sum_tree", "measured")]
    cells = [one.status for one in cells if one.median_seconds is not None]
    section = next(section for section in page.sections() if section.heading == "What was measured")
    text = section.html(Material(found, tidy.about(found), None))
    assert f"{cells.count('unstable')} of {len(cells)} cells of the sweeps are unstable" in text


def test_times_of_the_readmes_trees_are_of_an_element_and_marked_where_unstable(tmp_path, monkeypatch):
    monkeypatch.setattr(readme_tables, "SWEPT", KEY)
    shape = {"capacity": 10_000, "batch": 256, "fanout": 16, "threads": 1}
    write(tmp_path, [record(12.5, op="draw", **shape), record(7.5, op="update", **shape, **UNSTABLE)])
    assert "| `numba` | 12.5 | 7.5* |" in readme_tables.trees(tmp_path)


def test_tables_of_the_readmes_count_what_is_unstable():
    results = COMMITTED
    records = dse.read_folder(results, readme_tables.SWEPT)
    cells = [one.status for one in records if (one.primitive, one.source) == ("sum_tree", "measured")]
    timed = len(cells) - cells.count("skipped") - cells.count("failed")
    assert f"{cells.count('unstable')} of {timed} cells are unstable" in readme_tables.noise(results)
    kept = training.shares(dse.read_folder(results, readme_tables.COMPARED))
    kept = [one for one in kept if one.contestant in readme_tables.LIBRARIES]
    share = readme_tables.share(results)
    assert f"{sum(one.is_unstable for one in kept)} of the {len(kept)} shares are unstable" in share
    assert share.count("%]*") == sum(one.is_unstable for one in kept)
    lines = [line for line in readme_tables.peers(results).splitlines() if line.startswith("| ")]
    rows = [line for line in lines if "ns per element" not in line]  # those of ratios
    assert any("*" in re.sub(r"\*\*", "", line) for line in rows)


def test_a_seed_that_was_run_again_counts_once_by_its_first_run(tmp_path):
    def kept(machine, name, seed, utc, solved):
        folder = tmp_path / machine / "training" / "cartpole_dqn" / name
        folder.mkdir(parents=True)
        run = {"workload": "cartpole_dqn", "alpha": 0.6, "seed": seed, "utc": utc, "steps": 50_000, "seconds": 10.0}
        run |= {"test_mean": 500.0 if solved else 9.0, "sample_efficiency": solved, "throughput": {"update_hz": 100.0}}
        (folder / "summary.json").write_text(json.dumps(run))

    kept("b", "seed0", 0, "2026-01-01T00:00:00+00:00", None)  # did not get there
    kept("b", "seed1", 1, "2026-01-01T00:01:00+00:00", 20_000)
    kept("a", "torch-seed0", 0, "2026-01-02T00:00:00+00:00", 10_000)
    (row,) = (line for line in readme_tables.training(tmp_path).splitlines() if line.startswith("| `cartpole_dqn`"))
    assert [cell.strip() for cell in row.split("|")[5:8]] == ["9.0 500.0", "1 of 2", "> 50,000; 20,000"]
