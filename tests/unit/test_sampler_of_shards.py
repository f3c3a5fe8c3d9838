"""Batches over shards: what is drawn, how it is weighed, where updates go, and what is left when shards are lost."""

import time

import numpy as np
import pytest
from scipy.stats import power_divergence

from impls.cluster import ClusterError
from impls.cluster.calls import Reply
from impls.cluster.sampler import Sampler
from tests.fake_cluster import (
    LAYOUT,
    Independent,
    ScriptedCalls,
    ThreadCalls,
    filled_shards,
    make_replay,
    numbered_records,
)
from tests.replays import LAYOUTS, chunk, made

SIZES = {1: [2000], 2: [700, 1300], 3: [300, 0, 700], 7: [300, 1, 700, 0, 200, 500, 299]}


def numbers_of(batch):
    return batch.rows["observation"][:, 0].astype(int)


def draw(sampler, batch, count, rng, beta=0.4, each=lambda batch: None):
    for _ in range(count):
        drawn = sampler.sample(batch, beta, rng)
        each(drawn)
        yield drawn


def p_of_draws(sizes, seed, draws, scale=None):
    """The p-value of a G-test of draws while updates run, which give records the priorities that they have."""
    calls, priorities = filled_shards(sizes, scale)
    sampler = Sampler(calls, LAYOUT, batches_a_call=8)
    errors = priorities ** (1 / 0.6) - 1e-2
    counts = np.zeros(priorities.size)

    def update(batch):
        sampler.update_priorities(batch.sequence[:50], errors[numbers_of(batch)[:50]])

    for batch in draw(sampler, 1000, draws // 1000, Independent(seed), each=update):
        counts += np.bincount(numbers_of(batch), minlength=counts.size)
    wanted = priorities if scale is None else priorities * np.repeat(scale, sizes)
    sampler.flush()
    stats = sampler.stats()
    assert stats["waiting"] == 0 and stats["applied"] == stats["sent"] and stats["drawn_again"] == 0
    assert stats["skew"] <= stats["most_skew"] < 1e-6 and stats["requests"] > 0
    return power_divergence(counts, counts.sum() * wanted / wanted.sum(), lambda_="log-likelihood").pvalue


def test_each_batch_of_a_request_is_drawn_alike():
    calls, priorities = filled_shards([300, 0, 700])
    sampler, counts = Sampler(calls, LAYOUT, batches_a_call=4), np.zeros((4, priorities.size))
    for number, batch in enumerate(draw(sampler, 2, 12_000, Independent(5))):
        counts[number % 4] += np.bincount(numbers_of(batch), minlength=priorities.size)
    for number in range(4):
        wanted = counts[number].sum() * priorities / priorities.sum()
        assert power_divergence(counts[number], wanted, lambda_="log-likelihood").pvalue > 0.001


@pytest.mark.parametrize("shards", SIZES)
def test_records_are_drawn_in_proportion_to_their_priorities(shards):
    assert 0.001 < p_of_draws(SIZES[shards], 0, 200_000) < 0.999


@pytest.mark.slow
@pytest.mark.parametrize("shards", SIZES)
def test_a_million_draws_of_twenty_seeds(shards):
    p_values = [p_of_draws(SIZES[shards], seed, 1_000_000) for seed in range(1, 21)]
    assert 0.001 < min(p_values) and max(p_values) < 0.999, p_values


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_wrong_totals_leave_weighed_draws_as_those_of_one_tree(beta):
    sizes, scale = [300, 700, 1000], [3.0, 1.0, 0.3]
    calls, priorities = filled_shards(sizes, scale)
    sampler = Sampler(calls, LAYOUT, batches_a_call=1, ahead=0)
    shares = []
    for batch in draw(sampler, 4096, 150, Independent(1), beta):
        shares.append(np.bincount(numbers_of(batch), batch.weights, minlength=priorities.size) / batch.weights.sum())
    owners = np.repeat(np.arange(3), sizes)
    wanted = np.bincount(owners, priorities ** (1 - beta)) / (priorities ** (1 - beta)).sum()
    by_shard = np.array([np.bincount(owners, share) for share in shares])
    error = by_shard.std(axis=0) / np.sqrt(len(shares))
    assert (error / wanted < 0.005).all()
    assert (np.abs(by_shard.mean(axis=0) - wanted) < 3 * error + 1e-12).all()


def test_wrong_totals_are_what_records_are_drawn_by():
    assert 0.001 < p_of_draws([300, 700, 1000], 3, 200_000, [3.0, 1.0, 0.3]) < 0.999


def test_weights_at_fresh_totals_are_those_of_one_tree():
    calls, priorities = filled_shards([300, 700, 1000])
    batch = Sampler(calls, LAYOUT).sample(512, 0.4)
    theirs = priorities[numbers_of(batch)]
    wanted = np.float32(theirs.min() / theirs) ** np.float32(0.4)
    np.testing.assert_allclose(batch.weights, wanted, rtol=2.4e-7)  # two units in the last place of float32


@pytest.mark.parametrize(("layout", "dtype"), [(name, "float32") for name in LAYOUTS] + [("flat", "float64")])
def test_one_shard_is_a_local_replay_bit_for_bit(layout, dtype):
    layout = LAYOUTS[layout]
    calls = ThreadCalls([lambda: made("two_lock_checked", 400, layout, dtype=dtype)])
    local, mine, theirs = made("two_lock_checked", 400, layout, dtype=dtype), *map(np.random.default_rng, (7, 7))
    records, drawable = chunk(layout, np.random.default_rng(0), 300)
    for replay in (local, calls.replay(0)):
        replay.insert(records, drawable=drawable)
    sampler = Sampler(calls, layout, batches_a_call=1, ahead=0)
    for number in range(30):
        size = np.uint8(64 + number % 2)
        batch, wanted = sampler.sample(size, 0.6, mine), local.sample(size, 0.6, theirs)
        assert np.array_equal(batch.sequence, wanted.sequence) and np.array_equal(batch.weights, wanted.weights)
        assert all(np.array_equal(batch.rows[name], rows) for name, rows in wanted.rows.items())
        errors = np.random.default_rng(number).gamma(0.5, 2.0, size)
        sampler.update_priorities(batch.sequence, errors)
        local.update_priorities(wanted.sequence, errors)
    sampler.flush()
    assert calls.replay(0).total == local.total


def test_each_batch_of_a_request_has_a_record_in_each_interval():
    calls, priorities = filled_shards([300, 700, 1000])
    ends = np.cumsum(priorities) / priorities.sum()
    for batch in draw(Sampler(calls, LAYOUT, batches_a_call=8), 16, 24, np.random.default_rng(0)):
        ranks = numbers_of(batch)
        starts = ends[ranks] - priorities[ranks] / priorities.sum()
        intervals = np.arange(16) / 16
        assert (starts < intervals + 1 / 16 + 1e-9).all() and (ends[ranks] > intervals - 1e-9).all()


def test_few_shards_a_request_draw_alike():
    calls, priorities = filled_shards([100, 300, 50, 0, 400, 250])
    sampler = Sampler(calls, LAYOUT, most_shards=2, batches_a_call=1)
    counts = np.zeros(priorities.size)
    for batch in draw(sampler, 25, 3000, np.random.default_rng(2)):
        counts += np.bincount(numbers_of(batch), minlength=counts.size)
    owners = np.repeat(np.arange(6), [100, 300, 50, 0, 400, 250])
    shares = np.bincount(owners, counts) / counts.sum()
    np.testing.assert_allclose(shares, np.bincount(owners, priorities) / priorities.sum(), atol=0.012)
    assert sampler.stats()["calls"] < 2.5 * sampler.stats()["requests"] + 200


def test_updates_reach_the_shard_of_their_record_and_the_last_of_equals_wins():
    calls, _ = filled_shards([50, 60, 70])
    sampler = Sampler(calls, LAYOUT, ahead=0, batches_a_call=1)
    batch = sampler.sample(128, 0.4)
    errors, given = np.arange(1.0, 129.0), batch.sequence.copy()
    sampler.update_priorities(given, errors)
    given[:] = given[0]  # a caller may use its arrays again
    sampler.flush()
    last = {int(number): error for number, error in zip(numbers_of(batch), errors, strict=True)}
    for number, error in last.items():
        shard, ticket = (0, number) if number < 50 else (1, number - 50) if number < 110 else (2, number - 110)
        (priority,) = calls.replay(shard).retrieve_priorities(np.array([ticket]))
        assert priority == pytest.approx((error + 1e-2) ** 0.6, rel=1e-6)


def test_updates_of_records_overwritten_since_are_counted():
    calls, _ = filled_shards([100, 100])
    sampler = Sampler(calls, LAYOUT, ahead=0, batches_a_call=1)
    batch = sampler.sample(40, 0.4)
    for shard in range(2):
        calls.replay(shard).insert(numbered_records(0, 2048))
    sampler.update_priorities(batch.sequence, np.ones(40))
    sampler.flush()
    stats = sampler.stats()
    assert (stats["sent"], stats["overwritten"], stats["applied"], stats["waiting"]) == (40, 40, 0, 0)


def test_the_largest_priority_reaches_all_shards():
    calls, _ = filled_shards([100, 100])
    calls.replay(1).insert(numbered_records(500, 1), [1e4])
    sampler = Sampler(calls, LAYOUT)
    sampler.sample(8, 0.4)
    sampler.flush()
    assert calls.replay(0).largest == calls.replay(1).largest == pytest.approx((1e4 + 1e-2) ** 0.6, rel=1e-6)


def test_an_empty_shard_is_drawn_from_once_it_has_records():
    calls, _ = filled_shards([100, 0])
    sampler = Sampler(calls, LAYOUT, ahead=0, batches_a_call=1, patience=0.5)
    sampler.sample(16, 0.4)
    calls.replay(1).insert(numbered_records(1000, 500))
    deadline = time.monotonic() + 10
    while not (numbers_of(sampler.sample(16, 0.4)) >= 1000).any():
        assert time.monotonic() < deadline


def test_a_killed_shard_owes_nothing_and_comes_back_empty():
    calls, _ = filled_shards([200, 300, 400])
    sampler = Sampler(calls, LAYOUT, patience=0.5)
    old = sampler.sample(64, 0.4)
    calls.kill(1)
    numbers = np.concatenate([numbers_of(batch) for batch in draw(sampler, 64, 60, None)])
    assert numbers.size == 64 * 60
    assert 0 < sampler.stats()["drawn_again"] <= 3 * 8 * 64  # of the requests that were under way
    recent = numbers[-64 * 20 :]
    assert not ((recent >= 200) & (recent < 500)).any() and sampler.stats()["shards_gone"] == 1
    calls.restart(1)
    calls.replay(1).insert(numbered_records(5000, 300))
    deadline = time.monotonic() + 10
    while not (numbers_of(new := sampler.sample(64, 0.4)) >= 5000).any():
        assert time.monotonic() < deadline
    assert len(np.unique(new.sequence % 3)) > 1
    before = calls.replay(1).total
    sampler.update_priorities(old.sequence, np.full(64, 1e3))  # records of the shard's process that ended
    sampler.flush()
    stats = sampler.stats()
    assert calls.replay(1).total == before and stats["waiting"] == 0 and stats["shards_gone"] == 0
    assert stats["late"] == (old.sequence % 3 == 1).sum() and stats["shards_lost"] >= 1


def test_an_update_for_a_process_that_ended_unseen_changes_nothing():
    calls, _ = filled_shards([200, 300])
    sampler = Sampler(calls, LAYOUT, ahead=0, batches_a_call=1, patience=5.0)
    batch = sampler.sample(64, 0.4)
    calls.kill(0)
    calls.restart(0)
    calls.replay(0).insert(numbered_records(0, 200))
    before = calls.replay(0).total
    sampler.update_priorities(batch.sequence, np.full(64, 50.0))
    sampler.flush()
    assert calls.replay(0).total == before
    assert sampler.stats()["late"] == (batch.sequence % 2 == 0).sum() > 0


def test_a_stopped_shard_is_waited_for_once_and_comes_back_with_its_records():
    calls, _ = filled_shards([200, 300, 400])
    sampler = Sampler(calls, LAYOUT, ahead=3, patience=0.3)
    sampler.update_priorities(sampler.sample(64, 0.4).sequence, np.ones(64))
    calls.stop(2)
    began = time.monotonic()
    for batch in draw(sampler, 64, 100, None):
        assert batch.weights.size == 64
        sampler.update_priorities(batch.sequence, np.ones(64))
    assert time.monotonic() - began < 0.3 + 2.0 and 0.25 < calls.waited < 0.35
    assert sampler.stats()["shards_lost"] == 1
    calls.resume(2)
    deadline = time.monotonic() + 10
    while not (numbers_of(sampler.sample(64, 0.4)) >= 500).any():
        assert time.monotonic() < deadline
    sampler.flush()
    assert sampler.stats()["waiting"] == 0


def test_no_shard_at_all_is_said_within_the_patience():
    calls, _ = filled_shards([10, 10])
    sampler = Sampler(calls, LAYOUT, patience=0.2)
    calls.kill(0)
    calls.stop(1)
    began = time.monotonic()
    with pytest.raises(ClusterError, match="patience"):
        sampler.sample(4, 0.4)
    assert time.monotonic() - began < 2.2
    calls.resume(1)
    deadline = time.monotonic() + 10
    while True:
        try:
            assert sampler.sample(4, 0.4).weights.size == 4
            break
        except ClusterError:
            assert time.monotonic() < deadline


def test_shards_without_records_have_nothing_to_sample():
    with pytest.raises(RuntimeError, match="nothing to sample"):
        Sampler(ThreadCalls([make_replay] * 2), LAYOUT).sample(4, 0.4)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda sampler: sampler.sample(0, 0.4), ValueError),
        (lambda sampler: sampler.sample(4.5, 0.4), TypeError),
        (lambda sampler: sampler.sample(4, -1.0), ValueError),
        (lambda sampler: sampler.sample(4, 0.4, 0), TypeError),
        (lambda sampler: sampler.sample(4, 0.4, distinct=True), ValueError),
        (lambda sampler: sampler.update_priorities([0, 1], [1.0, np.nan]), ValueError),
        (lambda sampler: sampler.update_priorities([0, 1], [1.0]), ValueError),
        (lambda sampler: sampler.update_priorities([0.5], [1.0]), TypeError),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_sent(call, error):
    calls, _ = filled_shards([10])
    sampler = Sampler(calls, LAYOUT)
    with pytest.raises(error):
        call(sampler)
    assert sampler.stats()["calls"] == 0 and sampler.stats()["sent"] == 0


