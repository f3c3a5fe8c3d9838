"""Laws held against what they were not fitted to: folds, fits, and the factors that answers show."""

import collections
import dataclasses
from statistics import median

import numpy as np
import pytest

from dse.mapping.question import with_values
from dse.platforms import load as load_platform
from dse.times import laws
from dse.times.cells import evidence, of_records
from dse.times.curves import flat_then_linear
from dse.times.door import Times
from dse.times.laws import AS_FITTED
from impls.training import load, timed_names
from impls.training.learners import make
from reports import laws as judged
from reports.claims import quoted
from reports.laws import Cell
from reports.sections import mapping
from tests.committed import COMMITTED
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


def check_factors(answers):
    """ROWS_FACTOR and the others are what answers show, so they are what must hold, without and with the fit."""
    for one in answers:
        assert one.cells >= 8
        assert one.within >= NINE_IN_TEN, one
        assert one.as_fitted >= NINE_IN_TEN, one
        assert 1 <= one.median <= one.worst


def test_the_factor_of_each_law_holds_for_nine_in_ten_cells_that_it_was_not_fitted_to(answers):
    every = {(law, out) for law in judged.LAWS for out in judged.OUT}
    assert {(answer.law, answer.out) for answer in answers} == every - {
        ("GPU learner", "machine"),
        ("GPU tree", "machine"),
    }
    check_factors(answers)


def test_laws_of_a_gpu_that_one_machine_has_are_off_by_what_they_say(answers, cells):
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


def test_printed_rates_of_another_gpu_are_off_by_no_more_than_the_factor_of_its_gradient_steps():
    printed, u200 = quoted.read(COMMITTED / "quoted"), load_platform("u200")
    errors = []
    for name, batch in mapping.list_printed(printed):
        if pinned := mapping.pin_learners(printed, name, batch).get("gpu"):
            step = laws.learner(u200.device("cpu"), u200.device("gpu"), load(name), batch).value
            errors.append(max(step / pinned, pinned / step))
    assert len(errors) == 3
    assert 2.2 < max(errors) < 2.3 < laws.GPU_LEARNER_FACTOR


def test_a_factor_of_half_the_width_would_not_hold_for_the_laws_that_know_least(answers):
    """So the factors of actors and weights are no wider than what was left out asks for."""
    for law in ("actor", "fetch"):
        worst = max(one.worst for one in answers if one.law == law)
        assert worst > judged.LAWS[law].factor / 2


def test_the_factor_of_a_compiled_step_holds_as_drawn_and_for_a_machine_or_workload_left_out():
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


@pytest.mark.parametrize("hidden", [(), (8,), (8, 8, 8)])
@pytest.mark.parametrize("name", ["cartpole_dqn", "hopper_ddpg", "hopper_td3", "hopper_sac"])
def test_the_operations_of_a_gradient_step_are_those_that_torch_dispatches(name, hidden):
    flat, pong = change(load(name), hidden=hidden), load("pong_dqn")
    of_frames = pong if flat.has_choices else change(flat, observation=pong.observation, network=pong.network)
    for workload in (flat, change(of_frames, hidden=hidden)):
        assert laws.work_of(workload).operations == count_operations(workload)


def loaded(machine):
    """The processor of a machine."""
    return load_platform(COMMITTED / machine / "platform.toml").device("cpu")


def test_every_machine_that_was_profiled_has_cells_of_every_law(cells):
    found = {(one.law, one.machine) for one in cells}
    whole = {(law, machine) for law in judged.LAWS for machine in ("27f8af3c07", "8fb834d50a", "d7dae63b89")}
    whole -= {(law, machine) for law, machine in whole if law.startswith("GPU")}
    cut_short = {(law, "c948cac9ea") for law in ("actor", "processes", "GPU learner", "GPU tree")}
    assert found == whole | cut_short
    assert len({cell.workload for cell in cells if cell.law != "GPU tree"}) == 7


def test_an_environment_step_differs_between_machines_by_no_more_than_answers_allow(cells):
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


def test_a_lonely_machine_has_nothing_to_be_left_out_of():
    alone = [fetch("one", "a", 1e5, 3e-4)]
    assert judged._held_out("fetch", "machine", alone) is None
    assert judged._held_out("fetch", "workload", alone) is None


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


@pytest.mark.parametrize("name", ["cartpole_dqn", "hopper_ddpg"])
@pytest.mark.parametrize(("batch", "interval"), [(64, 1), (512, 16), (355, 5)])
def test_a_loop_that_is_the_sum_of_its_parts_is_predicted_as_their_sum(name, batch, interval):
    workload = load(name)
    fix = {"arrangement": "serial", "learner_threads": 1, "contestant": "numba", "fanout": workload.replay.fanout}
    fix |= {"batch": batch, "update_interval": interval, "threads": 1}
    fix |= {"learner_implementation": "torch", "policy_implementation": "torch"}  # which those records time
    table = of_records(world(workload), "made-up", workload)
    rate = judged.predict(Times(named_platform(), with_values(workload, fix), table, None, fix))
    truth = step_of_loop(batch, interval, workload.actors.local_storage)
    assert abs(rate.hz * truth - 1) < 0.05
    assert rate.low < 1 / truth < rate.high
