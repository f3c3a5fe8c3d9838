"""Training over nodes: how many, of which kind, and whether they pay; rates by hand from stated times."""

import dataclasses
import shlex

import pytest

from dse.__main__ import main
from dse.answers.ask import recommend_mapping
from dse.answers.deciding import add_nodes, contenders
from dse.mapping.question import ask
from dse.platforms import fingerprint
from dse.platforms.files import parse, to_toml
from dse.platforms.probe import keep_nodes
from dse.solver.problem import ProblemError
from impls.training import load
from impls.training.arrangement import WEIGHTS_EVERY
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
"""
NODES = """
[[node]]
name = "{name}"
platform = "lab"
count = {count}
cores = {cores}
price_per_hour = {price}
"""
NETWORK = """
[network]
call_us = {call}
batch_us = {batch}
record_ns = {record}
answer_us = {answer}
rate_mb_per_s = {rate}
"""
CHEAP = {"call": 100, "batch": 13.6, "record": 100, "answer": 10, "rate": 1e6}
LEARNER, PARTS = 280.0, {"sampling": 3, "updating": 4, "storage": 1}
B, P = 64, 4 * 128 + 128 + 128 * 128 + 128 + 128 * 2 + 2
RECORD = 16 + 16 + 4 + 1 + 1  # bytes: two observations, reward, action, terminated


def us(sides):
    """The rate of the slowest side, each in microseconds."""
    return 1e6 / max(sides)


@pytest.fixture(name="lab")
def make_lab(tmp_path, monkeypatch):
    """A function that asks about CartPole on a lab whose nodes, network and times of an environment step are stated."""
    monkeypatch.chdir(tmp_path)

    def answer(
        env_us, fix=None, cores=2, gib=8, nodes=({"name": "small", "count": 3, "cores": 1, "price": 1},), **changed
    ):
        platform = PLATFORM.format(cores=cores, gib=gib) + "".join(NODES.format(**each) for each in nodes)
        (tmp_path / "lab.toml").write_text(platform + NETWORK.format(**CHEAP | changed))
        rows = [f"{part}, cpu, 64, {value}, , 1.1" for part, value in {"learner": LEARNER, **PARTS}.items()]
        rows += [f"actors, cpu, , {env_us / count:.6g}, {count}, 1.1" for count in range(1, cores + 1)]
        (tmp_path / "times.csv").write_text("\n".join(["part, device, batch, us, processes, factor", *rows]))
        return {"platform": "lab.toml", "workload": "cartpole_dqn", "times": "times.csv", "fix": fix or {}}

    return answer


def recommend(asked):
    return recommend_mapping(**asked).to_dict()


def kinds(answer):
    return {note["kind"] for note in answer["notes"]}


@pytest.mark.parametrize(
    ("changed", "side"),
    [
        ({}, "actors"),
        ({"call": 60_000}, "learner"),
        ({"answer": 50_000}, "node"),
        ({"rate": 1}, "network"),
    ],
)
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("calls", [2, 8])
def test_the_rate_is_that_of_the_slowest_side(lab, changed, side, nodes, calls):
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
    assert choice["value"] == pytest.approx(us(sides.values()), rel=1e-6)
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


def test_as_few_nodes_are_taken_as_keep_the_learner_busy_and_the_cheapest(lab):
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


@pytest.mark.parametrize(("env_us", "calls"), [(335, 32), (370, 16), (460, 8), (560, 4), (820, 2), (1_400, 1)])
def test_no_more_batches_are_drawn_by_a_call_than_hide_its_time(lab, env_us, calls):
    nodes = ({"name": "small", "count": 1, "cores": 2, "price": 1},)
    fix = {"arrangement": "nodes", "actors": 1}
    assert recommend(lab(env_us, fix, nodes=nodes, call=1_000))["choice"]["batches_a_call"] == calls


def test_a_node_has_no_more_actors_than_keep_the_learner_busy(lab):
    nodes = ({"name": "large", "count": 3, "cores": 4, "price": 1},)
    choice = recommend(lab(250, {"arrangement": "nodes"}, nodes=nodes))["choice"]
    assert (choice["actor_nodes"], choice["actors"]) == (1, 1)


def test_records_that_one_machine_has_no_room_for_are_kept_on_nodes(lab):
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


GPU = """
[[device]]
name = "gpu"
kind = "gpu"
multiprocessors = 30
clock_ghz = 1
launch_us = 5
memory = { size_gib = 8, bandwidth_gb_per_s = 500 }
[[link]]
from = "cpu"
to = "gpu"
hops = 1
alpha_us = 5
beta_gb_per_s = 10
back_alpha_us = 5
back_beta_gb_per_s = 10
[[node]]
"""


def test_the_learner_is_on_one_thread_or_on_a_gpu(lab, tmp_path):
    asked = lab(1_000, {"arrangement": "nodes", "batches_a_call": 32, "actor_nodes": 1})
    rows = ["part, device, batch, us, threads", f"learner, cpu, 64, {LEARNER}, 1", "learner, cpu, 64, 90, 2"]
    (tmp_path / "times.csv").write_text("\n".join([*rows, "actors, cpu, , 1000, "]))
    assert recommend(asked)["choice"]["learner_hz"] == pytest.approx(1e6 / (LEARNER + 20 + 100 / 32))
    path = tmp_path / "lab.toml"
    path.write_text(path.read_text().replace("[[node]]", GPU, 1))
    (tmp_path / "times.csv").write_text("\n".join([*rows, "actors, cpu, , 1000, ", "learner, gpu, 64, 100, "]))
    answer = recommend(asked)
    assert answer["choice"]["learner_hz"] == pytest.approx(1e6 / (100 + 20 + 100 / 32))
    assert "--device cuda" in answer["paste"][0]


def test_no_line_is_given_that_would_train_something_else(lab):
    assert recommend(lab(1_000, {"arrangement": "nodes", "update_interval": 2}))["paste"] == []


def test_a_plan_races_with_the_best_of_one_machine(lab):
    question = ask(**lab(1_000))
    raced = add_nodes(question, contenders(question), "local")
    assert [contender.fix["arrangement"] == "nodes" for contender in raced].count(True) == 1
    assert 2 <= len(raced) <= 3 and raced[-1].words[-2:] == ("--cluster", "local")
    assert raced[-1].answer.value == pytest.approx(3_000, rel=0.1)


@pytest.mark.parametrize(
    ("fix", "named"),
    [
        ({"actor_nodes": 2}, "actor_nodes=2"),
        ({"arrangement": "nodes", "actor_nodes": 9}, "lab"),
        ({"arrangement": "nodes", "actors": 4}, "lab"),
        ({"arrangement": "nodes", "batches_a_call": 0}, "batches_a_call"),
        ({"arrangement": "nodes", "learner": "tpu"}, "tpu"),
    ],
)
def test_what_no_node_can_have_is_refused_by_name(lab, fix, named):
    with pytest.raises(ProblemError, match=named):
        recommend(lab(1_000, fix))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: text.partition("[[node]]")[0], "states no nodes"),
        (lambda text: text.partition("[network]")[0], "[network]"),
        (lambda text: text.replace("count = 3", "count = 0"), "count"),
        (lambda text: text.replace('platform = "lab"', 'platform = "lba"'), "lba"),
        (lambda text: text.replace("call_us = 100", "call_us = -1"), "call_us"),
    ],
)
def test_a_file_without_sense_is_refused_by_name(lab, tmp_path, capsys, change, named):
    asked = lab(1_000)
    (tmp_path / "lab.toml").write_text(change((tmp_path / "lab.toml").read_text()))
    words = ["--platform", "lab.toml", "--workload", asked["workload"], "--fix", "arrangement=nodes"]
    assert main(["recommend", *words]) == 2
    told = capsys.readouterr().err
    assert named in told and ("goes with" in told) == (named == "[network]")  # a table with a fault is there


def test_nodes_of_a_file_are_read_as_they_were_written(lab, tmp_path):
    lab(1_000)
    platform, _ = parse((tmp_path / "lab.toml").read_text(), "lab.toml")
    assert parse(to_toml(platform), "again")[0] == platform
    assert platform.nodes[0].price_per_hour.value == 1


@pytest.mark.filterwarnings("ignore::Warning")  # Ray's own
def test_a_cluster_that_is_not_there_is_told_and_the_file_stays(lab, tmp_path, capsys):
    lab(1_000)
    before = (tmp_path / "lab.toml").read_text()
    assert main(["platform", "probe", "--anyway", "--out", "lab.toml", "--cluster", "127.0.0.1:9"]) == 2
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert (tmp_path / "lab.toml").read_text() == before


def test_a_new_probe_keeps_the_nodes_of_the_file(lab, tmp_path):
    lab(1_000)
    known = parse((tmp_path / "lab.toml").read_text(), "lab.toml")[0]
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


@pytest.mark.parametrize(
    ("words", "named"),
    [(["--fix", "arrangement=nodes"], "--cluster"), (["--cluster", "local", "--decide", "0"], "--cluster races")],
)
def test_a_run_over_nodes_that_cannot_be_is_refused_with_a_remedy(tmp_path, monkeypatch, capsys, words, named):
    monkeypatch.chdir(tmp_path)
    key = str(fingerprint()["key"])
    (tmp_path / "results" / key).mkdir(parents=True)
    node, network = NODES.format(name="own", count=2, cores=1, price=1), NETWORK.format(**CHEAP)
    text = f"{PLATFORM.format(cores=2, gib=8)}{node}{network}".replace('"lab"', '"this"')
    text = text.replace("origin", f'machine_key = "{key}"\norigin', 1)
    (tmp_path / "results" / key / "platform.toml").write_text(text)
    assert main(["run", "cartpole_dqn", *words]) == 2
    assert named in capsys.readouterr().err
