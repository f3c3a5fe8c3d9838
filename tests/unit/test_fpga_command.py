"""Tests of ``python -m dse fpga``: what JSON holds, and which options change it."""

import json

import pytest

from dse.__main__ import main
from dse.fpga.answer import explore
from dse.fpga.points import Slice
from dse.fpga.rmm_search import Space
from impls.fpga.network import parse
from impls.fpga.resources import Budget
from tests.committed import RESULTS

QUICK = ["fpga", "--network", "cartpole", "--batch", "32", "--capacity", "1000", "--results", str(RESULTS), "--json"]


def asked(capsys, *options):
    assert main([*QUICK, *options]) == 0
    given = json.loads(capsys.readouterr().out)
    return given, given["choice"]


def test_cycles_make_the_rate_and_every_number_has_a_basis(capsys):
    told, best = asked(capsys)
    own = sum(best["learner"]["cycles"].values())
    assert best["cycles"] == max(own, best["rmm"]["cycles"])
    assert best["seconds"] == best["cycles"] / told["question"]["clock_hz"] == 1 / best["value"]
    assert best["mac_units"] == sum(best["learner"]["units"].values()) == 313
    assert {note["basis"] for note in told["notes"] if "basis" in note} == {"modeled", "quoted", "assumed", "datasheet"}
    front = [row["front_cycles"] for row in told["rows"] if "front_cycles" in row]
    assert (front, front[0], len(front) > 3) == (sorted(front), own, True)
    assert all(0 <= row[key] <= 1 for row in told["rows"] for key in row if key.endswith("_share"))


def test_others_are_greedy_and_another_number_of_pipelines(capsys):
    told, best = asked(capsys)
    greedy, other = told["others"]
    assert (best["pace"], best["pipelines"], other["pipelines"]) == (1, 2, 4)
    assert other["pace"] < greedy["pace"] <= 1  # the better first
    assert greedy["cycles"] == best["cycles"] / greedy["pace"]
    assert "Zhang2023" in greedy["found_by"]


def test_it_is_what_the_exploration_finds(capsys):
    _, told = asked(capsys)
    sizes = [(388_160, 776_320, 2280, 720, 320), (205_440, 410_880, 1320, 420, 160), (385_440, 770_880, 2280, 720, 320)]
    slices = [Slice(f"SLR{number}", Budget(*size)) for number, size in enumerate(sizes)]
    best = explore(parse("cartpole"), Space(1000, 32), slices)[0]
    assert (told["cycles"], told["rmm"]["slice"]) == (best.cycles, best.rmm_slice)
    assert told["rmm"]["banks"] == best.rmm.design.design.banks


@pytest.mark.parametrize(
    ("options", "part", "name", "values"),
    [
        ("--slice free", "learner", "slices", [["SLR0", "SLR1", "SLR2"]]),
        ("--fill systolic", "learner", "slowest_stage_cycles", range(2, 1000)),
        ("--dsp-per-mac 9", "learner", "pipelines", [1]),
        ("--leaf-bits 24", "rmm", "leaf_bits", [24]),
        ("--capacity 4000", "rmm", "capacity", [4000]),
        ("--batch 64", "learner", "samples_per_pipeline", range(17, 65)),
    ],
)
def test_an_option_that_is_set_changes_the_answer(capsys, options, part, name, values):
    assert asked(capsys, *options.split())[1][part][name] in values


def test_what_limits_a_design_is_told_first_at_any_clock(capsys):
    told, best = asked(capsys, "--dsp-per-mac", "9", "--clock-mhz", "100")
    assert best["seconds"] == best["cycles"] / 1e8
    limits = [note["kind"] for note in told["notes"] if note["level"] == "first"]
    assert limits == ["bound_by_learner", "nearly_full"]
