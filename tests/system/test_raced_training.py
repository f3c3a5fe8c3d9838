"""A training run that races, on a clock of the tests, in this process."""

import csv
import dataclasses

import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training import clock
from impls.training import run as module
from impls.training.run import Plan, start
from tests.system.test_actors import fake

FREE_AT = 200  # gradient steps


class Numbers(list):
    """Those of a race that frees the run after some gradient steps, each of which lasts 1 s."""

    def __setitem__(self, at, value):
        super().__setitem__(at, value)
        if at == clock.LATEST:
            self[clock.PAUSED] -= 10**9
            self[clock.FREE] = int(clock.read_progress(self)[1] >= FREE_AT)


def test_a_run_s_seconds_and_settled_rate_begin_once_it_is_free_and_evaluations_are_no_training(tmp_path, monkeypatch):
    numbers = Numbers([0] * clock.COUNT)

    def evaluate(*_):
        numbers[clock.PAUSED] -= 10**12
        return [0.0]

    monkeypatch.setattr(clock, "_numbers", numbers)
    monkeypatch.setattr(module, "evaluate", evaluate)
    workload = dataclasses.replace(fake(evaluation={"interval": 50}), steps=400)
    run = start(workload, Plan(tmp_path / "run", test_episodes=0, live=False, seconds=10.0), contestant="numpy")
    summary = run.run()
    run.close()
    assert FREE_AT + 5 < summary["updates"] < FREE_AT + 60
    assert summary["settled"]["updates"] < 60
    assert clock.read_progress(numbers)[2] / 1e9 == pytest.approx(summary["updates"], rel=0.2)
    with (tmp_path / "run" / "curve.csv").open() as file:
        assert float(next(csv.DictReader(file))["seconds"]) > 10
    assert summary["seconds"] > 1000
