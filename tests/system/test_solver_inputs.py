import dataclasses
import itertools

import pytest

from dse.estimate import Estimate, Evidence
from dse.fpga import BOUNDED, learner_search, placement, pool
from dse.fpga.learner_search import Problem
from dse.mapping.build import build, flows
from dse.mapping.question import find_mapping, tables
from dse.mapping.what_if import with_changes
from dse.platforms import load as load_platform
from dse.records import read_folder
from dse.solver.law import slowdowns, sum_needs, transfers
from dse.solver.problem import LOOP, PARTS
from dse.solver.queues import network, simulate
from dse.solver.solve import solve
from dse.times import laws
from dse.times.cells import PerformanceTable, carried, of_records, over_batch
from dse.times.door import Times
from dse.times.trees import trees
from impls.fpga.resources import Budget
from impls.training import load
from impls.training.weights import layout_of, networks
from tests.committed import RESULTS
from tests.matrix import slow
from tests.solver_cases import MODES

KEY = "d7dae63b89"
PROFILED = ("cartpole_dqn", "cartpole_ddpg", "hopper_ddpg", "pong_dqn")


@pytest.fixture(scope="module")
def records():
    return read_folder(RESULTS, KEY)


@pytest.fixture(scope="module")
def machine():
    return load_platform(RESULTS / KEY / "platform.toml")


def short(problem, chosen):
    return [name for name, need in sum_needs(problem, chosen).items() if need > problem.budgets[name]]


def with_batch(workload, batch, **more):
    return dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=batch, **more))


def parts_of(platform, name, **fixed):
    platform = load_platform(platform)
    workload = load(name)
    return Times(platform, workload, *tables(platform, workload, RESULTS), fixed)


# Records


@pytest.mark.parametrize("name", PROFILED)
def test_a_measured_cell_answers_for_itself(records, name):
    workload = load(name)
    table = of_records(records, KEY, workload)
    found = table.time("learner step", workload.learner.batch)
    asked = ("learner", "step", 1, workload.learner.batch, name, "nothing")
    medians = [
        one.seconds
        for one in records
        if one.primitive in ("training", "training_again")
        and (one.contestant, one.op, one.threads, one.batch) == asked[:4]
        and (one.options["workload"], one.options.get("beside", "nothing")) == asked[4:]
    ]
    assert table.differs == ()
    assert found.source == "measured"
    assert len(medians) >= 2
    assert found.low <= min(medians) <= found.value <= max(medians) <= found.high


def test_another_batch_and_interval_reuse_the_profile_and_say_so(records):
    table = of_records(records, KEY, with_batch(load("hopper_ddpg"), 200, update_interval=4))
    assert table.differs == ("learner.batch", "learner.update_interval")
    assert table.time("learner step", 128).value < table.time("learner step", 200).value
    assert table.time("learner step", 200).value < table.time("learner step", 256).value
    assert table.time("learner step", 200).source == "interpolated"
    assert table.time("learner step", 16_384).source == "extrapolated"
    assert table.time("storage gather", 200) is None  # measured at one B alone, and no law was given


def test_a_workload_is_the_same_whatever_its_name_and_length_and_another_by_its_algorithm(records):
    renamed = of_records(records, KEY, dataclasses.replace(load("hopper_ddpg"), name="mine", steps=5, seeds=(7,)))
    assert (renamed.differs, len(renamed.rows) > 40) == ((), True)
    table = of_records(records, KEY, load("hopper_sac"))
    assert (table.rows, table.trees is None) == ((), False)


def test_between_batches_a_time_lies_on_the_line_of_logarithms():
    cells = {
        10: Estimate.within(1.0, 1.1, Evidence("a", "measured")),
        1000: Estimate.within(4.0, 1.1, Evidence("a", "measured")),
    }
    assert over_batch(cells, 100, "n").value == pytest.approx(2.0)
    assert over_batch(cells, 10, "n").value == 1.0
    beyond = over_batch(cells, 2000, "n")
    assert beyond.source == "extrapolated"
    assert beyond.rests_on.id == "n"
    assert 4.0 < beyond.value <= 8.0
    assert beyond.high / beyond.value >= 1.1


def test_what_is_carried_further_is_less_sure():
    cell = Estimate.within(1.0, 1.2, Evidence("a", "measured"))
    near, far = carried(cell, 1.5, "n"), carried(cell, 6.0, "n")
    assert far.value == 6.0
    assert far.high / far.value > near.high / near.value > 1.2


