"""Run a simulated RMM: batches in, leaves and priorities out, cycles counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.sim import Simulator

from impls.fpga.design import Design

from .dispatch import Kind
from .rmm import Rmm


@dataclass(frozen=True)
class Run:
    """Results of a simulated RMM in the order of their batch, and its cycles, 0 for an empty batch."""

    leaves: tuple[int, ...]
    """Leaf of each sample."""
    priorities: tuple[int, ...]
    """Priority that came with each sample."""
    got: tuple[int, ...]
    """Priority of each leaf retrieved."""
    tree: tuple[tuple[tuple[int, ...], ...], ...]
    """Nodes of every bank, level by level, leaves first, the root last: as they are once the updates are done."""
    tree_left: tuple[tuple[tuple[int, ...], ...], ...]
    """The same nodes at the end."""
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
    """Run a batch of ``updates``, (leaf, value) each, one of ``gets``, leaves, and one of ``masses``, prefix values.

    ``tree`` gives all nodes at the start, in the form of :class:`Run`; without it every leaf is 0. Prefix values are
    integers in [0, total).
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
    return tuple(got[index].priority for index in range(len(gets))), cycles


async def _sample(ctx: Any, rmm: Rmm, masses: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    requests = [{"kind": Kind.SAMPLE, "asked": {"mass": mass}} for mass in masses]
    drawn, cycles = await _run(ctx, rmm, requests)
    samples = [drawn[index] for index in range(len(masses))]
    return tuple(sample.leaf for sample in samples), tuple(sample.priority for sample in samples), cycles


async def _run(ctx: Any, rmm: Rmm, requests: Sequence[dict[str, Any]]) -> tuple[dict[int, Any], int]:
    """Offer requests, S a cycle, tagged by their indices, until each is answered.

    Returns the answers by their tags, none for an update, and the number of cycles.
    """
    waiting = (request | {"tag": tag} for tag, request in enumerate(requests))
    answers: dict[int, Any] = {}
    cycles, done, taken = 0, 0, True
    while True:
        # Invariant: ``cycles`` cycles have passed since the first requests were offered, and no result but those of the
        # present cycle is uncounted.
        done += ctx.get(rmm.done).bit_count()
        answers |= {ctx.get(answer.tag): ctx.get(answer) for answer in (*rmm.drawn, *rmm.got) if ctx.get(answer.valid)}
        if done + len(answers) >= len(requests):
            break
        if taken:
            for index, lane in enumerate(rmm.lanes):
                request = next(waiting, None)
                ctx.set(rmm.valid[index], request is not None)
                if request is not None:
                    ctx.set(lane, request)
        taken = bool(ctx.get(rmm.ready))
        await ctx.tick()
        cycles += 1
    ctx.set(rmm.valid, 0)
    return answers, cycles
