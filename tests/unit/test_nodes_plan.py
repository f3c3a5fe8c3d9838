"""Training over nodes: how many, of which kind, and whether they pay; rates by hand from stated times."""

import dataclasses
import itertools
import shlex

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.__main__ import main
from dse.answers.ask import recommend_mapping
from dse.answers.deciding import add_nodes, contenders
from dse.mapping.question import ask
from dse.platforms.files import parse, to_toml
from dse.platforms.probe import keep_nodes
from dse.solver.problem import ProblemError
from impls.training import load
from impls.training.arrangement import WEIGHTS_EVERY
from impls.training.nodes.actor_node import News, Orders
from impls.training.nodes.states import Nodes, share_steps
from impls.training.options import parser, setup_of

PLATFORM = """
name = "lab"
origin = "datasheet"
note = "the maker's sheet"
[[device]]
name = "cpu"
kind = "cpu"
cores = {cores}
memory = {{ size_gib = {gib}, bandwidth_gb_per_s = 100 }}
[network]
call_us = {call}
batch_us = {batch}
record_ns = {record}
answer_us = {answer}
rate_mb_per_s = {rate}
"""
NODES = """
[[node]]
name = "{name}"
platform = "lab"
count = {count}
cores = {cores}
price_per_hour = {price}
"""
CHEAP = {"call": 100, "batch": 13.6, "record": 100, "answer": 10, "rate": 1e6}
LEARNER, PARTS = 280.0, {"sampling": 3, "updating": 4, "storage": 1}
B, P = 64, 4 * 128 + 128 + 128 * 128 + 128 + 128 * 2 + 2
RECORD = 16 + 16 + 4 + 1 + 1  # bytes: two observations, reward, action, terminated


@pytest.fixture(name="lab")
def make_lab(tmp_path, monkeypatch):
    """A function that asks about CartPole on a lab whose nodes, network and times of an environment step are stated."""
    monkeypatch.chdir(tmp_path)

    def answer(
        env_us, fix=None, cores=2, gib=8, nodes=({"name": "small", "count": 3, "cores": 1, "price": 1},), **changed
    ):
        platform = PLATFORM.format(cores=cores, gib=gib, **CHEAP | changed)
        (tmp_path / "lab.toml").write_text(platform + "".join(NODES.format(**each) for each in nodes))
        rows = [f"{part}, cpu, 64, {value}, , 1.1" for part, value in {"learner": LEARNER, **PARTS}.items()]
        rows += [f"actors, cpu, , {env_us / count:.6g}, {count}, 1.1" for count in range(1, cores + 1)]
        (tmp_path / "times.csv").write_text("\n".join(["part, device, batch, us, processes, factor", *rows]))
        return {"platform": "lab.toml", "workload": "cartpole_dqn", "times": "times.csv", "fix": fix or {}}

    return answer


def recommend(asked):
    return recommend_mapping(**asked).to_dict()


def kinds(answer):
    return {note["kind"] for note in answer["notes"]}


def test_the_rate_is_that_of_the_slowest_side(lab):
    cases = (({}, "actors"), ({"call": 60_000}, "learner"), ({"answer": 50_000}, "node"), ({"rate": 1}, "network"))
    for (changed, side), nodes, calls in itertools.product(cases, (1, 3), (2, 8)):
        fix = {"arrangement": "nodes", "actor_nodes": nodes, "batches_a_call": calls}
        choice = recommend(lab(6_000, fix, **changed))["choice"]
        network = CHEAP | changed
        sides = {
            "learner": LEARNER + network["batch"] + B * network["record"] / 1e3 + nodes / calls * network["call"],
            "actors": 6_000 / nodes,
            "node": network["answer"] / calls,
            "network": (B * RECORD + nodes * 4 * P / WEIGHTS_EVERY) / network["rate"],
        }
        assert choice["side"] == side == max(sides, key=sides.get)
        assert choice["value"] == pytest.approx(1e6 / max(sides.values()), rel=1e-6)
        assert choice["low"] < choice["value"] < choice["high"]
        for each, taken in sides.items():
            assert choice[f"{each}_hz"] == pytest.approx(1e6 / taken, rel=1e-6)


def test_the_break_even_is_where_nodes_begin_to_pay(lab):
    asked = [recommend(lab(env_us)) for env_us in (150, 5_000)]
    told = {note["break_even_seconds"] for answer in asked for note in answer["notes"] if "break_even_seconds" in note}
    assert len(told) == 1
    (break_even,) = told
    assert break_even == pytest.approx(1e-6 * (LEARNER + 20 + 2 / 32 * CHEAP["call"]), rel=1e-6)
    assert [answer["choice"]["arrangement"] for answer in asked] == ["apart", "nodes"]
    *below, above = (recommend(lab(1e6 * break_even * factor)) for factor in (0.95, 1.004, 1.5))
    for answer in below:  # or faster by less than counts
        assert "one_machine_is_enough" in kinds(answer) and answer["choice"]["arrangement"] != "nodes"
    assert "nodes_pay" in kinds(above) and above["choice"]["arrangement"] == "nodes"


