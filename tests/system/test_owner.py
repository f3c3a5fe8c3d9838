"""Tests of the strategy ``owner``: rings of posted inserts, and the owner that applies them."""

import dataclasses
import multiprocessing
import signal
import threading
import time

import numpy as np
import pytest

import impls
from impls.replay import Layout, PrioritizedBuffer, attach, make
from impls.replay.block import ACTOR, ARRIVED, GRANTED, MODE
from impls.replay.trials import (
    COMMITTED,
    DRAIN,
    EVEN,
    FIRST_HALF,
    ODD,
    POST,
    PUBLISH,
    RANDOM,
    SCRIPTED,
    SEARCH,
    SEARCHED,
    SECOND_HALF,
    SET_LEAVES,
    SUM_UP,
    TAKEN,
)
from tests.replays import within

pytest.importorskip("numba")

LAYOUT = Layout((4,), "int64", choices=2)
STACKED = Layout((2,), "uint8", frames=3, choices=2)
SECONDS = 60.0
PRODUCER = 1 << 20


def an_owner(capacity=64, layout=LAYOUT, **options):
    return make(capacity, layout, strategy="owner", alpha=0.6, epsilon=0.01, **{"fanout": 4, "trial": True} | options)


def rows_of(replay, numbers):
    """Packed rows, each with its number in every 8 bytes of its observations."""
    numbers = np.asarray(numbers)
    rows = np.zeros(numbers.size, replay.row)
    rows["observation"] = rows["next_observation"] = numbers[:, None]
    rows["reward"] = numbers % PRODUCER
    return rows


def numbers_of(observations):
    """The numbers of whole rows; AssertionError for a torn one."""
    assert (observations["observation"] == observations["observation"][:, :1]).all()
    assert (observations["next_observation"] == observations["observation"]).all()
    return observations["observation"][:, 0]


def stored(replay):
    """The numbers of the records in the order of their tickets."""
    state = replay.state_dict()
    assert state["drawable"].all() and replay.check() == 0.0
    numbers = numbers_of(state["arrays"])
    return np.roll(numbers, -(state["written"] % len(numbers))) if len(numbers) else numbers


def same(state, other):
    arrays, others = state["arrays"], other["arrays"]
    rest = ("leaves", "drawable", "written", "largest")
    return all(np.array_equal(arrays[name], others[name]) for name in arrays) and all(
        np.array_equal(state[name], other[name]) for name in rest
    )


@pytest.mark.parametrize(("layout", "ring_rows"), [(LAYOUT, 4), (LAYOUT, 64), (STACKED, 16)])
def test_for_one_thread_it_equals_the_reference(layout, ring_rows):
    replay = an_owner(37, layout, ring_rows=ring_rows)
    twin = PrioritizedBuffer(impls.make("python", 37, fanout=4, dtype="float32"), layout, alpha=0.6, epsilon=0.01)
    rng = np.random.default_rng(5)
    for step in range(150):
        count = int(rng.integers(1, 12))
        fields = layout.fields.items()
        records = {name: rng.integers(0, 2, (count, *shape)).astype(dtype) for name, (shape, dtype) in fields}
        drawable = rng.random(count) < 0.7 if step % 3 else None
        if layout is STACKED:
            drawable = within(layout, np.ones(count, np.bool_) if drawable is None else drawable)
        errors = rng.normal(size=count if drawable is None else drawable.sum()) * 3 if rng.random() < 0.4 else None
        for buffer in (replay, twin):
            buffer.insert(records, errors, drawable)
        if step % 4 == 3:
            assert (len(replay), replay.written) == (len(twin), twin.written)
            uniforms = rng.random(5)
            batch = replay.sample(5, 0.4, uniforms=uniforms)
            late = np.append(batch.sequence, max(0, twin.written - 40))
            sizes = rng.normal(size=6)
            assert np.array_equal(replay.update_priorities(late, sizes), twin.update_priorities(late, sizes))
        if step % 10 == 9:
            ours, theirs = replay.state_dict(), twin.state_dict()
            for name, close in (
                ("leaves", 1e-6),
                ("largest", 1e-15),
            ):  # powers by two libraries, whose last bit differs
                assert np.allclose(ours[name], theirs.pop(name), rtol=close, atol=0)
            assert same(ours, {name: ours[name] for name in ("leaves", "largest")} | theirs)
            assert replay.check() == 0.0