# Laws


def test_more_cores_are_between_the_scalability_law_and_a_speedup_that_keeps_growing():
    for cores in (1, 2, 3, 28):
        speedup, factor = laws.speed_up(cores, 0.2)
        assert speedup / factor == pytest.approx(cores / (1 + 0.2 * (cores - 1)))
        assert speedup * factor == pytest.approx(cores / 1.2 if cores > 1 else 1.0)
        assert factor == pytest.approx(1.0) if cores <= laws.TIMED_CORES else factor > 1


# Problems


def test_traffic_is_what_a_gradient_step_sends():
    parts = parts_of("u200", "hopper_ddpg")
    sent = {(one.source, one.target): one for one in build(parts).problems[MODES["apart"]].flows}
    batch, record = 256, 105
    assert layout_of(load("hopper_ddpg")).record_bytes == record
    assert sent["sampling", "storage"].nbytes == 8 * batch
    assert sent["storage", "learner"].nbytes == record * batch
    assert sent["sampling", "learner"].nbytes == 4 * batch
    assert sent["learner", "updating"].nbytes == 12 * batch
    assert sent["updating", "sampling"].nbytes == batch * 20 * 12  # K = 2, a million leaves: 20 levels above them
    assert sent["actors", "storage"].nbytes == record
    assert sent["actors", "storage"].times == 1 / 64
    assert sent["actors", "updating"].nbytes == 12
    assert sent["actors", "updating"].times == 1 / 64
    assert sent["learner", "actors"].nbytes == pytest.approx(4 * 69_635 / (64 * 16))
    assert {pair for pair, flow in sent.items() if flow.waits} == {
        ("sampling", "storage"),
        ("storage", "learner"),
        ("sampling", "learner"),
        ("learner", "updating"),
    }


def test_a_pixel_batch_is_stacks_of_frames_though_storage_holds_one_frame_a_record():
    parts = parts_of("u200", "pong_dqn")
    assert parts.storage_bytes == 7062e6
    assert parts.transition_bytes == 5 * 7062
    local = parts.workload.actors.local_storage
    assert parts.written_bytes == 7062 * (local + 4) / local < 1.5 * 7062  # four fillers for every local storage
    written = next(flow for flow in flows(parts) if (flow.source, flow.target) == ("actors", "storage"))
    assert written.nbytes == parts.workload.learner.update_interval * parts.written_bytes


@pytest.mark.parametrize("place", ["apart", "pipelined"])
def test_sampling_and_updating_have_one_tree_or_copies(place):
    """Every pair is one tree on one device, or copies on two devices; all of these are there."""
    parts = parts_of("u200", "cartpole_ddpg")
    problem = build(parts).problems[MODES[place]]
    known = {(one.name, device.name): one for device in parts.platform.devices for one in trees(parts, device)}
    found = set()
    for sampling, updating in problem.trees:
        tree = known[sampling.name.removeprefix("copy in "), sampling.device]
        if place != "apart":  # where a call of the FPGA comes on top
            copies = sampling.device != updating.device  # sums are stored in the copy, which takes as long as to sample
            assert sampling.time.value == (2 if copies else 1) * tree.draw.value
            assert updating.time == known[updating.name.removeprefix("sums of "), updating.device].update
        if sampling.device == updating.device:
            assert sampling.name == updating.name
            assert sampling.engine == updating.engine
            assert not updating.needs  # a tree that is there once takes room once
        else:
            assert sampling.name.startswith("copy in") and updating.name.startswith("sums of")
            assert all(any(name.startswith(one.device) for name in one.needs) for one in (sampling, updating))
        found.add((sampling.device, updating.device))
    devices = "cgf"
    names_of = {"c": "cpu", "g": "gpu", "f": "fpga"}
    pairs = itertools.product(devices, repeat=2)
    expected = {(names_of[a], names_of[b]) for a, b in pairs if a == b or place != "apart"}
    assert found == expected
    assert set(problem.options) == {"actors", "storage", "learner"}