def test_more_cores_on_one_machine_move_the_break_even(lab):
    nodes = ({"name": "small", "count": 9, "cores": 1, "price": 1},)
    answer = recommend(lab(500, cores=8, nodes=nodes))
    (note,) = [note for note in answer["notes"] if "break_even_seconds" in note]
    assert note["break_even_seconds"] == pytest.approx(7e-6 * (LEARNER + 20 + 8 / 32 * 100), rel=1e-6)
    nodes = ({**nodes[0], "cores": 4},)
    (note,) = [note for note in recommend(lab(500, cores=8, nodes=nodes))["notes"] if "break_even_seconds" in note]
    assert note["break_even_seconds"] == pytest.approx(7e-6 * (LEARNER + 20 + 2 / 32 * 100), rel=1e-6)
    nodes = ({**nodes[0], "cores": 1},)
    assert "nodes_never_pay" in kinds(recommend(lab(500, cores=8, nodes=({**nodes[0], "count": 7},))))


def test_the_fewest_and_cheapest_nodes_are_taken(lab):
    kind = {"name": "small", "count": 9, "cores": 1, "price": 1}
    answer = recommend(lab(1_000, nodes=(kind,), call=10))
    choice = answer["choice"]
    assert max(row["actor_nodes"] for row in answer["rows"] if "actor_nodes" in row) == 4
    assert choice["price_of_a_million"] == pytest.approx(choice["price_per_hour"] / 3_600 / choice["value"] * 1e6)
    assert choice["low"] == pytest.approx(1e6 / max(1.1 * LEARNER + 1.5 * (20 + 4 / 8 * 10), 1.1 * 1_000 / 4), rel=0.05)
    assert (choice["actor_nodes"], choice["price_per_hour"]) == (4, 4)  # 1,000 us / (280 + 20 + calls) us
    dear = {"name": "large", "count": 9, "cores": 2, "price": 3}
    choice = recommend(lab(1_000, nodes=(kind, dear), call=10))["choice"]
    assert (choice["kind_of_node"], choice["actor_nodes"]) == ("small", 4)
    choice = recommend(lab(1_000, nodes=(kind, {**dear, "price": 1.5}), call=10))["choice"]
    assert (choice["kind_of_node"], choice["actor_nodes"], choice["actors"]) == ("large", 2, 2)


def test_no_more_batches_are_drawn_by_a_call_than_hide_its_time(lab):
    nodes = ({"name": "small", "count": 1, "cores": 2, "price": 1},)
    fix = {"arrangement": "nodes", "actors": 1}
    for env_us, calls in ((335, 32), (370, 16), (460, 8), (560, 4), (820, 2), (1_400, 1)):
        assert recommend(lab(env_us, fix, nodes=nodes, call=1_000))["choice"]["batches_a_call"] == calls
    nodes = ({"name": "large", "count": 3, "cores": 4, "price": 1},)
    choice = recommend(lab(250, {"arrangement": "nodes"}, nodes=nodes))["choice"]
    assert (choice["actor_nodes"], choice["actors"]) == (1, 1)  # no more than keep the learner busy


def test_records_beyond_one_machine_are_kept_on_nodes(lab):
    answer = recommend(lab(100, {"capacity": 60_000_000}, gib=1))
    assert answer["choice"]["arrangement"] == "nodes" and "nodes_hold_it" in kinds(answer)
    assert {row["actor_nodes"] for row in answer["rows"]} == {3}  # 2.7 GB


def test_the_line_to_paste_is_what_the_plan_says(lab):
    answer = recommend(lab(1_000, {"arrangement": "nodes", "batch": 32}))
    (line,) = answer["paste"]
    words = shlex.split(line)
    assert words[:5] == ["python", "-m", "impls.training", "train", "cartpole_dqn"]
    given = parser(None).parse_args(words[3:])
    made, choice = setup_of(load("cartpole_dqn"), given), answer["choice"]
    assert (made.arrangement.name, made.arrangement.actor_nodes) == ("nodes", choice["actor_nodes"])
    assert made.arrangement.batches_a_call == choice["batches_a_call"]
    assert (made.workload.actors.count, made.workload.learner.batch) == (choice["actors"], 32)
    assert (given.cluster, made.device) == ("auto", "cpu")


