"""Tests of the options that a question has: processes and their cores, further processors, and equal devices."""

import dataclasses
import itertools

import pytest

from dse.mapping.build import build
from dse.mapping.question import find_mapping, tables
from dse.platforms import load as load_platform
from dse.platforms.files import RESULTS
from dse.solver.law import sum_needs
from dse.solver.problem import PARTS, TREE, Configuration
from dse.solver.solve import solve
from dse.times.door import Times
from impls.training import load, timed_names
from tests.matrix import matrix
from tests.solver_cases import MODES

SHIPPED = ("edge", "h200", "u200")
USUAL = (("u200", "hopper_ddpg"), ("edge", "pong_dqn"), ("h200", "cartpole_dqn"))
SHARED = 8192  # records of a batch from which on the threads of a tree share it


def parts_of(platform, name="hopper_ddpg", batch=None, **fixed):
    platform = load_platform(platform) if isinstance(platform, str) else platform
    workload = load(name)
    if batch:
        workload = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=batch))
    return Times(platform, workload, *tables(platform, workload, RESULTS), fixed)


def pipelined(platform, name="hopper_ddpg", batch=None, **fixed):
    return build(parts_of(platform, name, batch, **fixed)).problems[MODES["pipelined"]]


def several(platform, name, count, cores=None):
    """A platform with so many devices as the named one, each linked as it is; the processor's first gets ``cores``."""
    base = load_platform(platform) if isinstance(platform, str) else platform
    device = base.device(name)
    copies = [dataclasses.replace(device, name=f"{name}{i}" if i else name) for i in range(count)]
    devices = [one for one in base.devices if one.name != name] + copies
    if cores:
        cpu = devices[0]
        devices[0] = dataclasses.replace(cpu, cores=dataclasses.replace(cpu.cores, value=cores))
    links = list(base.links)
    for link, copy in itertools.product(base.links, copies[1:]):
        ends = {end: copy.name for end in ("source", "target") if getattr(link, end) == name}
        links += [dataclasses.replace(link, **ends)] if ends else []
    return dataclasses.replace(base, devices=tuple(devices), links=tuple(links))


def two_processors(cores=4):
    """The H200's host with a second processor of so many cores, over a link as the GPU's."""
    base = load_platform("h200")
    cpu, gpu = base.device("cpu"), base.device("gpu")
    second = dataclasses.replace(cpu, name="cpu1", cores=dataclasses.replace(cpu.cores, value=cores))
    links = [dataclasses.replace(base.links[0], target=name) for name in ("gpu", "cpu1")]
    return dataclasses.replace(base, devices=(cpu, gpu, second), links=tuple(links))


def first_of(problem, **names):
    """The configuration with the first option of each part that is so called, or on that device."""
    picked = {
        part: next(one for one in options if names.get(part) in (None, one.device, one.name))
        for part, options in problem.options.items()
    }
    tree = next(pair for pair in problem.trees if names["tree"] == (pair[0].device, pair[1].device))
    picked |= {one.part: one for one in tree}
    return Configuration(tuple(picked[part] for part in PARTS), problem.depths[0])


# Processes and their cores


CORES = [
    (1, ("cpu", "cpu"), "cpu", "1 thread of torch", 1 + 1 + 1),  # one replay process
    (1, ("cpu", "cpu"), "gpu", "2 threads of torch", 1 + 1 + 2),
    (1, ("gpu", "gpu"), "cpu", "gpu", 1 + 1 + 1 + 1),  # storage, and two drivers
    (1, ("gpu", "gpu"), "gpu", "gpu", 1 + 1 + 1),
    (1, ("cpu", "gpu"), "cpu", "gpu", 1 + 1 + 1 + 1),
    (4, ("cpu", "cpu"), "cpu", "gpu", 1 + 4 + 1),
    (4, ("cpu", "cpu"), "gpu", "gpu", 1 + 4 + 1),
    (4, ("gpu", "cpu"), "gpu", "gpu", 1 + 1 + 4 + 1),
]
"""Threads of a tree; where the tree, the records and the learner are; cores that all of them take."""


def test_cores_of_processes():
    """One of actors; replay takes a core once and a tree's further threads theirs; a core drives an accelerator."""
    for threads, tree, storage, learner, cores in CORES:
        problem = pipelined("h200", batch=SHARED, threads=threads)
        needs = sum_needs(problem, first_of(problem, tree=tree, storage=storage, learner=learner))
        assert needs["cpu.cores"] == cores, (threads, tree, storage, learner)


# Batches sampled ahead


@pytest.mark.parametrize(("platform", "name"), matrix(SHIPPED, timed_names(), brief=lambda *asked: asked in USUAL))
def test_free_depths_fit_where_a_fixed_one_does_no_worse(platform, name):
    fixed = find_mapping(platform, name, epsilon=0.0)
    free = find_mapping(platform, name, epsilon=0.0, free=["presampled"])
    if hasattr(fixed, "value"):
        assert free.value >= fixed.value
    else:
        assert hasattr(free, "value") or len(free.repairs) >= 1


