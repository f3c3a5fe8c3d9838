"""Times of parts on each device: those of one's own, looked up first, and those that records, laws and links tell."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from dse.__main__ import main
from dse.answers.printer import say
from dse.mapping.build import build
from dse.mapping.question import find_mapping, tables, with_values
from dse.platforms import PlatformError, now
from dse.platforms import load as load_platform
from dse.platforms.platform import KINDS, DeviceKind
from dse.platforms.quantities import Quantity
from dse.records import Record, Writer, read_file, read_folder
from dse.solver.law import slowdowns
from dse.solver.problem import TREE
from dse.times import laws
from dse.times.cells import evidence, of_records
from dse.times.door import Times
from dse.times.stated import FACTORS, StatedTimes, TimesError
from dse.times.trees import trees
from impls.training import load
from impls.training.weights import networks
from tests.committed import RESULTS
from tests.solver_cases import MODES
from tests.unit.test_options import several

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
    """A note that is a year or has inches, and a device that is called by its number."""
    rows = (
        "0,learner,256,690,2024",
        'cpu,sampling,256,28,"1e3"',
        'gpu,learner,256,1,a 5" drive',
        'f,learner,256,1,"""X"""',
    )
    own = csv(tmp_path, "device,part,batch,us,note", *rows)
    found = [(one.device, one.note) for one in own.entries]
    assert found == [("0", "2024"), ("cpu", "1e3"), ("gpu", 'a 5" drive'), ("f", '"X"')]
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


def test_all_faults_are_told_at_once_with_line_and_bound(tmp_path):
    with pytest.raises(TimesError) as caught:
        StatedTimes.read(write(tmp_path, "\n".join(FAULTY)))
    for words in (*FAULTY.values(), ":10: us must be a number from 1e-06 to 1e+12, not -3"):
        assert words in str(caught.value), (words, str(caught.value))


PART = "part,device,us"
SENSELESS = [
    *(("", name, "states no time") for name in ("a.toml", "a.csv")),
    ("time = 3", "a.toml", "states no time"),
    ("part,part,us\nlearner,gpu,1", "a.csv", ":1: the column 'part'"),
    ("device,us\ngpu,1", "a.csv", ":2: part must be one of actors, "),
    ("device,learner_us\ngpu,1", "a.csv", ":2: unknown key 'learner_us'"),
    (f"{PART},fanout\nlearner,gpu,1,2", "a.csv", ":2: fanout"),
    (f"{PART}\nlearner,gpu,1\nlearner,gpu,2", "a.csv", ":3: learner on gpu"),
    (f"{PART}\nlearner,gpu,1,2", "a.csv", ":2: 4 values"),
    *((f"device{sign}us\ncpu{sign}28,5", "a.csv", f":1: columns are separated by {sign!r}") for sign in ";\t"),
    (f"{PART}\nlearner,gpu,fast", "a.csv", ":2: us must be a number from 1e-06 to 1e+12, not 'fast'"),
    (f"{PART}\nlearner,gpu,nan", "a.csv", ":2: us must be a number from 1e-06 to 1e+12, not nan"),
    *(
        (f"part,device,{key}\nlearner,gpu,{'9' * 4300}", "a.csv", f":2: {key} must")
        for key in ("us", "factor", "batch")
    ),
    *((f"{LEARNER}\n{key} = 1e999", "a.toml", f":4: {key} must") for key in ("us", "factor", "batch")),
    (f'[[time]]\npart = "learner"\nus = 0x{"f" * 5000}', "a.toml", ":3: "),
    ("[[time]", "a.toml", "not TOML"),
    ('[[time]]\npart = ["learner"]', "a.toml", ":2: part must be one of actors, "),
    (f"{PART},contestant\nsampling,cpu,1,nunba", "a.csv", "'numba'?"),
    (f"{PART},beside\nlearner,cpu,1,actor", "a.csv", "'actors'?"),
    (f"{PART},factor,low,high\nlearner,gpu,2,2,1,3", "a.csv", "low and high, or factor"),
    (f"{PART},low\nlearner,gpu,2,1", "a.csv", "low and high, or factor"),
]


def test_a_file_without_sense_is_refused_by_line_and_bound(tmp_path, capsys):
    for text, name, facts in SENSELESS:
        path = write(tmp_path, text, name)
        assert main(["recommend", "--platform", "u200", "--workload", "hopper_ddpg", "--times", str(path)]) == 2
        error = capsys.readouterr().err
        assert facts in error and str(path) in error, text[:80]


# Looked up first


def test_a_time_of_every_part_and_device_is_looked_up_first(tmp_path):
    stated = dict(zip(("sampling", "updating", "storage", "learner"), range(31, 35), strict=True))
    for device in ("cpu", "gpu", "fpga"):
        own = csv(tmp_path, "part,device,batch,us", *(f"{part},{device},256,{us}" for part, us in stated.items()))
        known, there = parts(own), U200.device(device)
        (tree,) = trees(known, there)
        times = tree.draw, tree.update, known.rows_moved(there), known.learners.list(there)[0].step
        assert [time.value for time in times] == [31e-6, 32e-6, 33e-6, 34e-6]
        for line, time in enumerate(times, 2):
            assert (time.source, time.factor) == ("measured", pytest.approx(FACTORS["measured"]))
            assert f"mine.csv:{line}" in time.rests_on.description
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


def test_a_time_without_ends_is_as_sure_as_its_source(tmp_path):
    for source, said, factor in (
        ("measured", "", 1.25),
        ("quoted", "", 2.0),
        ("modeled", "", 3.0),
        ("quoted", 1.5, 1.5),
    ):
        own = csv(tmp_path, f"{PART},source,factor", f"learner,gpu,700,{source},{said}")
        step = parts(own).learners.list(U200.device("gpu"))[0].step
        assert (step.source, step.factor) == (source, pytest.approx(factor))


def test_batches_are_interpolated_and_one_alone_is_carried(tmp_path):
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


def test_a_tree_that_is_named_stands_beside_no_modeled_one(tmp_path):
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


def test_a_tree_slows_the_learner_on_its_gpu_once(tmp_path):
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


def test_a_link_is_stated_by_bandwidth_times_or_one_time(tmp_path):
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


# Devices


KEY = "d7dae63b89"
MACHINE = load_platform(RESULTS / KEY / "platform.toml")
PONG, CARTPOLE = load("pong_dqn"), load("cartpole_dqn")


@pytest.fixture(scope="module")
def records():
    return read_folder(RESULTS, KEY)


def unmeasured(platform, workload=HOPPER, **more):
    return Times(platform, workload, None, None, {}, **more)


def measured(workload, platform=MACHINE, records=None):
    table = of_records(records, KEY, workload) if records else tables(MACHINE, workload, RESULTS)[0]
    return Times(platform, workload, table, None, {})


H200 = several("h200", "gpu", 4)


def with_batch(workload, batch):
    return dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=batch))


def with_cores(device, cores, **changes):
    return dataclasses.replace(device, cores=Quantity(value=cores, origin="assumed", note=""), **changes)


def with_device(platform, device, *links):
    return dataclasses.replace(platform, devices=(*platform.devices, device), links=(*platform.links, *links))


# S3, S4: threads and cores


def test_a_second_processor_has_its_own_cores_and_records():
    cpu = MACHINE.device("cpu")
    single, twin = with_cores(cpu, 1, name="cpu1"), dataclasses.replace(cpu, name="cpu2")
    parts = measured(CARTPOLE, dataclasses.replace(MACHINE, devices=(*MACHINE.devices, single, twin)))
    alone = parts.learners.list(single)
    assert [one.details for one in alone] == [{"threads": 1}, {"threads": 1, "implementation": "dense"}]
    assert alone[0].step.source == "modeled"
    assert parts.rows_moved(single).source == "modeled"
    assert {tree.draw.source for tree in trees(parts, single)} == {"modeled"}
    assert {tree.threads for tree in trees(parts, single)} == {1}
    assert parts.learners.list(twin) == parts.learners.list(cpu)  # with the same evidence
    assert parts.learners.list(twin)[0].step.source == "measured"
    assert parts.rows_moved(twin) == parts.rows_moved(cpu)


# S2: trees by what they run on


def test_a_gpus_tree_is_no_tree_of_the_processor(records):
    def on_gpu(record: Record) -> Record:
        return dataclasses.replace(record, contestant="cupy")

    swept = [one for one in records if (one.primitive, one.contestant, one.threads) == ("sum_tree", "numba", 1)]
    platform = with_device(MACHINE, H200.device("gpu"))
    parts = measured(HOPPER, platform, [*records, *map(on_gpu, swept)])
    assert {tree.details["contestant"] for tree in trees(parts, MACHINE.device("cpu"))}.isdisjoint({"cupy"})
    there = trees(parts, platform.device("gpu"))
    assert {tree.details["contestant"] for tree in there} == {"cupy"}
    assert {tree.draw.source for tree in there} <= {"measured", "interpolated"}
    assert all(tree.draw.rests_on.id.startswith("tree(gpu, cupy") for tree in there)
    assert all("threads" not in tree.details and set(tree.needs) == {"gpu.memory_bytes"} for tree in there)


# S7: a skipped cell is evidence


def test_a_gpus_gradient_step_is_as_recorded_or_modeled(records):
    every = (one for one in records if one.contestant == "learner" and one.options["workload"] == HOPPER.name)
    own = next(one for one in every if one.median_seconds)
    cells = [dataclasses.replace(own, contestant="cuda", batch=batch, threads=1) for batch in (64, 256)]
    timed = measured(HOPPER, H200, [*records, *cells])
    untimed = measured(HOPPER, H200, records)
    alone, _, half = timed.learners.list(H200.device("gpu"))[:3]
    assert alone.step.value == pytest.approx(own.median_seconds)
    assert alone.step.source == "measured"
    assert half.details == {"devices": 2}
    assert half.step.value > alone.step.value  # between records at B = 128, and an exchange
    assert timed.learners.list(H200.device("gpu3"))[0].step.source == "measured"
    assert untimed.learners.list(H200.device("gpu"))[0].step.source == "modeled"


def test_a_cell_skipped_for_its_length_takes_that_long(records):
    def two_threads(batch):
        return measured(with_batch(HOPPER, batch)).learners.list(MACHINE.device("cpu"))[1].step

    skipped = next(one for one in records if one.seconds_at_least and one.options["workload"] == HOPPER.name)
    step = two_threads(skipped.batch)
    assert (step.value, step.source) == (skipped.seconds_at_least, "measured") == (0.61, "measured")
    assert two_threads(300).value > 0.5 and two_threads(4096).value >= 0.61  # nothing is carried on across it
    assert two_threads(64).value < 0.003 and two_threads(64).factor < 2  # between 32 and 128, which were timed
    times = {"median_seconds": 0.004, "low_seconds": 0.0039, "high_seconds": 0.0041}
    timed = dataclasses.replace(skipped, status="ok", reason=None, **times)
    table = of_records([*records, timed], KEY, HOPPER)
    assert table.time("learner step", skipped.batch, 2).value == pytest.approx(0.004)


# S8: more threads do not always help


def test_threads_slow_small_nets_and_help_large_ones():
    cpu = with_cores(U200.device("cpu"), 128)
    platform = dataclasses.replace(U200, devices=(cpu, *U200.devices[1:]))

    def best(workload):
        steps = [
            one for one in unmeasured(platform, workload).learners.list(cpu) if "implementation" not in one.details
        ]
        return min(steps, key=lambda one: one.step.value).details["threads"]

    assert best(with_batch(CARTPOLE, 4)) == 1
    assert 8 <= best(HOPPER) < 64
    assert best(HOPPER) < best(PONG) <= 128
    small = [one.step.value for one in unmeasured(platform, with_batch(CARTPOLE, 4)).learners.list(cpu)[:-1]]
    assert small == sorted(small)


# Learners that share a batch


def test_equal_accelerators_share_a_batch_and_exchange_gradients():
    gpus = [device for device in H200.devices if device.kind == "gpu"]
    parts = unmeasured(H200, with_batch(PONG, 4096))
    for gpu in gpus:
        shared = {one.devices: one for one in parts.learners.list(gpu)}
        assert list(shared) == list(range(1, len(gpus) + 1))
        for count, one in shared.items():
            if count > 1:
                part = unmeasured(H200, with_batch(PONG, -(-4096 // count))).learners.list(gpu)[0].step.value
                assert one.step.value > part
                assert one.details == {"devices": count}
                assert one.cores == count
                assert "nothing here has run it" in one.step.rests_on.description
                assert one.step.rests_on.id == shared[1].step.rests_on.id
                assert one.step.factor >= laws.GPU_FACTOR


def test_gradients_go_around_a_ring_of_links_or_through_the_host():
    gpu1 = dataclasses.replace(U200.device("gpu"), name="gpu1")
    link = next(link for link in U200.links if {link.source, link.target} == {"cpu", "gpu"})
    same = dataclasses.replace(link, target="gpu1")
    peer = dataclasses.replace(link, source="gpu", target="gpu1")
    assert link.source == "cpu"

    def exchange(*links):
        parts = unmeasured(with_device(U200, gpu1, *links))
        return parts.learners.exchange_seconds(U200.device("gpu"), 2), parts

    nbytes = 4.0 * sum(size.parameters for size in networks(HOPPER).values())
    through, parts = exchange(same)
    there = parts.platform.transfer_seconds("gpu", "cpu", nbytes)
    assert through == pytest.approx(there + parts.platform.transfer_seconds("cpu", "gpu", nbytes))
    ring, parts = exchange(same, peer)
    back = parts.platform.transfer_seconds("gpu1", "gpu", nbytes / 2)
    assert ring == pytest.approx(2 * max(back, parts.platform.transfer_seconds("gpu", "gpu1", nbytes / 2)))
    assert [one.devices for one in exchange()[1].learners.list(U200.device("gpu"))] == [1]  # no link, no sharing


def test_actor_and_critic_apart_take_the_larger_and_the_sent():
    gpu, sac = H200.device("gpu"), load("hopper_sac")
    parts = unmeasured(H200, sac)
    alone, split = (one for one in parts.learners.list(gpu) if one.devices == 1 or one.details.get("split"))
    assert (split.devices, split.cores, split.step.source) == (2, 2, "modeled")
    assert "nothing here has run it" in split.step.rests_on.description
    batch, there = sac.learner.batch, parts.transfer_seconds
    states, actions = 4 * batch * 2 * 11, 4 * batch * 3
    sent = there("gpu", "gpu1", states) + there("gpu", "gpu1", actions) + 2 * there("gpu1", "gpu", actions)
    # Two critics: forward, targets, gradients (two more passes, of inputs less), twice through them for the policy.
    critic, policy, first = 14 * 256 + 256 * 256 + 256, 11 * 256 + 256 * 256 + 256 * 6, 11 * 256
    critics = 2 * (4 * critic - 14 * 256) + 2 * (2 * critic - first)
    share = critics / (critics + 4 * policy - first)
    assert split.step.value == pytest.approx(share * alone.step.value + sent)
    assert not any(one.details.get("split") for one in unmeasured(H200, CARTPOLE).learners.list(gpu))
    assert not any(one.details.get("split") for one in unmeasured(MACHINE, sac).learners.list(MACHINE.devices[0]))


def test_evidence_is_read_once_and_anew_where_a_file_has_changed(tmp_path):
    """Profiles and sentinels alone are read: of other records nothing asks here."""
    path = Path(shutil.copy(RESULTS / KEY / "profile-cartpole_dqn-quick.jsonl", tmp_path))
    before = evidence(tmp_path)
    assert evidence(tmp_path) is before
    of_batch = [before[KEY].table(CARTPOLE), before[KEY].table(with_values(CARTPOLE, {"batch": 100}))]
    assert of_batch[0].rows is of_batch[1].rows
    assert [table.differs for table in of_batch] == [(), ("learner.batch",)]
    timed = of_batch[0].time("learner step", 64).value
    changed = next(one for one in read_file(path) if (one.contestant, one.op, one.batch) == ("learner", "step", 64))
    longer = {key: 10 * getattr(changed, key) for key in ("median_seconds", "low_seconds", "high_seconds")}
    with Writer(path) as writer:
        writer.append(dataclasses.replace(changed, utc=now(), **longer))
    assert evidence(tmp_path)[KEY].table(CARTPOLE).time("learner step", 64).value > 2 * timed
    other = tmp_path / "quick.jsonl"
    other.write_text('{"primitive":"sum_tree"}\n')  # no record
    assert tables(U200, CARTPOLE, tmp_path)[1].machine_key == KEY
    other.write_text('{"primitive":"training"}\n')
    assert tables(U200, CARTPOLE, tmp_path) == (None, None)


NPU = """
name = "board"
origin = "assumed"
note = "made up"
device = [
  { name = "cpu", kind = "cpu", cores = 4, memory = { size_gib = 32 } },
  { name = "npu", kind = "npu", memory = { size_gib = 8 } },
]
link = [{from = "cpu", to = "npu", hops=1, alpha_us = 5, beta_gb_per_s = 9, back_alpha_us = 5, back_beta_gb_per_s = 9}]
"""


def test_a_kind_of_device_without_laws_takes_stated_times(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "npu", DeviceKind(needed=("memory",), own=()))
    platform, times = write(tmp_path, NPU, "board.toml"), tmp_path / "times.csv"
    rows = {part: f"{part},npu,{us}" for part, us in zip(("learner", *TREE, "storage"), (100, 20, 20, 30), strict=True)}

    def ask_without(lacking="", **asked):
        times.write_text("\n".join([PART, *(row for part, row in rows.items() if part != lacking)]))
        return find_mapping(platform, "hopper_ddpg", times=times, **asked)

    assert ask_without().choice.label["learner"] == "npu"
    for lacking in ("learner", "updating"):
        with pytest.raises(PlatformError, match=f"^npu: .*{lacking}"):
            ask_without(lacking)
    assert ask_without("learner", exclude=["npu"]).choice.label["learner"] == "cpu"


def test_a_stated_time_of_several_devices_is_theirs(tmp_path):
    platform, own = (
        several("h200", "gpu", 4),
        csv(tmp_path, "part,device,devices,us", "learner,gpu,1,900", "learner,gpu,2,500"),
    )
    known = Times(platform, HOPPER, None, None, {}, own=own.at(HOPPER.learner.batch))
    shared = {one.devices: one.step for one in known.learners.list(platform.device("gpu"))}
    assert [(shared[count].value, shared[count].source) for count in (1, 2)] == [(9e-4, "measured"), (5e-4, "measured")]
    assert all(shared[count].source == "modeled" for count in shared if count > 2)