def test_a_plan_races_with_the_best_of_one_machine(lab):
    question = ask(**lab(1_000))
    raced = add_nodes(question, contenders(question), "local")
    assert [contender.fix["arrangement"] == "nodes" for contender in raced].count(True) == 1
    assert 2 <= len(raced) <= 3 and raced[-1].words[-2:] == ("--cluster", "local")
    assert raced[-1].answer.value == pytest.approx(3_000, rel=0.1)


def test_what_no_node_can_have_is_refused_by_name(lab):
    impossible = {"actor_nodes": (9, "lab"), "actors": (4, "lab"), "batches_a_call": (0, "batches_a_call")}
    impossible["learner"] = ("tpu", "tpu")
    for name, (value, fact) in impossible.items():
        with pytest.raises(ProblemError, match=fact):
            recommend(lab(1_000, {"arrangement": "nodes", name: value}))
    with pytest.raises(ProblemError, match="actor_nodes=2"):
        recommend(lab(1_000, {"actor_nodes": 2}))


def test_a_file_without_sense_is_refused_by_name(lab, tmp_path, capsys):
    asked = lab(1_000)
    good = (tmp_path / "lab.toml").read_text()
    for wrong, named in (
        (good.partition("[[node]]")[0], "[[node]]"),
        (good.partition("[network]")[0], "nodes"),
        (good.replace(good[good.index("[network]") : good.index("[[node]]")], ""), "[network]"),
        (good.replace("count = 3", "count = 0"), "count"),
        (good.replace('platform = "lab"', 'platform = "lba"'), "lba"),
        (good.replace("call_us = 100", "call_us = -1"), "call_us"),
    ):
        (tmp_path / "lab.toml").write_text(wrong)
        words = ["--platform", "lab.toml", "--workload", asked["workload"], "--fix", "arrangement=nodes"]
        assert main(["recommend", *words]) == 2
        assert named in capsys.readouterr().err


def test_a_new_probe_keeps_the_nodes_of_the_file(lab, tmp_path):
    lab(1_000)
    known = parse((tmp_path / "lab.toml").read_text(), "lab.toml")[0]
    assert parse(to_toml(known), "again")[0] == known
    assert known.nodes[0].price_per_hour.value == 1
    probed = dataclasses.replace(known, nodes=(), network=None)
    assert keep_nodes(probed, tmp_path / "lab.toml") == known
    assert keep_nodes(probed, tmp_path / "new.toml") == probed


def test_a_file_is_written_of_one_machine_alone(lab, capsys):
    asked = lab(1_000)
    words = ["recommend", "--platform", "lab.toml", "--workload", "cartpole_dqn", "--times", asked["times"]]
    assert main([*words, "--emit", "toml"]) == 2
    assert "--fix arrangement=apart" in capsys.readouterr().err
    assert main([*words, "--emit", "toml", "--fix", "arrangement=apart"]) == 0
    assert 'mode = "apart"' in capsys.readouterr().out


COUNTS = st.integers(0, 10_000)


@given(st.integers(0, 100_000), st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=8))
def test_steps_are_shared_so_that_all_are_equally_far_ahead(total, nodes):
    taken, allowed = [steps for steps, _ in nodes], [steps + more for steps, more in nodes]
    shares = share_steps(total, taken, allowed)
    assert sum(shares) == max(total, sum(allowed))
    assert all(share >= before for share, before in zip(shares, allowed, strict=True))
    ahead = [share - steps for share, steps in zip(shares, taken, strict=True)]
    raised = [more for more, share, before in zip(ahead, shares, allowed, strict=True) if share > before]
    assert not raised or max(raised) - min(raised) <= 1
    assert not raised or min(ahead) >= min(raised) - 1  # whoever got more is among those that had the fewest ahead


def news(place, run, steps, first=0, ended=0, **more):
    """News of a process that has taken so many steps, and whose episodes have their number as score."""
    episodes = np.array([(number, 1) for number in range(first, first + ended)], np.float64).reshape(-1, 2)
    fields = {"restarts": 0, "cpu": 0, "name": f"n{place}", "failure": ""} | more
    return News(place=place, run=run, steps=steps, first=first, episodes=episodes, **fields)


def started(count=2):
    nodes = Nodes([f"n{place}" for place in range(count)], period=10)
    for place in range(count):
        nodes.hear(news(place, run=place + 1, steps=0))
    nodes.note_gone([False] * count)
    return nodes


