"""Answers: their JSON and their text, and rules that one case shows: what is given up, listed, counted and assumed."""

import dataclasses
import functools
import json
import re
import shlex
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from dse.__main__ import main
from dse.answers import ask as asking
from dse.answers import emit, fpga, tune
from dse.answers.ask import find_modeled_tree
from dse.answers.mapping_answer import mapping_answer
from dse.answers.printer import LINES, UNSURE, rounded, say, write
from dse.answers.words import SENTENCES
from dse.estimate import Estimate, Evidence
from dse.mapping.alternatives import JointUncertainty, choose, undominated
from dse.mapping.options import EqualDevices
from dse.mapping.question import answer_question, ask, explain_choice, find_mapping, tables
from dse.mapping.why_not import Explanation
from dse.platforms import load as load_platform
from dse.solver.law import transfers
from dse.solver.solve import Search
from dse.times import laws
from dse.times.door import Times
from dse.times.stated import StatedTimes
from dse.tuning.cores import Allocation
from impls.terminal import COMMAND
from impls.training import load
from tests.committed import RESULTS
from tests.matrix import slow
from tests.oracles.plain_loops import every
from tests.solver_cases import learners, replace_details
from tests.unit.test_options import several

DEPTH = "depth --sampling-us 1000 --training-us 2000 --transfer-us 300"
MACHINE = "--platform results/d7dae63b89/platform.toml --workload cartpole_dqn"
SYSTEM = "--platform u200 --workload hopper_ddpg"
ASKED = (
    "cores --actors 1:900,2:1700 --learners 1:400,2:700 --cores 56",
    DEPTH,
    f"adapt {MACHINE}",
    f"learners {SYSTEM} --most 4",
    "fpga --network cartpole --batch 32 --capacity 1000",
    "recommend --capacity 2e5 --batch 128 --platform h200",
    f"recommend {SYSTEM}",
    f"explain {SYSTEM} --config learner=gpu",
    f"what-if {SYSTEM} --set fpga.clock_mhz=400",
)
KEYS = "question choice rows others decides notes paste"


@functools.cache
def ask_command(asked):
    """The answer to a question, before it is printed."""
    kept = []
    with pytest.MonkeyPatch.context() as patches:
        for module in (tune, fpga, asking):
            patches.setattr(module, "show", lambda answer, options: kept.append(answer) or 0)
        assert main(shlex.split(asked)) == 0
    return kept[0]


def flat(lines):
    return " ".join(" ".join(lines).split())


def rows_of(answer):
    return [row for row in (answer.choice, *answer.rows, *answer.others, *answer.decides) if row]


def check_screens(answer):
    """AssertionError unless the first screen is short, and all numbers are with --verbose."""
    short, whole = list(write(answer)), "\n".join(write(answer, is_verbose=True))
    assert len(short) <= LINES or any(note.level == "warning" for note in answer.notes)
    assert all(len(line) <= 120 or COMMAND.search(line) for line in short if line.startswith(" "))
    for row in rows_of(answer):
        if row.estimate:
            scale = 1e6 if row.unit == "s" else 1.0
            ends = row.estimate.value, row.estimate.low, row.estimate.high
            assert all(rounded(scale * end, *ends[1:]) in whole for end in ends), row


def test_each_sentence_is_said_and_each_that_is_said_exists():
    paths = Path(tune.__file__).parents[1].rglob("*.py")
    source = "".join(path.read_text() for path in paths if path.stem != "words")
    made = {"short_of_bytes", "and_short_of_bytes"}  # of the amounts that are bytes
    sides = (*get_args(get_type_hints(Allocation)["bottleneck"]), "learner", "rmm")
    assert {*SENTENCES} - made <= {f"bound_by_{side.replace(' ', '_')}" for side in sides} | {
        *re.findall(r"""["'](\w+)["']""", source)
    }
    told = re.findall(r'(?:Note\(|says=)\s*"(\w+)"(?: if [^"]* else "(\w+)")?', source)
    assert {kind for pair in told for kind in pair if kind} <= {*SENTENCES}


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.split()[0])
def test_text_is_the_json_in_words(asked):
    """The first screen is short and begins with what counts; the whole has each note, and no number but the JSON's."""
    answer = ask_command(asked)
    check_screens(answer)
    brief, whole = (flat(write(answer, is_verbose)) for is_verbose in (False, True))
    best = answer.choice.estimate
    first = [(note.kind, note.values) for note in answer.notes if note.level == "measure"]
    first = first[:1] if best.high > UNSURE * best.low else []
    assert brief.startswith(flat([say(*(first or [(answer.choice.says, answer.choice.values)])[0])]))
    for note in answer.notes:
        said = "warning: " * (note.level == "warning") + flat([say(note.kind, note.values)])
        assert said in whole
        assert (said in brief) == (note.level != "detail") or note.level in ("first", "measure")
    assert [*json.loads(json.dumps(answer.to_dict()))] == KEYS.split()
    for row in rows_of(answer):
        plain, number = row.to_dict(), row.estimate
        ends = {name: getattr(number, name) for name in ("value", "low", "high")} if number else {}
        assert {**row.label, **row.more, **ends}.items() <= plain.items()
        assert plain.get("upper_bound", False) == row.is_bound
    for row in answer.others:
        if row.estimate and "pace" in row.more:
            alternative, best = (each.estimate.value ** (-1 if row.unit == "s" else 1) for each in (row, answer.choice))
            assert row.more["pace"] == pytest.approx(alternative / best, rel=1e-6)


