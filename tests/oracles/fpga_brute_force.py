"""The fastest learner of a small problem by trying all there are, for tests of the search."""

import math

import numpy as np

from dse.fpga import learner_search
from dse.fpga.learner_search import Problem
from impls.fpga import learner
from impls.fpga.learner import Mac, resources, stage_cycles, update_cycles
from impls.fpga.network import parse
from impls.fpga.passes import make_step, stages
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
    patch.setattr(learner, "BURST_WORDS", 1)


def some_network(rng):
    """A network alone, or those of a step of DQN, or of DDPG and its like."""
    kind = rng.choice(("alone", "alone", "dqn", "actor critic"))
    alone, value = parse(rng.choice(SMALL)), parse(rng.choice(("mlp:2-1", "mlp:1-2")))
    networks = {"value": value} if kind == "dqn" else {"critic": parse("mlp:2-1"), "policy": parse("mlp:1-1")}
    return alone if kind == "alone" else make_step(kind, networks, double=rng.random() < 0.5)


def drawn(rng):
    """A problem that a few designs fit, or none."""
    network = some_network(rng)
    mac = Mac(rng.choice((1, 2, 5)), rng.choice((0, 7)), rng.choice((0, 11)))
    words_a_cycle, streamed = rng.choice(((0, 0), (1, 0), (0.5, 1), (1, 1), (3, 1)))
    bytes_per_s = words_a_cycle * 4 * Problem.clock_hz
    fewest, streamed = (1,) * len(stages(network)), streamed * rng.randint(0, len(streamable(network)))
    empty = Problem(network, 1, Budget(), mac=mac, bytes_per_s=bytes_per_s)
    least = resources(empty.learner(1, fewest, 1, 0, streamed))
    budget = {}
    for kind in KINDS:
        base = getattr(least, kind)
        if rng.random() < 0.6 or kind == "dsp":
            most = 9 if len(stages(network)) == 3 else 3 if len(stages(network)) < 8 else 1.4
            budget[kind] = int(base * rng.choice((0.9, 1, rng.uniform(1, most), rng.uniform(1, most)))) + rng.choice(
                (0, 3)
            )
    fill = rng.choice(learner.FILLS)
    return Problem(network, rng.randint(1, 9), Budget(**budget), fill, mac, bytes_per_s=bytes_per_s)


def streamable(network):
    """FW and BW stages, the largest layers first."""
    kept = [number for number, stage in enumerate(stages(network)) if stage.kind in ("FW", "BW")]
    return sorted(kept, key=lambda number: (-stages(network)[number].words, number))


def brute_force(problem):
    """The best with all weights on the chip, or else, where the smallest does not fit, with any number streamed."""
    best = best_of(problem, 0, 1)
    if best or not problem.bytes_per_s:
        return best
    most = len(streamable(problem.network))
    found = [best_of(problem, streamed, block) for streamed in range(1, most + 1) for block in (1, 2, 4, 8, 16)]
    return min((point for point in found if point), key=learner_search.order, default=None)


def best_of(problem, streamed, block):
    """The best of every DP, every number of units for every stage, every number of update units and of UltraRAM.

    What is taken is added up from the parts of a stage, over all at once: [DP] x [UltraRAM] x [update units, units...].
    """
    every = stages(problem.network)
    dsps = problem.budget.dsp // problem.mac.dsp
    room = dsps - len(every)  # units that a stage may have: one of each other and an update unit are there too
    best = None
    for pipelines in range(1, min(problem.batch, dsps // len(every)) + 1):
        if block >= 2 * -(-problem.batch // pipelines):
            break  # half of it is enough for all samples of a pipeline
        axes = [range(1, min(stage.gemm.macs, room) + 1) for stage in every]
        updates = range(1, min(pipelines * max(layer.parameters for layer in problem.network.layers), room) + 1)
        shape = (len(updates), *map(len, axes))
        if not all(shape):
            continue
        cycles = total_cycles(problem, pipelines, axes, updates, shape, streamed, block)
        macs = np.zeros(shape, int)
        for axis, numbers in enumerate(axes, 1):
            macs += pipelines * along(numbers, axis, shape)
        macs += along(updates, 0, shape)
        held = learner.buffers(problem.network, pipelines, (1,) * len(every), 1, streamed, block)
        for uram in range(sum(words >= learner.ULTRA_WORDS for words, _, _ in held) + 1):
            cost = costs(problem, pipelines, axes, updates, (uram, streamed, block), macs)
            fits = np.ones(shape, bool)
            for kind in KINDS:
                have = getattr(problem.budget, kind)
                fits &= True if have is None else cost[kind] <= have
            if not fits.any():
                continue
            for key in (cycles, *(cost[kind] for kind in KINDS)):
                fits &= key == key[fits].min()
            for place in np.argwhere(fits):
                units = tuple(int(one) + 1 for one in place[1:])
                point = problem.point(problem.learner(pipelines, units, int(place[0]) + 1, uram, streamed, block))
                if best is None or learner_search.order(point) < learner_search.order(best):
                    best = point
    return best


def along(values, axis, shape):
    return np.reshape(list(values), [-1 if one == axis else 1 for one in range(len(shape))])


def total_cycles(problem, pipelines, axes, updates, shape, streamed, block):
    slowest, every = np.zeros(shape, int), stages(problem.network)
    for axis, (stage, numbers) in enumerate(zip(every, axes, strict=True), 1):
        taken = [stage_cycles(stage.gemm, units, problem.fill) for units in numbers]
        slowest = np.maximum(slowest, along(taken, axis, shape))
    blocks = -(-problem.batch // (pipelines * block))
    read = [every[number] for number in streamable(problem.network)[:streamed]]
    layers = {(stage.network, stage.layer) for stage in read}
    largest = [max(stage.words for stage in read if (stage.network, stage.layer) == layer) for layer in layers]
    words = sum(stage.words for stage in read), 2 * sum(largest)
    a_cycle = problem.bytes_per_s / problem.clock_hz / 4
    reads, written = (math.ceil(count / a_cycle) if count else 0 for count in words)
    updated = [max(written, update_cycles(problem.network, pipelines, number)) for number in updates]
    n = max(stage.depth for stage in every)
    return (blocks + n - 1) * np.maximum(block * slowest, reads) + along(updated, 0, shape)


def costs(problem, pipelines, axes, updates, memory, macs):
    """Of every design, by kind: units, and each buffer by the units and update units that it serves."""
    every = stages(problem.network)
    uram, *more = memory
    held = learner.buffers(problem.network, pipelines, (1,) * len(every), 1, *more)
    ranks = sorted(range(len(held)), key=lambda place: (-held[place][0], place))
    shape = macs.shape
    cost = {"dsp": problem.mac.dsp * macs, "lut": problem.mac.lut * macs, "ff": problem.mac.ff * macs}
    cost |= {"bram36": np.zeros(shape, int), "uram": np.zeros(shape, int)}
    served = [axis for axis, stage in enumerate(every, 1) if stage.layer]
    for place, (words, _, copies) in enumerate(held):
        stage = every[served[place] - 1] if place < len(served) else None
        for_units = [1]
        if stage:
            for_units = [-(-units // stage.positions) for units in axes[served[place] - 1]]
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