def test_steps_of_a_lost_node_go_to_the_others():
    nodes = started()
    nodes.allow_steps(100, 0)
    assert [node.allowed for node in nodes.each] == [50, 50]
    nodes.hear(news(0, 1, 20))
    nodes.hear(news(1, 2, 30))
    nodes.note_gone([False, True])
    nodes.allow_steps(100, 0)
    assert nodes.orders_for(0).allowed == 70 and nodes.steps == 50
    assert "n1 is lost" in nodes.events.pop() and not nodes.events
    nodes.note_gone([False, False])
    nodes.allow_steps(100, 0)
    assert [node.allowed for node in nodes.each] == [70, 50]  # it comes back to what it was allowed
    nodes.allow_steps(140, 0)
    assert [node.allowed for node in nodes.each] == [70, 70]


def test_a_new_process_of_a_node_begins_with_nothing():
    nodes = started()
    nodes.allow_steps(100, 0)
    assert nodes.is_weighted(1) and not nodes.is_weighted(1)
    nodes.hear(news(1, 2, 40, ended=3))
    nodes.hear(news(1, 9, 0))
    assert nodes.steps == 40 and nodes.orders_for(1)[:2] == (9, 0) and nodes.orders_for(1).episodes == 0
    assert nodes.is_weighted(1) and nodes.orders_for(1).epoch != nodes.orders_for(0).epoch
    nodes.hear(news(1, 2, 45))  # late, of the process that has ended
    nodes.hear(news(1, 9, 7))
    nodes.hear(news(1, 9, 5))  # late, too
    assert nodes.steps == 47 and nodes.orders_for(0).elsewhere == 47


def test_weights_are_sent_again_once_they_are_older():
    nodes = started(1)
    sent = []
    for updates in range(25):
        nodes.allow_steps(100, updates)
        sent += [updates] * nodes.is_weighted(0)
        if updates == 6:  # by the weights of no gradient step
            nodes.hear(news(0, 1, 1))
    assert sent == [0, 10, 20]
    nodes.hear(news(0, 1, 1))
    assert nodes.measure_lag() == {"mean": 5.0, "most": 6}


EVENTS = st.sampled_from("act,say,say old,order,end,lose,return,learn".split(","))


@settings(max_examples=300)
@given(st.data())
def test_no_order_of_news_grants_too_many_or_loses_an_episode(data):
    """Nodes act as they are allowed; what they say arrives late, twice or never, and their processes end."""
    count = data.draw(st.integers(1, 3))
    known, nodes, total, run = 0, Nodes([f"n{place}" for place in range(count)], 10), 50, count
    steps, ended, runs, received = [0] * count, [0] * count, [*range(1, count + 1)], []
    obeyed = [Orders(0, 0, 0, 0, 0, 0)] * count
    for _ in range(data.draw(st.integers(1, 40))):
        place = data.draw(st.integers(0, count - 1))
        match data.draw(EVENTS):
            case "act" if obeyed[place].run == runs[place]:
                done = data.draw(st.integers(0, max(0, obeyed[place].allowed - steps[place])))
                steps[place], ended[place] = steps[place] + done, ended[place] + (done > 0)
            case "say":
                first = obeyed[place].episodes if obeyed[place].run == runs[place] else 0
                said = news(place, runs[place], steps[place], first, ended[place] - first)
                received.append(said)
                nodes.hear(said)
            case "say old" if received:
                nodes.hear(data.draw(st.sampled_from(received)))
            case "order":
                orders = nodes.orders_for(place)
                obeyed[place] = orders if orders.run == runs[place] else obeyed[place]
            case "end":
                run += 1
                runs[place], steps[place], ended[place] = run, 0, 0
            case "lose" | "return" as event:
                gone = [node.is_gone for node in nodes.each]
                gone[place] = event == "lose"
                nodes.note_gone(gone)
            case "learn":
                total += 7
        assert nodes.steps >= known
        known, before = nodes.steps, [node.allowed for node in nodes.each]
        nodes.allow_steps(total, 0)
        if [node.allowed for node in nodes.each] != before:
            living = [node for node in nodes.each if not node.is_gone]
            assert sum(node.allowed - node.steps for node in living) <= total - nodes.steps
    for place in range(count):
        nodes.hear(news(place, runs[place], steps[place], 0, ended[place]))
    assert [node.episodes for node in nodes.each] == ended
    assert [node.steps for node in nodes.each] == steps


def test_a_resumed_run_allows_no_step_before_it_knows():
    nodes = started()
    nodes.allow_steps(1000, 0)
    nodes.begin_at(steps=5000, updates=4000, epoch=1)
    nodes.allow_steps(5100, 4000)
    assert [node.allowed for node in nodes.each] == [50, 50] and nodes.steps == 5000
