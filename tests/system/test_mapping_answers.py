"""Facts of answers about mappings: that they are right, add up, fit in a screen, and can be run as they say.

What each command answers is kept (``tests/golden.py``).
"""

import dataclasses
import itertools
import json
import operator
import shlex
import tomllib
from pathlib import Path

import pytest

from dse.__main__ import main
from dse.answers import emit
from dse.answers.mapping_answer import explained_answer, mapping_answer
from dse.answers.printer import write
from dse.mapping.answer import MappingAnswer
from dse.mapping.processes import runs_of
from dse.mapping.question import MappingQuestion, answer_question, ask, find_mapping, tables
from dse.mapping.what_if import with_changes
from dse.mapping.why_not import SHARE
from dse.platforms import PlatformError
from dse.platforms import load as load_platform
from dse.platforms.files import to_toml
from dse.solver.problem import PARTS, ProblemError
from dse.times.door import Times
from impls.training import load, timed_names
from impls.training.__main__ import _parser as training_parser
from tests.committed import RESULTS
from tests.matrix import matrix, slow
from tests.solver_cases import explain_mapping
from tests.system.test_tree_answers import printed
from tests.unit.test_answers import check_screens
from tests.unit.test_options import several

HERE = RESULTS / "d7dae63b89" / "platform.toml"
PLATFORMS = ("u200", "h200", "edge", *(str(RESULTS / key / "platform.toml") for key in ("d7dae63b89", "8fb834d50a")))
ASKED = "python -m dse recommend --platform this --workload grid"


def find_note(given, kind):
    """The values of the one note of a kind."""
    (values,) = (note.values for note in given.notes if note.kind == kind)
    return values


# The whole answer


@pytest.mark.parametrize("platform", ["u200", "h200", "edge", HERE])
@pytest.mark.parametrize("name", ["hopper_ddpg", slow("hopper_sac")])
def test_an_answer_adds_up(platform, name):
    given = find_mapping(platform, name)
    assert isinstance(given, MappingAnswer)
    assert 0 < given.low <= given.value <= given.high
    assert given.value == given.hz <= given.choice.more["actor_hz"] * (1 + 1e-12)
    assert given.value <= given.choice.more["bound"] * (1 + 1e-12)
    assert given.choice.more["distance"] == pytest.approx(1 - given.value / given.choice.more["bound"])
    assert given.choice.more["cores"] <= given.choice.more["cores_there"]
    assert [part.label["part"] for part in given.parts] == list(PARTS)
    assert all(part.estimate.low <= part.estimate.value <= part.estimate.high for part in given.parts)
    most = given.made.best.value if given.made.best else given.value
    assert all(tie.value >= most / 2 for tie in given.made.ties)
    assert given.value >= 0.8 * most
    assert {one.id for one in given.sources} >= {part.estimate.rests_on.id for part in given.parts}
    assert max(part.estimate.value for part in given.parts) <= 1 / given.hz * (1 + 1e-12)
    plain = json.loads(json.dumps(mapping_answer(given).to_dict()))
    assert plain["question"]["platform"] == given.question["platform"]
    assert plain["choice"]["hz"] == given.hz


def cores_of(given):
    """The cores that are used, and those there are."""
    return given.choice.more["cores"], given.choice.more["cores_there"]


@pytest.mark.slow
def test_fixing_what_was_chosen_changes_nothing_and_anything_else_never_helps():
    free = find_mapping("h200", "hopper_ddpg")
    chosen = {part.label["part"]: part.label["device"] for part in free.parts if part.label["part"] != "actors"}
    assert find_mapping("h200", "hopper_ddpg", fix=chosen).value == free.value
    for key, other in (("learner", "cpu"), ("storage", "gpu"), ("fanout", 2), ("arrangement", "serial")):
        fixed = find_mapping("h200", "hopper_ddpg", fix={key: other})
        assert fixed.value <= free.value / 0.99
    free, without = (find_mapping("h200", "pong_dqn", exclude=excluded) for excluded in ((), ["gpu"]))
    assert "gpu" not in {part.label["device"] for part in without.parts}
    assert without.value < free.value


