"""Tests of whose records answer: a machine's key, the nearest machine, and what answers say of it."""

import importlib
import itertools
import json
import shutil

import pytest

from dse import machines
from dse.__main__ import main
from dse.answers.printer import say, write_unlike
from dse.platforms import load
from dse.platforms.files import remove_gpus
from dse.race_trees import find_tree
from tests.committed import RESULTS
from tests.made import alter
from tests.matrix import slow
from tests.profiled import made_up
from tests.system.test_records import measurement, write
from tests.unit.test_recommend import records as swept

fingerprints = importlib.import_module("dse.platforms.fingerprint")

SHIPPED = RESULTS
OLD = "d7dae63b89"  # a key of name, cores and caches alone
CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: 1
microcode\t: 0x1000065
flags\t\t: fpu sse sse2 fma sse4_2 avx avx2 avx512f avx512dq avx512bw avx512vl avx512_vnni

processor\t: 1
vendor_id\t: AuthenticAMD
stepping\t: 7
"""
CACHES = {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20}
HERE = {"key": "fresh", **fingerprints.processor(CPUINFO), "cores": 2, "caches": CACHES}


def but(**facts):
    """Make this machine with other facts."""
    return HERE | facts


def told_of_old(machine):
    """Keep the facts that records of the old key state of a machine."""
    return {name: machine[name] for name in ("key", "cpu", "cores", "caches")}


@pytest.fixture
def here(monkeypatch):
    """Make a machine the one that asks."""

    def put(facts=HERE):
        for module in ("dse.machines", "dse.platforms.files"):
            monkeypatch.setattr(f"{module}.fingerprint", lambda: facts)
        monkeypatch.setattr(fingerprints, "fingerprint", lambda: facts)
        return facts

    put()
    return put


@pytest.fixture
def results(tmp_path):
    """Make a folder as in a fresh clone: shipped records, of one other machine."""
    without = shutil.ignore_patterns("training", "questions*")
    for name in (OLD, "quoted", "fpga"):
        shutil.copytree(SHIPPED / name, tmp_path / "results" / name, ignore=without)
    return tmp_path / "results"


def sweep_of(results, facts, utc="2026-01-01T00:00:00+00:00"):
    """Write a machine's sweep into the folder of its key."""
    path = results / facts["key"] / "quick.jsonl"
    write(path, *(alter(one, machine=facts, utc=utc) for one in swept(threads=(1,))))


def ask(capsys, *arguments):
    return main([str(one) for one in arguments]), *capsys.readouterr()


def asked(capsys, *arguments):
    """The answer in JSON, and what it says of another machine's records, if they answer."""
    code, text, errors = ask(capsys, *arguments, "--json")
    assert (code, errors) == (0, "")
    answer = json.loads(text)
    told = [note for note in answer["notes"] if note["kind"] == "other_machine"]
    assert {note["level"] for note in told} <= {"warning"}
    return answer, [(note["machine"], say("answered_from", note)) for note in told]


TREE = ("recommend", "--no-race", "--capacity", 1_000_000, "--batch", 256)
MAPPING = ("recommend", "--platform", "this", "--workload", "cartpole_dqn")


# The key


def key_of(cpuinfo, **facts):
    return fingerprints.key_of({**fingerprints.processor(cpuinfo), "cores": 2, "caches": CACHES} | facts)


def test_another_processor_has_another_key():
    """And the same one has the same with other flags, their order, other microcode, and other later processors."""
    others = {
        "AuthenticAMD": "GenuineIntel",
        "cpu family\t: 26": "cpu family\t: 25",
        "model\t\t: 2": "model\t\t: 17",
        "stepping\t: 1": "stepping\t: 2",
        "AMD EPYC": "AMD EPYC 9654",
        " avx512_vnni": "",
        " fma": "",
    }
    keys = {key_of(CPUINFO.replace(old, new, 1)) for old, new in others.items()}
    keys |= {key_of(CPUINFO), key_of(CPUINFO, cores=4), key_of(CPUINFO, caches={**CACHES, "L1": 32 << 10})}
    assert len(keys) == len(others) + 3
    for old, new in (
        ("fpu sse sse2", "fpu sse sse2 a_flag_of_a_later_kernel"),
        ("avx512f avx512dq avx512bw", "avx512bw avx512dq avx512f"),
        ("0x1000065", "0x1000099"),
        ("stepping\t: 7", "stepping\t: 8"),
    ):
        assert old in CPUINFO
        assert key_of(CPUINFO.replace(old, new)) == key_of(CPUINFO)


