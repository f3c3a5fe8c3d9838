"""Times of one's own: files read strictly, looked up first, interpolated with a width, and used or told as unused."""

import dataclasses
import json

import pytest

from dse.__main__ import main
from dse.answers.printer import say
from dse.mapping.build import build
from dse.mapping.question import ask, find_mapping
from dse.platforms import PlatformError
from dse.platforms import load as load_platform
from dse.platforms.platform import KINDS, DeviceKind
from dse.solver.law import slowdowns
from dse.times import laws
from dse.times.door import Times
from dse.times.stated import FACTORS, StatedTimes, TimesError
from dse.times.trees import trees
from impls.training import load
from tests.committed import COMMITTED
from tests.solver_cases import MODES

U200 = load_platform("u200")
HOPPER = load("hopper_ddpg")


def write(folder, text, name="mine.toml"):
    path = folder / name
    path.write_text(text)
    return path


def csv(folder, *lines):
    return StatedTimes.read(write(folder, "\n".join(lines), "mine.csv"))


def parts(own, platform=U200, workload=HOPPER, **fixed):
    return Times(platform, workload, None, None, fixed, own=own.at(workload.learner.batch))


def with_devices(*devices, links=()):
    return dataclasses.replace(U200, devices=(*U200.devices, *devices), links=(*U200.links, *links))


def named(device, name, **changes):
    return dataclasses.replace(U200.device(device), name=name, **changes)


# Files


def test_toml_and_csv_say_the_same(tmp_path):
    toml = write(
        tmp_path,
        'source = "quoted"\nnote = "Table X"\nbatch = 256\n[[time]]\npart = "learner"\ndevice = "gpu"\nus = 690\n'
        'low = 600\nhigh = 800\n[[time]]\npart = "learner"\ndevice = "fpga"\nms = 0.5\n'
        '[[time]]\npart = "link"\nfrom = "cpu"\nto = "gpu"\ngb_per_s = 12\nus = 10\n',
    )
    rows = (
        "part,device,batch,source,note,us,low,high,ms,from,to,gb_per_s",
        "learner,gpu,256,quoted,Table X,690,600,800,,,,",
        "# a comment",
        "learner,fpga,256,quoted,Table X,,,,0.5,,,",
        "link,,256,quoted,Table X,10,,,,cpu,gpu,12",
    )
    both = StatedTimes.read(toml).entries, csv(tmp_path, *rows).entries
    plain = [[dataclasses.replace(one, line=0) for one in entries] for entries in both]
    assert plain[0] == plain[1]
    parts = [(one.part, one.device) for one in plain[0]]
    assert parts == [("learner", "gpu"), ("learner", "fpga"), ("link", "cpu")]
    assert [one.seconds for one in plain[0]] == [690e-6, 0.5e-3, 10e-6]
    assert [[one.line for one in entries] for entries in both] == [[4, 10, 14], [2, 4, 5]]


def test_a_column_of_text_is_text_whatever_it_looks_like(tmp_path):
    """A note that is a year, and a device that is called by its number."""
    own = csv(tmp_path, "device,part,batch,us,note", "0,learner,256,690,2024", 'cpu,sampling,256,28,"1e3"')
    assert [(one.device, one.note) for one in own.entries] == [("0", "2024"), ("cpu", "1e3")]
    assert {one.counts["batch"] for one in own.entries} == {256}


def test_a_rate_is_the_other_way_up(tmp_path):
    (one,) = csv(tmp_path, "part,device,per_second,low,high", "actors,cpu,5000,4000,8000").entries
    assert (one.seconds, one.low, one.high) == (1 / 5000, 1 / 8000, 1 / 4000)