def records_hz(batch, *question):
    given = find_mapping(*question, fix={"batch": batch}, epsilon=0.0)
    return batch * given.value


def tried_of(found):
    """The batches that a note on B says were tried."""
    return [int(batch.replace(",", "")) for batch in found["shares"]]


@pytest.mark.parametrize("question", [(HERE, "hopper_ddpg"), slow(("h200", "pong_dqn")), slow(("edge", "hopper_sac"))])
def test_a_batch_that_is_free_is_the_smallest_near_the_saturated_rate(question):
    free = find_mapping(*question, free=["batch"])
    found = find_note(free, "batch_at_knee")
    batches = tried_of(found)
    rates = {batch: records_hz(batch, *question) for batch in batches}
    assert free.question["batch"] == min(batch for batch in rates if rates[batch] >= SHARE * max(rates.values()))
    assert free.question["batch"] < max(batches)
    assert free.question["batch"] // 2 in batches  # the next smaller one was asked for, and is too slow
    assert found["batch"] == free.question["batch"]
    assert found["least_share"] == SHARE
    assert found["largest"] == max(batches)
    assert [*found["shares"].values()] == pytest.approx([rates[batch] / max(rates.values()) for batch in batches])
    assert find_note(free, "worth_of_records") == {}  # what a record is worth is left out


def test_a_batch_is_not_the_largest_because_it_is_the_largest():
    """Records trained rise with B up to the largest that the workload allows: then its own batch stays."""
    free = find_mapping("h200", "cartpole_dqn", free=["batch"])
    assert free.question["batch"] == load("cartpole_dqn").learner.batch
    found = find_note(free, "batch_still_rising")
    assert found["batch"] == free.question["batch"]
    assert found["largest"] == max(tried_of(found))
    assert list(found["shares"].values())[-1] == 1.0


def test_drawing_ahead_helps_where_parts_overlap():
    """CartPole-DQN samples no batch ahead: on a GPU everything waits for everything, unless that is free."""
    wishes = {"learner": "gpu", "arrangement": "pipelined"}
    none = find_mapping("h200", "cartpole_dqn", "training", fix=wishes, epsilon=0.01)
    ahead = find_mapping("h200", "cartpole_dqn", "training", fix=wishes, free=["presampled"], epsilon=0.01)
    assert none.bottleneck.kind == "bound_by_batches"
    assert none.bottleneck.values["depth"] == 0
    assert ahead.value > none.value
    assert ahead.choice.more["depth"] > 0


def test_a_question_is_checked_as_it_is_made_and_again_where_it_is_changed():
    question = ask("u200", "hopper_ddpg", fix={"batch": "1k"}, free=["presampled"])
    assert question.fix == {"batch": 1000}
    assert question.workload.learner.batch == 1000
    same = find_mapping("u200", "hopper_ddpg", fix={"batch": 1000}, free=["presampled"])
    assert mapping_answer(answer_question(question)) == mapping_answer(same)
    more = dataclasses.replace(question, fix={**question.fix, "fanout": "8"})
    assert more.fix == {"batch": 1000, "fanout": 8}
    assert more.workload.learner.batch == 1000
    with pytest.raises(ProblemError, match="presampled is both fixed and free"):
        dataclasses.replace(question, fix={"presampled": 1})
    with pytest.raises(ProblemError, match="no device 'tpu' to exclude"):
        MappingQuestion(question.platform, question.workload, exclude=["tpu"])


# What does not fit, what loses, what if


def test_too_few_cores_are_told():
    machine, away = with_changes(load_platform("u200"), {"cpu.cores": 2}), ("gpu", "fpga")
    given = find_mapping(machine, "hopper_ddpg", fix={"arrangement": "pipelined"}, exclude=away)
    assert given.repairs == ({"cpu.cores": (2.0, 3.0)},)
    asked = find_mapping(HERE, "hopper_ddpg", fix={"arrangement": "pipelined"})  # a machine that runs it
    assert cores_of(asked) == (3.0, 2.0)
    assert cores_of(find_mapping(HERE, "hopper_ddpg", fix={"batch": 512})) <= (2.0, 2.0)  # unasked none share cores


