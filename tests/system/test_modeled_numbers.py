"""What the solver is fed: numbers that nobody timed say so, traffic, trees, boards, and layers of a network."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from dse.answers.mapping_answer import mapping_answer
from dse.answers.platform import primitives_answer
from dse.estimate import Estimate, Evidence, interval_of
from dse.fpga import rmm_search
from dse.mapping.build import build
from dse.mapping.processes import ExecutionMode
from dse.mapping.question import ask, find_mapping, tables
from dse.mapping.what_if import with_changes
from dse.platforms import PlatformError
from dse.platforms import load as load_platform
from dse.records import read_folder
from dse.solver.deciding import deciding, spreads, widest
from dse.solver.law import TOO_HIGH
from dse.solver.problem import PARTS, Configuration, Problem
from dse.solver.solve import solve
from dse.times import laws, layers
from dse.times.cells import PerformanceTable, of_records, over_batch
from dse.times.curves import flat_then_linear
from dse.times.door import Times
from dse.times.trees import FANOUTS, trees
from impls.training import load
from impls.training.weights import layout_of, list_value_layers
from tests.committed import RESULTS
from tests.matrix import slow
from tests.options_net import PLATFORMS, changes, net, written
from tests.solver_cases import MODES, option, timed

MACHINES = ("8fb834d50a", "d7dae63b89")
ALONE = ExecutionMode("apart", 1, "torch", "torch")
SERIAL = {"arrangement": "serial", "learner_threads": 1}


def machine(key=MACHINES[0]):
    return str(RESULTS / key / "platform.toml")


def parts_of(platform, name="hopper_ddpg", table=True, **fixed):
    platform, workload = load_platform(platform) if isinstance(platform, str) else platform, load(name)
    return Times(platform, workload, *(tables(platform, workload, RESULTS) if table else (None, None)), fixed)


def without(platform, name, **changes):
    """The platform where numbers of a device are not stated; "memory_..." of its memory."""
    device = platform.device(name)
    memory = {key.removeprefix("memory_"): value for key, value in changes.items() if key.startswith("memory_")}
    own = {key: value for key, value in changes.items() if not key.startswith("memory_")}
    if memory:
        own["memory"] = dataclasses.replace(device.memory, **memory)
    changed = dataclasses.replace(device, **own)
    devices = tuple(changed if one.name == name else one for one in platform.devices)
    return dataclasses.replace(platform, devices=devices)


# A factor, not an interval


def test_only_what_was_timed_has_a_95_percent_interval():
    assert interval_of(["measured", "interpolated"]) == "95 %"
    for source in ("modeled", "extrapolated", "quoted"):
        assert interval_of(["measured", source]) == "factor"
        assert Estimate(1.0, 0.5, 2.0, Evidence("a", source)).interval == "factor"


def test_a_width_of_a_modeled_time_is_its_factor_squared():
    """Literal factors: those that the module's head and the page name."""
    width = {"gpu learner": 2.4, "gpu": 3.0, "fpga learner": 2.0, "fpga tree": 2.0, "elsewhere": 7.0}
    parts = parts_of("u200", table=False)
    gpu, fpga = (parts.platform.device(name) for name in ("gpu", "fpga"))
    times = [
        *((learner.step, "gpu learner") for learner in parts.learners.list(gpu)),
        *((time, "gpu") for tree in trees(parts, gpu) for time in (tree.draw, tree.update)),
        (parts.rows_moved(gpu), "gpu"),
        (parts.rows_moved(fpga), "gpu"),
        *((one.step, "fpga learner") for one in parts.learners.list(fpga)),
        *((time, "fpga tree") for tree in trees(parts, fpga) for time in (tree.draw, tree.update)),
    ]
    assert len(times) > 20
    for time, kind in times:
        assert time.high / time.low == pytest.approx(width[kind] ** 2), kind
        assert ("assumption" in time.rests_on.description) == (kind != "gpu learner")
    elsewhere = parts_of("u200").actors.step(1)
    own = elsewhere.factor / width["elsewhere"]
    assert 1 < own < 2  # the measured time's own
    assert "what three machines differ by" in elsewhere.rests_on.description