def test_what_a_shard_refuses_is_raised_and_counted():
    calls, _ = filled_shards([30, 30])
    sampler = Sampler(calls, LAYOUT, ahead=0, batches_a_call=1)
    sampler.update_priorities(sampler.sample(64, 0.4).sequence, np.ones(64))
    answer, calls.shards[0].answer = calls.shards[0].answer, lambda request: 1 // 0
    with pytest.raises(ZeroDivisionError):
        sampler.sample(64, 0.4)
    calls.shards[0].answer = answer
    sampler.flush()
    assert sampler.stats()["waiting"] == 0 < sampler.stats()["late"] and sampler.sample(64, 0.4).weights.size == 64


def reply_of(run, total):
    return Reply(run, total, 1, 1.0, 1, 0, 0, 0, None)


def test_an_old_answer_that_comes_late_changes_nothing():
    calls = ScriptedCalls()
    sampler = Sampler(calls, LAYOUT, patience=0.01)
    sampler.flush()  # request 0 is not answered in time
    calls.replies[0] = reply_of(7, 1.0)
    sampler.flush()  # now it is: too late to say that the shard is there
    assert sampler.stats()["shards_gone"] == 1
    calls.replies[1] = reply_of(8, 2.0)
    sampler.flush()
    assert sampler.stats()["total"] == 2.0 and sampler.stats()["shards_gone"] == 0
    number = len(calls.requests)
    calls.replies[number + 1] = reply_of(9, 3.0)
    sampler._probe(0)  # one is under way as another is sent, whose answer is read first
    sampler.flush()
    calls.replies |= {number: reply_of(8, 1.0), number + 2: reply_of(9, 3.0)}
    sampler.flush()
    assert sampler.stats()["total"] == 3.0 and sampler._shards[0].run == 9


