"""Runs a simulated RMM: batches in, leaves out, cycles counted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.sim import Simulator

from ..design import Design
from .rmm import Rmm


@dataclass(frozen=True)
class Run:
    """What a simulated RMM did: ``cycles`` of the updates and of the samples, each 0 where there were none."""

    leaves: tuple[int, ...]
    """Leaf of each sample, in the order of the batch."""
    tree: tuple[tuple[tuple[int, ...], ...], ...]
    """Nodes of every bank, level by level, leaves first, the root last: as they are after the updates."""
    update_cycles: int
    sample_cycles: int


def simulate(
    design: Design,
    *,
    tree: Sequence[Sequence[Sequence[int]]] | None = None,
    updates: Sequence[tuple[int, int]] = (),
    masses: Sequence[int] = (),
    forwarding: bool = True,
) -> Run:
    """Runs a batch of ``updates``, (leaf, value) each, and then one of samples, each a mass in [0, total).

    ``tree`` is what memories hold at the start, in the form of :class:`Run`; without it every leaf is 0.
    """
    batch = max(len(updates), len(masses), 1)
    rmm = Rmm(design, tag_bits=batch.bit_length(), queue_depth=batch, forwarding=forwarding)
    results: list[Run] = []

    async def bench(ctx: Any) -> None:
        if tree is not None:
            _load(ctx, rmm, tree)
            await ctx.tick()  # for the dispatcher to see the totals
        update_cycles = await _update(ctx, rmm, updates)
        after = _stored(ctx, rmm)
        await ctx.tick()
        leaves, sample_cycles = await _sample(ctx, rmm, masses)
        results.append(Run(leaves, after, update_cycles, sample_cycles))

    simulator = Simulator(rmm)
    simulator.add_clock(1 / design.clock_hz)
    simulator.add_testbench(bench)
    simulator.run()
    return results[0]


def _load(ctx: Any, rmm: Rmm, tree: Sequence[Sequence[Sequence[int]]]) -> None:
    for bank, levels in zip(rmm.banks, tree, strict=True):
        for store, nodes in zip(bank.memories, levels[:-1], strict=True):
            for row in range(-(-len(nodes) // bank.words)):
                words = nodes[row * bank.words : (row + 1) * bank.words]
                ctx.set(store.data[row], [*words, *[0] * (bank.words - len(words))])
        ctx.set(bank.updater.total, levels[-1][0])


def _stored(ctx: Any, rmm: Rmm) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(
        (
            *(
                tuple(_words(ctx, store, bank.words)[:size])
                for store, size in zip(bank.memories, rmm.design.sizes, strict=False)
            ),
            (ctx.get(bank.total),),
        )
        for bank in rmm.banks
    )


def _words(ctx: Any, store: Any, words: int) -> list[int]:
    rows = (ctx.get(store.data[row]) for row in range(store.depth))
    return [row[word] for row in rows for word in range(words)]


async def _update(ctx: Any, rmm: Rmm, updates: Sequence[tuple[int, int]]) -> int:
    requests = ({"updating": 1, "asked": {"update": {"leaf": leaf, "value": value}}} for leaf, value in updates)
    done = 0

    def count(ctx: Any) -> bool:
        nonlocal done
        done += ctx.get(rmm.done).bit_count()
        return done == len(updates)

    return await _run(ctx, rmm, requests, count) if updates else 0


async def _sample(ctx: Any, rmm: Rmm, masses: Sequence[int]) -> tuple[tuple[int, ...], int]:
    requests = (
        {"updating": 0, "asked": {"sample": {"mass": mass, "tag": position}}} for position, mass in enumerate(masses)
    )
    leaves: dict[int, int] = {}

    def collect(ctx: Any) -> bool:
        for drawn in rmm.drawn:
            if ctx.get(drawn.valid):
                leaves[ctx.get(drawn.tag)] = ctx.get(drawn.leaf)
        return len(leaves) == len(masses)

    cycles = await _run(ctx, rmm, requests, collect) if masses else 0
    return tuple(leaves[position] for position in range(len(masses))), cycles


async def _run(ctx: Any, rmm: Rmm, requests: Iterator[dict[str, Any]], finished: Callable[[Any], bool]) -> int:
    """Offers requests, S a cycle, until ``finished``, which looks at every cycle once. The number of cycles."""
    cycles, taken = 0, True
    while not finished(ctx):
        if taken:
            for number, lane in enumerate(rmm.lanes):
                request = next(requests, None)
                ctx.set(rmm.valid[number], request is not None)
                if request is not None:
                    ctx.set(lane, request)
        taken = bool(ctx.get(rmm.ready))
        await ctx.tick()
        cycles += 1
    ctx.set(rmm.valid, 0)
    return cycles
