"""Tests of ``python -m dse depth`` and of ``platform_depth``."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from dse.__main__ import main
from dse.mapping.answer import Shortage, lacking
from dse.mapping.question import find_mapping
from dse.solver.problem import ProblemError
from dse.solver.queues import Network, Visit
from dse.tuning import presampling
from dse.tuning.presampling import LOSS, STEPS, depth_enough, depth_of, platform_depth, published_loop

MACHINE = "d7dae63b89"
OWN = ["--sampling-us", "1000", "--training-us", "2000", "--updating-us", "500", "--transfer-us", "300"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(presampling, "STEPS", 400)


def told(capsys, *arguments):
    return main(["depth", *arguments]), *capsys.readouterr()


def test_the_answer_comes_first(capsys):
    code, text, errors = told(capsys, *OWN)
    assert (code, errors) == (0, "")
    assert text.startswith("Sample 2 batches ahead: at most about 500 gradient steps/s.\n")
    for words in (
        "D* = 2 by the closed form, 500 ",
        "D = 1 is within 3% of that",
        "depth 1 loses 2.4 %",
        "[Zhang2023]",
    ):
        assert words in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_json_has_every_number_with_its_source(capsys):
    given = json.loads(told(capsys, *OWN, "--json")[1])
    assert given["depth"] == depth_enough(published_loop(1.0, 2.0, 0.5, 0.3)) == 2
    names = ("sampling", "there", "training", "back", "updating")
    times = dict(zip(names, (1e-3, 3e-4, 2e-3, 3e-4, 5e-4), strict=True))
    assert {one["name"]: one["seconds"] for one in given["times"]} == times
    assert {one["source"] for one in given["times"]} == {"quoted"}
    assert given["most_hz"] == pytest.approx(500.0)
    assert given["loss"]["depth_1"]["bound"] == pytest.approx(1 - 2 / 4.1 / 0.5)
    exact, vary = given["simulated"]
    assert (exact["cv"], exact["depth"], vary["cv"]) == (0.0, 1, 1.0)
    assert vary["least"] <= vary["depth"]
    assert all(point["simulated"][0]["hz"] <= point["bound_hz"] * (1 + 1e-6) for point in given["points"])


def test_a_platforms_times_are_those_of_its_best_mapping(capsys):
    given = platform_depth("u200", "hopper_ddpg", 0.0)
    best = find_mapping("u200", "hopper_ddpg")
    assert given.arrangement == best.arrangement
    assert given.mapping == {part.part: part.device for part in best.parts if part.part != "actors"}
    assert given.most_hz * (1 + 1e-9) >= given.hz == best.hz  # in apart, no depth makes a difference
    assert given.presampled == best.depth == 50
    assert given.least <= given.depth <= given.most
    code, text, _ = told(capsys, "--platform", "u200", "--workload", "hopper_ddpg", "--spread", "0", "--json")
    assert code == 0
    shown = json.loads(text)
    assert {one["source"] for one in shown["times"]} == {"modeled"}
    assert {one["number"] for one in shown["sources"]} >= {"T_train(fpga)", "RMM(fpga)"}
    assert [one["cv"] for one in shown["simulated"]] == [0.0]


def test_in_turns_nothing_is_gained(capsys):
    code, text, _ = told(capsys, "--workload", "hopper_ddpg", "--machine", MACHINE)
    assert code == 0
    for words in ("D* = 0 by the closed form", "sampling ahead gains nothing", "50 ahead", f"machine {MACHINE} in"):
        assert words in text
    together = depth_of(published_loop(1.0, 2.0, 0.5, 0.3, together=True))
    assert (together.depth, together.simulated[0].depth) == (0, 0)


def test_what_is_fixed_and_excluded_is_heeded():
    given = platform_depth("u200", "hopper_ddpg", 0.0, fix={"arrangement": "apart", "batch": "1k"}, exclude=["fpga"])
    assert (given.arrangement, given.batch) == ("apart", 1000)
    assert "fpga" not in given.mapping.values()


def test_the_range_of_depths_is_that_of_all_times_between():
    rng = np.random.default_rng(3)
    for _ in range(40):
        engines = [f"engine {number}" for number in range(rng.integers(1, 5))]
        low = [(str(rng.choice(engines)), float(10 ** rng.uniform(-1, 1))) for _ in range(5)]
        factors = rng.uniform(1, 3, 5)

        def loop(at, low=low, factors=factors):
            share = zip(low, factors, at, strict=True)
            return Network(
                tuple(Visit(name, seconds * (1 + (more - 1) * part)) for (name, seconds), more, part in share)
            )

        ends = loop([0] * 5), loop([1] * 5)
        middle = loop([0.5] * 5)
        given = depth_of(middle, 0.0, ends)
        corners = [depth_enough(loop(at)) for at in itertools.product((0, 1), repeat=5)]
        between = [depth_enough(loop(rng.uniform(0, 1, 5))) for _ in range(50)]
        assert given.least == min(corners)
        assert given.least <= min(between)
        assert max(between + corners) <= given.most <= len(engines) - 1


def test_a_depth_is_enough_where_its_rate_is_near_the_most():
    given = depth_of(published_loop(1.0, 2.0, 0.5, 0.3))
    exact, vary = given.simulated
    rates = {point.depth: point.simulated for point in given.points}
    assert rates[exact.depth][0].value >= (1 - LOSS) * given.most_hz > rates[exact.depth - 1][0].value
    assert rates[vary.depth][1].value >= (1 - LOSS) * given.most_hz > rates[vary.depth - 1][1].value
    assert vary.least <= vary.depth <= (vary.most or vary.depth)
    assert STEPS > 400  # than here, so that more can be told


def test_where_nothing_fits_it_says_what_would_as_recommend_does(capsys):
    asked = ["--platform", "edge", "--workload", "pong_dqn", "--fix", "capacity=100M", "--json"]
    assert main(["recommend", *asked]) == 1
    other = capsys.readouterr().out
    assert told(capsys, *asked) == (1, other, "")
    assert '"cpu.memory_bytes": [4294967296.0, ' in other
    with pytest.raises(ProblemError, match=r"pong_dqn does not fit edge as asked: cpu\.memory: have 4\.295 GB, need"):
        platform_depth("edge", "pong_dqn", fix={"capacity": 10**8})


def test_amounts_of_memory_are_told_in_units_that_suit_them():
    """Bytes are in MB below 1e9, and in GB from there on; other budgets are as they are."""
    short = {"cpu.memory_bytes": (2e6, 999e6), "gpu.memory_bytes": (5e8, 1e9), "cpu.cores": (2.0, 3.0)}
    shortage = Shortage("a", "b", (short, {"gpu.memory_bytes": (1.0, 2.5e9)}), (("cpu", "gpu"),))
    assert lacking(shortage) == [
        "cpu.memory: have 2 MB, need 999 MB and gpu.memory: have 0.5 GB, need 1 GB and cpu.cores: have 2, need 3",
        "gpu.memory: have 1e-09 GB, need 2.5 GB",
        "no chain of links from cpu to gpu",
    ]


def test_a_loop_of_impossible_spread_is_refused_from_python_too():
    with pytest.raises(ProblemError, match="not -1"):
        depth_of(published_loop(1.0, 2.0, 0.5), -1.0)
    assert dataclasses.is_dataclass(depth_of(published_loop(1.0, 2.0, 0.0), 0.0))