def test_a_tree_is_no_surer_than_the_less_sure_of_its_operations(monkeypatch):
    parts = parts_of(RESULTS / KEY / "platform.toml", "hopper_ddpg")
    time = PerformanceTable.tree

    def guessed(table, configuration, op, *where):
        known = time(table, configuration, op, *where)
        return known and (known.resting_on(source="interpolated") if op == "draw" else known)

    assert {tree.draw.source for tree in trees(parts, parts.cpu)} == {"measured"}
    monkeypatch.setattr(PerformanceTable, "tree", guessed)
    found = trees(parts, parts.cpu)
    assert {time.source for tree in found for time in (tree.draw, tree.update)} == {"interpolated"}


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        ("u200", "hopper_ddpg"),
        ("h200", "hopper_ddpg"),
        ("edge", "cartpole_dqn"),
        (RESULTS / KEY / "platform.toml", "pong_dqn"),
    ],
)
def test_every_number_has_its_evidence_and_none_of_another_machine_is_measured(platform, name):
    built = build(parts_of(platform, name))
    for problem in built.problems.values():
        numbers = {option.time.rests_on.id for option in problem.every_option()}
        numbers |= {hop.rests_on.id for way in problem.ways.values() for hop in way}
        assert numbers <= set(built.evidence)
        for option in problem.every_option() if isinstance(platform, str) else ():
            if option.part in LOOP:
                assert option.time.source in ("modeled", "extrapolated")
                assert option.time.high / option.time.low > 1.4
    assert all(evidence.description for evidence in built.evidence.values())
    commands = {one.command for one in built.evidence.values()} - {""}  # of what nothing here measures
    assert all(command.startswith("python -m ") for command in commands)


@pytest.mark.parametrize(
    ("gb_per_s", "place"), [slow(12, "serial"), (12, "apart"), (0.5, "serial"), slow(0.5, "apart")]
)
def test_what_is_done_in_turns_waits_for_its_transfers(place, gb_per_s):
    """One process that does everything, transfers and all, so nothing overlaps: hz == 1 / (sum + transfers)."""
    platform = with_changes(load_platform("u200"), {"cpu-gpu.beta_gb_per_s": gb_per_s})
    workload = with_batch(load("pong_dqn"), 512, update_interval=1)
    wishes = {"learner": "gpu", "storage": "cpu"}
    problem = build(Times(platform, workload, *tables(platform, workload, RESULTS), wishes)).problems[MODES[place]]
    found = solve(problem, "ratio", 0.0)
    chosen, given = found.choice, found.answer.outcome
    in_turns = [part for part in PARTS if place == "serial" or part != "actors"]
    sent = sum(hop.seconds(flow) for flow, hop in transfers(problem, chosen.where))
    slower = slowdowns(problem, chosen.where)
    whole = sum(slower[part] * chosen.of(part).seconds for part in in_turns) + sent
    assert sent > 512 * 5 * 7056 / (gb_per_s * 1e9)
    assert given.hz == pytest.approx(1 / whole, rel=1e-12)
    played = simulate(network(problem, chosen), chosen.depth, steps=40)
    assert played.value == pytest.approx(given.hz, rel=0.1)


@pytest.mark.parametrize("fix", [{}, slow({"actors": 1}), {"actors": 16}])
def test_an_answer_is_as_sure_as_what_it_chose(fix):
    """All counts of actors rest on one number, and 16 of them are less sure than one: only the chosen count matters."""
    given = find_mapping("u200", "hopper_ddpg", fix=fix)
    (actors,) = (part for part in given.parts if part.label["part"] == "actors")
    one = find_mapping("u200", "hopper_ddpg", fix=fix | {"actors": actors.more["details"]["processes"]})
    assert (given.low, given.high) == (one.low, one.high)


def test_batches_and_what_a_gradient_step_holds_take_memory():
    workload = load("hopper_ddpg")
    parts, parameters = parts_of("h200", "hopper_ddpg"), sum(size.parameters for size in networks(workload).values())
    held = {device.name: parts.learners.learner_bytes(device, 50) for device in parts.platform.devices}
    batches = 51 * 256 * 105
    assert held["gpu"]["gpu.memory_bytes"] > 16 * parameters + batches + 8 * 256 * (256 + 256 + 1)
    placement = parts_of("edge", "hopper_ddpg")
    fpga = next(device for device in placement.platform.devices if device.kind == "fpga")
    assert placement.learners.learner_bytes(fpga, 50) == {"cpu.memory_bytes": batches}  # it has no memory of its own
    assert build(parts_of("h200", "pong_dqn"), frozenset(["presampled"])).problems[MODES["serial"]].depths[-1] == 50
    large = dataclasses.replace(parts, workload=with_batch(workload, 900_000))
    learner = build(large).problems[MODES["serial"]].options["learner"][0]
    assert learner.needs["cpu.memory_bytes"] > 51 * 900_000 * 105


