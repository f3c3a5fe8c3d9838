"""Tests of ``python -m dse depth`` and of ``platform_depth``."""

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
from dse.tuning.presampling import LOSS, depth_enough, depth_of, platform_depth, published_loop

MACHINE = "d7dae63b89"
OWN = ["--sampling-us", "1000", "--training-us", "2000", "--updating-us", "500", "--transfer-us", "300"]
TIMES = {"sampling": 1e-3, "there": 3e-4, "training": 2e-3, "back": 3e-4, "updating": 5e-4}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(presampling, "STEPS", 400)


def told(capsys, *arguments):
    """The answer in JSON, and its notes by their kind."""
    assert main(["depth", *arguments, "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    return given, {note["kind"]: note for note in given["notes"]}


def test_ones_own_times_have_a_depth_rates_and_losses(capsys):
    given, notes = told(capsys, *OWN)
    choice, parts, points = given["choice"], given["rows"][:5], given["rows"][5:]
    assert choice["depth"] == depth_enough(published_loop(1.0, 2.0, 0.5, 0.3)) == 2
    assert (choice["value"], choice["round_seconds"]) == pytest.approx((500.0, 4.1e-3))
    assert choice["upper_bound"]
    assert {row["part"]: row["value"] for row in parts} == TIMES
    assert {row["source"] for row in parts} == {"quoted"}
    assert (notes["busiest_engine"]["engine"], notes["busiest_engine"]["seconds"]) == ("learner", 2e-3)
    assert notes["loss_of_none_ahead"]["loss"] == pytest.approx(1 - 1 / 4.1 / 0.5)
    assert points[2]["bound_hz"] == pytest.approx(2 / 4.1e-3)  # one ahead
    assert points[2]["loss"] == pytest.approx(1 - 2 / 4.1 / 0.5, rel=0.01)
    exact, vary = notes["enough_if_exact"], notes["enough"]
    assert (exact["cv"], exact["depth"], exact["level"]) == (0.0, 1, "first")
    assert (vary["cv"], vary["level"]) == (1.0, "detail")
    assert vary["least"] <= vary["depth"]
    assert all(row["value"] <= row["bound_hz"] * (1 + 1e-6) for row in points if not row["cv"])


def test_a_platforms_times_are_those_of_its_best_mapping(capsys):
    given = platform_depth("u200", "hopper_ddpg", 0.0)
    best = find_mapping("u200", "hopper_ddpg")
    assert given.arrangement == best.arrangement
    assert given.mapping == {
        part.label["part"]: part.label["device"] for part in best.parts if part.label["part"] != "actors"
    }
    assert given.most_hz * (1 + 1e-9) >= given.hz == best.hz  # in apart, no depth makes a difference
    assert given.presampled == best.choice.more["depth"] == 50
    shown, _ = told(capsys, "--platform", "u200", "--workload", "hopper_ddpg", "--spread", "0")
    assert [shown["choice"][name] for name in ("value", "low", "high")] == [given.hz, *given.ends]
    assert {row["source"] for row in shown["rows"]} == {"modeled"}
    assert {row["cv"] for row in shown["rows"] if "cv" in row} == {0.0}
    assert {note.get("evidence") for note in shown["notes"]} >= {"T_train(fpga)", "RMM(fpga)"}


def test_in_turns_nothing_is_gained(capsys):
    given, notes = told(capsys, "--workload", "hopper_ddpg", "--machine", MACHINE)
    assert (given["choice"]["depth"], given["question"]["machine"]) == (0, MACHINE)
    assert notes["takes_turns"]["level"] == "first"
    assert notes["workload_samples_ahead"]["presampled"] == 50
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
        names, low = rng.choice(engines, 5), 10 ** rng.uniform(-1, 1, 5)
        more = low * rng.uniform(0, 2, 5)

        def loop(at, names=names, low=low, more=more):
            return Network(tuple(map(Visit, map(str, names), map(float, low + more * at))))

        given = depth_of(loop(0.5), 0.0, (loop(0), loop(1)))
        corners = [depth_enough(loop(np.array(at))) for at in itertools.product((0, 1), repeat=5)]
        between = [depth_enough(loop(rng.uniform(0, 1, 5))) for _ in range(50)]
        assert given.least == min(corners) <= min(between)
        assert max(between + corners) <= given.most <= len(engines) - 1


def test_a_depth_is_enough_where_its_rate_is_near_the_most():
    given = depth_of(published_loop(1.0, 2.0, 0.5, 0.3))
    rates = {point.depth: point.simulated for point in given.points}
    for at, enough in enumerate(given.simulated):
        depth = enough.depth
        assert rates[depth][at].value >= (1 - LOSS) * given.most_hz > rates[depth - 1][at].value
        assert enough.least <= depth <= (enough.most or depth)


def test_where_nothing_fits_it_says_what_would_as_recommend(capsys):
    asked = ["--platform", "edge", "--workload", "pong_dqn", "--fix", "capacity=100M", "--json"]
    (code, lacks), depth = ((main([name, *asked]), capsys.readouterr().out) for name in ("recommend", "depth"))
    assert (code, lacks) == depth == (1, lacks)
    assert ["cpu.memory", 2**32] in [[note.get("budget"), note.get("have")] for note in json.loads(lacks)["notes"]]
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


def test_a_loop_of_impossible_spread_is_refused():
    with pytest.raises(ProblemError, match="not -1"):
        depth_of(published_loop(1.0, 2.0, 0.5), -1.0)
