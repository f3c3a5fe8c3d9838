"""What nobody timed says so: a factor for an interval, an upper bound, what was assumed, refused or not searched."""

import dataclasses
import math

import pytest

from dse.answers.mapping_answer import mapping_answer
from dse.answers.platform import primitives_answer
from dse.estimate import Estimate, Evidence, interval_of
from dse.fpga import rmm_search
from dse.mapping.build import build
from dse.mapping.processes import ExecutionMode
from dse.mapping.question import ask, find_mapping, tables
from dse.platforms import PlatformError
from dse.platforms import load as load_platform
from dse.solver.deciding import deciding, spreads, widest
from dse.solver.law import TOO_HIGH
from dse.solver.problem import PARTS, Configuration, Problem
from dse.solver.solve import solve
from dse.times.cells import PerformanceTable, over_batch
from dse.times.curves import flat_then_linear
from dse.times.door import Times
from dse.times.trees import FANOUTS, trees
from impls.training import load
from tests.committed import RESULTS
from tests.matrix import slow
from tests.solver_cases import option, timed

MACHINES = ("8fb834d50a", "d7dae63b89")
ALONE = ExecutionMode("apart", 1, "torch", "torch")
SERIAL = {"arrangement": "serial", "learner_threads": 1}


def machine(key=MACHINES[0]):
    return RESULTS / key / "platform.toml"


def parts_of(platform, name="hopper_ddpg", table=True, **fixed):
    workload = load(name)
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
    parts = parts_of(load_platform("u200"), table=False)
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
    elsewhere = parts_of(load_platform("u200")).actors.step(1)
    own = elsewhere.factor / width["elsewhere"]
    assert 1 < own < 2  # the measured time's own
    assert "what three machines differ by" in elsewhere.rests_on.description


def test_the_width_of_a_told_interpolation_is_what_its_fit_misses():
    """Each end: the wider of both points' own, times half the root mean square of what the fit misses its points by."""
    seconds = {10: 1.0, 100: 5.0, 1000: 6.0, 10_000: 90.0}
    cells = {size: Estimate.within(time, 1.1, Evidence("a", "measured")) for size, time in seconds.items()}
    law = flat_then_linear(list(seconds), list(seconds.values()))
    misses = [math.log(law.seconds(size) / time) for size, time in seconds.items()]
    assert max(map(abs, misses)) > 0.2
    factor = 1.1 * math.exp(math.sqrt(sum(miss**2 for miss in misses) / 4) / 2)
    between, beyond = over_batch(cells, 300, "n"), over_batch(cells, 20_000, "n")
    assert (between.interval, beyond.interval) == ("95 %", "factor")
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


@pytest.mark.parametrize(
    ("missing", "key"),
    [
        slow({"peak_fp32_ops_per_s": None, "multiprocessors": None}, "peak_fp32_tops"),
        ({"peak_fp32_ops_per_s": None, "clock_hz": None}, "peak_fp32_tops"),
        ({"multiprocessors": None}, "multiprocessors"),
        slow({"clock_hz": None}, "clock_ghz"),
        ({"launch_seconds": None}, "launch_us"),
        ({"memory_bandwidth_bytes_per_s": None}, "memory.bandwidth_gb_per_s"),
    ],
)
def test_a_gpu_that_lacks_a_number_is_refused_with_the_key_to_add(missing, key):
    lacking = without(load_platform("h200"), "gpu", **missing)
    with pytest.raises(PlatformError, match=rf"^gpu: its {key}.* is not stated.*add {key}.*--exclude gpu"):
        find_mapping(lacking, "hopper_ddpg")
    assert find_mapping(lacking, "hopper_ddpg", exclude=["gpu"]).parts
    rows = primitives_answer(ask(lacking, "hopper_ddpg", exclude=["gpu"])).rows
    assert any(row.label["device"] == "gpu" and key in row.more.get("lacks", "") for row in rows)
    assert all(row.estimate for row in rows if row.label == {"part": "learner", "device": "cpu"})


