"""Runs a simulated RMM: batches in, leaves and priorities out, cycles counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.sim import Simulator

from ..design import Design
from .dispatch import Kind
from .rmm import Rmm


@dataclass(frozen=True)
class Run:
    """What a simulated RMM did: results in the order of their batch, and its cycles, 0 for a batch of none."""

    leaves: tuple[int, ...]
    """Leaf of each sample."""
    priorities: tuple[int, ...]
    """What came with it."""
    got: tuple[int, ...]
    """Priority of each leaf retrieved."""
    tree: tuple[tuple[tuple[int, ...], ...], ...]
    """Nodes of every bank, level by level, leaves first, the root last: as they are once the updates are done."""
    tree_left: tuple[tuple[tuple[int, ...], ...], ...]
    """As they are in the end."""
    update_cycles: int
    get_cycles: int
    sample_cycles: int


def simulate(
    design: Design,
    *,
    tree: Sequence[Sequence[Sequence[int]]] | None = None,
    updates: Sequence[tuple[int, int]] = (),
    gets: Sequence[int] = (),
    masses: Sequence[int] = (),
    forwarding: bool = True,
) -> Run:
    """Runs a batch of ``updates``, (leaf, value) each, one of ``gets``, leaves, and one of ``masses`` in [0, total).

    ``tree`` is what memories hold at the start, in the form of :class:`Run`; without it every leaf is 0.
    """
    batch = max(len(updates), len(gets), len(masses), 1)
    rmm = Rmm(design, tag_bits=batch.bit_length(), queue_depth=batch, forwarding=forwarding)
    results: list[Run] = []

    async def bench(ctx: Any) -> None:
        if tree is not None:
            _load(ctx, rmm, tree)
            await ctx.tick()  # for the dispatcher to see the totals
        update_cycles = await _update(ctx, rmm, updates)
        after = _stored(ctx, rmm)
        await ctx.tick()
        got, get_cycles = await _get(ctx, rmm, gets)
        await ctx.tick()
        leaves, priorities, sample_cycles = await _sample(ctx, rmm, masses)
        results.append(Run(leaves, priorities, got, after, _stored(ctx, rmm), update_cycles, get_cycles, sample_cycles))

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
    requests = [{"kind": Kind.UPDATE, "asked": {"access": {"leaf": leaf, "value": value}}} for leaf, value in updates]
    _, cycles = await _run(ctx, rmm, requests)
    return cycles


async def _get(ctx: Any, rmm: Rmm, gets: Sequence[int]) -> tuple[tuple[int, ...], int]:
    requests = [{"kind": Kind.RETRIEVAL, "asked": {"access": {"leaf": leaf}}} for leaf in gets]
    got, cycles = await _run(ctx, rmm, requests)
    return tuple(got[place].priority for place in range(len(gets))), cycles


async def _sample(ctx: Any, rmm: Rmm, masses: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    requests = [{"kind": Kind.SAMPLE, "asked": {"mass": mass}} for mass in masses]
    drawn, cycles = await _run(ctx, rmm, requests)
    samples = [drawn[place] for place in range(len(masses))]
    return tuple(one.leaf for one in samples), tuple(one.priority for one in samples), cycles


async def _run(ctx: Any, rmm: Rmm, requests: Sequence[dict[str, Any]]) -> tuple[dict[int, Any], int]:
    """Offers requests, S a cycle, tagged by their places, until there is an answer of whatever kind for each.

    The answers by their tags, none for an update, and the number of cycles.
    """
    waiting = (request | {"tag": place} for place, request in enumerate(requests))
    answers: dict[int, Any] = {}
    cycles, done, taken = 0, 0, True
    while True:
        done += ctx.get(rmm.done).bit_count()
        answers |= {ctx.get(one.tag): ctx.get(one) for one in (*rmm.drawn, *rmm.got) if ctx.get(one.valid)}
        if done + len(answers) >= len(requests):
            break
        if taken:
            for number, lane in enumerate(rmm.lanes):
                request = next(waiting, None)
                ctx.set(rmm.valid[number], request is not None)
                if request is not None:
                    ctx.set(lane, request)
        taken = bool(ctx.get(rmm.ready))
        await ctx.tick()
        cycles += 1
    ctx.set(rmm.valid, 0)
    return answers, cycles