def test_processes_that_share_cores_are_not_tried_unasked():
    machine, workload = load_platform(HERE), load("hopper_ddpg")  # two cores, and more actors than fit
    parts = Times(machine, workload, *tables(machine, workload, RESULTS), {})
    assert {run.actors for run in runs_of(parts, "apart")} == {1} and not list(runs_of(parts, "pipelined"))
    asked = dataclasses.replace(parts, constraints={"actors": 3})
    assert {run.actors for run in runs_of(asked, "apart")} == {3}


def test_what_is_faster_within_patience_is_told_so():
    given = explain_mapping("u200", "hopper_ddpg", {"actors": 8}, fix={"update_interval": 8}, epsilon=0.5)
    assert given.loss < 0
    assert explained_answer(given).choice.more["gain"] == -given.loss
    assert given.verdict.startswith("ties")


def test_a_changed_platform_reads_units_and_nothing_else_changes():
    before = load_platform("u200")
    after = with_changes(
        before, {"gpu.memory_gb": 24, "fpga.SLR0.lut": 100_000, "cpu-gpu.beta_gb_per_s": 50, "cpu.clock_ghz": 3}
    )
    assert after.device("gpu").memory.size_bytes.value == 24e9
    assert after.device("fpga").slices[0].lut.value == 100_000
    assert after.links[0].beta_bytes_per_s.value == 50e9
    assert after.device("cpu").clock_hz.value == 3e9
    assert after.links[1] == before.links[1]
    assert with_changes(before, {}) is before
    for path in ("gpu.memry_gb", "gpx.memory_gb", "gpu", "fpga.SLR9.lut", "cpu.cores_gb"):
        with pytest.raises(PlatformError):
            with_changes(before, {path: 1.0})


def test_cores_bring_their_share_of_what_is_stated_of_all():
    before = load_platform("u200").device("cpu")
    twice = with_changes(load_platform("u200"), {"cpu.cores": 56}).device("cpu")
    assert twice.threads.value == 2 * before.threads.value
    assert twice.peak_fp32_ops_per_s.value == 2 * before.peak_fp32_ops_per_s.value
    assert twice.memory == before.memory
    both = with_changes(load_platform("u200"), {"cpu.peak_fp32_tops": 5, "cpu.cores": 56}).device("cpu")
    assert both.peak_fp32_ops_per_s.value == 5e12
    gpu = with_changes(load_platform("u200"), {"gpu.multiprocessors": 60}).device("gpu")
    assert gpu.peak_fp32_ops_per_s.value == pytest.approx(2 * 12.15e12)


def test_watts_grow_with_cores_since_they_are_the_limit_of_the_whole_device():
    """S15: twice the cores at the same watts would make steps/J free."""
    before = load_platform("u200")
    twice = with_changes(before, {"cpu.cores": 56})
    assert twice.device("cpu").power_watts.value == 2 * before.device("cpu").power_watts.value
    both = with_changes(before, {"cpu.cores": 56, "cpu.power_watts": 300})
    assert both.device("cpu").power_watts.value == 300
    few, many = (find_mapping(one, "hopper_ddpg", "per_watt", epsilon=0.0) for one in (before, twice))
    assert (many.choice.more["watts"] > few.choice.more["watts"]) == ("cpu" in many.choice.more["devices"])
    assert find_note(many, "watts_are_limits") == {}


