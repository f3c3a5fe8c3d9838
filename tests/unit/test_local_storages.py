"""Stacks of frames, from local storages to batches, beside those by hand: ends, cuts, resets and loads at random."""

import numpy as np
import pytest

import impls
from impls import replay
from impls.replay import Layout, LocalStorage, PrioritizedBuffer
from impls.replay.local_storages import LocalStorages

LAYOUT = Layout((2,), "float32", frames=3, choices=2)


class World:
    """An environment whose frames are numbers that no other frame has."""

    def __init__(self, rng, layout, first):
        self.rng, self.layout, self.next = rng, layout, first
        self.reset()

    def frame(self):
        self.next += 1
        return np.full(self.layout.observation, self.next, self.layout.dtype)

    def reset(self):
        frame = self.frame()
        self.seen = np.stack([frame] * self.layout.frames) if self.layout.frames > 1 else frame

    def step(self):
        """A transition as LocalStorage takes it."""
        frame = self.frame()
        following = np.concatenate((self.seen[1:], frame[None])) if self.layout.frames > 1 else frame
        seen, self.seen = self.seen, following
        return seen, int(self.rng.integers(2)), float(self.next), following, bool(self.rng.random() < 0.1)


def names(step):
    return dict(zip(("observation", "action", "reward", "next_observation", "terminated"), step, strict=True))


def two(step):
    """The same step of two environments."""
    return {name: np.stack([value] * 2) for name, value in names(step).items()}


def collected(rng, layout, size, environments):
    """(records, drawable, the transitions by hand) as they are taken; cuts that the storage was not told, and loads."""
    worlds = [World(rng, layout, 10_000 * number) for number in range(environments)]
    one = environments == 1 and rng.random() < 0.5
    make = (lambda: LocalStorage(layout, size)) if one else (lambda: LocalStorages(layout, size, environments))
    local, stored = make(), [[] for _ in worlds]

    def taken(which):
        records, drawable = local.take() if one else local.take(which)
        truth = [step for number in np.flatnonzero(which) for step in stored[number]]
        for number in np.flatnonzero(which):
            stored[number].clear()
        return {name: part.copy() for name, part in records.items()}, drawable, truth

    for _ in range(int(rng.integers(5, 40))):
        stepped = rng.random(environments) < 0.8
        stepped |= one
        for number in np.flatnonzero(stepped & (rng.random(environments) < 0.1)):
            worlds[number].reset()  # outside: nobody tells the storage
            if stored[number] and layout.frames > 1:
                (seen, *_), before = worlds[number].step(), local.state_dict()
                worlds[number].reset()
                step = names((seen, 0, 0.0, np.concatenate((seen[1:], seen[:1])), False))
                alone = np.arange(environments) == number
                every = {name: np.stack([value] * environments) for name, value in step.items()}
                with pytest.raises(ValueError, match=r"another episode.*take\(\)"):
                    local.append(seen, 0, 0.0, step["next_observation"], False) if one else local.append(every, alone)
                assert all(
                    (part == before["arrays"][name]).all() for name, part in local.state_dict()["arrays"].items()
                )
                yield taken(alone)
        steps = [world.step() if goes else None for world, goes in zip(worlds, stepped, strict=True)]
        if one:
            local.append(*steps[0])
        else:
            some = World(rng, layout, 0).step()  # what no one looks at
            rows = [names(step or some) for step in steps]
            local.append({name: np.stack([row[name] for row in rows]) for name in rows[0]}, stepped)
        for number in np.flatnonzero(stepped):
            stored[number].append(names(steps[number]))
        over = np.array([bool(step and step[-1]) for step in steps])
        for number in np.flatnonzero(over):
            worlds[number].reset()
        if rng.random() < 0.2:
            state, local = local.state_dict(), make()
            local.load_state_dict(state)
        ready = over | (np.array([local.is_full]) if one else local.full)
        if ready.any():
            yield taken(ready)


def compare(seed, kinds):
    rng = np.random.default_rng(seed)
    layout = Layout((2,), "float32", frames=int(rng.choice([1, 2, 3, 4])), choices=2)
    size, environments = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    capacity = int(rng.integers(environments * (size + layout.fillers), 60))
    buffers, truth = [kind(capacity, layout) for kind in kinds], {}
    for records, drawable, expected in collected(rng, layout, size, environments):
        truth |= dict(zip(buffers[0].written + np.flatnonzero(drawable), expected, strict=True))
        for buffer in buffers:
            buffer.insert(records, drawable=drawable)
        if rng.random() < 0.1:
            states, buffers = [buffer.state_dict() for buffer in buffers], [kind(capacity, layout) for kind in kinds]
            for buffer, state in zip(buffers, reversed(states), strict=True):
                buffer.load_state_dict(state)
        for buffer in buffers if len(buffers[0]) else ():
            batch = buffer.sample(8, 0.4, np.random.default_rng(0))
            for number, sequence in enumerate(batch.sequence):
                for name, part in batch.rows.items():
                    np.testing.assert_array_equal(part[number], truth[sequence][name])
            # An update of whatever was written must not bring a filler, or a record with a cut stack, to life.
            buffer.update_priorities(np.arange(buffer.written), np.ones(buffer.written))
            drawn = buffer.sample(len(buffer), 0.4, np.random.default_rng(0), distinct=True).sequence
            assert len(buffer) == np.count_nonzero(buffer.state_dict()["leaves"]) and set(drawn) <= set(truth)