def test_the_table_of_primitives_has_the_rates_of_the_parts():
    rows = primitives_answer(ask("u200", "pong_dqn")).rows
    table = {row.label["device"]: row.more for row in rows if "part" not in row.label}
    times = {(row.label["part"], row.label["device"]): row.estimate for row in rows if row.label.get("part")}
    assert [*table] == ["cpu", "gpu", "fpga"]
    for device, rates in table.items():
        step, both = times["learner", device], times["sampling", device] + times["updating", device]
        ends = [rates["learner_rate"][name] for name in ("value", "low", "high")]
        assert ends == pytest.approx([32 / step.value, 32 / step.high, 32 / step.low])
        assert rates["rmm_rate"]["value"] <= 32 / both.value * (1 + 1e-12)  # of one tree, where parts take the best two


def test_an_fpgas_memory_without_a_bandwidth_is_refused():
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
    parts = parts_of(load_platform(machine()))
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


def test_a_loop_that_acts_by_its_own_weights_fetches_none():
    parts = parts_of(load_platform("u200"), "cartpole_dqn")
    actors = dataclasses.replace(parts.workload.actors, sync_interval=1)
    parts = dataclasses.replace(parts, workload=dataclasses.replace(parts.workload, actors=actors))
    assert parts.actors.fetches(True) is None
    assert parts.actors.fetches(False).value > 0


def test_an_insertion_that_nobody_timed_is_told_and_makes_its_update_as_weak(monkeypatch):
    parts = parts_of(load_platform(machine()), contestant="numba", fanout=16, threads=1)
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
        return build(parts_of(load_platform(here), **beside)).problems[ALONE].slowdown

    both = slowdowns()
    assert len(both) == 2
    table = parts_of(load_platform(here)).table
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
    knee = tried(free=["batch"], exclude=["gpu"])[1]["batch_at_knee"]
    assert list(knee["shares"]) == ["1,024", "2,048", "4,096", "8,192", "65,536"]
    assert tried(free=["batch"])[1]["batch_still_rising"]["largest"] == 65536  # a GPU dispatches as much for each batch


def test_what_a_question_fixes_is_not_tried():
    one, _ = tried("h200", fix={"fanout": 8, "learner": "gpu", "arrangement": "apart"})
    assert {count for (part, _), count in one.items() if part != "actors"} == {1}
    assert ("learner", "cpu") not in one
    assert ("sampling", "gpu") not in tried("h200", fix={"sampling": "cpu", "updating": "cpu"})[0]
    options, notes = tried(exclude=["fpga"])
    assert {device for _, device in options} == {"cpu", "gpu"}
    assert "tried_in_hardware" not in notes


# How sure


def learner_of(seconds, number):
    time = dataclasses.replace(timed(seconds), rests_on=Evidence(number, "modeled"))
    return dataclasses.replace(option("learner", number, "cpu", seconds), time=time)


@pytest.mark.parametrize(("reach", "decides"), [(1.2, False), (1.51, False), (1.52, True), (3.0, True)])
def test_a_number_decides_only_where_its_own_ends_reach_the_flip(reach, decides):
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


def test_the_spread_of_a_number_is_the_widest_of_its_options_on_both_sides():
    evidence = Evidence("a", "modeled")
    ends = ((1.0, 0.5, 1.1), (2.0, 1.9, 6.0))
    options = [dataclasses.replace(option("learner", "x", "cpu", 1.0), time=Estimate(*one, evidence)) for one in ends]
    assert widest(options) == {"a": (0.5, 3.0)}
    assert widest(options[1:]) == {"a": (0.95, 3.0)}
    rest = {part: (option(part, part, "cpu", 1.0),) for part in PARTS}
    problem = Problem({**rest, "learner": tuple(options)}, {})
    chosen = Configuration(tuple(rest[part][0] for part in PARTS)).having(options[0])
    assert spreads([problem], chosen)["a"] == (0.5, 1.1), "what was not chosen makes it no less sure"
