"""Which times parts have on each device: every thread count, its own cores and records, learners that share a batch.

Each test of a finding of the solver's check (S2, S3, S4, S7, S8) is of an answer that was wrong before.
"""

import dataclasses
import shutil
from pathlib import Path

import pytest

from dse.__main__ import main
from dse.mapping.question import tables, with_values
from dse.platforms import load as load_platform
from dse.platforms import now
from dse.platforms.quantities import Quantity
from dse.records import Record, Writer, read_file, read_folder
from dse.times import laws
from dse.times.cells import evidence, of_records
from dse.times.door import Times
from dse.times.stated import StatedTimes
from dse.times.trees import trees
from impls.training import load
from impls.training.weights import networks
from tests.committed import RESULTS

KEY = "d7dae63b89"
U200, SINGLE = load_platform("u200"), load_platform("h200")
MACHINE = load_platform(RESULTS / KEY / "platform.toml")
HOPPER, PONG, CARTPOLE = (load(name) for name in ("hopper_ddpg", "pong_dqn", "cartpole_dqn"))


@pytest.fixture(scope="module")
def records():
    return read_folder(RESULTS, KEY)


def unmeasured(platform, workload=HOPPER, **more):
    return Times(platform, workload, None, None, {}, **more)


def measured(workload, platform=MACHINE, records=None):
    table = of_records(records, KEY, workload) if records else tables(MACHINE, workload, RESULTS)[0]
    return Times(platform, workload, table, None, {})


def with_gpus(count):
    """The h200 with so many equal GPUs."""
    (gpu,) = (device for device in SINGLE.devices if device.kind == "gpu")
    (link,) = (link for link in SINGLE.links if link.target == "gpu")
    names = [f"gpu{n}" for n in range(count)]
    others = tuple(device for device in SINGLE.devices if device is not gpu)
    gpus = tuple(dataclasses.replace(gpu, name=name) for name in names)
    links = tuple(dataclasses.replace(link, target=name) for name in names)
    return dataclasses.replace(SINGLE, devices=(*others, *gpus), links=links)


H200 = with_gpus(4)


def with_batch(workload, batch):
    return dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=batch))


def with_cores(device, cores, **changes):
    return dataclasses.replace(device, cores=Quantity(value=cores, origin="assumed", note=""), **changes)


def with_device(platform, device, *links):
    return dataclasses.replace(platform, devices=(*platform.devices, device), links=(*platform.links, *links))


# S3, S4: threads and cores


def test_a_second_processor_has_its_own_cores_and_no_records_but_where_it_is_equal():
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


def test_a_gpus_tree_of_a_sweep_is_no_tree_of_the_processor_and_is_one_of_the_gpu(records):
    def on_gpu(record: Record) -> Record:
        return dataclasses.replace(record, contestant="cupy")

    swept = [one for one in records if (one.primitive, one.contestant, one.threads) == ("sum_tree", "numba", 1)]
    platform = with_device(MACHINE, H200.device("gpu0"))
    parts = measured(HOPPER, platform, [*records, *map(on_gpu, swept)])
    assert {tree.details["contestant"] for tree in trees(parts, MACHINE.device("cpu"))}.isdisjoint({"cupy"})
    there = trees(parts, platform.device("gpu0"))
    assert {tree.details["contestant"] for tree in there} == {"cupy"}
    assert {tree.draw.source for tree in there} <= {"measured", "interpolated"}
    assert all(tree.draw.rests_on.id.startswith("tree(gpu0, cupy") for tree in there)
    assert all("threads" not in tree.details and set(tree.needs) == {"gpu0.memory_bytes"} for tree in there)


# S7: a skipped cell is evidence


def test_a_gpus_gradient_step_is_as_recorded_on_the_first_gpu_and_modeled_without_records(records):
    every = (one for one in records if one.contestant == "learner" and one.options["workload"] == HOPPER.name)
    own = next(one for one in every if one.median_seconds)
    cells = [dataclasses.replace(own, contestant="cuda", batch=batch, threads=1) for batch in (64, 256)]
    timed = measured(HOPPER, H200, [*records, *cells])
    untimed = measured(HOPPER, H200, records)
    alone, _, half = timed.learners.list(H200.device("gpu0"))[:3]
    assert alone.step.value == pytest.approx(own.median_seconds)
    assert alone.step.source == "measured"
    assert half.details == {"devices": 2}
    assert half.step.value > alone.step.value  # between records at B = 128, and an exchange
    assert timed.learners.list(H200.device("gpu3"))[0].step.source == "measured"
    assert untimed.learners.list(H200.device("gpu0"))[0].step.source == "modeled"