def test_what_is_posted_waits_for_an_owner():
    replay = an_owner()
    replay.insert(rows_of(replay, range(5)))
    assert replay.posted == 5
    replay.sample(2, 0.4)
    assert replay.posted == 0
    replay.insert(rows_of(replay, [5]))
    assert (replay.posted, len(replay), replay.posted) == (1, 6, 0)
    replay.insert(rows_of(replay, [6]))
    assert (replay.written, replay.posted) == (7, 0)


def test_many_rows_need_no_learner_and_go_through_a_small_ring():
    replay = an_owner(1000, ring_rows=8, rings=1)
    for start in range(0, 3000, 3):
        replay.insert(rows_of(replay, range(start, start + 3)))
    replay.insert(rows_of(replay, range(3000, 3900)))
    assert np.array_equal(stored(replay), np.arange(2900, 3900))


def test_a_full_ring_blocks_its_producer_until_an_owner_has_drained_it():
    replay = an_owner(ring_rows=8, rings=2)
    (bank,) = replay._banks

    def produce():
        for number in range(20):
            replay.insert(rows_of(replay, [number]))

    replay.insert(rows_of(replay, [100]))  # this thread's ring
    thread = threading.Thread(target=produce, daemon=True)
    with replay._alone(bank):
        thread.start()  # it needs the tree for its claim
    while replay.posted < 8 and thread.is_alive():
        time.sleep(0.001)
    with replay._alone(bank):
        pass
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert np.array_equal(stored(replay), [100, *range(20)])


def test_an_insert_larger_than_a_ring_is_split_or_refused_where_stacks_would_be():
    replay = an_owner(64, STACKED, ring_rows=8)
    records = {name: np.zeros((9, *shape), dtype) for name, (shape, dtype) in STACKED.fields.items()}
    with pytest.raises(ValueError, match=r"9 records of stacked frames at once, a ring takes 8: .* ring_rows=9"):
        replay.insert(records, drawable=np.zeros(9, np.bool_))
    assert replay.written == 0


# Rings


def in_thread(call):
    """The result of a call in a thread that has ended, or its error."""
    results = []

    def run():
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SECONDS)
    return results[0]


def test_rings_are_given_back_by_threads_that_end_and_replays_that_close():
    replay = an_owner(rings=1, shared=True)
    for number in range(3):
        in_thread(lambda number=number: replay.insert(rows_of(replay, [number])))
    replay.insert(rows_of(replay, [3]))
    error = in_thread(lambda: replay.insert(rows_of(replay, [4])))
    assert isinstance(error, RuntimeError)
    assert str(error).startswith("all 1 rings are taken, one by each thread that inserts: make the replay with rings=2")
    with attach(replay.handle()) as other:
        replay.close()
        other.insert(rows_of(other, [5]))
        assert np.array_equal(stored(other), [0, 1, 2, 3, 5])


def test_only_this_strategy_has_rings():
    with pytest.raises(ValueError, match="'global' has no rings; use strategy='owner'"):
        make(8, LAYOUT, strategy="global", alpha=0.6, epsilon=0.01, rings=2)
    with pytest.raises(ValueError, match="rings must be"):
        an_owner(rings=0)


# Processes


PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["impls.replay.locking.owner_strategy", "tests.system.test_owner"])


def produce(handle, number, count, rng_seed):
    replay = attach(handle)
    replay._banks[0].view[ACTOR] = number
    rng, done = np.random.default_rng(rng_seed), 0
    while done < count:
        size = min(int(rng.integers(1, 8)), count - done)
        replay.insert(rows_of(replay, number * PRODUCER + done + np.arange(size)))
        done += size
    replay.close()