LEARNER = '[[time]]\npart = "learner"\ndevice = "gpu"'
STORAGE = LEARNER.replace("learner", "storage")
FAULTY = {
    'sorce = "measured"': ":1: unknown key 'sorce'; did you mean 'source'?",
    f"{LEARNER}\nus = 3".replace("learner", "lerner"): ":3: part must be one of actors, sampling, updating, storage, ",
    f"{LEARNER}\nbatch = 0\nus = -3": ":9: batch must be a whole number from 1 to 1.09951e+12, not 0",
    "fanout = 8": ":11: fanout says nothing of the part learner, only of sampling, updating; leave it out",
    "bacth = 3": ":12: unknown key 'bacth'; did you mean 'batch'?",
    '[[time]]\npart = "link"\nfrom = "cpu"': ':13: lacks to; name a device of the platform, such as to = "gpu"',
    f"{LEARNER}\nus = 690\nms = 0.69": ":16: states ms and us; state one of seconds, ms, us, ns, per_second",
    f"{STORAGE}\nus = 20\nlow = 30\nhigh = 40": ":25: us = 20 must lie from low 30 to high 40",
    '[[time]]\npart = "sampling"\ndevice = "gpu"\nus = 20\nthreads = 1.5': ":31: threads must be a whole number from 1",
    f'{STORAGE}\nus = 21\nsource = "heard"': ":36: source must be one of measured, quoted, modeled, not 'heard'",
}