def test_the_width_of_an_interpolation_is_what_its_fit_misses():
    """Each end: the wider of both points' own, times half the root mean square of what the fit misses its points by."""
    seconds = {10: 1.0, 100: 5.0, 1000: 6.0, 10_000: 90.0}
    cells = {size: Estimate.within(time, 1.1, Evidence("a", "measured")) for size, time in seconds.items()}
    law = flat_then_linear(list(seconds), list(seconds.values()))
    assert dataclasses.replace(law, fixed_seconds=0.0).knee is None
    with pytest.raises(ValueError, match="two batches"):
        flat_then_linear([10, 10], [1.0, 1.1])
    misses = [math.log(law.seconds(size) / time) for size, time in seconds.items()]
    assert max(map(abs, misses)) > 0.2
    factor = 1.1 * math.exp(math.sqrt(sum(miss**2 for miss in misses) / 4) / 2)
    between, beyond = over_batch(cells, 300, "n"), over_batch(cells, 20_000, "n")
    assert (between.interval, beyond.interval) == ("95 %", "factor")
    assert over_batch(cells, 10, "n").value == 1.0
    assert (beyond.source, beyond.rests_on.id, over_batch({10: cells[10], 1000: cells[1000]}, 100, "n").value) == (
        "extrapolated",
        "n",
        pytest.approx(6**0.5),
    )
    assert between.high / between.low == pytest.approx(factor**2)
    assert beyond.high / beyond.low == pytest.approx((1.1 * math.exp(max(map(abs, misses)))) ** 2)


def test_one_part_that_was_not_timed_makes_a_total_one_too():
    answer = find_mapping(machine(), "cartpole_dqn", fix={**SERIAL, "batch": 5000})
    kinds = {part.label["part"]: part.estimate.interval for part in answer.parts}
    assert kinds["learner"] == "factor"  # beyond what was timed, a fit carries it on
    assert kinds["actors"] == "95 %"
    assert answer.interval == "factor"


# An upper bound


def test_a_pipelined_rate_is_at_most_so_high():
    apart = find_mapping("u200", "hopper_ddpg", fix={"arrangement": "apart"})
    pipelined = find_mapping("u200", "hopper_ddpg", fix={"arrangement": "pipelined"})
    for answer, is_bound in ((apart, False), (pipelined, True)):
        assert answer.choice.is_bound == is_bound
        assert mapping_answer(answer).choice.is_bound == is_bound
        shares = [note.values["too_high"] for note in answer.notes if note.kind == "rate_is_bound"]
        assert shares == [{f"D = {depth}": share for depth, share in TOO_HIGH.items()}] * is_bound
    beside = [one for one in apart.others if one.says]
    assert all(one.is_bound == (one.label["arrangement"] == "pipelined") for one in beside)


# What is not stated


LACKING = (
    ({"peak_fp32_ops_per_s": None, "clock_hz": None}, "peak_fp32_tops"),
    ({"multiprocessors": None}, "multiprocessors"),
    ({"clock_hz": None}, "clock_ghz"),
    ({"launch_seconds": None}, "launch_us"),
    ({"memory_bandwidth_bytes_per_s": None}, "memory.bandwidth_gb_per_s"),
)


def test_what_lacks_a_number_is_refused_with_the_key_to_add():
    for missing, key in LACKING:
        lacking = without(load_platform("h200"), "gpu", **missing)
        with pytest.raises(PlatformError, match=rf"^gpu: .*{key}.*add {key}.*--exclude gpu"):
            find_mapping(lacking, "hopper_ddpg")
        rows = primitives_answer(ask(lacking, "hopper_ddpg", exclude=["gpu"])).rows
        assert any(row.label["device"] == "gpu" and key in row.more.get("lacks", "") for row in rows)
        assert all(row.estimate for row in rows if row.label == {"part": "learner", "device": "cpu"})
    lacking = without(load_platform("u200"), "fpga", memory_bandwidth_bytes_per_s=None)
    with pytest.raises(PlatformError, match=r"^fpga: .* memory\.bandwidth_gb_per_s"):
        find_mapping(lacking, "hopper_ddpg")