# Strangers


HOPPER, PONG = load("hopper_ddpg"), load("pong_dqn")
U200 = load_platform("u200")


def only(problem, objective="ratio"):
    """The one configuration of a problem, as a candidate."""
    (one,) = every(problem)
    return candidate(problem, one, objective)


def candidate(problem, configuration, objective="ratio"):
    return Search({"": problem}, objective).answer("", configuration)


def chosen_of(problem, **modes):
    return choose(modes or {"": problem}, "ratio", None)


def with_times(problem, **times):
    """The problem whose parts take these times, each within its ends."""
    options = {
        part: tuple(dataclasses.replace(one, time=times.get(part, one.time)) for one in choices)
        for part, choices in problem.options.items()
    }
    return dataclasses.replace(problem, options=options)


def own(tmp_path, *lines):
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines))
    return StatedTimes.read(path)


# What is chosen and listed


def test_at_most_a_fifth_is_given_up_for_fewer_cores():
    """And what is expected to give less than half is not listed as a tie."""

    def chosen(hz):
        cases = (("8 threads", 100.0, 20.0, 8.0, "T(8)"), ("1 thread", hz, 20.0, 1.0, "T(1)"))
        found = chosen_of(learners(*cases))
        return found.answer.configuration.learner.name, [one.configuration.learner.name for one in found.ties]

    assert chosen(80.1) == ("1 thread", ["8 threads"])
    assert chosen(79.0)[0] == "8 threads"
    assert (chosen(51.0)[1], chosen(49.0)[1]) == (["1 thread"], [])


def test_of_two_on_as_many_cores_the_slower_is_dominated():
    problem = learners(("1", 80.0, 2.0, 1.0, "a"), ("8", 100.0, 2.0, 8.0, "b"), ("also 8", 90.0, 2.0, 8.0, "c"))
    found = undominated(candidate(problem, one) for one in every(problem))
    assert [one.configuration.learner.name for one in found] == ["8", "1"]


def test_elsewhere_is_on_other_devices_whatever_the_mode():
    both = learners(("only", 100.0, 1.1, 1.0, "T"))
    slower = learners(("only", 50.0, 1.1, 1.0, "T"))
    assert chosen_of(None, apart=both, pipelined=slower).best_other_mapping is None


# Ends of a rate


def test_ends_of_a_rate_are_those_of_its_time_the_other_way_up():
    """A loop that two parts bound, by the same evidence, has the ends of both."""
    problem = learners(("only", 100.0, 2.0, 1.0, "T"))
    one = only(with_times(problem, learner=Estimate(0.01, 0.008, 0.04, Evidence("T", "modeled"))))
    assert JointUncertainty("ratio", 0.01).ends(one) == pytest.approx((25.0, 125.0), rel=0.02)
    time = Estimate(0.01, 0.005, 0.02, Evidence("T", "modeled"))
    both = only(with_times(problem, learner=time, storage=time))
    assert both.value == pytest.approx(50.0, rel=1e-4)
    assert JointUncertainty("ratio", 0.01).ends(both) == pytest.approx((25.0, 100.0), rel=0.02)


# Devices of one model


@pytest.mark.parametrize("changed", ["nothing", "watts", "link"])
def test_devices_of_other_watts_or_links_are_of_another_model(changed):
    platform = several("u200", "gpu", 2)
    *others, last = platform.devices
    if changed == "watts":
        watts = dataclasses.replace(last.power_watts, value=2 * last.power_watts.value)
        platform = dataclasses.replace(platform, devices=(*others, dataclasses.replace(last, power_watts=watts)))
    if changed == "link":
        *links, link = platform.links
        rate = dataclasses.replace(link.beta_bytes_per_s, value=link.beta_bytes_per_s.value / 2)
        platform = dataclasses.replace(platform, links=(*links, dataclasses.replace(link, beta_bytes_per_s=rate)))
    equal = EqualDevices(Times(platform, HOPPER, None, None, {}), platform.devices)
    assert equal.first(platform.device("gpu1")).name == ("gpu" if changed == "nothing" else "gpu1")