def test_a_cell_that_was_skipped_for_its_length_takes_that_long_at_least(records):
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


def test_small_nets_get_slower_with_threads_and_large_ones_faster_up_to_a_number():
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


def test_doubt_grows_with_the_distance_from_the_cores_that_were_timed():
    known = measured(CARTPOLE).learners.list(MACHINE.device("cpu"))
    factors = [one.step.factor for one in known if "implementation" not in one.details]
    assert len(factors) == 2
    parts = measured(CARTPOLE, dataclasses.replace(MACHINE, devices=(with_cores(MACHINE.device("cpu"), 64),)))
    more = [one.step.factor for one in parts.learners.list(parts.cpu) if "implementation" not in one.details]
    assert more[:2] == factors
    assert more[2:] == sorted(more[2:])
    assert more[63] > 2 * more[2] > 2 * factors[1]
    processes = [parts.actors.step(count).factor for count in (2, 4, 16, 60)]
    assert processes == sorted(processes)


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


def test_actor_and_critic_on_two_devices_take_the_larger_part_and_what_they_send():
    gpu, sac = H200.device("gpu0"), load("hopper_sac")
    parts = unmeasured(H200, sac)
    alone, split = (one for one in parts.learners.list(gpu) if one.devices == 1 or one.details.get("split"))
    assert (split.devices, split.cores, split.step.source) == (2, 2, "modeled")
    assert "nothing here has run it" in split.step.rests_on.description
    batch, there = sac.learner.batch, parts.transfer_seconds
    states, actions = 4 * batch * 2 * 11, 4 * batch * 3
    sent = there("gpu0", "gpu1", states) + there("gpu0", "gpu1", actions) + 2 * there("gpu1", "gpu0", actions)
    # Two critics: forward, targets, gradients (two more passes, of inputs less), twice through them for the policy.
    critic, policy, first = 14 * 256 + 256 * 256 + 256, 11 * 256 + 256 * 256 + 256 * 6, 11 * 256
    critics = 2 * (4 * critic - 14 * 256) + 2 * (2 * critic - first)
    share = critics / (critics + 4 * policy - first)
    assert split.step.value == pytest.approx(share * alone.step.value + sent)
    assert not any(one.details.get("split") for one in unmeasured(H200, CARTPOLE).learners.list(gpu))
    assert not any(one.details.get("split") for one in unmeasured(MACHINE, sac).learners.list(MACHINE.devices[0]))


def test_a_stated_time_of_several_devices_is_theirs(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("part,device,devices,us\nlearner,gpu0,1,900\nlearner,gpu0,2,500\n")
    parts = unmeasured(H200, own=StatedTimes.read(path).at(HOPPER.learner.batch))
    shared = {one.devices: one.step for one in parts.learners.list(H200.device("gpu0"))}
    assert (shared[1].value, shared[2].value) == (900e-6, 500e-6)
    assert (shared[1].source, shared[2].source) == ("measured", "measured")
    assert shared[2].rests_on.id == "T_train(gpu0), 2 devices"
    assert all(shared[count].source == "modeled" for count in shared if count > 2)


def test_evidence_is_read_once_and_anew_where_a_file_has_changed(tmp_path):
    name = "profile-cartpole_dqn-quick.jsonl"
    path = Path(shutil.copy(RESULTS / KEY / name, tmp_path))
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


def test_of_other_machines_profiles_and_sentinels_alone_are_read(tmp_path):
    shutil.copy(RESULTS / KEY / "profile-cartpole_dqn-quick.jsonl", tmp_path)
    known = evidence(tmp_path)[KEY].table(CARTPOLE)
    other = tmp_path / "quick.jsonl"
    other.write_text('{"primitive":"sum_tree"}\n')  # no record, of which nothing asks here
    table = tables(U200, CARTPOLE, tmp_path)[1]
    assert (table.machine_key, table.rows) == (KEY, known.rows)
    other.write_text('{"primitive":"training"}\n')
    assert tables(U200, CARTPOLE, tmp_path) == (None, None)


def test_a_link_that_leads_nowhere_is_named_with_a_remedy(tmp_path, capsys):
    link = tmp_path / "lost.jsonl"
    link.symlink_to(tmp_path / "nowhere")
    asked = ["recommend", "--platform", "u200", "--workload", "hopper_ddpg", "--results", str(tmp_path)]
    assert main(asked) == 2
    assert capsys.readouterr().err.startswith(f"error: {link}: cannot be read (No such file or directory); remove it")