def run_schedule(seed):
    """Losses, stops, returns, inserts and updates in a random order, a batch after each."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    calls, _ = filled_shards(rng.integers(0, 40, count).tolist())
    sampler = Sampler(
        calls,
        LAYOUT,
        ahead=int(rng.integers(0, 4)),
        batches_a_call=int(rng.integers(1, 5)),
        most_shards=int(rng.integers(1, 4)),
        patience=0.02,
    )
    for _ in range(12):
        shard, event = int(rng.integers(count)), rng.choice(["kill", "stop", "resume", "insert", "none"])
        if event == "kill" and calls.shards[shard] is not None:
            calls.kill(shard)
            if rng.random() < 0.7:
                calls.restart(shard)
        elif event == "insert" and calls.shards[shard] is not None:
            calls.replay(shard).insert(numbered_records(0, 3))
        elif event in ("stop", "resume"):
            getattr(calls, event)(shard)
        try:
            batch = sampler.sample(8, 0.5, rng)
        except RuntimeError:
            continue  # nothing is left, or nobody answers
        assert batch.weights.size == batch.sequence.size == 8 and 0 < batch.weights.min()
        assert batch.weights.max() == pytest.approx(1.0)
        sampler.update_priorities(batch.sequence, rng.gamma(0.5, 1.0, 8))
    for shard in range(count):
        calls.resume(shard)
        if calls.shards[shard] is None:
            calls.restart(shard)
    sampler.patience = 20.0  # from here on all that are asked answer
    for _ in range(2):  # a shard that is gone is asked, and not waited for, until it has answered
        sampler.flush()
        calls.wait()
    sampler.flush()
    stats = sampler.stats()
    assert stats["applied"] + stats["overwritten"] + stats["late"] == stats["sent"]
    assert stats["total"] == pytest.approx(sum(calls.replay(shard).total for shard in range(count)))
    for shard in range(count):
        assert calls.replay(shard).check() < 1e-9


def test_random_schedules_of_losses_and_returns():
    for seed in range(15):
        run_schedule(seed)


@pytest.mark.slow
def test_a_thousand_random_schedules():
    for seed in range(1000, 2000):
        run_schedule(seed)