def test_code_compiled_in_another_way_has_a_key_of_its_own(monkeypatch):
    for name in ("CPU_NAME", "CPU_FEATURES"):
        monkeypatch.delenv(f"NUMBA_{name}", raising=False)
    found = [fingerprints.fingerprint.__wrapped__()]
    for name, value in (("CPU_NAME", "znver1"), ("CPU_FEATURES", "+avx2"), ("OPT", "0"), ("BOUNDSCHECK", "1")):
        monkeypatch.setenv(f"NUMBA_{name}", value)
        found.append(fingerprints.fingerprint.__wrapped__())
    assert len({one["key"] for one in found}) == 5
    assert "compiled_for" not in found[0]
    assert (found[-1]["compiled_for"], found[-1]["compiled_with"]) == ("znver1", "+avx2")
    facts = ("caches", "cores", "cpu", "vector_sets", "stepping", "model", "family", "vendor")
    assert found[0]["key"] == fingerprints.key_of({name: found[0][name] for name in facts})  # in any order


# Nearness

NEAR_TO_FAR = {
    "the same": HERE,
    "caches": but(caches={**CACHES, "L1": 32 << 10}),
    "more caches": but(caches={**CACHES, "L1": 32 << 10, "L3": 256 << 20}),
    "cores": but(cores=4),
    "more cores": but(cores=64),
    "name": but(cpu="AMD EPYC 9654"),
    "stepping": but(stepping="2"),
    "compiled for another": but(compiled_for="haswell"),
    "vectors": but(vector_sets=HERE["vector_sets"][:4]),
    "old key": told_of_old(HERE),
    "old key, cores": told_of_old(but(cores=64)),
    "model": but(model="17"),
    "family": but(family="25", cores=2),
    "vendor": but(vendor="GenuineIntel"),
    "old key, another name": told_of_old(but(cpu="Intel Xeon")),
}


def test_nearest_is_by_processor_vectors_cores_then_caches():
    found = sorted(sorted(NEAR_TO_FAR), key=lambda name: machines.distance(HERE, NEAR_TO_FAR[name]))
    assert found == list(NEAR_TO_FAR)
    for name, facts in NEAR_TO_FAR.items():
        assert machines.distance(HERE, facts) == pytest.approx(machines.distance(facts, HERE)), name


def test_a_machine_that_tells_nothing_is_compared_by_its_name():
    bare = {"key": "x", "cpu": "arm", "cores": 8, "caches": {}}
    assert machines.nearest(bare, {"a": but(cpu="x86"), "b": told_of_old(but(cpu="arm"))}) == "b"


def test_differences_are_of_what_both_tell():
    there = but(vendor="GenuineIntel", cores=8, caches={"L1": 32 << 10, "L2": 1 << 20}, vector_sets=["avx", "sve"])
    differs = machines.differences(HERE, there)
    assert list(differs) == ["vendor", "cores", "vector_sets", "L1", "L3"]
    assert "L1 (48 KiB here, 32 KiB there) and L3 (32 MiB here, none known there)" in write_unlike(differs)
    assert machines.differences(HERE, told_of_old(HERE)) == {}
    assert machines.differences(but(gpus=[]), but(gpus=["a GPU"])) == {"GPUs": (0, 1)}


def test_of_equally_near_machines_the_one_measured_last_answers(here, tmp_path):
    sweep_of(tmp_path, but(key="aa"), "2026-01-01T00:00:00+00:00")
    sweep_of(tmp_path, but(key="bb"), "2026-03-01T00:00:00+00:00")
    sweep_of(tmp_path, but(key="cc"), "2026-02-01T00:00:00+00:00")
    assert find_tree(1_000_000, 512, results=tmp_path).machine == "bb"