def test_every_row_of_three_processes_is_applied_once_and_in_order():
    count = 600
    replay = an_owner(2048, shared=True, rings=4, ring_rows=16)
    (bank,) = replay._banks
    bank.memory.view(8 * MODE, (1,), np.int64)[0] = RANDOM
    children = [PROCESSES.Process(target=produce, args=(replay.handle(), k, count, k), daemon=True) for k in range(3)]
    for child in children:
        child.start()
    end = time.monotonic() + SECONDS
    while any(child.is_alive() for child in children) and time.monotonic() < end:
        if len(replay):
            batch = replay.sample(32, 0.4)
            numbers_of(batch.rows)
            replay.update_priorities(batch.sequence, np.abs(np.sin(batch.sequence)))
    for child in children:
        child.join(1)
        assert child.exitcode == 0
    numbers = stored(replay)
    assert numbers.size == replay.written == len(replay) == 3 * count and replay.lost == 0
    for k in range(3):
        assert np.array_equal(numbers[numbers // PRODUCER == k], k * PRODUCER + np.arange(count))


def act(handle, role):
    replay = attach(handle)
    replay._banks[0].view[ACTOR] = 0
    if role == "own":
        replay.sample(4, 0.4)
    else:
        for number in range(20):
            replay.insert(rows_of(replay, [100 + number, 200 + number]))


def kill(replay, role, wanted, times=1):
    """Let a process run until it has come to a point so many times, and kill it there."""
    (bank,) = replay._banks
    mode, arrived, granted = (bank.memory.view(8 * at, (1,), np.int64) for at in (MODE, ARRIVED, GRANTED))
    mode[0] = SCRIPTED
    child = PROCESSES.Process(target=act, args=(replay.handle(), role), daemon=True)
    child.start()
    last, end = 0, time.monotonic() + SECONDS
    while times:
        here = int(arrived[0])
        assert child.is_alive() and time.monotonic() < end, f"it was at {last} last and did not come to {wanted}"
        if here in (0, last):
            time.sleep(0.0001)
            continue
        times -= here == wanted
        if times:
            granted[0], last = 1, here
            while granted[0]:
                time.sleep(0.0001)
    child.kill()
    child.join(SECONDS)
    assert child.exitcode == -signal.SIGKILL
    mode[0] = arrived[0] = granted[0] = 0


def after_the_death_of_owners(*points):
    """(state of a replay whose owners died, each at a point, state of one whose did not)."""
    replay = an_owner(32, shared=True, ring_rows=16)
    twin = make(32, LAYOUT, strategy="global", alpha=0.6, epsilon=0.01, fanout=4, trial=True)
    for buffer in (replay, twin):
        buffer.insert(rows_of(buffer, range(30)))
        assert len(buffer) == 30
        buffer.insert(rows_of(buffer, range(30, 37)))
        buffer.insert(rows_of(buffer, [37]), [8.0])
        buffer.insert(rows_of(buffer, [38, 39]))
        in_thread(lambda buffer=buffer: buffer.insert(rows_of(buffer, range(40, 50))))
    for point in points:
        kill(replay, "own", point)
    replay.sample(4, 0.4)
    assert replay.lost == 0
    return replay.state_dict(), twin.state_dict()


OWNERS_POINTS = {
    "before": SEARCH,
    "drain": DRAIN,
    "odd": ODD,
    "copy": FIRST_HALF,
    "half": SECOND_HALF,
    "leaves": SET_LEAVES,
    "sums": SUM_UP,
    "even": EVEN,
    "taken": TAKEN,
    "tails": COMMITTED,
    "after": SEARCHED,
}


@pytest.mark.parametrize("point", OWNERS_POINTS)
def test_an_owner_that_dies_leaves_no_duplicate_and_loses_nothing(point):
    assert same(*after_the_death_of_owners(OWNERS_POINTS[point]))


def test_an_owner_that_dies_as_it_resumes_is_resumed():
    assert same(*after_the_death_of_owners(EVEN, SET_LEAVES))


@pytest.mark.parametrize("point", [POST, PUBLISH])
def test_a_producer_that_dies_loses_what_it_had_not_published_and_its_ring(point):
    replay = an_owner(32, shared=True, rings=1, ring_rows=16)
    kill(replay, "produce", point, 3)
    replay.insert(rows_of(replay, [7]))
    assert np.array_equal(replay.state_dict()["arrays"]["observation"][:, 0], [100, 200, 101, 201, 7])


def test_another_shape_of_rings_is_another_memory():
    replay = an_owner(shared=True, rings=2)
    handle = replay.handle()
    other = dataclasses.replace(handle, settings=dataclasses.replace(handle.settings, rings=1))
    with pytest.raises(ValueError, match="another layout"):
        attach(other)
