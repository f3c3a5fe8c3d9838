"""Laws held against what they were not fitted to: folds, fits, and the factors that answers show."""

import collections
import dataclasses
import itertools
import json
import tomllib
from statistics import median

import numpy as np
import pytest

import dse
import impls
from dse.__main__ import main
from dse.answers.ask import find_modeled_tree
from dse.mapping.question import with_values
from dse.platforms import PlatformError
from dse.platforms import load as load_platform
from dse.times import laws
from dse.times.cells import evidence, of_records
from dse.times.curves import flat_then_linear
from dse.times.door import Times
from dse.times.laws import AS_FITTED
from dse.times.trees import SHAPE_FACTOR
from impls.training import load, timed_names
from impls.training.learners import make
from reports import laws as judged
from reports.laws import Cell
from tests.committed import COMMITTED, RESULTS
from tests.learning import change
from tests.profiled import named_platform, step_of_loop, world

NINE_IN_TEN = 0.9


@pytest.fixture(scope="module")
def cells():
    return judged.cells(COMMITTED)


@pytest.fixture(scope="module")
def answers():
    return judged.held_out(COMMITTED)


def fetch(machine, workload, nbytes, seconds):
    return Cell("fetch", machine, workload, seconds, lambda constants: laws.fetch(nbytes, constants))


def test_each_laws_factor_holds_for_nine_in_ten_unseen_cells(answers):
    """ROWS_FACTOR and the others are what answers show, so they are what must hold, without and with the fit."""
    every = {(law, out) for law in judged.LAWS for out in judged.OUT}
    lonely = {("GPU learner", "machine"), ("GPU tree", "machine")}
    assert {(answer.law, answer.out) for answer in answers} == every - lonely
    for one in answers:
        assert one.cells >= 8
        assert one.within >= NINE_IN_TEN, one
        assert one.as_fitted >= NINE_IN_TEN, one
        assert 1 <= one.median <= one.worst


def test_laws_of_a_gpu_are_off_by_what_they_say(answers, cells):
    """Rates of 30 gradient steps and 68 calls of trees: those left out, and all by the constants in use."""
    for law, counts, worst in (("GPU learner", (30, 3), 1.3), ("GPU tree", (68, 4), 1.6)):
        (answer,) = (answer for answer in answers if answer.law == law)
        errors = [cell.error() for cell in cells if cell.law == law]
        assert (answer.cells, len(answer.left_out)) == counts
        assert max(median(errors), answer.median) < 1.3
        assert max(errors) < answer.worst
        assert worst - 0.1 < answer.worst < worst
        fitted = judged.fitted(law, [cell for cell in cells if cell.law == law])
        assert all(
            getattr(fitted, name) == pytest.approx(getattr(AS_FITTED, name), rel=0.03)
            for name in judged.LAWS[law].constants
        )


def test_the_factor_of_a_compiled_step_holds_for_the_unseen():
    steps = []
    for machine, known in evidence(COMMITTED).items():
        for name in timed_names():
            workload = load(name)
            table = known.table(workload)
            for (_, batch), rows in table.alone("learner step, dense", 1).items() if not table.differs else ():
                step = laws.compiled(loaded(machine), workload, batch).value
                macs = laws.work_of(workload).macs * batch
                steps += [(machine, name, macs, row.time.value, step) for row in rows]
    assert len(steps) == len({step[:3] for step in steps}) == 55
    within = [max(seconds / step, step / seconds) <= laws.COMPILED_FACTOR for *_, seconds, step in steps]
    assert sum(within) >= NINE_IN_TEN * len(steps)
    for axis in (0, 1):
        errors = []
        for out in {step[axis] for step in steps}:
            kept = [step for step in steps if step[axis] != out]
            known = flat_then_linear([macs for _, _, macs, *_ in kept], [seconds for *_, seconds, _ in kept])
            ratios = [known.seconds(macs) / seconds for *names, macs, seconds, _ in steps if names[axis] == out]
            errors += [max(ratio, 1 / ratio) for ratio in ratios]
        assert sum(error <= laws.COMPILED_FACTOR for error in errors) >= NINE_IN_TEN * len(errors)