# A machine without a GPU


def test_a_machine_without_a_gpu_is_not_answered_with_anothers():
    there = load("h200")
    left = remove_gpus(there)
    assert {device.kind for device in there.devices} - {device.kind for device in left.devices} == {"gpu"}
    names = {device.name for device in left.devices}
    assert names and all({link.source, link.target} <= names for link in left.links)


# Answers about trees


def test_a_fresh_clone_answers_from_the_nearest_machine(here, results, capsys):
    """But not where another is asked for, and what is no sweep answers nothing about trees."""
    here(facts := but(caches={**CACHES, "L1": 32 << 10}))
    others = measurement(machine=facts, op="get"), measurement(machine=facts, primitive="training")
    write(results / "fresh" / "other.jsonl", *others)
    answer, ((machine, differs),) = asked(capsys, *TREE, "--threads", 2, "--results", results)
    assert (answer["choice"]["implementation"], machine, answer["question"]["machine"]) == ("numba", OLD, OLD)
    assert "L1 (32 KiB here, 48 KiB there)" in differs
    assert "python -m benchmarks sweep" in differs
    code, text, errors = ask(capsys, *TREE, "--results", results, "--machine", "other")
    assert (code, text, f"--machine {OLD}" in errors) == (2, "", True)
    answer, others = asked(capsys, *TREE, "--results", results, "--machine", OLD)
    assert (answer["question"]["machine"], others) == (OLD, [])


# Answers about mappings


@pytest.mark.parametrize("question", [MAPPING, slow(("adapt", *MAPPING[1:]))], ids=lambda question: question[0])
def test_a_question_of_this_machine_says_whose_records_answer(here, results, capsys, question):
    words = (*question, "--results", results)
    assert [machine for machine, _ in asked(capsys, *words)[1]] == [OLD]
    assert asked(capsys, *words, "--machine", OLD)[1] == []
    code, text, errors = ask(capsys, *words, "--machine", "other")
    assert (code, text, f"--machine {OLD}" in errors) == (2, "", True)


def probe(results, key):
    path = results / key / "platform.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text((SHIPPED / OLD / "platform.toml").read_text().replace(OLD, key))


def test_a_probed_and_profiled_machine_answers_for_itself(here, results, capsys):
    probe(results, "fresh")
    _, ((_, differs),) = asked(capsys, *MAPPING, "--results", results)
    assert "benchmarks profile" in differs
    assert "platform probe" not in differs
    profiled = (alter(one, machine=HERE) for one in made_up(("cartpole_dqn",)))
    write(results / "fresh" / "profile.jsonl", *profiled)
    answer, others = asked(capsys, *MAPPING, "--results", results)
    assert (answer["question"]["machine"], others) == ("fresh", [])


# Without records


def test_an_empty_folder_is_named_with_what_works_there(here, tmp_path, capsys, monkeypatch):
    """Measuring does in a checkout of Fanout; none is advised where there are no benchmarks."""
    for place, question in itertools.product((None, tmp_path / "none"), (TREE, MAPPING)):
        if place:
            monkeypatch.setattr("dse.records._BENCHMARKS", place)
        code, _, errors = ask(capsys, *question, "--results", tmp_path / "none")
        assert (code, errors.count("\n"), "--results FOLDER" in errors) == (2, 1, True)
        assert errors.startswith(f"error: {tmp_path / 'none'}: ")
        assert ("python -m benchmarks" in errors) <= (place is None)


def test_an_unknown_cache_is_farther_than_a_larger_one():
    here = {"cpu": "x", "cores": 2, "caches": {"L1": 1, "L3": 8}}
    others = {"none": here | {"caches": {"L1": 1}}, "close": here | {"caches": {"L1": 1, "L3": 9}}}
    assert machines.nearest(here, others) == "close"