# Boards


@pytest.mark.parametrize(
    "platform, name", [("edge", "cartpole_dqn"), ("u200", "hopper_ddpg"), slow("u200", "cartpole_dqn")]
)
def test_a_learner_beside_a_tree_is_the_fastest_that_the_tree_leaves_room_for(platform, name):
    """Against the search of learners in all that is left; it knows no slices, so it can only be faster.

    On one slice it is the same. A tree that fills the block RAMs of a slice leaves no share of it to a learner.
    """
    parts = parts_of(platform, name)
    fpga = next(device for device in parts.platform.devices if device.kind == "fpga")
    slices = placement.slices_of(fpga)
    posed = Problem(laws.step_of(parts.workload), parts.batch, pool(slices), clock_hz=fpga.clock_hz.value)
    found = placement.learners(slices, posed, parts.rmms(fpga))
    whole = [placement.amounts(one.budget) for one in slices]
    roomy = [rmm for rmm in parts.rmms(fpga) if rmm.point.needed.bram36 < 300]
    for rmm in (roomy[0], roomy[3], roomy[-1]):
        needs, beside = placement.amounts(rmm.point.needed), []
        for place in range(len(slices)):
            left = [list(have) for have in whole]
            left[place] = [have - need for have, need in zip(whole[place], needs, strict=True)]
            if min(left[place]) >= 0:
                beside += [one.point.cycles for one in found if one.fits(left)]
        pooled = [int(sum(column) - need) for column, need in zip(zip(*whole, strict=True), needs, strict=True)]
        budget = Budget(**dict(zip(BOUNDED, pooled, strict=True)))
        best = learner_search.fastest(dataclasses.replace(posed, budget=budget))[0].cycles
        assert min(beside) >= best
        assert min(beside) <= best * (1.0 if len(slices) == 1 else 1.35)


def test_a_tree_is_in_one_slice_and_a_learner_takes_its_share_of_each():
    """A slice's learner units and the tree in it are there together: SLR1, half of it the shell's, holds few trees."""
    problem = build(parts_of("u200", "hopper_ddpg", learner="fpga", updating="fpga")).problems[MODES["pipelined"]]
    found = solve(problem, "training", 0.0)
    tree, learner = found.choice.sampling, found.choice.learner
    assert len({key.split(".")[1] for key, amount in tree.needs.items() if key.startswith("fpga.") and amount}) == 1
    for name in ("SLR0", "SLR1", "SLR2"):
        assert 0 < learner.needs[f"fpga.{name}.dsp"] <= problem.budgets[f"fpga.{name}.dsp"]
        shares = [learner.needs[f"fpga.{name}.{kind}"] for kind in ("dsp", "lut")]
        assert shares[1] / shares[0] == pytest.approx(learner.needs["fpga.SLR0.lut"] / learner.needs["fpga.SLR0.dsp"])
    assert not short(problem, found.choice)
    fastest = min(problem.trees, key=lambda pair: pair[0].seconds + pair[1].seconds)
    crowded = found.choice.having(*fastest)
    assert any(name.startswith("fpga.SLR") for name in short(problem, crowded))


# Wishes, and what the numbers leave out


def test_more_threads_than_were_measured_go_by_a_law_from_the_most_that_were():
    platform = with_changes(load_platform(RESULTS / KEY / "platform.toml"), {"cpu.cores": 16})
    workload = load("hopper_ddpg")
    parts = Times(platform, workload, *tables(platform, workload, RESULTS), {})
    found = {one.cores: one.step for one in parts.learners.list(parts.cpu) if "implementation" not in one.details}
    assert list(found) == list(range(1, 17))
    assert [found[count].source for count in (1, 4, 8, 16)] == ["measured", "modeled", "modeled", "modeled"]
    assert found[2].value > found[4].value > found[16].value > found[2].value / 8
    assert found[16].high / found[16].value > found[4].high / found[4].value > found[2].high / found[2].value
    assert "from 2 as measured" in found[16].rests_on.description
