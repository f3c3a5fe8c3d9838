"""Compiled replays and their reference twins: making them, records for them, and a random walk through both at once."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

import impls
from impls import replay
from impls.replay import Layout, LocalStorage, PrioritizedBuffer
from impls.replay.registry import strategy_class

LAYOUTS = {
    "flat": Layout((3,), "float32", action_size=2),
    "choices": Layout((4,), "float32", choices=3),
    "two frames": Layout((2, 3), "uint8", frames=2, choices=6),
    "four frames": Layout((5,), "float32", frames=4, action_size=1),
    "wide": Layout((300,), "float64", choices=1000),
}
FLAT = LAYOUTS["flat"]
STRATEGIES = replay.strategies()
ALPHA, EPSILON = 0.6, 1e-3


def made(strategy="global", capacity=8, layout=FLAT, fanout=16, dtype="float32", **options):
    """A compiled replay; ``options`` of ``impls.replay.make``."""
    options = {"alpha": ALPHA, "epsilon": EPSILON} | options
    return replay.make(capacity, layout, strategy=strategy, fanout=fanout, dtype=dtype, **options)


def twin_of(*, capacity=8, layout=FLAT, fanout=16, dtype="float32", **options):
    """The reference twin, on a tree in NumPy."""
    tree = impls.make("numpy", capacity, fanout=fanout, dtype=dtype)
    return PrioritizedBuffer(tree, layout, **({"alpha": ALPHA, "epsilon": EPSILON} | options))


def rows_of(layout, rng, count):
    """Random records ``[count, ...]``."""
    most = {"terminated": 2, "action": layout.choices}
    return {
        name: rng.integers(0, most.get(name, 100), (count, *shape)).astype(dtype)
        if dtype.kind in "uib"
        else rng.standard_normal((count, *shape)).astype(dtype)
        for name, (shape, dtype) in layout.fields.items()
    }


def packed(records, row):
    rows = np.zeros(len(records["reward"]), row)
    for name, values in records.items():
        rows[name] = values
    return rows


def chunk(layout, rng, size):
    """What an actor's local storage hands over of an episode: (records with their fillers, which are drawable)."""
    local = LocalStorage(layout, size)
    shape = (layout.frames, *layout.observation) if layout.frames > 1 else layout.observation
    seen = rng.integers(0, 9, shape)
    for number in range(size):
        following = rng.integers(0, 9, shape)
        if layout.frames > 1:
            following[:-1] = seen[1:]
        action = number % 3 if layout.choices else rng.random(layout.action_size)
        local.append(seen, action, number, following, number == size - 1)
        seen = following
    return local.take()


def within(layout, drawable):
    """The records of these whose stacks are of one insert."""
    at = np.arange(drawable.size)
    return drawable & (at >= layout.frames - 1) & (at < drawable.size - (layout.frames > 1))


def equal_batches(batch, expected):
    assert_array_equal(batch.sequence, expected.sequence)
    assert batch.rows.keys() == expected.rows.keys()
    for name, part in batch.rows.items():
        assert part.dtype == expected.rows[name].dtype
        assert_array_equal(part, expected.rows[name], err_msg=name)
    assert_allclose(batch.weights, expected.weights, rtol=1e-6)


def equal_states(state, expected):
    assert (state["written"], state.keys()) == (expected["written"], expected.keys())
    assert_array_equal(state["drawable"], expected["drawable"])
    assert_allclose(state["leaves"], expected["leaves"], rtol=1e-6)
    assert state["largest"] == pytest.approx(expected["largest"])
    for name, part in state["arrays"].items():
        assert_array_equal(part, expected["arrays"][name])


