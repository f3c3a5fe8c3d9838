"""``python -m dse run``: it trains by the answer to its question, and prints the rate predicted beside the measured."""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
from dse import race_runs
from dse.__main__ import main
from dse.answers import deciding, run
from dse.mapping.question import ask, find_mapping
from dse.platforms import checkout
from dse.race_runs import Decided
from dse.records import read_file
from impls.race import Result, Standing
from impls.training import learners, load, path_of
from impls.training.__main__ import main as training
from tests.committed import RESULTS

MACHINE = "8fb834d50a"
ASKED = ("--machine", MACHINE)
PREDICTED = (*ASKED, "--decide", "0")
ANSWER = SimpleNamespace(value=2.0, low=1.0, high=4.0)
RECOMMEND = ("recommend", "--platform", "this", *ASKED, "--results", str(RESULTS))


def answered(capsys, *given, workload="cartpole_dqn"):
    """Return what ``recommend --json`` prints about a workload on the machine."""
    capsys.readouterr()
    assert main([*RECOMMEND, "--workload", workload, *given, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def noted(answer):
    """The values of an answer's notes, by kind."""
    return {note.kind: note.values for note in answer.notes}


def test_a_run_of_two_learners_has_a_rate_predicted_and_measured(tmp_path, capfd):
    out, fixed = tmp_path / "run", ("arrangement=apart", "batch=32", "learners=2", "sync=local", "period=5")
    more = [*(word for each in fixed for word in ("--fix", each)), "--steps", "1400", "--out", str(out), "--json"]
    assert main(["run", "cartpole_dqn", *PREDICTED, *more]) == 0
    choice = json.loads(capfd.readouterr().out)["choice"]
    summary = json.loads((out / "summary.json").read_text())
    how = {"name": "apart", "learners": 2, "sync": "local", "period": 5, "banks": 1}
    assert {key: summary["arrangement"][key] for key in how} == how
    assert choice["run"] == summary
    assert choice["measured"] == summary["settled"]
    assert choice["learners"] == 2
    assert choice["measured_of_predicted"] == pytest.approx(choice["measured_hz"] / choice["hz"])


def test_a_rate_far_below_the_predicted_tells_its_cores(capsys, monkeypatch):
    contender = run.Contender({}, (), "", 1, find_mapping("this", "cartpole_dqn", machine=MACHINE))
    for factor, average in ((0.9, 0.0), (0.3, 9.0)):
        settled = {"updates": 1000, "seconds": 5.0, "update_hz": factor * contender.answer.hz}
        summary = {"settled": settled, "throughput": {"cpu_percent": 27.0}, "updates": 0, "steps": 5000}
        monkeypatch.setattr(checkout, "read_load", lambda average=average: average)
        ended = run.ended_answer(contender, None, summary)
        kinds = noted(ended)
        assert ended.choice.more["load"] == average
        assert ("is_busy" in kinds) == (average > 0)
        assert kinds.get("cores_were_shared", {}).get("percent") == (27.0 if factor < 0.5 else None)
        verdict = "measured_inside" if ended.choice.more["is_inside"] else "measured_outside"
        assert kinds[verdict]["pace"] == pytest.approx(factor)
    run._announce(SimpleNamespace(json=True), ask("this", "cartpole_dqn", machine=MACHINE), contender, None)
    assert checkout.describe_load() in capsys.readouterr().err
    early = noted(run.ended_answer(contender, None, summary | {"settled": None}))
    assert early["ended_too_early"] == {"updates": 0, "steps": 5000}


def test_a_rate_is_inside_where_it_shows_so():
    for high, hz in ((3_001.0, 2_999.0), (3_001.0, 3_004.0), (3_001.0, 3_006.0), (2_999.0, 3_001.0)):
        shown = run.is_inside(SimpleNamespace(low=1_000.0, high=high), hz)
        assert shown == (hz < 3_005), (high, hz)  # all print as 3,000 but that of 3,006


REFUSED = {"file": "file", "done": "summary.json", "none --resume": "checkpoint"}
REFUSED |= {"there --resume --decide 5": "--decide", "noted --decide 5": "empty"}


def test_a_run_or_race_that_cannot_be_is_refused_unanswered(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(run, "answer_question", lambda question: pytest.fail("it was answered"))
    monkeypatch.chdir(tmp_path)
    for path in ("done/summary.json", "there/checkpoint.pt", "noted/note"):
        Path(path).parent.mkdir()
        Path(path).write_text("{}")
    Path("file").write_text("")
    for given, fact in REFUSED.items():
        asked = ["run", "cartpole_dqn", *PREDICTED, "--results", str(RESULTS), "--out", *given.split()]
        assert main(asked) == 2, given
        assert fact in capfd.readouterr().err


def test_a_workload_without_a_profile_has_its_runs_learner(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert training(["init", "own"]) == 0
    path = "own.toml"
    choice = answered(capsys, "--fix", "arrangement=pipelined", workload=path)["choice"]
    assert (choice["cores"], choice["cores_there"], choice["interval"]) == (3, 2, "factor")  # predicted all the same

    def learns(*more):
        answer = answered(capsys, *more, workload=path)
        given, sources = answer["choice"]["training_options"], {row.get("part"): row for row in answer["rows"]}
        assert sources["learner"]["source"] == "modeled"
        assert answer["choice"]["interval"] == "factor"
        return given["learner"], given["policy"]

    assert learns() == (learners.default(load(path)), "dense")
    assert learns("--fix", "learner_implementation=torch")[0] == "torch"
    frames = path_of("pong_dqn")  # whose convolutions that learner does not have, and which nothing here has profiled
    Path(path).write_text(frames.read_text().replace('"pong_dqn"', '"mine"').replace("hidden = [512]", "hidden = [64]"))
    assert learns() == ("torch", "torch")


def test_ctrl_c_waits_for_the_run_to_save_itself(tmp_path, monkeypatch):
    waited = []

    class Popen(subprocess.Popen):
        def __init__(self, command, **how):  # a run of its own is interrupted in tests/system/test_parallel_run.py
            super().__init__([sys.executable, "-c", "import time; time.sleep(60)"], **how)

        def wait(self, timeout=None):
            waited.append(timeout)
            if len(waited) == 1:
                self.kill()  # a terminal's Ctrl-C ends it too, but where a shell started the tests in the background
                raise KeyboardInterrupt
            return super().wait(timeout)

        def terminate(self):
            waited.append("terminated")

    # Of this module alone: others ask the system about itself by processes of their own.
    monkeypatch.setattr(run, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": Popen}))
    given = ["--fix", "arrangement=apart", "--out", str(tmp_path / "run")]
    assert main(["run", "cartpole_dqn", *PREDICTED, *given]) == 130
    assert waited[1:3] == ["terminated", 60]


# Races


RACED = """
import json, mmap, os, pathlib, sys, time
out, given = pathlib.Path(sys.argv[1]), json.loads(sys.stdin.read())["choice"]
took = 1e-3 if given["arrangement"] == "serial" else 3e-3
out.mkdir(parents=True)
with open(os.environ.get("FANOUT_TURNS", os.devnull), "r+b") as file:
    numbers = memoryview(mmap.mmap(file.fileno(), 72)).cast("q") if "FANOUT_TURNS" in os.environ else [0, 1] + [0] * 7
done, spent = 100, 0


def tell():
    other = 1 - numbers[2]
    numbers[4 + 3 * other], numbers[5 + 3 * other] = done, spent
    numbers[2] = other


tell()
while not numbers[1]:
    time.sleep(1e-3)
    done, spent = done + 1, spent + int(took * 1e9)
    tell()
end = time.monotonic() + 5
while "FANOUT_TURNS" in os.environ and not out.is_symlink() and time.monotonic() < end:
    time.sleep(1e-3)
settled = {"updates": 1000, "seconds": 1.0, "update_hz": 1000.0}
(out / "summary.json").write_text(json.dumps({"settled": settled, "throughput": {"cpu_percent": 99.0}}))
print(given["arrangement"], "run, written to", out)
"""


@pytest.fixture
def raced(tmp_path, monkeypatch):
    """Runs are programs that count, the serial one the fastest; races are kept in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(deciding, "count_allowed", lambda: 2)
    monkeypatch.setattr(race_runs, "TURN_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(run, "_command", lambda options, out: [sys.executable, "-S", "-c", RACED, str(out)])
    shutil.copytree(RESULTS / MACHINE, tmp_path / "results" / MACHINE)
    return ["run", "cartpole_dqn", *ASKED, "--results", str(tmp_path / "results")]


@pytest.fixture
def question(raced):
    return ask("this", "cartpole_dqn", machine=MACHINE, results=raced[-1])


def test_a_race_is_kept_until_it_is_raced_again(raced, tmp_path, capfd):
    for given, is_raced in (((), True), (("--json",), False), (("--json", "--again"), True)):
        out = tmp_path / f"run{len([*tmp_path.iterdir()])}"
        assert main([*raced, "--out", str(out), "--decide", "20", *given]) == 0
        said = capfd.readouterr().out
        assert (out / "summary.json").exists()
        if not given:
            assert f"serial run, written to {out}\n" in said
            continue
        choice = json.loads(said)["choice"]
        row = choice["race"]["rows"][0]
        assert (row["name"], "utc" in choice["race"]) == ("serial, dense", not is_raced)
        assert row["fix"] == {"arrangement": "serial", "learner_implementation": "dense"}
        assert choice["arrangement"] == "serial"
        assert choice["measured_hz"] == choice["measured"]["update_hz"] == 1000
        assert row["hz"] == pytest.approx([1000] * 3, rel=1e-3)
        assert row["predicted"][1] < row["predicted"][0] < row["predicted"][2]
    assert [path.name for path in tmp_path.iterdir() if "race" in path.name] == []
    (file,) = tmp_path.glob("results/*/runs.jsonl")
    assert len(file.read_text().splitlines()) == 2


def test_the_latest_kept_race_answers_its_question_alone(question, monkeypatch):
    kept = deciding.KeptRace.of_question(question)
    row = {"name": "one", "hz": [2.0, 1.0, 4.0], "samples": [1.0, 2.0, 4.0]}
    for number in range(2):
        kept.keep(question, {"rows": [row], "ending": "decided", "limit": 9.0, "number": number})
    assert kept.race(99.0)["number"] == 1
    record, _ = read_file(kept.path)
    assert (record.low_seconds, record.median_seconds, record.high_seconds) == (0.25, 0.5, 1.0)
    devices = (*question.platform.devices, dataclasses.replace(question.platform.devices[0], name="gpu", kind="gpu"))
    more = {"platform": dataclasses.replace(question.platform, devices=devices), "exclude": "gpu"}
    for other in ({"fix": {"actors": "1"}}, more, {"free": "batch"}):
        assert deciding.KeptRace.of_question(dataclasses.replace(question, **other)).race() is None
    monkeypatch.setattr(deciding, "evidence_here", lambda clock: {"code": "other"})
    assert deciding.KeptRace.of_question(question).race() is None


def test_an_undecided_race_answers_for_no_more_seconds(question, tmp_path, monkeypatch):
    @contextlib.contextmanager
    def decided(programs, *_):
        standings = [Standing(one.name, "undecided", (1e-3,) * 3, (1.0,) * 3) for one in programs]
        yield Decided(programs[0], Result(tuple(standings), ending, 3.0, {one.name: {0: 1e-3} for one in programs}))

    monkeypatch.setattr(deciding, "decided", decided)
    fixes = [{"arrangement": "serial", "learner_implementation": name} for name in ("dense", "torch")]
    contenders = [deciding.Contender(fix, (), "", 1, ANSWER) for fix in fixes]
    for ending, answers in (("interrupted", [False] * 3), ("out of time", [True, True, False])):
        with deciding.race_of(question, contenders, lambda *_: [], tmp_path / ending, 9.0):
            pass
        kept = deciding.KeptRace.of_question(question)
        assert [bool(kept.race(seconds)) for seconds in (8.0, 9.0, 10.0)] == answers


def test_contenders_are_the_best_of_each_arrangement(question):
    names = [one.name for one in deciding.contenders(question)]
    processes = ["apart, 1 actor, dense", "apart, 2 actors, dense", "pipelined, 1 actor, dense"]
    assert [name for name in names if "dense" in name] == ["serial, dense", *processes]
    assert len([name for name in names if "torch" in name]) == 1
    fixed = dataclasses.replace(question, fix={"arrangement": "apart", "actors": "1"})
    assert [one.name for one in deciding.contenders(fixed)] == ["apart, 1 actor, dense", "apart, 1 actor, torch"]


def test_free_keys_race_with_each_of_their_values(raced):
    question = ask("this", "cartpole_dqn", machine=MACHINE, results=raced[-1])
    plain = [one.name for one in deciding.contenders(question)]
    more = deciding.contenders(question, ["environments", "presampled", "strategy"])[len(plain) :]
    best = max(deciding.contenders(question), key=lambda one: one.answer.value)
    values = {(key, value) for one in more for key, value in one.fix.items() if key not in deciding.OWN}
    assert {("environments", 2), ("environments", 16), ("presampled", 1)} <= values
    assert not {("environments", 1), ("presampled", question.workload.replay.presampled)} & values
    assert ("strategy" in dict(values)) == (best.fix["arrangement"] != "serial")
    apart = next(one for one in deciding.contenders(question) if one.fix["arrangement"] == "apart" and one.settings)
    other = deciding._add_value(question, apart, "strategy", "one_lock")
    assert json.loads(other.settings)["choice"]["training_options"]["strategy"] == "one_lock"
