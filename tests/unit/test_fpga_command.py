"""Tests of ``python -m dse fpga``: what it prints, what JSON holds, and a sentence for what cannot be answered."""

import json

import pytest

from dse.__main__ import main
from dse.fpga.answer import explore
from dse.fpga.points import Slice
from dse.fpga.rmm_search import Space
from impls.fpga.network import parse
from impls.fpga.resources import Budget
from tests.committed import RESULTS

QUICK = ["fpga", "--network", "cartpole", "--batch", "32", "--capacity", "1000", "--results", str(RESULTS)]


def asked(capsys, *options):
    code = main([*QUICK, *options])
    return code, *capsys.readouterr()


def test_json_holds_the_same(capsys):
    code, out, _ = asked(capsys, "--json")
    told = json.loads(out)
    best = told["choice"]
    assert code == 0
    assert best["cycles"] == max(sum(best["learner"]["cycles"].values()), best["rmm"]["cycles"])
    assert best["seconds"] == best["cycles"] / told["clock_hz"]
    assert sum(best["learner"]["units"].values()) == 313
    assert told["runner_up"]["learner"]["pipelines"] != best["learner"]["pipelines"]
    assert {one["basis"] for one in told["sources"]} == {"modeled", "quoted", "assumed", "datasheet"}
    assert told["front"][0]["cycles"] == sum(best["learner"]["cycles"].values())
    assert told["published_greedy"]["cycles"] >= told["front"][0]["cycles"]
    for use in best["utilization"]:
        assert all(0 <= share <= 1 for share in use["shares"].values())


def test_a_front_is_told_if_asked_for(capsys):
    code, out, _ = asked(capsys, "--front")
    rows = out.partition("front of learners, sampled at eighths of the DSP:")[2].partition("all of it")[0]
    cycles = [int(row.split()[0].replace(",", "")) for row in rows.split("\n")[2:-2]]
    assert (code, len(cycles) > 3, cycles) == (0, True, sorted(cycles))


def test_it_is_what_the_exploration_finds(capsys):
    told = json.loads(asked(capsys, "--json")[1])["choice"]
    sizes = [(388_160, 776_320, 2280, 720, 320), (205_440, 410_880, 1320, 420, 160), (385_440, 770_880, 2280, 720, 320)]
    slices = [Slice(f"SLR{number}", Budget(*size)) for number, size in enumerate(sizes)]
    best = explore(parse("cartpole"), Space(1000, 32), slices)[0]
    assert (told["cycles"], told["rmm"]["slice"]) == (best.cycles, best.rmm_slice)
    assert told["rmm"]["banks"] == best.rmm.design.design.banks


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (["--slice", "free"], lambda told: told["choice"]["learner"]["slices"] == ["SLR0", "SLR1", "SLR2"]),
        (["--fill", "systolic"], lambda told: told["choice"]["learner"]["slowest_stage_cycles"] > 1),
        (["--clock-mhz", "100"], lambda told: told["choice"]["seconds"] == told["choice"]["cycles"] / 1e8),
        (["--dsp-per-mac", "9"], lambda told: told["choice"]["learner"]["pipelines"] == 1),
        (["--leaf-bits", "24"], lambda told: told["choice"]["rmm"]["leaf_bits"] == 24),
        (["--capacity", "4000"], lambda told: told["choice"]["rmm"]["capacity"] == 4000),
        (["--batch", "64"], lambda told: told["choice"]["learner"]["samples_per_pipeline"] > 16),
    ],
)
def test_an_option_that_is_set_changes_the_answer(capsys, options, changed):
    code, out, _ = asked(capsys, *options, "--json")
    assert code == 0
    assert changed(json.loads(out))