def test_all_faults_are_told_at_once_with_line_value_bound_and_remedy(tmp_path):
    with pytest.raises(TimesError) as caught:
        StatedTimes.read(write(tmp_path, "\n".join(FAULTY)))
    for words in (*FAULTY.values(), ":10: us must be a number from 1e-06 to 1e+12, not -3"):
        assert words in str(caught.value), (words, str(caught.value))


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("", "a.toml", "states no time"),
        ("", "a.csv", "states no time"),
        ("time = 3", "a.toml", "states no time"),
        ("part,device,us\nlearner,gpu,1\nlearner,gpu,2", "a.csv", ":3: learner on gpu is stated twice"),
        ("part,device,us\nlearner,gpu,1,2", "a.csv", ":2: 4 values, but the first line names 3 columns"),
        *((f"device{sign}us\ncpu{sign}28,5", "a.csv", f":1: columns are separated by {sign!r}") for sign in ";\t"),
        ("part,part,us\nlearner,gpu,1", "a.csv", ":1: the column 'part' stands twice"),
        ("part,device,us\nlearner,gpu,fast", "a.csv", ":2: us must be a number from 1e-06 to 1e+12, not 'fast'"),
        ("part,device,us\nlearner,gpu,nan", "a.csv", ":2: us must be a number from 1e-06 to 1e+12, not nan"),
        *(
            (form.replace("?", digits), name, said.replace("?", key))
            for digits in ("9" * 310, "9" * 4300, "1e999", "-1")
            for key in ("us", "factor", "batch")
            for form, name, said in (
                (f"part,device,{key}\nlearner,gpu,?", "a.csv", ":2: ? must be a"),
                (f'[[time]]\npart = "learner"\ndevice = "gpu"\n{key} = ?', "a.toml", ":4: ? must be a"),
            )
        ),
        (f'[[time]]\npart = "learner"\nus = 0x{"f" * 5000}', "a.toml", ":3: holds a number that cannot be read"),
        ("[[time]", "a.toml", "not TOML"),
        ('[[time]]\npart = ["learner"]', "a.toml", ":2: part must be one of actors, "),
        ("device,us\ngpu,1", "a.csv", ":2: part must be one of actors, "),
        ("part,device,us,contestant\nsampling,cpu,1,nunba", "a.csv", "did you mean 'numba'?"),
        ("part,device,us,beside\nlearner,cpu,1,actor", "a.csv", "did you mean 'actors'?"),
        ("part,device,us,fanout\nlearner,gpu,1,2", "a.csv", ":2: fanout says nothing of the part learner, only of"),
        ("device,learner_us\ngpu,1", "a.csv", ":2: unknown key 'learner_us'"),
        ("part,device,us,factor,low,high\nlearner,gpu,2,2,1,3", "a.csv", "state low and high, or factor alone"),
        ("part,device,us,low\nlearner,gpu,2,1", "a.csv", "state low and high, or factor alone"),
    ],
)
def test_a_file_that_says_nothing_sensible_is_refused(tmp_path, capsys, text, name, words):
    path = write(tmp_path, text, name)
    assert main(["recommend", "--platform", "u200", "--workload", "hopper_ddpg", "--times", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert str(path) in error


# Looked up first


@pytest.mark.parametrize("device", ["cpu", "gpu", "fpga"])
def test_a_time_of_every_part_and_device_is_looked_up_first(tmp_path, device):
    stated = zip(("sampling", "updating", "storage", "learner"), range(31, 35), strict=True)
    own = csv(tmp_path, "part,device,batch,us", *(f"{part},{device},256,{us}" for part, us in stated))
    known = parts(own)
    there = U200.device(device)
    (tree,) = trees(known, there)
    learner = known.learners.list(there)[0]
    times = tree.draw, tree.update, known.rows_moved(there), learner.step
    assert [time.value for time in times] == [31e-6, 32e-6, 33e-6, 34e-6]
    for line, time in enumerate(times, 2):
        assert time.source == "measured"
        assert time.factor == pytest.approx(FACTORS["measured"])
        assert f"mine.csv:{line}" in time.rests_on.description
        assert "1.25x" in time.rests_on.description
        assert time.rests_on.command == ""
        assert f"({device})" in time.rests_on.id or f"({device})," in time.rests_on.id


def test_actors_are_stated_by_processes_of_all_together(tmp_path):
    own = csv(tmp_path, "part,device,processes,us", "actors,cpu,1,100", "actors,cpu,4,40")
    known = parts(own)
    one, two, four, eight = (known.actors.step(count) for count in (1, 2, 4, 8))
    assert (one.value, four.value) == (100e-6, 40e-6)
    assert two.value == pytest.approx((100e-6 * 40e-6) ** 0.5)
    assert two.source == "interpolated"
    assert two.factor > one.factor
    assert eight.source == "extrapolated"
    assert eight.factor > four.factor
    assert 20e-6 < eight.value < 40e-6
    acting = known.actors.acting(4)  # weights are counted in
    assert (acting.value, acting.source) == (pytest.approx(40e-6 * HOPPER.learner.update_interval), "measured")


@pytest.mark.parametrize(
    ("source", "said", "factor"),
    [("measured", "", 1.25), ("quoted", "", 2.0), ("modeled", "", 3.0), ("quoted", "1.5", 1.5)],
)
def test_a_time_without_ends_is_as_sure_as_its_source_and_says_so(tmp_path, source, said, factor):
    own = csv(tmp_path, "part,device,us,source,factor", f"learner,gpu,700,{source},{said}")
    step = parts(own).learners.list(U200.device("gpu"))[0].step
    assert step.factor == pytest.approx(factor)
    assert step.source == source
    assert ("no ends are stated" in step.rests_on.description) == (not said)


def test_batches_are_interpolated_and_one_alone_is_carried_between_flat_and_linear(tmp_path):
    own = csv(tmp_path, "part,device,batch,us,source", "learner,gpu,64,100,quoted", "learner,gpu,1024,400,quoted")
    gpu = U200.device("gpu")
    step = parts(own).learners.list(gpu)[0].step
    assert step.value == pytest.approx(200e-6)
    assert step.source == "quoted"  # interpolation makes nothing surer
    alone = csv(tmp_path, "part,device,batch,us", "learner,gpu,64,100")
    step = parts(alone).learners.list(gpu)[0].step
    assert (step.source, step.value) == ("extrapolated", pytest.approx(200e-6))
    assert step.low <= 100e-6
    assert step.high >= 400e-6


def test_a_time_without_a_batch_is_of_the_questions_batch_whatever_else_is_tried(tmp_path):
    own = csv(tmp_path, "part,device,us", "learner,gpu,100")
    question = ask("u200", "hopper_ddpg", times=own, free=["batch"])
    larger = dataclasses.replace(HOPPER, learner=dataclasses.replace(HOPPER.learner, batch=1024))
    gpu = U200.device("gpu")
    assert question.parts().learners.list(gpu)[0].step.value == 100e-6
    assert question.parts(larger).learners.list(gpu)[0].step.value == pytest.approx(200e-6)


def test_threads_between_stated_ones_are_interpolated_and_beyond_them_less_sure(tmp_path):
    own = csv(tmp_path, "part,device,threads,us,factor", "learner,cpu,1,8000,1.1", "learner,cpu,8,2000,1.1")
    steps = {one.details["threads"]: one.step for one in parts(own).learners.list(U200.device("cpu"))}
    assert list(steps) == list(range(1, 29))
    assert [steps[count].source for count in (1, 3, 8, 9)] == ["measured", "interpolated", "measured", "modeled"]
    assert 2000e-6 < steps[3].value < 8000e-6
    assert steps[28].factor > steps[9].factor > steps[8].factor
    assert steps[1].rests_on.id != steps[8].rests_on.id


def test_a_tree_that_is_named_stands_beside_no_modeled_one_and_an_update_not_stated_is_another_trees(tmp_path):
    own = csv(tmp_path, "part,device,contestant,fanout,us", "sampling,cpu,numba,16,7")
    cpu = U200.device("cpu")
    (tree,) = trees(parts(own), cpu)
    assert (tree.name, tree.details["fanout"], tree.draw.value) == ("numba K=16", 16, 7e-6)
    assert tree.draw.source == "measured"
    assert tree.update.source == "modeled"
    assert trees(parts(own, fanout=8), cpu) == []
    unnamed = csv(tmp_path, "part,device,us", "sampling,cpu,7", "updating,cpu,9")
    (tree,) = trees(parts(unnamed, fanout=8), cpu)
    assert tree.details["fanout"] == 8


def test_a_time_beside_another_part_is_its_slowdown(tmp_path):
    own = csv(
        tmp_path,
        "part,device,processes,us,beside",
        "actors,cpu,2,100,",
        "actors,cpu,2,150,learner",
        "learner,gpu,,1000,",
        "learner,gpu,,1100,actors",
        "sampling,cpu,,5,learner",
    )
    slower = parts(own).slowdowns()
    (unused,) = own.unused(U200)
    assert (unused.kind, unused.values["part"], unused.values["beside"]) == ("not_alone", "sampling", "learner")
    assert slower == {
        ("actors", "learner", "cpu"): pytest.approx(1.5),
        ("learner", "actors", "gpu"): pytest.approx(1.1),
    }


def test_a_tree_slows_the_learner_on_its_gpu_by_what_is_quoted_or_stated_once(tmp_path):
    """The slowdown counts where both run at the same time; all of the GPU is busy with both, too."""

    def learning(times=None, **places):
        """The learner's slowdown; the GPU's seconds are those of its parts."""
        on_gpu = dict.fromkeys(("learner", "sampling", "updating", "storage"), "gpu")
        fix = on_gpu | {"arrangement": "pipelined", "presampled": 1, "fanout": 16, **places}
        found = find_mapping(U200, "hopper_ddpg", fix=fix, times=times)
        problem, chosen = found.chosen.problem, found.chosen.configuration
        slower = slowdowns(problem, chosen.where)["learner"]
        there = [chosen.of(part) for part in ("sampling", "updating", "storage") if fix[part] == "gpu"]
        if places.get("arrangement") != "apart":
            busy = chosen.learner.seconds * slower + sum(option.seconds for option in there)
            assert found.chosen.outcome.busy["gpu"] == pytest.approx(busy)
        kinds = {note.kind: note.values for note in found.notes if note.kind.startswith("slowdown")}
        assert kinds.get("slowdown_quoted", {}).get("factor", 1.0) == (1.0 if times else slower)
        return slower

    assert learning() == pytest.approx(laws.SHARED)
    assert learning(updating="cpu") == learning(sampling="cpu") == pytest.approx(laws.SHARED**0.5)
    assert learning(sampling="cpu", updating="cpu") == learning(presampled=0) == learning(arrangement="apart") == 1
    rows = ("part,device,us,beside", "learner,gpu,1000,", "learner,gpu,1200,sampling")
    assert learning(write(tmp_path, "\n".join(rows), "mine.csv")) == pytest.approx(1.2)


# Links


def test_a_link_is_stated_by_bandwidth_by_times_or_by_one_time(tmp_path):
    def hop(*rows):
        own = csv(tmp_path, "part,from,to,bytes,us,gb_per_s", *rows)
        (one,) = build(parts(own)).problems[MODES["apart"]].ways["cpu", "gpu"]
        return one

    wide = hop("link,cpu,gpu,,10,5")
    assert (wide.alpha_seconds, wide.seconds_per_byte) == (pytest.approx(10e-6), pytest.approx(0.2e-9))
    timed = hop("link,cpu,gpu,1000,11,", "link,cpu,gpu,1000000,1010,")
    assert (timed.alpha_seconds, timed.seconds_per_byte) == (pytest.approx(10e-6), pytest.approx(1e-9))
    nbytes = parts(csv(tmp_path, "part,device,us", "learner,gpu,1")).batch_bytes
    once = hop("link,cpu,gpu,,46,")
    assert once.alpha_seconds + nbytes * once.seconds_per_byte == pytest.approx(46e-6)
    assert 0 < once.alpha_seconds < 46e-6  # split as the platform's own link
    back = hop("link,gpu,cpu,,10,5")
    assert back.alpha_seconds == pytest.approx(10e-6)
    assert "taken both ways" in back.rests_on.description


# Questions


def test_a_typed_time_decides_and_what_is_not_used_is_told(tmp_path):
    rows = ("gpu,learner,256,100,,", "tpu,learner,256,1,,", "gpu,actors,,5,,", "cpu,learner,256,1,99,")
    own = csv(tmp_path, "device,part,batch,us,threads,devices", *rows, "gpu,learner,256,1,,2")
    before, after = (
        {part.label["part"]: part for part in answer.parts}["learner"]
        for answer in (find_mapping("u200", "hopper_ddpg"), find_mapping("u200", "hopper_ddpg", times=own))
    )
    assert (before.label["device"], after.label["device"]) == ("fpga", "gpu")
    assert after.estimate.value == pytest.approx(100e-6)
    notes = find_mapping("u200", "hopper_ddpg", times=own).notes
    unused = sorted(say(note.kind, note.values) for note in notes if "mine.csv:" in note.values.get("place", ""))
    places = zip((3, 4, 5, 6), ("tpu", "actors on gpu", "threads 99", "devices 2"), strict=True)
    for text, (line, place) in zip(unused, places, strict=True):
        assert f"mine.csv:{line}" in text and place in text


def test_the_example_is_a_file_that_is_understood(tmp_path, capsys):
    assert main(["times", "--example"]) == 0
    path = write(tmp_path, capsys.readouterr().out, "example.csv")
    entries = StatedTimes.read(path).entries
    assert (len(entries), len({one.device for one in entries}), len({one.part for one in entries})) == (24, 6, 4)
    assert main(["platform", "estimate", "u200", "--workload", "hopper_ddpg", "--times", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {(5400e-6, "measured"), (480e-6, "quoted")} <= {
        (row.get("value"), row.get("source")) for row in answer["rows"]
    }
    assert "python -m benchmarks profile --workload hopper_ddpg" in {note["how"] for note in answer["notes"]}
    assert main(["recommend", "--capacity", "9", "--batch", "3", "--times", str(path)]) == 2
    assert "--times is of a question about a map" in capsys.readouterr().err


# Devices


def test_equal_devices_rest_on_the_same_evidence_and_others_do_not():
    gpu1, smaller = named("gpu", "gpu1"), named("gpu", "gpu2", power_watts=None)
    platform = with_devices(gpu1, smaller)
    known = Times(platform, HOPPER, None, None, {})
    numbers = {
        device.name: {known.learners.list(device)[0].step.rests_on.id, known.rows_moved(device).rests_on.id}
        | {tree.draw.rests_on.id for tree in trees(known, device)}
        for device in (platform.device("gpu"), gpu1, smaller)
    }
    assert numbers["gpu"] == numbers["gpu1"] == {"T_train(gpu)", "storage(gpu)", "tree(gpu)"}
    assert numbers["gpu2"] == {"T_train(gpu2)", "storage(gpu2)", "tree(gpu2)"}


def test_a_time_of_one_of_equal_devices_holds_for_all_but_those_with_their_own(tmp_path):
    platform = with_devices(named("gpu", "gpu1"), named("gpu", "gpu2"))
    own = csv(tmp_path, "part,device,us", "learner,gpu1,100", "learner,gpu2,200")
    known = parts(own, platform)
    steps = {name: known.learners.list(platform.device(name))[0].step for name in ("gpu", "gpu1", "gpu2")}
    assert {name: step.value for name, step in steps.items()} == {"gpu": 100e-6, "gpu1": 100e-6, "gpu2": 200e-6}
    assert [step.rests_on.id for step in steps.values()] == ["T_train(gpu1)", "T_train(gpu1)", "T_train(gpu2)"]


NPU = """
name = "board"
title = "a board"
origin = "assumed"
note = "made up"
[[device]]
name = "cpu"
kind = "cpu"
cores = 4
[device.memory]
size_gib = 32
[[device]]
name = "npu"
kind = "npu"
[device.memory]
size_gib = 8
[[link]]
from = "cpu"
to = "npu"
hops = 1
alpha_us = 5
beta_gb_per_s = 10
back_alpha_us = 5
back_beta_gb_per_s = 10
"""


def test_a_kind_of_device_without_laws_is_a_line_of_a_table_and_takes_stated_times(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "npu", DeviceKind(needed=("memory",), own=()))
    platform, times = tmp_path / "board.toml", tmp_path / "times.toml"
    platform.write_text(NPU)
    parts = {"learner": 100.0, "sampling": 20.0, "updating": 20.0, "storage": 30.0}
    stated = [
        f"[[time]]\npart = '{part}'\ndevice = 'npu'\nus = {us}\nsource = 'measured'\n" for part, us in parts.items()
    ]
    times.write_text("".join(stated))
    answer = find_mapping(platform, "hopper_ddpg", times=times)
    assert answer.choice.label["learner"] == "npu"
    (learner,) = (row for row in answer.parts if row.label["part"] == "learner")
    assert learner.number["value"] == pytest.approx(100e-6)
    times.write_text("".join(stated[1:]))
    with pytest.raises(PlatformError, match="npu: no law has the time of learner on a device of kind npu; state it"):
        find_mapping(platform, "hopper_ddpg", times=times)
    assert find_mapping(platform, "hopper_ddpg", exclude=["npu"]).choice.label["learner"] == "cpu"
    times.write_text(stated[0] + stated[1] + stated[3])
    with pytest.raises(PlatformError, match="npu: updating of its tree is not stated"):
        find_mapping(platform, "hopper_ddpg", times=times)


def test_a_time_that_is_not_used_changes_no_rate(tmp_path):
    stated = {"learner": "nowhere", "storage": "gpu9"}
    lines = "[[time]]\npart = '{}'\ndevice = '{}'\nus = 50\nsource = 'measured'\n"
    path = write(tmp_path, "".join(lines.format(*part) for part in stated.items()))
    asked = {"results": COMMITTED, "machine": "8fb834d50a"}
    without, given = (find_mapping("this", "cartpole_dqn", **asked, **times) for times in ({}, {"times": path}))
    assert given.value == without.value
    assert given.choice.label == without.choice.label