def count_operations(workload):
    """The operations that torch dispatches in a gradient step, mean of two: TD3's policy learns in one of them."""
    pytest.importorskip("torch", reason="learners need the extra `train`")
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415  # with torch

    class Operations(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            self.count += 1
            return operation(*args, **kwargs or {})

    learner, full = make(workload, "torch"), np.ones(2, np.float32)
    seen = np.zeros((2, *workload.observation.stacked), workload.observation.dtype)
    action = np.zeros(2, np.uint8) if workload.has_choices else np.zeros((2, workload.action_size), np.float32)
    batch = {"observation": seen, "next_observation": seen, "action": action, "reward": full, "terminated": full > 1}
    with Operations() as operations:
        for _ in range(2):
            learner.step(batch, full)
    return operations.count / 2


@pytest.mark.parametrize("name", ["cartpole_dqn", "hopper_ddpg", "hopper_td3", "hopper_sac"])
def test_operations_of_a_step_are_those_torch_dispatches(name):
    for hidden in ((), (8, 8, 8)):
        flat, pong = change(load(name), hidden=hidden), load("pong_dqn")
        of_frames = pong if flat.has_choices else change(flat, observation=pong.observation, network=pong.network)
        for workload in (flat, change(of_frames, hidden=hidden)):
            assert laws.work_of(workload).operations == count_operations(workload), hidden


def loaded(machine):
    """The processor of a machine."""
    return load_platform(COMMITTED / machine / "platform.toml").device("cpu")


def test_an_environment_step_differs_by_the_told_factor(cells):
    same = collections.defaultdict(list)
    for one in cells:
        if one.law == "actor":
            same[one.workload, one.told.args[1:]].append(one.seconds)
    factors = [max(each) / min(each) for each in same.values() if len(each) > 1]
    assert len(factors) >= 8
    assert max(factors) <= laws.ELSEWHERE_FACTOR < 1.1 * max(factors)


def test_a_fit_finds_the_constants_that_made_the_cells():
    made = dataclasses.replace(AS_FITTED, fetch_seconds=4e-4, fetch_bytes_per_s=2e9)
    told = [fetch("m", str(nbytes), nbytes, laws.fetch(nbytes, made).value) for nbytes in (1e4, 1e5, 1e6, 1e7)]
    found = judged.fitted("fetch", told)
    assert found.fetch_seconds == pytest.approx(4e-4, rel=0.05)
    assert found.fetch_bytes_per_s == pytest.approx(2e9, rel=0.05)
    assert dataclasses.replace(found, fetch_seconds=1.0, fetch_bytes_per_s=1.0) == dataclasses.replace(
        AS_FITTED, fetch_seconds=1.0, fetch_bytes_per_s=1.0
    )


@pytest.mark.parametrize(("out", "at"), [("workload", "b on one"), ("machine", "one")])
def test_what_is_left_out_is_not_seen(out, at):
    """Poisoned cells change no prediction of their own fold, and so their errors grow by just the poison."""
    clean = [fetch(machine, name, 1e5, 3e-4) for machine in ("one", "two") for name in "abc"]

    def poisoned(cell):
        own = cell.machine == "one" and (out == "machine" or cell.workload == "b")
        return dataclasses.replace(cell, seconds=cell.seconds * 50) if own else cell

    before, after = (judged._held_out("fetch", out, told) for told in (clean, [poisoned(one) for one in clean]))
    assert before.left_out[at][1] == pytest.approx(1.0, abs=0.02)
    assert after.left_out[at][1] == pytest.approx(50.0, rel=0.02)


def test_a_serial_loop_is_predicted_by_loops_of_other_workloads():
    """All eleven lie inside, the worst a third too slow: what loops take beyond their parts differs by workload."""
    loops = judged.serial_loops(COMMITTED)
    names = ("cartpole_ddpg", "cartpole_dqn", "hopper_ddpg", "hopper_sac", "hopper_td3")
    both = {(machine, name) for machine in ("27f8af3c07", "8fb834d50a") for name in names}
    assert {(one.machine, one.workload) for one in loops} == both | {("8fb834d50a", "lunarlander_dqn")}
    assert all(one.workload not in one.others for one in loops)
    assert all(one.predicted[1] <= one.measured_hz <= one.predicted[2] for one in loops)
    assert sorted(abs(one.error) for one in loops)[len(loops) // 2] < 0.15
    assert max(abs(one.error) for one in loops) < 0.35


def test_a_loop_s_own_record_is_not_seen(monkeypatch):
    """Ten times the time of a loop changes no prediction of it, and those of others that learn from it."""
    read = judged.evidence

    def slower(one):
        if (one.contestant, one.op) == ("loop", "step") and one.options["workload"] == "hopper_ddpg":
            return dataclasses.replace(one, median_seconds=one.median_seconds * 10)
        return one

    def changed(results):
        return {
            key: dataclasses.replace(own, records=list(map(slower, own.records))) for key, own in read(results).items()
        }

    before = {(one.machine, one.workload): one.predicted for one in judged.serial_loops(COMMITTED)}
    monkeypatch.setattr(judged, "evidence", changed)
    after = {(one.machine, one.workload): one.predicted for one in judged.serial_loops(COMMITTED)}
    for (machine, workload), predicted in after.items():
        is_of_another = workload != "hopper_ddpg"
        assert (predicted != before[machine, workload]) == is_of_another


def test_a_loop_that_is_the_sum_of_its_parts_is_predicted_so():
    for name, (batch, interval) in itertools.product(("cartpole_dqn", "hopper_ddpg"), ((64, 1), (512, 16), (355, 5))):
        workload = load(name)
        fix = {"arrangement": "serial", "learner_threads": 1, "contestant": "numba", "fanout": workload.replay.fanout}
        fix |= {"batch": batch, "update_interval": interval, "threads": 1}
        fix |= {"learner_implementation": "torch", "policy_implementation": "torch"}  # which those records time
        table = of_records(world(workload), "made-up", workload)
        rate = judged.predict(Times(named_platform(), with_values(workload, fix), table, None, fix))
        truth = step_of_loop(batch, interval, workload.actors.local_storage)
        assert abs(rate.hz * truth - 1) < 0.05
        assert rate.low < 1 / truth < rate.high


MACHINES = ("d7dae63b89", "8fb834d50a")


def printed(capsys, *words):
    """Run a command, and return what it prints."""
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_the_line_of_a_tree_makes_that_tree_and_so_its_file(capsys):
    asked = ("--machine", MACHINES[1], "--capacity", "5e5", "--batch", "64", "--dtype", "float64")
    file, plain = (printed(capsys, "recommend", *asked, *more) for more in (("--emit", "toml"), ("--json",)))
    whole = json.loads(plain)
    shape, question, (make,) = whole["choice"], whole["question"], whole["paste"]
    tree = eval(make, {"impls": impls})
    made = tree.capacity, tree.fanout, tree.threads, str(tree.dtype)
    assert made == (question["capacity"], shape["fanout"], shape["threads"], question["dtype"])
    table = {name: shape[name] for name in ("implementation", "fanout", "threads", "options")}
    table |= {name: question[name] for name in ("capacity", "dtype")}
    assert tomllib.loads(file) == {"tree": table}


# Which tree


@pytest.mark.parametrize("key", MACHINES)
def test_the_ratio_of_two_trees_is_as_sure_as_it_is_told(key):
    cpu = dse.platforms.load(RESULTS / key / "platform.toml").device("cpu")
    took = {}
    for record in dse.read_folder(RESULTS, key):
        shape = record.capacity, record.batch, record.fanout, record.threads
        plain = (record.primitive, record.contestant, record.source) == ("sum_tree", "numba", "measured")
        if plain and not record.options and record.dtype == "float32" and record.op in ("draw", "update"):
            if record.median_seconds and record.distribution == "uniform":
                took.setdefault(shape, {})[record.op] = record.median_seconds
    ratios = {
        shape: sum(both.values()) / sum(law.value for law in laws.tree(cpu, shape[0], shape[2], *shape[1::2]))
        for shape, both in took.items()
        if len(both) == 2
    }
    pairs = [
        max(ratios[one] / ratios[two], ratios[two] / ratios[one])
        for one in ratios
        for two in ratios
        if one < two and one[:2] == two[:2]
    ]
    assert len(pairs) > 100
    assert sum(off <= SHAPE_FACTOR for off in pairs) / len(pairs) >= 0.9


def test_the_roofline_by_hand():
    """A framework's own time, and max(operations / peak, bytes / bandwidth)."""
    work = laws.Work(macs=1000, nbytes=2_000_000, operations=9)
    for batch, worked in ((1, 2e6 / 1e9), (10_000, 2 * 1000 * 10_000 / 1e9)):
        assert laws.roofline(work, batch, 1e9, 1e9, 3e-4) == pytest.approx(3e-4 + worked)


def test_calls_of_a_gpu_take_launches_and_their_work():
    """Two layers of DDPG are 88 + 2 * 42 operations of 3.4 launches each, a draw takes 11 and an update 17.5."""
    host, gpu = (load_platform("u200").device(name) for name in ("cpu", "gpu"))
    launch = dataclasses.replace(gpu.launch_seconds, value=1.0)
    hopper, slow = load("hopper_ddpg"), dataclasses.replace(gpu, launch_seconds=launch)
    for batch in (1, 256):
        work = laws.roofline(laws.work_of(hopper), batch, 12.15e12, 550e9, 0.0)
        assert laws.learner(host, slow, hopper, batch).value == pytest.approx(172 * 3.4 + work)
    draw, update = laws.tree(slow, 10**6, 16, 256, insertions=0.5)
    assert (draw.value, update.value) == (pytest.approx(11.0, rel=1e-4), pytest.approx(1.5 * 17.5, rel=1e-4))
    assert laws.tree(gpu, 10**6, 16, 1 << 20)[0].value > 2 * laws.tree(gpu, 10**6, 16, 256)[0].value


def test_threads_and_memory_bound_a_modeled_tree():
    with pytest.raises(PlatformError, match="no device has room for N = 3,000,000,000"):
        find_modeled_tree("edge", 3 * 10**9, 256)
    assert find_modeled_tree("h200", 1_000_000, 65_536, threads=1).choice.configuration.threads == 1