def test_a_memory_that_holds_two_batches_has_room_for_one_ahead():
    """The deepest batches were charged to every depth, so that nothing fitted."""
    base = load_platform("h200")
    parts = parts_of(base, "pong_dqn", learner="gpu", storage="cpu", sampling="cpu", updating="cpu")
    gpu = base.device("gpu")
    least = next(one for one in build(parts).problems[MODES["pipelined"]].options["learner"])
    size = least.needs["gpu.memory_bytes"] + 1.5 * least.ahead["gpu.memory_bytes"]
    small = dataclasses.replace(gpu.memory, size_bytes=dataclasses.replace(gpu.memory.size_bytes, value=size))
    tight = dataclasses.replace(base, devices=(base.device("cpu"), dataclasses.replace(gpu, memory=small)))
    asked = {"learner": "gpu", "storage": "cpu", "sampling": "cpu", "updating": "cpu", "arrangement": "pipelined"}
    assert find_mapping(tight, "pong_dqn", fix=asked, free=["presampled"]).choice.more["depth"] <= 1
    assert find_mapping(tight, "pong_dqn", fix={**asked, "presampled": 1}).choice.more["depth"] == 1
    assert hasattr(find_mapping(tight, "pong_dqn", fix={**asked, "presampled": 2}), "repairs")


# A second processor


def test_a_second_processor_has_cores_and_engines_of_its_own():
    problem = pipelined(two_processors(cores=4))
    assert problem.budgets["cpu1.cores"] == 4
    assert problem.engines == {"cpu.replay": {"cpu.cores": 1}, "cpu1.replay": {"cpu1.cores": 1}}
    there = [one for one in problem.every_option() if one.device == "cpu1"]
    assert {one.part for one in there} == {"sampling", "updating", "storage", "learner"}
    assert {one.engine for one in there} == {"cpu1.replay", "cpu1.learner"}
    learners = [one for one in there if one.part == "learner"]
    assert max(one.needs["cpu1.cores"] for one in learners) == 4
    assert not any("cpu.cores" in one.needs for one in learners)
    trees = [one for one in there if one.part in TREE]
    assert max(one.needs.get("cpu1.cores", 0) for one in trees) <= 3
    single = pipelined(two_processors(cores=1)).every_option()
    there = {one.name for one in single if one.device == "cpu1" and one.part == "learner"}
    assert there == {"1 thread of torch", "dense, 1 thread"}
    for mode in ("serial", "apart"):  # of one process, which runs on one processor
        problem = build(parts_of(two_processors())).problems[MODES[mode]]
        assert {one.device for one in problem.every_option()} == {"cpu", "gpu"}


def test_cores_of_the_first_processor_do_not_bound_the_second():
    chosen = find_mapping(two_processors(16), "hopper_ddpg", fix={"learner": "cpu1", "storage": "cpu1"})
    assert {part.label["device"] for part in chosen.parts if part.label["part"] == "actors"} == {"cpu"}
    (told,) = (note for note in chosen.notes if note.kind == "one_processor_tried")
    assert told.values == {"cpu": "cpu", "others": ["cpu1"]}
    assert "one_processor_tried" not in {note.kind for note in find_mapping("h200", "hopper_ddpg").notes}


# Equal devices


def test_learners_of_several_devices_are_on_every_set():
    platform = several("h200", "gpu", 3)
    built = build(parts_of(platform))
    problem = built.problems[MODES["pipelined"]]
    learners = [one for one in problem.options["learner"] if one.name.endswith(" devices")]
    sets = [frozenset(engine for _, engine in one.where) for one in learners]
    assert sorted(map(sorted, sets)) == [["gpu", "gpu1"], ["gpu", "gpu1", "gpu2"]]
    assert problem.equal == (("gpu", "gpu1", "gpu2"),), "the search puts them on any"
    batch = parts_of(platform).batch
    for one in learners:
        used = {device for device, _ in one.where}
        assert one.needs["cpu.cores"] == len(used)  # each has a driver
        assert {f"{device}.memory_bytes" for device in used} == set(one.ahead)
        assert all(one.ahead[f"{device}.memory_bytes"] * len(used) >= batch for device in used)
        assert set(one.needs) == {*one.ahead, "cpu.cores"}
    for mode in ("serial", "apart"):
        assert not any(one.also for one in built.problems[MODES[mode]].options["learner"])
    assert {device for part, device in built.count_options() if part in ("learner", "storage")} == {"cpu", "gpu"}


def test_devices_that_differ_share_no_learner():
    platform = several("h200", "gpu", 3)
    odd = platform.devices[-1]
    slower = dataclasses.replace(odd, peak_fp32_ops_per_s=dataclasses.replace(odd.peak_fp32_ops_per_s, value=1e12))
    platform = dataclasses.replace(platform, devices=(*platform.devices[:-1], slower))
    options = pipelined(platform).options["learner"]
    assert [one.where for one in options if one.name == "2 devices"] == [(("gpu", "gpu"), ("gpu1", "gpu1"))]


def test_a_faster_set_is_the_answer():
    alone, found = (solve(pipelined(several("h200", "gpu", count), batch=1 << 17), "training") for count in (1, 2))
    assert found.best > alone.best
    assert {device for device, _ in found.choice.learner.where} == {"gpu", "gpu1"}
    given = find_mapping(several("h200", "gpu", 2), "hopper_ddpg", fix={"sampling": "gpu", "updating": "gpu1"})
    trees = [part for part in given.parts if part.label["part"] in TREE]
    assert {part.label["device"] for part in trees} == {"gpu", "gpu1"}
    assert all("fanout" in part.more["details"] for part in trees)  # of whichever device it is on


def test_what_is_fixed_to_one_of_equal_devices_sets_it_apart():
    problem = pipelined(several("h200", "gpu", 3), storage="gpu1")
    assert problem.equal == (("gpu", "gpu2"),)
    assert {one.device for one in problem.options["storage"]} == {"gpu1"}
    sets = [tuple(device for device, _ in one.where) for one in problem.options["learner"] if one.name == "2 devices"]
    assert sorted(sets) == [("gpu", "gpu1"), ("gpu", "gpu2"), ("gpu1", "gpu")]