def test_what_stands_for_a_processors_number_is_told():
    lacking = without(load_platform("h200"), "cpu", clock_hz=None, peak_fp32_ops_per_s=None)

    def assumed(platform):
        answer = find_mapping(platform, "hopper_ddpg", exclude=["gpu"])
        learner = next(part for part in answer.parts if part.label["part"] == "learner")
        (evidence,) = [one for one in answer.sources if one.id == learner.estimate.rests_on.id]
        told = [note.values for note in answer.notes if note.kind == "not_stated"]
        assert [line._asdict() for line in evidence.assumed] == told
        return sorted(f"{line.device}.{line.key}" for line in evidence.assumed)

    assert assumed(lacking) == ["cpu.clock_ghz", "cpu.peak_fp32_tops"]
    assert assumed("h200") == []


def test_weights_that_nobody_timed_make_an_actor_as_weak(monkeypatch):
    parts = parts_of(machine())
    timed = parts.actors.acting(1)
    assert timed.source == "measured"
    known = PerformanceTable.time

    def lacks(table, what, *where, **more):
        return None if what == "weights fetch" else known(table, what, *where, **more)

    monkeypatch.setattr(PerformanceTable, "time", lacks)
    untimed = parts.actors.acting(1)
    assert (untimed.source, untimed.interval) == ("modeled", "factor")
    assert "fetching weights was not timed" in untimed.rests_on.description
    assert untimed.rests_on.id == timed.rests_on.id


def test_an_insertion_nobody_timed_makes_its_update_as_weak(monkeypatch):
    parts = parts_of(machine(), contestant="numba", fanout=16, threads=1)
    (timed,) = [tree for tree in trees(parts, parts.cpu) if tree.name == "numba K=16, 1 thread"]
    known, local = PerformanceTable.tree, parts.workload.actors.local_storage

    def lacks(table, configuration, op, capacity, batch, number):
        return None if batch == local else known(table, configuration, op, capacity, batch, number)

    monkeypatch.setattr(PerformanceTable, "tree", lacks)
    (untimed,) = [tree for tree in trees(parts, parts.cpu) if tree.name == timed.name]
    assert timed.update.source == "measured"
    assert untimed.update.source == "modeled"
    assert "an update at B = 256 stands for it" in untimed.update.rests_on.description
    assert untimed.update.value > timed.update.value


def test_a_slowdown_that_nobody_timed_is_told(monkeypatch):
    here = machine(MACHINES[1])  # whose parts were not timed in a run of several processes
    beside = {"arrangement": "apart", "learner": "cpu"}

    def slowdowns():
        return build(parts_of(here, **beside)).problems[ALONE].slowdown

    both = slowdowns()
    assert len(both) == 2
    table = parts_of(here).table
    fewer = tuple(row for row in table.rows if (row.what, row.beside) != ("learner step", "actor"))
    lacking = dataclasses.replace(table, rows=fewer)
    assert lacking.slowdown("learner step", "actor") is None
    assert lacking.slowdown("actor step", "learner") == both["actors", "learner", "cpu"]
    known = PerformanceTable.slowdown
    monkeypatch.setattr(
        PerformanceTable,
        "slowdown",
        lambda table, what, other: known(table, what, other) if what == "actor step" else None,
    )
    assert slowdowns() == {("actors", "learner", "cpu"): both["actors", "learner", "cpu"]}
    notes = find_mapping(here, "hopper_ddpg", fix=beside).notes
    untold = [note.values for note in notes if note.kind == "no_slowdown"]
    assert untold == [{"part": "learner", "other": "actors", "cpu": "cpu"}]


# What was searched


def tried(platform="u200", **more):
    """Options by part and device, and the values of notes on what was tried, by kind."""
    found = find_mapping(platform, "hopper_ddpg", **more)
    return found.built.count_options(), {note.kind: note.values for note in (*found.built.searched, *found.notes)}