@pytest.mark.parametrize(
    "platform, change",
    [
        slow("h200", {"gpu.memory_gb": 96}),
        slow("h200", {"cpu-gpu.beta_gb_per_s": 60}),
        slow("h200", {"gpu.peak_fp32_tops": 100}),
        slow("h200", {"gpu.launch_us": 1}),
        slow("h200", {"gpu.multiprocessors": 264}),
        ("u200", {"cpu.cores": 30}),
        slow("u200", {"cpu.cores": 56}),
        ("edge", {"cpu.cores": 6}),
        slow("edge", {"cpu.cores": 8}),
    ],
)
def test_more_of_anything_never_hurts(platform, change):
    base = load_platform(platform)
    more = with_changes(base, change)
    for name, wishes in (("hopper_ddpg", {}), ("hopper_ddpg", {"learner": "cpu", "learner_threads": 1})):
        before, after = (find_mapping(machine, name, fix=wishes) for machine in (base, more))
        assert after.value >= before.value * 0.99, (name, wishes)


def test_parts_that_slow_each_other_down_are_shown_as_slow_as_they_are():
    """Seconds of the parts in one process add up to those of its engine, slowdown and all; a note names the factor."""
    torch = dict.fromkeys(("learner_implementation", "policy_implementation"), "torch")
    fix = {"arrangement": "apart", "learners": 1, **torch}
    question = ask(HERE, "cartpole_dqn", "training", fix=fix, results=RESULTS)
    (problem,) = question.built().problems.values()
    given = answer_question(question)
    loop = [part.estimate.value for part in given.parts if part.label["part"] != "actors"]
    assert {part.more["engine"] for part in given.parts if part.label["part"] != "actors"} == {"cpu.loop"}
    assert sum(loop) == pytest.approx(1 / given.value)
    factor = problem.slowdown["learner", "actors", "cpu"]
    assert factor > 2
    slowed = [note.values for note in given.notes if note.kind == "slowdown"]
    assert ("learner", "cpu", factor) in [(one["part"], one["device"], one["factor"]) for one in slowed]


# The line to paste, and the file


@pytest.mark.parametrize(
    ("platform", "workload"),
    matrix(PLATFORMS, timed_names(), brief=lambda *one: one[1] == "pong_dqn" or one == ("u200", "hopper_ddpg")),
)
def test_first_screen_is_short_and_its_line_works(platform, workload):
    found = find_mapping(platform, workload)
    answer = mapping_answer(found, ASKED)
    check_screens(answer)
    kinds = [note.kind for note in answer.notes]
    if not isinstance(found, MappingAnswer):
        assert platform == "edge"
        assert workload == "pong_dqn"
        assert answer.choice is None
        assert kinds[0] == "does_not_fit"
        return
    (paste,), rate = answer.paste, answer.choice.estimate
    assert rate.value == found.value
    assert rate.low == found.low
    assert rate.high == found.high
    assert answer.choice.is_bound == found.choice.is_bound
    assert f"  {paste}" in list(write(answer))
    if why := emit.why_not_run(found):
        assert why.kind in kinds
        assert paste == f"{ASKED} --emit toml > mapping.toml"
    else:
        runs_exactly(paste, found)


def runs_exactly(paste, answer):
    given = training_parser().parse_args(shlex.split(paste)[3:])
    part = {one.label["part"]: one for one in answer.parts}
    tree, learner = part["sampling"].more["details"], part["learner"]
    assert given.workload == answer.question["workload"]
    assert (given.arrangement or "serial") == answer.arrangement
    if answer.arrangement != "serial":
        assert given.actors == part["actors"].more["details"]["processes"]
    assert given.presampled in (None, answer.choice.more["depth"])
    assert given.contestant == tree["contestant"]
    assert given.fanout == tree["fanout"]
    assert given.learner == learner.more["details"].get("implementation", "torch")
    assert given.policy == part["actors"].more["details"].get("implementation", "torch")
    if learner.label["device"] == part["actors"].label["device"]:
        assert given.device == "cpu"
        assert given.threads == learner.more["details"]["threads"]
    else:
        assert (given.device, given.threads) == ("cuda", None)


# The front of rate, watts and bytes

SHOWN = ("arrangement", "storage", "value", "low", "high", "source", "watts")


def answered(capsys, *words):
    """Return the answer of a command as data."""
    return json.loads(printed(capsys, *words, "--json"))