def test_a_tree_takes_the_memory_of_its_own_device():
    platform = several("u200", "gpu", 2)
    equal = EqualDevices(Times(platform, HOPPER, None, None, {}), platform.devices)
    one, other = (equal.trees(platform.device(name)) for name in ("gpu", "gpu1"))
    assert {budget for tree in one for budget in tree.needs} == {"gpu.memory_bytes"}
    assert {budget for tree in other for budget in tree.needs} == {"gpu1.memory_bytes"}
    assert [tree.draw for tree in one] == [tree.draw for tree in other]


# Times of one's own


def test_ones_own_times_come_before_records(tmp_path):
    platform = load_platform(RESULTS / "d7dae63b89" / "platform.toml")
    table = tables(platform, HOPPER, RESULTS)[0]
    stated = own(tmp_path, "part,device,us", "learner,cpu,700").at(HOPPER.learner.batch)
    steps = [
        Times(platform, HOPPER, table, None, {}, own=one).learners.list(platform.device("cpu"))
        for one in (None, stated)
    ]
    assert table and steps[0][0].step.value != 700e-6
    assert steps[1][0].step.value == 700e-6


def test_the_table_of_primitives_shows_the_surest_time(tmp_path, capsys):
    """One thread was timed; more are modeled from it, faster, and lack a time of their own."""
    path = tmp_path / "mine.csv"
    path.write_text("part,device,us\nlearner,cpu,9000\n")
    assert main(["platform", "estimate", "u200", "--workload", "hopper_ddpg", "--times", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    (row,) = (row for row in rows if (row.get("part"), row["device"]) == ("learner", "cpu"))
    assert row["source"] == "measured"
    assert row["value"] == 0.009
    assert row["unit"] == "s"


def test_a_links_time_of_a_batch_is_of_that_batch(tmp_path):
    stated = own(tmp_path, "part,from,to,batch,us", "link,cpu,gpu,64,11", "link,cpu,gpu,1024,26").at(256)
    hop = stated.hop("cpu", "gpu", 256 * 100.0, "")
    assert (hop.alpha_seconds, hop.seconds_per_byte) == pytest.approx((10e-6, 1e-6 / 6400))
    alone = own(tmp_path, "part,from,to,batch,us", "link,cpu,gpu,64,20").at(256)
    hop = alone.hop("cpu", "gpu", 256 * 100.0, "", (1e-6, 9e-6 / 6400))
    assert (hop.alpha_seconds, hop.seconds_per_byte) == pytest.approx((2e-6, 18e-6 / 6400))


def shared(platform, stated=None):
    """(the gradient step of one GPU, that which two share, the parts)."""
    parts = Times(platform, HOPPER, None, None, {}, own=stated and stated.at(HOPPER.learner.batch))
    steps = {one.devices: one.step.value for one in parts.learners.list(platform.device("gpu"))}
    return steps[1], steps[2], parts


def test_gradients_go_over_links_as_they_are_stated(tmp_path):
    platform = several("u200", "gpu", 2)
    rows = ("part,from,to,us,gb_per_s", "link,cpu,gpu,50000,10", "link,cpu,gpu1,50000,10")
    usual, slow = (shared(platform, one)[1] for one in (None, own(tmp_path, *rows)))
    assert slow - usual > 2 * 0.04  # to the host and back


def test_devices_that_share_a_batch_train_their_share():
    platform = several("u200", "gpu", 2)
    _, both, parts = shared(platform)
    gpu = platform.device("gpu")
    half = laws.learner(parts.cpu, gpu, HOPPER, HOPPER.learner.batch // 2).value
    assert both == pytest.approx(half + parts.learners.exchange_seconds(gpu, 2))


# Trees, files and laws


def test_updates_a_sample_count_in_a_modeled_tree():
    once, often = (find_modeled_tree("u200", 100_000, 64, updates_per_sample=rate) for rate in (1.0, 4.0))
    cpu = U200.device("cpu")
    for rate, answer in ((1.0, once), (4.0, often)):
        for one in (answer.choice, *answer.ties):
            if one.device == "cpu":
                shape = one.configuration
                draw, update = laws.tree(cpu, 100_000, shape.fanout, 64, shape.threads)
                assert one.seconds == pytest.approx(draw.value + rate * update.value)


def test_a_command_has_the_learners_threads():
    answer = find_mapping("h200", "cartpole_dqn", fix={"arrangement": "serial", "learner": "cpu"})
    assert emit.training_command(replace_details(answer, "learner", {"threads": 3})).endswith(" --threads 3")


def test_ties_and_transfers_have_rows_and_other_ties_a_count():
    answer = find_mapping("u200", "hopper_ddpg", fix={"storage": "cpu", "learner": "fpga"})
    tie = dataclasses.replace(answer.chosen, value=1.12 * answer.value)
    made = dataclasses.replace(answer.made, ties=(tie,) * 9, others_tied=2)
    given = mapping_answer(dataclasses.replace(answer, made=made))
    assert [row.more["pace"] for row in given.others if row.more.get("is_tied")] == pytest.approx([1.12] * 9)
    assert [note.values for note in given.notes if note.kind == "more_are_tied"] == [{"more": 2}]
    sent = list(transfers(answer.chosen.problem, answer.chosen.configuration.where))
    assert sent
    assert [row.to_dict() for row in given.rows if "sent" in row.label] == [
        {"sent": f"{flow.source} to {flow.target}", "by": hop.engine, "seconds": hop.seconds(flow)}
        | {"bytes": flow.nbytes, "waits": flow.waits}
        for flow, hop in sent
    ]


def test_larger_weights_take_longer_to_fetch():
    small, large = (laws.fetch(nbytes).value for nbytes in (laws.CACHED_BYTES, laws.CACHED_BYTES + 1e9))
    assert large - small == pytest.approx(1e9 / laws.AS_FITTED.fetch_bytes_per_s)


def test_an_insertion_of_more_leaves_takes_longer():
    cpu = U200.device("cpu")

    def update(insertions, leaves):
        return laws.tree(cpu, 10**6, 16, 256, 1, insertions, leaves)[1].value

    call = laws.AS_FITTED.tree_call_seconds * laws.pace(cpu)
    one, eight = (update(1.0, leaves) - update(0.0, 1) for leaves in (1, 8))
    assert eight - call == pytest.approx(8 * (one - call))


# Explanations


HERE = "results/d7dae63b89/platform.toml"
QUESTIONS = [("u200", "hopper_ddpg"), slow("h200", "pong_dqn"), (HERE, "hopper_sac")]


@pytest.mark.parametrize("platform, workload", QUESTIONS)
def test_parts_and_transfers_are_all_that_keeps_an_engine_busy(platform, workload):
    """S10: nothing that is charged is hidden, and all of it is the busy time that the rate follows from."""
    given = answer_question(ask(platform, workload, fix={"arrangement": "apart"} if platform == "u200" else {}))
    where, busy = given.chosen.configuration.where, dict[str, float]()
    charged = [(row.label["by"], row.more["seconds"]) for row in given.transfers]
    for part in given.parts:
        charged += [(engine, part.more["charged_seconds"]) for _, engine in where[part.label["part"]]]
    for engine, seconds in charged:
        busy[engine] = busy.get(engine, 0.0) + seconds
    assert busy == pytest.approx(given.chosen.outcome.busy)
    loop = sum(part.more["charged_seconds"] for part in given.parts if part.label["part"] != "actors")
    loop += sum(one.more["seconds"] for one in given.transfers if one.more["waits"])
    assert 1 / given.hz == pytest.approx(max(*busy.values(), loop / (given.choice.more["depth"] + 1)))
    assert sum(one.more["bytes"] for one in given.transfers) == pytest.approx(given.chosen.outcome.bytes_moved)
    assert given.choice.more["devices"] == given.chosen.outcome.devices
    plain = json.loads(json.dumps(mapping_answer(given).to_dict()))
    simulated = [row for row in plain["rows"] if "rate_hz" in row]
    assert [row["simulated_with_deviation"] for row in simulated] == [0.0, 1.0]
    assert all(row["low_hz"] <= row["rate_hz"] <= row["high_hz"] for row in simulated)
    assert [row["bytes"] for row in plain["rows"] if "sent" in row] == [one.more["bytes"] for one in given.transfers]


def test_what_is_equal_on_both_sides_is_no_cause_and_no_excuse():
    """S5: however long the learner takes, it takes that long on both sides; what differs is the tree."""
    question = ask(HERE, "hopper_ddpg", fix={"arrangement": "serial", "learner_threads": 1})
    given = explain_choice(question, {"contestant": "numpy"})
    assert isinstance(given, Explanation)
    assert given.best.low <= given.asked.value <= given.best.high
    assert given.loss > given.best.question["epsilon"]
    assert given.chance < 0.01
    why = {note.kind: note.values for note in given.notes}
    assert "may_be_no_worse" not in why
    assert given.cause == "cpu.main"
    assert why["part_takes"]["part"] in ("updating", "sampling")