def test_what_was_tried_is_told():
    options, notes = tried(fix={"arrangement": "apart"})
    assert options["sampling", "cpu"] == len(FANOUTS)
    assert options["updating", "gpu"] == len(FANOUTS)
    assert options["learner", "cpu"] == 29
    assert options["learner", "gpu"] == 1  # 28 cores, and dense
    hardware = {"fanouts": rmm_search.FANOUTS, "banks": rmm_search.BANKS, "leaf_bits": rmm_search.LEAF_BITS}
    assert notes["tried_in_hardware"] == hardware
    assert "tried_depths" not in notes
    assert tried(free=["presampled"])[1]["tried_depths"]["depths"] == (*range(9), 16, 50)


# How sure


def learner_of(seconds, number):
    time = dataclasses.replace(timed(seconds), rests_on=Evidence(number, "modeled"))
    return dataclasses.replace(option("learner", number, "cpu", seconds), time=time)


@pytest.mark.parametrize(("reach", "decides"), [(1.2, False), (1.51, False), (1.52, True), (3.0, True)])
def test_a_number_decides_only_where_its_ends_reach_the_flip(reach, decides):
    """1.0 s against 1.5 s with 1 % of patience: the choice loses when its time grows by 1.5 / 0.99 = 1.515."""
    fast, slow = learner_of(1.0, "fast"), learner_of(1.5, "slow")
    fast = dataclasses.replace(fast, time=dataclasses.replace(fast.time, low=1 / reach, high=reach))
    rest = {part: (option(part, part, "other", 1e-6),) for part in PARTS if part != "learner"}
    problem = Problem({**rest, "learner": (fast, slow)}, {})
    found = solve(problem, "ratio", 0.0)
    told = {(one.evidence_id, one.factor): one for one in deciding({"": problem}, "ratio", found.answer, 0.01)}
    end = told["fast", reach]
    assert (end.winner is not None) == decides
    assert not any(one.winner for key, one in told.items() if key != ("fast", reach))
    assert end.value == pytest.approx(found.value / reach, rel=1e-4)
    if decides:
        assert end.winner.configuration.learner.name == "slow"
        assert end.gain == pytest.approx(reach / 1.5 - 1, rel=1e-3)


def test_the_spread_of_a_number_is_its_options_widest():
    evidence = Evidence("a", "modeled")
    ends = ((1.0, 0.5, 1.1), (2.0, 1.9, 6.0))
    options = [dataclasses.replace(option("learner", "x", "cpu", 1.0), time=Estimate(*one, evidence)) for one in ends]
    assert widest(options) == {"a": (0.5, 3.0)}
    assert widest(options[1:]) == {"a": (0.95, 3.0)}
    rest = {part: (option(part, part, "cpu", 1.0),) for part in PARTS}
    problem = Problem({**rest, "learner": tuple(options)}, {})
    chosen = Configuration(tuple(rest[part][0] for part in PARTS)).having(options[0])
    assert spreads([problem], chosen)["a"] == (0.5, 1.1), "what was not chosen makes it no less sure"


def test_a_workload_is_another_by_its_algorithm_not_its_name():
    key = MACHINES[1]
    records = read_folder(RESULTS, key)
    renamed = of_records(records, key, dataclasses.replace(load("hopper_ddpg"), name="mine", steps=5, seeds=(7,)))
    assert (renamed.differs, len(renamed.rows) > 40) == ((), True)
    table = of_records(records, key, load("hopper_sac"))
    assert (table.rows, table.trees is None) == ((), False)


def test_more_cores_are_between_the_law_and_a_line():
    for cores in (1, 2, 3, 28):
        speedup, factor = laws.speed_up(cores, 0.2)
        assert speedup / factor == pytest.approx(cores / (1 + 0.2 * (cores - 1)))
        assert speedup * factor == pytest.approx(cores / 1.2 if cores > 1 else 1.0)
        assert factor == pytest.approx(1.0) if cores <= laws.TIMED_CORES else factor > 1


# Problems