def plain(capacity, layout):
    return PrioritizedBuffer(impls.make("numpy", capacity), layout, alpha=0.0, epsilon=1e-3)


def compiled(capacity, layout):
    return replay.make(capacity, layout, alpha=0.0, epsilon=1e-3)


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 250), marks=pytest.mark.slow)])
def test_stacks_are_those_given_whoever_tells_an_episodes_end(seeds):
    pytest.importorskip("numba")
    for seed in seeds:
        compare(seed, [plain, compiled])


def stack(*numbers):
    return np.array([[number, number] for number in numbers], np.float32)


def test_a_storage_hands_over_single_frames():
    local = LocalStorage(LAYOUT, 4)
    for at in range(4):
        local.append(stack(at, at + 1, at + 2), 0, float(at), stack(at + 1, at + 2, at + 3), at == 3)
    expected = local.transitions()
    taken, drawable = local.take()
    assert taken["frame"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert drawable.tolist() == [False, False, True, True, True, True, False]
    assert expected["next_observation"][-1, :, 0].tolist() == [4, 5, 6]
    assert expected["terminated"].tolist() == [False, False, False, True]


BAD_STEPS = [
    (stack(5, 5, 5), 0, 0.0, stack(5, 5, 6), False),  # an episode that begins
    (stack(1, 2, 4), 0, 0.0, stack(2, 4, 5), False),  # but for its newest frame
    (stack(1, 2, 3), 0, 0.0, stack(5, 5, 5), False),  # the next observation of an environment reset at once
    (stack(1, 2, 3)[1:], 0, 0.0, stack(2, 3, 4), False),
    (stack(1, 2, 3), 2, 0.0, stack(2, 3, 4), False),
    (stack(1, 2, 3), 0, np.nan, stack(2, 3, 4), False),
    (stack(1, 2, 3), 0, 0.0, stack(2, 3, 4), "False"),
]


@pytest.mark.parametrize("ended", [True, False])
def test_what_cannot_be_stored_changes_nothing(ended):
    alone, several = LocalStorage(LAYOUT, 3), LocalStorages(LAYOUT, 3, 2)
    first, good = (stack(0, 1, 2), 1, 1.0, stack(1, 2, 3), ended), (stack(1, 2, 3), 0, 0.0, stack(2, 3, 4), False)
    alone.append(*first)
    several.append(two(first), np.ones(2, bool))
    for step in BAD_STEPS:
        with pytest.raises(ValueError, match=r"."):
            alone.append(*step)
        with pytest.raises(ValueError, match=r"."):
            several.append(two(step), np.array([False, True]))
    alone.append(*good)
    several.append(two(good), np.array([True, True]))
    assert alone.transitions()["observation"][:, :, 0].tolist() == [[0, 1, 2], [1, 2, 3]]
    assert alone.transitions()["next_observation"][:, :, 0].tolist() == [[1, 2, 3], [2, 3, 4]]
    records, drawable = several.take(np.ones(2, bool))
    assert records["frame"][:, 0].tolist() == [0, 1, 2, 3, 4] * 2
    assert drawable.tolist() == [False, False, True, True, False] * 2


@pytest.mark.parametrize("layout", [LAYOUT, Layout((2,), "float32", choices=2)], ids=["stacked", "flat"])
def test_a_full_storage_takes_nothing_more(layout):
    alone, several = LocalStorage(layout, 1), LocalStorages(layout, 1, 2)
    world = World(np.random.default_rng(0), layout, 0)
    first, second = world.step(), world.step()
    alone.append(*first)
    several.append(two(first), np.array([True, True]))
    before = several.state_dict()["arrays"]
    for append in (lambda: alone.append(*second), lambda: several.append(two(second), np.array([True, False]))):
        with pytest.raises(ValueError, match=r"holds 1 transitions .* take\(\)"):
            append()
    assert all((part == before[name]).all() for name, part in several.state_dict()["arrays"].items())


def test_a_state_of_another_storage_is_refused():
    small, large = LocalStorage(LAYOUT, 2), LocalStorage(LAYOUT, 3)
    for change in (lambda s: large.state_dict(), lambda s: s | {"count": 3}, lambda s: s | {"arrays": {}}):
        with pytest.raises(ValueError, match="the state"):
            small.load_state_dict(change(small.state_dict()))
