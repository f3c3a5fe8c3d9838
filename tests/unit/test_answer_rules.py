"""Rules of answers that one case shows: what is given up, listed, counted and assumed, and what explains a loss."""

import dataclasses
import json

import pytest

from dse.__main__ import main
from dse.answers import emit
from dse.answers.ask import find_modeled_tree
from dse.answers.mapping_answer import mapping_answer
from dse.estimate import Estimate, Evidence
from dse.mapping import alternatives
from dse.mapping.alternatives import JointUncertainty, choose, undominated
from dse.mapping.answer import MappingAnswer
from dse.mapping.options import EqualDevices
from dse.mapping.question import answer_question, ask, explain_choice, find_mapping, tables
from dse.mapping.why_not import WATTS, Explanation
from dse.platforms import load as load_platform
from dse.solver.deciding import Sensitivity
from dse.solver.law import LOOP_BOUND, outcome, transfers
from dse.solver.solve import Search
from dse.times import laws
from dse.times.door import Times
from dse.times.stated import StatedTimes
from impls.training import load
from tests.committed import RESULTS
from tests.matrix import slow
from tests.oracles.plain_loops import every
from tests.solver_cases import learners, replace_details
from tests.unit.test_options import several

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
    def chosen(hz):
        cases = (("8 threads", 100.0, 20.0, 8.0, "T(8)"), ("1 thread", hz, 20.0, 1.0, "T(1)"))
        return chosen_of(learners(*cases))

    assert chosen(80.1).answer.configuration.learner.name == "1 thread"
    assert chosen(79.0).answer.configuration.learner.name == "8 threads"
    assert [one.configuration.learner.name for one in chosen(80.1).ties] == ["8 threads"]


def test_what_is_expected_to_give_less_than_half_is_not_listed():
    def listed(hz):
        cases = (("8 threads", 100.0, 20.0, 8.0, "T(8)"), ("1 thread", hz, 20.0, 1.0, "T(1)"))
        return [one.configuration.learner.name for one in chosen_of(learners(*cases)).ties]

    assert (listed(51.0), listed(49.0)) == (["1 thread"], [])


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
    time = Estimate(0.01, 0.008, 0.04, Evidence("T", "modeled"))
    one = only(with_times(learners(("only", 100.0, 2.0, 1.0, "T")), learner=time))
    assert JointUncertainty("ratio", 0.01).ends(one) == pytest.approx((25.0, 125.0), rel=0.02)


def test_a_rate_that_the_loop_bounds_is_drawn_from_all_of_the_loop():
    """Storage and learner take turns, each 10 ms by the same evidence: 50 a second, of either alone 100."""
    time = Estimate(0.01, 0.005, 0.02, Evidence("T", "modeled"))
    one = only(with_times(learners(("only", 100.0, 2.0, 1.0, "T")), learner=time, storage=time))
    assert one.value == pytest.approx(50.0, rel=1e-4)
    assert JointUncertainty("ratio", 0.01).ends(one) == pytest.approx((25.0, 100.0), rel=0.02)


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


def test_what_decides_is_a_row_by_its_factor_and_device(monkeypatch):
    answer = find_mapping("u200", "hopper_ddpg")
    near = Sensitivity("link cpu-gpu", 0.932, 9.0)
    far = Sensitivity("RMM(fpga)", 0.471, 9.0, answer.made.best_other_mapping, 0.12)
    monkeypatch.setattr(alternatives, "deciding", lambda *_: [near, far])
    rows = mapping_answer(answer).decides
    told = [(row.says, *row.label.values(), row.more["gain"]) for row in rows]
    assert told == [("decides_if_shorter", "tree", "fpga", 0.471, 0.12), ("", "link", "cpu-gpu", 0.932, 0.0)]
    assert rows[0].more["times"] == pytest.approx(1 / 0.471)
    monkeypatch.setattr(alternatives, "deciding", lambda *_: [near])
    notes = mapping_answer(dataclasses.replace(answer)).notes
    assert "nothing_decides" in {note.kind for note in notes}


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
QUESTIONS = [("u200", "hopper_ddpg"), ("h200", "pong_dqn"), ("edge", "cartpole_dqn"), (HERE, "hopper_sac")]


@pytest.mark.parametrize("platform, workload", QUESTIONS)
def test_parts_and_transfers_of_an_engine_are_all_that_keeps_it_busy(platform, workload):
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


ASKED = [
    ("h200", "hopper_ddpg", "ratio", {"learner": "cpu"}),
    slow("h200", "hopper_ddpg", "training", {"storage": "cpu", "learner": "gpu"}),
    slow("u200", "hopper_ddpg", "training", {"sampling": "cpu"}),
    ("u200", "hopper_ddpg", "per_watt", {"learner": "gpu"}),
    slow("edge", "cartpole_dqn", "ratio", {"learner": "fpga"}),
    (HERE, "cartpole_dqn", "ratio", {"arrangement": "apart"}),
    slow(HERE, "hopper_sac", "training", {"fanout": 2}),
]


@pytest.mark.parametrize("platform, workload, objective, described", ASKED)
def test_a_cause_is_the_engine_that_bounds_the_asked_one(platform, workload, objective, described):
    """S5: engine by engine, of the best that is as described, which no epsilon has been spent on."""
    given = explain_choice(ask(platform, workload, objective), described)
    assert isinstance(given, Explanation)
    assert given.asked.question["epsilon"] == 0.0
    assert given.asked.made.best is None
    if given.loss <= given.best.question["epsilon"]:
        assert given.verdict.startswith("ties")
        assert given.cause == ""
        return
    again = outcome(given.asked.chosen.problem, given.asked.chosen.configuration)
    asked = {engine: pair[0] for engine, pair in given.engines.items() if pair[0]}
    if given.cause == WATTS:
        assert given.asked.watts > given.best.watts
        return
    assert (
        asked[given.cause]
        == max(asked.values())
        == pytest.approx(1 / (again.training_hz if objective == "training" else again.hz))
    )
    why = {note.kind: note.values for note in given.notes}
    (busy,) = (why[kind] for kind in ("steps_in_flight", "busy_longer", "busy_alone") if kind in why)
    assert busy["engine"] == given.cause
    assert busy["seconds"] == asked[given.cause]
    if told := why.get("part_takes"):
        (part,) = (part for part in given.asked.parts if part.label["part"] == told["part"])
        engines = {engine for _, engine in given.asked.chosen.configuration.where[told["part"]]}
        assert told["time"]["value"] == part.number["value"]
        assert told["device"] == part.label["device"]
        assert told["choice"] == part.more["implementation"]
        assert given.cause in engines or given.cause == LOOP_BOUND
    busy = {engine: pair[1] for engine, pair in given.engines.items()}
    assert busy[given.cause] < asked[given.cause]  # else the best would be no faster


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


def test_an_answer_to_an_exact_question_has_no_doubt():
    exact = answer_question(ask("h200", "hopper_ddpg", epsilon=0.0))
    assert exact.made.best is None
    assert isinstance(exact, MappingAnswer)
    free = answer_question(ask("h200", "hopper_ddpg"))
    assert free.value <= exact.value
    assert free.made.best is None or free.made.best.value == pytest.approx(exact.value)