def test_traffic_is_what_a_gradient_step_sends():
    batch, record, inserts = 256, 105, 1 / 64
    problem = build(parts_of("u200", "hopper_ddpg")).problems[MODES["apart"]]
    assert layout_of(load("hopper_ddpg")).record_bytes == record
    assert {(one.source, one.target): (one.nbytes, one.times, one.waits) for one in problem.flows} == {
        ("sampling", "storage"): (8 * batch, 1.0, True),
        ("storage", "learner"): (record * batch, 1.0, True),
        ("sampling", "learner"): (4 * batch, 1.0, True),
        ("learner", "updating"): (12 * batch, 1.0, True),
        ("updating", "sampling"): (batch * 20 * 12, 1.0, False),  # K = 2, a million leaves: 20 levels above them
        ("actors", "storage"): (record, inserts, False),
        ("actors", "updating"): (12, inserts, False),
        ("learner", "actors"): (pytest.approx(4 * 69_635 / (64 * 16)), inserts / 16, False),
    }


# Boards


# Wishes, and what the numbers leave out


PONG = load("pong_dqn")
DEVICES = ("cpu", "gpu", "fpga")


def send(asked, path):
    """Seconds that a path sends: activations of three forward passes, their gradients back, and errors to the first."""
    network, spent, float_bytes = list_value_layers(PONG), 0.0, 4
    for layer, source, target in zip(network, path, path[1:], strict=False):
        nbytes = float_bytes * asked.batch * layer.shape[0] * layer.places
        if source != target:
            spent += 3 * asked.transfer_seconds(source, target, nbytes) + asked.transfer_seconds(target, source, nbytes)
    return spent + (asked.transfer_seconds(path[-1], path[0], float_bytes * asked.batch) if path[-1] != path[0] else 0)


def test_a_split_is_the_fastest_with_its_devices():
    """Compare with all paths of a network's layers over devices, by the first device and the set of them."""
    asked, rng = parts_of("u200", "pong_dqn", table=False), np.random.default_rng(0)
    drawn = rng.exponential(1e-3, (len(DEVICES), 5)) * rng.uniform(1, 4, (len(DEVICES), 1))
    step = Estimate(1.0, 1.0, 1.0, Evidence("a stopwatch", "measured"))
    times = {
        name: layers.DeviceTimes(tuple(seconds), 1e-4 * rng.random(), step, "timed")
        for name, seconds in zip(DEVICES, drawn.tolist(), strict=True)
    }
    sets = [names for count in (2, 3) for names in itertools.combinations(DEVICES, count)]
    every = [split for names in sets for split in layers.list_splits(asked, {name: times[name] for name in names})]
    best = {}
    for path in (path for path in itertools.product(DEVICES, repeat=5) if len(set(path)) > 1):
        seconds = sum(times[name].layers[layer] for layer, name in enumerate(path)) + send(asked, path)
        seconds += sum(times[name].rest for name in set(path))
        key = path[0], frozenset(path)
        best[key] = min(best.get(key, seconds), seconds)
    assert {(split.devices[0], frozenset(split.devices)): split.seconds for split in every} == pytest.approx(best)


@pytest.mark.parametrize("platform", [PLATFORMS[0], *map(slow, PLATFORMS[1:])])
def test_the_solver_is_fed_what_was_written(platform):
    known = written([platform])
    assert len(known) > 100
    assert not list(changes(known, net([platform])))


def test_a_loop_that_acts_by_its_own_weights_fetches_none():
    parts = parts_of("u200", "cartpole_dqn")
    actors = dataclasses.replace(parts.workload.actors, sync_interval=1)
    parts = dataclasses.replace(parts, workload=dataclasses.replace(parts.workload, actors=actors))
    assert parts.actors.fetches(True) is None
    assert parts.actors.fetches(False).value > 0


def test_an_answer_names_the_device_of_each_layer():
    fast = with_changes(load_platform("u200"), {"gpu.launch_us": 30})
    asked = {"free": ["layers"], "fix": {"arrangement": "pipelined"}, "epsilon": 0.0}
    found = find_mapping(fast, "pong_dqn", "training", **asked)
    (note,) = [note for note in mapping_answer(found).notes if note.kind.startswith("layers_are")]
    assert (note.kind, len(note.values["layers"])) == ("layers_are_split", 5)
    assert note.values["split_seconds"] < note.values["whole_seconds"]
