"""The fastest learner of a small problem by trying all there are, for tests of the search."""

import numpy as np

from dse.fpga import learner_search
from dse.fpga.learner_search import Problem
from impls.fpga import learner
from impls.fpga.learner import Mac, resources, stage_cycles, stages, update_cycles
from impls.fpga.network import parse
from impls.fpga.resources import Budget

KINDS = ("dsp", "lut", "ff", "bram36", "uram")
SMALL = ("mlp:1-1", "mlp:2-1", "mlp:3-2", "mlp:5-1", "mlp:1-1-1", "mlp:2-2-1", "mlp:1-3-1", "conv:1x3x3-1k2-1")


def small_primitives(patch):
    """So that even small buffers lie in primitives of every kind."""
    patch.setattr(learner, "ULTRA_WORDS", 8)
    patch.setattr(learner_search, "ULTRA_WORDS", 8)
    patch.setattr(learner, "BLOCK_WORDS", 4)
    patch.setattr(learner, "DISTRIBUTED_WORDS", 2)
    patch.setattr(learner, "DISTRIBUTED_LUTS", 3)


def drawn(rng):
    """A problem that a few designs fit, or none."""
    network = parse(rng.choice(SMALL))
    mac = Mac(rng.choice((1, 2, 5)), rng.choice((0, 7)), rng.choice((0, 11)))
    least = resources(Problem(network, 1, Budget(), mac=mac).learner(1, (1,) * len(stages(network)), 1, 0))
    budget = {}
    for kind in KINDS:
        base = getattr(least, kind)
        if rng.random() < 0.6 or kind == "dsp":
            most = 9 if len(network.layers) == 1 else 3
            budget[kind] = int(base * rng.choice((0.9, 1, rng.uniform(1, most), rng.uniform(1, most)))) + rng.choice(
                (0, 3)
            )
    return Problem(network, rng.randint(1, 9), Budget(**budget), rng.choice(learner.FILLS), mac)


def brute_force(problem):
    """The best of every DP, every number of units for every stage, every number of update units and of UltraRAM.

    What is taken is added up from the parts of a stage, over all at once: [DP] x [UltraRAM] x [update units, units...].
    """
    every = stages(problem.network)
    dsps = problem.budget.dsp // problem.mac.dsp
    room = dsps - len(every)  # units that a stage may have: one of each other and an update unit are there too
    best = None
    for pipelines in range(1, min(problem.batch, dsps // len(every)) + 1):
        axes = [range(1, min(stage.gemm.macs, room) + 1) for stage in every]
        updates = range(1, min(pipelines * max(layer.parameters for layer in problem.network.layers), room) + 1)
        shape = (len(updates), *map(len, axes))
        if not all(shape):
            continue
        cycles, macs = total_cycles(problem, pipelines, axes, updates, shape), np.zeros(shape, int)
        for axis, numbers in enumerate(axes, 1):
            macs += pipelines * along(numbers, axis, shape)
        macs += along(updates, 0, shape)
        held = learner.buffers(problem.learner(pipelines, (1,) * len(every), 1, 0))
        for uram in range(sum(words >= learner.ULTRA_WORDS for words, _, _ in held) + 1):
            cost = costs(problem, pipelines, axes, updates, uram, macs)
            fits = np.ones(shape, bool)
            for kind in KINDS:
                have = getattr(problem.budget, kind)
                fits &= True if have is None else cost[kind] <= have
            if not fits.any():
                continue
            for key in (cycles, *(cost[kind] for kind in KINDS)):
                fits &= key == key[fits].min()
            for place in np.argwhere(fits):
                held = problem.learner(pipelines, tuple(int(one) + 1 for one in place[1:]), int(place[0]) + 1, uram)
                point = problem.point(held)
                if best is None or learner_search.order(point) < learner_search.order(best):
                    best = point
    return best


def along(values, axis, shape):
    return np.reshape(list(values), [-1 if one == axis else 1 for one in range(len(shape))])


def total_cycles(problem, pipelines, axes, updates, shape):
    slowest = np.zeros(shape, int)
    for axis, (stage, numbers) in enumerate(zip(stages(problem.network), axes, strict=True), 1):
        taken = [stage_cycles(stage.gemm, units, problem.fill) for units in numbers]
        slowest = np.maximum(slowest, along(taken, axis, shape))
    samples = -(-problem.batch // pipelines)
    updated = [update_cycles(problem.network, pipelines, number) for number in updates]
    return (samples + len(axes) - 1) * slowest + along(updated, 0, shape)


def costs(problem, pipelines, axes, updates, uram, macs):
    """Of every design, by kind: units, and each buffer by the units and update units that it serves."""
    every = stages(problem.network)
    one = problem.learner(pipelines, (1,) * len(every), 1, uram)
    held = learner.buffers(one)
    ranks = sorted(range(len(held)), key=lambda place: (-held[place][0], place))
    shape = macs.shape
    cost = {"dsp": problem.mac.dsp * macs, "lut": problem.mac.lut * macs, "ff": problem.mac.ff * macs}
    cost |= {"bram36": np.zeros(shape, int), "uram": np.zeros(shape, int)}
    served = [axis for axis, stage in enumerate(every, 1) if stage.layer]
    for place, (words, _, copies) in enumerate(held):
        stage = every[served[place] - 1] if place < len(served) else None
        for_units = [1]
        if stage:
            positions = problem.network.layers[stage.layer - 1].positions
            for_units = [-(-units // positions) for units in axes[served[place] - 1]]
        reduction = pipelines > 1 and place == len(held) - 1
        for_updates = list(updates) if stage or reduction else [1]
        table = [[learner.blocks(words, max(u, v), ranks.index(place) < uram) for u in for_units] for v in for_updates]
        (kind,) = {kind for row in table for kind, _ in row}
        numbers = np.array([[number for _, number in row] for row in table]) * copies
        along_stages = [len(for_units) if stage and axis == served[place] else 1 for axis in range(1, len(shape))]
        spread = np.reshape(numbers, [len(for_updates), *along_stages])
        if kind == "lutram":
            cost["lut"] = cost["lut"] + learner.DISTRIBUTED_LUTS * spread
        else:
            cost[kind] = cost[kind] + spread
    return cost
