"""Times between and beyond cells, judged against truths that the cost model lacks, or that it has not seen."""

import dataclasses
import math
import random

import numpy as np
import pytest

from dse.times import cost_model
from dse.times.cost_model import Family, Point
from dse.times.tree_times import Configuration, Question, Table
from dse.tree import answer
from tests.unit.test_recommend import FANOUTS, records, true_step

CACHES = {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20}
DRAW = Family("numba", "draw", "float32", CACHES)
SHAPES = [(n, k, b) for n in (1_000, 30_000, 10**6, 10**7) for k in (2, 4, 8, 16, 32, 64) for b in (1, 32, 1_000)]
CELLS = [record for record in records(threads=(1,)) if record.contestant == "numba"]
SIXTEEN = Configuration("numba", 16, 1)
NOISE, KNEE_BYTES, KNEE = 0.03, 300_000, 1.3


def bent(fanout, capacity, batch):
    """Seconds of a step by the records' law, bent: from a knee in N on that is no cache's, small fanouts are slower."""
    time = true_step(Configuration("numba", fanout, 1), capacity, batch)
    return time * (KNEE if 4 * capacity > KNEE_BYTES and fanout <= 8 else 1.0)


def noisy(seed):
    """Cells of the bent law, off by 3 % each, with the intervals of such samples."""
    rng = random.Random(seed)
    for record in CELLS:
        shape = record.fanout, record.capacity, record.batch
        factor = bent(*shape) / true_step(Configuration("numba", record.fanout, 1), *shape[1:])
        time = record.seconds * factor * math.exp(rng.gauss(0, NOISE))
        ends = {"low_seconds": time * math.exp(-1.96 * NOISE), "high_seconds": time * math.exp(1.96 * NOISE)}
        yield dataclasses.replace(record, median_seconds=time, **ends)


def test_between_noisy_cells_of_a_law_with_a_knee_choices_cost_little_and_intervals_cover():
    """A model that is asked for a truth of its own features would pass whatever it did; no feature bends like this.

    Cells off by 3 % mislead a choice by as much; only where the knee lies between the cells around can nobody know on
    which side of it the question is, and a choice may cost what the knee does. So the median is held to 2 %, the worst
    to the knee, and the mean to half of what the better of always 8 and always 16 costs. Intervals that miss one in
    seven beside a knee nobody told of are good; intervals of a factor of 2 would tell no fanout from another.
    """
    rng, regrets, inside, apart, widths = random.Random(7), [], [], [], []
    for seed in range(6):
        table = Table(noisy(seed))
        for _ in range(10):
            capacity, batch = (round(math.exp(rng.uniform(*map(math.log, ends)))) for ends in ((1e3, 1e6), (32, 8192)))
            question = Question(capacity, batch)
            truth = {fanout: bent(fanout, capacity, batch) for fanout in FANOUTS}
            choice = answer(table, question).choice.configuration.fanout
            regrets.append([truth[fanout] / min(truth.values()) - 1 for fanout in (choice, 8, 16)])
            for fanout, seconds in truth.items():
                time = table.step(Configuration("numba", fanout, 1), question)
                assert time.time.source == "interpolated"
                inside.append(time.time.low <= seconds <= time.time.high)
                apart.append(abs(math.log(seconds / time.seconds)) <= 1.96 * time.own_sigma)
                widths.append(time.time.high / time.time.low)
    chosen, eight, sixteen = np.transpose(regrets)
    assert np.median(chosen) <= 0.02
    assert chosen.max() <= KNEE - 1
    assert chosen.mean() <= min(eight.mean(), sixteen.mean()) / 2
    assert np.mean(inside) >= 0.86
    assert np.mean(apart) >= 0.86  # what sets candidates apart, without what all of a machine's times share
    assert np.median(widths) < 2


def test_a_cell_that_took_twice_as_long_with_a_wide_interval_hardly_moves_what_lies_around_it():
    def around(cells):
        table = Table(cells)
        return np.array(
            [
                table.call(SIXTEEN, "draw", Question(capacity, batch)).seconds
                for capacity in (25_000, 35_000)
                for batch in (400, 600)
            ]
        )

    def with_one_off(width):
        return [
            dataclasses.replace(
                record,
                median_seconds=2 * record.seconds,
                low_seconds=2 * record.seconds / width,
                high_seconds=2 * record.seconds * width,
            )
            if (record.op, record.capacity, record.batch, record.fanout) == ("draw", 30_000, 512, 16)
            else record
            for record in CELLS
        ]

    sound = around(CELLS)
    assert np.abs(around(with_one_off(4.0)) / sound - 1).max() < 0.05
    assert (around(with_one_off(1.01)) / sound).min() > 1.3


def test_elements_of_an_update_share_the_groups_of_their_leaves_and_those_of_a_draw_do_not():
    shared = dataclasses.replace(DRAW, op="update", shares=True)
    few, many = (Point(1_000, 16, batch, 1.0) for batch in (1, 100_000))
    line, level = cost_model.FEATURES.index("line"), cost_model.FEATURES.index("level")
    assert cost_model.features(few, shared)[level] == pytest.approx(3)
    assert cost_model.features(many, shared)[level] == pytest.approx(63 + 4 + 1)
    assert cost_model.features(many, DRAW)[level] == 3 * 100_000
    assert cost_model.features(many, DRAW)[line] == 100_000 * (1 + 2 + 2)


def test_a_fit_weighs_cells_by_their_relative_errors():
    """Two cells of a second must not outweigh all those of microseconds."""
    rng = random.Random(1)
    points = [Point(n, k, b, 1e-7 * b * math.log(n) / math.log(k) + 1e-6) for n, k, b in SHAPES]
    points += [Point(10**7, 2, 10**6, factor) for factor in (1.0, 3.0)]
    model = cost_model.fit(
        DRAW, [dataclasses.replace(p, seconds=p.seconds * math.exp(rng.gauss(0, 0.02))) for p in points]
    )
    small = [abs(math.log(model.predict(p.capacity, p.fanout, p.batch) / p.seconds)) for p in points if p.batch == 1]
    assert np.median(small) < 0.25
