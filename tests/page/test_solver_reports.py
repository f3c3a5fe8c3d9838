"""The page's section about mappings: whole answers, figures of the seeds' platform and of a profile, left-out ones."""

import math
import re

import pytest

from dse.answers.mapping_answer import mapping_answer
from dse.answers.printer import write
from dse.mapping.options import implementation_of
from dse.mapping.question import ask, find_mapping
from dse.records import RecordError
from dse.times.several import spo_factor
from dse.tuning.learners import learner_scaling
from reports.claims import mapping_loss
from tests.profiled import made_up

pytest.importorskip("seaborn", reason="reports need seaborn")
from reports.markup import safe
from reports.sections import mapping as solver_section
from reports.sections import mapping_points as solver_points

PLATFORM = """
name = "this"
machine_key = "{key}"
[[device]]
name = "cpu"
kind = "cpu"
origin = "measured"
note = "made up"
cores = 4
clock_mhz = 2000
peak_fp32_gops = 128
[device.memory]
size_gib = 16
bandwidth_gb_per_s = 20
"""


@pytest.fixture(scope="module")
def profiled():
    return made_up(("cartpole_dqn", "pong_dqn"))


@pytest.fixture(scope="module")
def machine(profiled, tmp_path_factory):
    """A folder of results with one machine, probed and profiled."""
    results = tmp_path_factory.mktemp("results")
    folder = results / profiled[0].machine["key"]
    folder.mkdir()
    (folder / "platform.toml").write_text(PLATFORM.format(key=folder.name))
    (folder / "profile-made-up.jsonl").write_text("".join(f"{one.to_json()}\n" for one in profiled))
    return results


def test_the_answers_are_what_the_command_prints(machine):
    html = solver_section.section(machine, "made-up", "<figure></figure>", ["Left out, solver_x: why"])
    here = find_mapping(machine / "made-up" / "platform.toml", "cartpole_dqn", results=machine)
    seeds = find_mapping("u200", "hopper_ddpg", results=machine)
    texts = re.findall(r"<pre>(.*?)</pre>", html, re.DOTALL)
    assert texts == [safe("\n".join(write(mapping_answer(found)))) for found in (here, seeds)]
    assert html.index("python -m dse recommend --platform u200") < html.index("<figure>") < html.index("solver_x: why")
    for one in mapping_loss.losses():
        cells = re.search(rf"<tr><td>{re.escape(one.variant)}</td>(.*?)</tr>", html)
        shown = [f"{one.share:.1%}", f"{one.mean:.2f}x", f"{one.worst:.3f}x"]
        assert re.findall(r">([\d.]+[%x])<", cells[1])[:3] == shown


def test_a_machine_without_platform_or_records_says_what_to_run(tmp_path):
    (tmp_path / "made-up").mkdir()
    html = solver_section.section(tmp_path, "another", "", ())
    assert html.startswith("<p>Left out, cartpole_dqn on the machine of this page, another: it was not probed")
    assert "python -m dse platform probe, then python -m benchmarks profile --workload cartpole_dqn" in html
    assert html.count("<pre>") == 1
    (tmp_path / "made-up" / "platform.toml").write_text(PLATFORM.format(key="made-up"))
    assert re.match(r"<p>Left out, .*, made-up: .*no records", solver_section.section(tmp_path, "made-up", "", ()))
    with pytest.raises(RecordError, match=r"machine another has no profile .*python -m benchmarks profile"):
        solver_points.scaled(tmp_path / "another" / "platform.toml", tmp_path)


def test_factors_are_those_of_the_learner_that_would_run(machine):
    platform = machine / "made-up" / "platform.toml"
    found = solver_points.scaled(platform, machine)
    batches = ("pong_dqn, B = 32", "pong_dqn, B = 256", "cartpole_dqn, B = 64", "cartpole_dqn, B = 16,384")
    assert [one.name for one in found] == [f"{name}, learners torch" for name in batches]
    cartpole = found[2]
    fix = {"learner_implementation": "torch"}  # the one that was timed
    given = learner_scaling(ask(platform, "cartpole_dqn", fix=fix, results=machine))
    assert [one.exact for one in cartpole.points if one.horizon == 25] == [
        spo_factor(given.terms, learners, 25) for learners in solver_points.LEARNERS
    ]
    assert cartpole.measured == ()  # nothing trained


def test_each_point_of_the_front_is_the_best_of_its_devices(tmp_path):
    points = {one.devices: one for one in solver_points.fronts(None)["hopper_ddpg"]}
    best = find_mapping("u200", "hopper_ddpg", epsilon=0.0, results=tmp_path)
    assert max(one.hz for one in points.values()) == pytest.approx(best.value)
    without = find_mapping("u200", "hopper_ddpg", exclude=["fpga"], epsilon=0.0, results=tmp_path)
    assert points["cpu", "gpu"].hz == pytest.approx(without.value)
    assert points["cpu",].watts == 210
    for one in points.values():
        assert one.low <= one.hz <= one.high
        beaten = any(two.hz >= one.hz and two.watts < one.watts for two in points.values())
        assert one.is_undominated != beaten


def test_cells_of_cores_and_batches_are_solved_as_their_own(monkeypatch, tmp_path):
    monkeypatch.setattr(solver_points, "BATCHES", (64, 256))
    monkeypatch.setattr(solver_points, "CORES", (1, 3, 28))
    found = solver_points.what_if.__wrapped__(None)
    cells = [one for one in found if one.batch == 256]
    assert [one.hz for one in cells] == sorted(one.hz for one in cells)
    given = find_mapping("u200", "hopper_ddpg", epsilon=0.01, results=tmp_path)
    assert cells[-1].hz == pytest.approx(given.value, rel=0.01)
    assert (cells[0].arrangement, cells[-1].arrangement) == ("serial", given.arrangement)
    assert max(one.hz for one in found if one.batch == 64) > cells[-1].hz


def test_depths_are_of_the_answer_and_of_the_one_without_its_accelerator(tmp_path):
    answer, other = solver_points.depths(None)
    given = find_mapping("u200", "hopper_ddpg", epsilon=0.01, results=tmp_path)
    learner = next(part.label["device"] for part in given.parts if part.label["part"] == "learner")
    assert answer.name.endswith(f": {learner[0].upper()}-F-F")
    assert f"without {learner.upper()}" in other.name
    for one in (answer, other):
        bounds = [point.bound_hz for point in one.points]
        assert bounds == sorted(bounds)
        assert bounds[one.enough] == pytest.approx(bounds[-1])
        assert all(point.simulated[0].low <= point.bound_hz * (1 + 1e-6) for point in one.points)
    assert answer.points[-1].bound_hz >= given.value * (1 - 1e-9)


def test_cores_are_those_the_solver_counts_with():
    f_a, f_l, *_ = solver_points.platform_cores(None)
    parts = solver_points.parts_of(None)
    for learner in (
        one for one in parts.learners.list(parts.cpu) if implementation_of(one.details) == parts.learners.implementation
    ):
        assert f_l.rates[learner.cores].value == pytest.approx(1 / learner.step.value)
    assert f_a.rates[4].value == pytest.approx(1 / parts.actors.fastest_step(4).value)
    assert f_a.cores == f_l.cores == tuple(range(1, 28))
    assert not math.isnan(f_l.rates[27].value)
