"""Run a simulated RMM: batches in, leaves and priorities out, cycles counted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    drawn_after: tuple[int, ...] = ()
    """Cycles from the start of the samples to the answer of each."""


def simulate(
    design: Design,
    *,
    tree: Sequence[Sequence[Sequence[int]]] | None = None,
    updates: Sequence[tuple[int, int]] = (),
    gets: Sequence[int] = (),
    masses: Sequence[int] = (),
    lead: int | None = None,
) -> Run:
    """Run a batch of ``updates``, (leaf, value) each, one of ``gets``, leaves, and one of ``masses``, prefix values.

    ``tree`` gives all nodes at the start, in the form of :class:`Run`; without it every leaf is 0. Prefix values are
    integers in [0, total). With ``lead``, samples overlap updates: their first comes as many cycles after that of the
    updates, before it where negative.
    """
    batch = max(len(updates), len(gets), len(masses), 1)
    rmm = Rmm(design, tag_bits=batch.bit_length(), queue_depth=batch)
    results: list[Run] = []

    async def bench(ctx: Any) -> None:
        if tree is not None:
            _load(ctx, rmm, tree)
            await ctx.tick()  # for the dispatcher to see the totals
        kind = {} if design.overlaps else {"kind": Kind.SAMPLE}
        draw = _Stream([kind | {"asked": {"mass": mass}} for mass in masses], is_sampling=True)
        get, update = (
            _Stream([{"kind": kind, "asked": {"access": {"leaf": leaf, "value": value}}} for leaf, value in accesses])
            for kind, accesses in ((Kind.RETRIEVAL, [(leaf, 0) for leaf in gets]), (Kind.UPDATE, updates))
        )
        if lead is None:
            await _run(ctx, rmm, update)
        else:
            draw.start, update.start = max(0, lead), max(0, -lead)
            await _run(ctx, rmm, update, draw)
        after = _stored(ctx, rmm)
        await ctx.tick()
        await _run(ctx, rmm, get)
        await ctx.tick()
        if lead is None:
            await _run(ctx, rmm, draw)
        drawn, spent = zip(*(draw.answers[tag] for tag in range(len(masses))), strict=True) if masses else ((), ())
        results.append(
            Run(
                leaves=tuple(answer.leaf for answer in drawn),
                priorities=tuple(answer.priority for answer in drawn),
                got=tuple(get.answers[tag][0].priority for tag in range(len(gets))),
                tree=after,
                tree_left=_stored(ctx, rmm),
                update_cycles=update.cycles,
                get_cycles=get.cycles,
                sample_cycles=draw.cycles,
                drawn_after=tuple(spent),
            )
        )

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
    def level(store: Any, words: int, size: int) -> tuple[int, ...]:
        rows = (ctx.get(store.data[row]) for row in range(store.depth))
        return tuple(row[word] for row in rows for word in range(words))[:size]

    stored = [
        [level(store, bank.words, size) for store, size in zip(bank.memories, rmm.design.sizes, strict=False)]
        for bank in rmm.banks
    ]
    return tuple((*levels, (ctx.get(bank.total),)) for levels, bank in zip(stored, rmm.banks, strict=True))


@dataclass
class _Stream:
    """Requests that an input gets from a cycle on, S a cycle, tagged by their indices.

    ``answers``: by tag, or by order of updates: the answer, and the cycles from the start until it was there.
    """

    requests: Sequence[dict[str, Any]]
    is_sampling: bool = False
    start: int = 0
    offered: int = 0
    is_taken: bool = True
    answers: dict[int, tuple[Any, int]] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        return max((after for _, after in self.answers.values()), default=0)


async def _run(ctx: Any, rmm: Rmm, *streams: _Stream) -> None:
    """Offer the streams' requests until each is answered; samples go to the first input, others to the last."""
    now = 0
    while True:
        # Invariant: ``now`` cycles have passed, and no result but those of the present cycle is uncounted.
        for stream in streams:
            after, lanes = now - stream.start, rmm.drawn if stream.is_sampling else rmm.got
            stream.answers |= {ctx.get(lane.tag): (ctx.get(lane), after) for lane in lanes if ctx.get(lane.valid)}
            done = 0 if stream.is_sampling else ctx.get(rmm.done).bit_count()
            stream.answers |= {len(stream.answers) + place: (None, after) for place in range(done)}
        if all(len(stream.answers) >= len(stream.requests) for stream in streams):
            break
        for stream in streams:
            valid, lanes, ready = rmm.inputs[0 if stream.is_sampling else -1]
            if now >= stream.start and stream.is_taken:
                offers = list(enumerate(stream.requests))[stream.offered : stream.offered + len(lanes)]
                ctx.set(valid, (1 << len(offers)) - 1)
                for lane, (tag, request) in zip(lanes, offers, strict=False):
                    ctx.set(lane, request | {"tag": tag})
                stream.offered += len(lanes)
            stream.is_taken = now < stream.start or bool(ctx.get(ready))
        await ctx.tick()
        now += 1
    for valid, _, _ in rmm.inputs:
        ctx.set(valid, 0)