@pytest.mark.parametrize("platform", ["u200", "three GPUs", str(HERE)])
def test_no_row_of_a_front_beats_another_and_words_ask_for_each(capsys, tmp_path, platform):
    is_known, asked = platform != str(HERE), ["recommend", "--workload", "hopper_ddpg", "--platform", platform]
    if platform == "three GPUs":
        asked[-1] = str(tmp_path / "platform.toml")
        Path(asked[-1]).write_text(to_toml(several("h200", "gpu", 3)))
    exact, plain = (answered(capsys, *asked, "--front", *more) for more in (("--epsilon", "0"), ()))
    rows, kinds = exact["rows"], {note["kind"] for note in plain["notes"]}
    trades = [(row["value"], -row["bytes"], -row["watts"] if is_known else 0.0) for row in rows]
    assert trades == sorted(trades, key=lambda trade: -trade[0])
    for trade, other in itertools.permutations(trades, 2):
        assert any(map(operator.gt, trade, other))
    assert ("front_has_no_watts" in kinds) == (not is_known)
    assert rows[0]["value"] == answered(capsys, *asked, "--epsilon", "0")["choice"]["value"]
    assert [row["is_answer"] for row in rows] == [True] + [False] * (len(rows) - 1)
    assert plain["choice"]["value"] == answered(capsys, *asked)["choice"]["value"]
    assert any(row["is_answer"] or row["beats_answer"] for row in plain["rows"])
    own, goals = plain["choice"], (("value", 1), ("bytes", -1), *[("watts", -1)] * is_known)
    for row in plain["rows"]:
        better = [sign * (row[key] - own[key]) for key, sign in goals]
        assert row["beats_answer"] == (min(better) >= 0 < max(better))
    assert ("answer_is_off_front" in kinds) == (not any(row["is_answer"] for row in plain["rows"]))
    table = printed(capsys, *asked, "--front")
    for row in rows:
        again = answered(capsys, *asked, *shlex.split(row["ask_by"]))
        assert [again["choice"][key] for key in SHOWN] == [row[key] for key in SHOWN]
        assert sum(sent["bytes"] for sent in again["rows"] if "sent" in sent) == pytest.approx(row["bytes"], rel=1e-12)
        assert row["ask_by"] in table


@pytest.mark.parametrize("more", ["--objective per_watt", "--free batch", "--free environments", "--emit toml"])
def test_a_front_refuses_what_makes_no_sense_with_it(capsys, more):
    assert main(["recommend", "--platform", "u200", "--workload", "hopper_ddpg", "--front", *more.split()]) == 2
    assert more.split()[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    "system",
    [
        ("--platform", "u200", "--workload", "hopper_ddpg"),
        ("--platform", PLATFORMS[-1], "--workload", "hopper_ddpg"),
        ("--platform", "h200", "--workload", "pong_dqn", "--fix", "arrangement=serial"),
        slow(("--platform", "u200", "--workload", "hopper_ddpg", "--fix", "sampling=gpu", "--fix", "updating=cpu")),
    ],
)
def test_a_mapping_is_emitted_as_a_file_that_says_what_the_answer_says(capsys, system):
    file, whole = (printed(capsys, "recommend", *system, *more) for more in (("--emit", "toml"), ("--json",)))
    given = tomllib.loads(file)
    assert f"# made by: python -m dse recommend {shlex.join(system)}\n" in file
    whole = json.loads(whole)
    choice = {**whole["choice"], "platform": whole["question"]["platform"]}
    stated = [given[name] for name in ("platform", "mode", "depth", "batch", "workload")]
    assert stated == [*(choice[name] for name in ("platform", "arrangement", "depth", "batch")), system[3]]
    assert given["expected"]["low"] <= given["expected"]["value"] <= given["expected"]["high"]
    assert given["expected"]["value"] == pytest.approx(choice["value"], rel=0.006)
    parts = [row for row in whole["rows"] if "part" in row]
    assert len(parts) == 5
    for part in parts:
        details = {"implementation" if key == "contestant" else key: one for key, one in part["details"].items()}
        assert given[part["part"]].items() >= (details | {"device": part["device"]}).items()