class Pair:
    """A compiled replay and its twin, to which the same is done, and whose answers must be the same."""

    def __init__(self, compiled, twin, rng):
        self.compiled, self.twin, self.rng = compiled, twin, rng
        self.outputs = compiled.outputs(7)
        self.drawn = np.empty(0, np.int64)
        # As printed, the update of a record that was overwritten goes to the one in its place.
        self.takes_late_updates = not isinstance(compiled, strategy_class("two_lock_lazy"))

    def insert(self):
        """Insert random rows, or an actor's chunk, with and without errors."""
        rng, layout = self.rng, self.twin.layout
        count = int(rng.integers(0, min(90, self.compiled.capacity) + 1))
        records, drawable = rows_of(layout, rng, count), rng.random(count) < 0.8 if rng.random() < 0.3 else None
        if layout.frames > 1 and layout.fillers < count and rng.random() < 0.8:
            records, drawable = chunk(layout, rng, count - layout.fillers)
        if layout.frames > 1:
            drawable = within(layout, np.ones(count, np.bool_) if drawable is None else drawable)
        kept = count if drawable is None else int(drawable.sum())
        errors = rng.standard_normal(kept) * 10.0 ** rng.integers(-3, 4) if rng.random() < 0.6 else None
        self.twin.insert(records, errors, drawable)
        rows = packed(records, self.compiled.row) if rng.random() < 0.5 else records
        self.compiled.insert(rows, errors, drawable)

    def sample(self):
        """Sample with the same generator, or given uniforms, into fresh outputs or used ones."""
        batch, beta, seed = int(self.rng.integers(1, 40)), self.rng.choice([0.0, 0.4, 1.0]), self.rng.integers(1 << 30)
        out = self.outputs if self.rng.random() < 0.5 else None
        batch = batch if out is None else out.batch
        both = [(self.compiled, {"out": out}), (self.twin, {})]
        if not len(self.twin):
            for buffer, options in both:
                with pytest.raises(RuntimeError, match="nothing to sample"):
                    buffer.sample(batch, beta, default_rng(seed), **options)
            return
        results = [buffer.sample(batch, beta, default_rng(seed), **options) for buffer, options in both]
        equal_batches(*results)
        self.sample_distinct(batch, beta, seed, out)
        uniforms = self.rng.random(batch)
        slots = self.compiled.sample(batch, beta, uniforms=uniforms, out=out).sequence % self.compiled.capacity
        assert_array_equal(slots, self.twin.tree.sample(uniforms)[0])
        self.drawn = np.concatenate((self.drawn, results[1].sequence))[-60:]

    def sample_distinct(self, batch, beta, seed, out):
        buffers = [(self.compiled, {"distinct": True, "out": out}), (self.twin, {"distinct": True})]
        if batch > len(self.twin):
            for buffer, options in buffers:
                with pytest.raises(RuntimeError, match=f"{batch} distinct .* {len(self.twin)} "):
                    buffer.sample(batch, beta, default_rng(seed), **options)
            return
        results = [buffer.sample(batch, beta, default_rng(seed), **options) for buffer, options in buffers]
        equal_batches(*results)
        assert len(set(results[0].sequence)) == batch

    def update(self):
        """Update records sampled lately or long ago, some twice, and some that never were."""
        rng, written = self.rng, self.twin.written
        sequence = rng.permutation(self.drawn)[: rng.integers(1, 30)]
        if self.takes_late_updates:
            strangers = [-1, -written, -self.compiled.capacity, written, written + 3, 1 << 62, -(1 << 63), written - 1]
            sequence = rng.permutation(np.concatenate((sequence, sequence[:3], np.array(strangers))))
        else:
            sequence = sequence[sequence >= written - self.compiled.capacity]
            slots = sequence % self.compiled.capacity
            sequence = sequence[self.twin._drawable[slots]]
        errors = rng.standard_normal(sequence.size) * 10.0 ** rng.integers(-3, 4)
        present = self.compiled.update_priorities(sequence, errors)
        assert_array_equal(present, self.twin.update_priorities(sequence, errors))

    def retrieve(self):
        """Retrieve priorities of records sampled lately or long ago, and of some that never were."""
        written = self.twin.written
        strangers = [-1, -written, written, 1 << 62, -(1 << 63), written - 1] if self.takes_late_updates else []
        sequence = np.concatenate((self.drawn, np.array(strangers, np.int64)))
        if not self.takes_late_updates:
            sequence = sequence[self.twin._find(sequence)[1]]
        given, expected = (buffer.retrieve_priorities(sequence) for buffer in (self.compiled, self.twin))
        assert given.dtype == expected.dtype == np.float64
        assert_allclose(given, expected, rtol=1e-6)

    def walk(self, turns):
        for _ in range(turns):
            getattr(self, str(self.rng.choice(["insert", "sample", "update", "retrieve"])))()
            assert len(self.compiled) == len(self.twin)
            assert self.compiled.written == self.twin.written
            assert self.compiled.check() == 0.0
        equal_states(self.compiled.state_dict(), self.twin.state_dict())
