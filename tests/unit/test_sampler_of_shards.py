"""Batches over shards: what is drawn, how it is weighed, where updates go, and what is left when shards are lost."""

import time

import numpy as np
import pytest
from scipy.stats import power_divergence

from impls.cluster import ClusterError
from impls.cluster.sampler import Sampler
from tests.fake_cluster import LAYOUT, Independent, ThreadCalls, filled_shards, make_replay, numbered_records
from tests.matrix import slow
from tests.replays import LAYOUTS, chunk, made

ALONE = {"ahead": 0, "batches_a_call": 1}


def sampler_of(sizes, scale=None, **options):
    """(calls of shards of so many records, a sampler of them, the records' priorities)."""
    calls, priorities = filled_shards(sizes, scale)
    return calls, Sampler(calls, LAYOUT, **options), priorities


def numbers_of(batch):
    return batch.rows["observation"][:, 0].astype(int)


def draw(sampler, batch, count, rng, beta=0.4, each=lambda batch: None):
    for _ in range(count):
        drawn = sampler.sample(batch, beta, rng)
        each(drawn)
        yield drawn


def drawn_until(sampler, batch, is_there):
    """The first batch some number of which is there."""
    deadline = time.monotonic() + 10
    while not is_there(numbers_of(drawn := sampler.sample(batch, 0.4))).any():
        assert time.monotonic() < deadline
    return drawn


def p_of(counts, priorities):
    wanted = counts.sum() * priorities / priorities.sum()
    return power_divergence(counts, wanted, lambda_="log-likelihood").pvalue


def p_of_draws(sizes, scale, seed, draws):
    """The p-value of a G-test of draws while updates run, which give records the priorities that they have."""
    _, sampler, priorities = sampler_of(sizes, scale, batches_a_call=8)
    errors = priorities ** (1 / 0.6) - 1e-2
    counts = np.zeros(priorities.size)

    def update(batch):
        sampler.update_priorities(batch.sequence[:50], errors[numbers_of(batch)[:50]])

    for batch in draw(sampler, 1000, draws // 1000, Independent(seed), each=update):
        counts += np.bincount(numbers_of(batch), minlength=counts.size)
    sampler.flush()
    stats = sampler.stats()
    assert stats["waiting"] == 0 and stats["applied"] == stats["sent"] and stats["drawn_again"] == 0
    assert stats["skew"] <= stats["most_skew"] < 1e-6 and stats["requests"] > 0
    return p_of(counts, priorities if scale is None else priorities * np.repeat(scale, sizes))


SIZES = [
    ([300, 0, 700], None),
    ([300, 1, 700, 0, 200, 500, 299], None),
    ([300, 700, 1000], [3.0, 1.0, 0.3]),  # wrong totals are what records are drawn by
]


@pytest.mark.parametrize(("seeds", "draws"), [(1, 100_000), slow(20, 1_000_000)])
@pytest.mark.parametrize(("sizes", "scale"), SIZES)
def test_records_are_drawn_in_proportion(sizes, scale, seeds, draws):
    p_values = [p_of_draws(sizes, scale, seed, draws) for seed in range(seeds)]
    assert 0.001 < min(p_values) and max(p_values) < 0.999, p_values


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_wrong_totals_leave_weighed_draws_as_those_of_one_tree(beta):
    sizes = [300, 700, 1000]
    _, sampler, priorities = sampler_of(sizes, [3.0, 1.0, 0.3], **ALONE)
    shares = []
    for batch in draw(sampler, 4096, 150, Independent(1), beta):
        shares.append(np.bincount(numbers_of(batch), batch.weights, minlength=priorities.size) / batch.weights.sum())
    owners = np.repeat(np.arange(3), sizes)
    wanted = np.bincount(owners, priorities ** (1 - beta)) / (priorities ** (1 - beta)).sum()
    by_shard = np.array([np.bincount(owners, share) for share in shares])
    error = by_shard.std(axis=0) / np.sqrt(len(shares))
    assert (error / wanted < 0.005).all()
    assert (np.abs(by_shard.mean(axis=0) - wanted) < 3 * error + 1e-12).all()


def test_weights_at_fresh_totals_are_those_of_one_tree():
    _, sampler, priorities = sampler_of([300, 700, 1000])
    batch = sampler.sample(512, 0.4)
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
    _, sampler, priorities = sampler_of([300, 700, 1000], batches_a_call=8)
    ends = np.cumsum(priorities) / priorities.sum()
    for batch in draw(sampler, 16, 24, np.random.default_rng(0)):
        ranks = numbers_of(batch)
        starts = ends[ranks] - priorities[ranks] / priorities.sum()
        intervals = np.arange(16) / 16
        assert (starts < intervals + 1 / 16 + 1e-9).all() and (ends[ranks] > intervals - 1e-9).all()


# Updates


def test_updates_reach_their_shard_and_the_last_of_equals_wins():
    calls, sampler, _ = sampler_of([50, 60, 70], **ALONE)
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


def test_the_largest_priority_reaches_all_shards():
    calls, sampler, _ = sampler_of([100, 100])
    calls.replay(1).insert(numbered_records(500, 1), [1e4])
    sampler.sample(8, 0.4)
    sampler.flush()
    assert calls.replay(0).largest == calls.replay(1).largest == pytest.approx((1e4 + 1e-2) ** 0.6, rel=1e-6)


# Losses


def test_a_killed_shard_owes_nothing_and_comes_back_empty():
    calls, sampler, _ = sampler_of([200, 300, 400], patience=0.5)
    old = sampler.sample(64, 0.4)
    calls.kill(1)
    numbers = np.concatenate([numbers_of(batch) for batch in draw(sampler, 64, 60, None)])
    assert 0 < sampler.stats()["drawn_again"] <= 3 * 8 * 64  # of the requests that were under way
    recent = numbers[-64 * 20 :]
    assert not ((recent >= 200) & (recent < 500)).any() and sampler.stats()["shards_gone"] == 1
    calls.restart(1)
    calls.replay(1).insert(numbered_records(5000, 300))
    new = drawn_until(sampler, 64, lambda numbers: numbers >= 5000)
    assert len(np.unique(new.sequence % 3)) > 1
    before = calls.replay(1).total
    sampler.update_priorities(old.sequence, np.full(64, 1e3))  # records of the shard's process that ended
    sampler.flush()
    stats = sampler.stats()
    assert calls.replay(1).total == before and stats["waiting"] == 0 and stats["shards_gone"] == 0
    assert stats["late"] == (old.sequence % 3 == 1).sum() and stats["shards_lost"] >= 1


def test_a_stopped_shard_is_waited_for_once_and_comes_back():
    calls, sampler, _ = sampler_of([200, 300, 400], ahead=3, patience=0.3)
    sampler.update_priorities(sampler.sample(64, 0.4).sequence, np.ones(64))
    calls.stop(2)
    began = time.monotonic()
    for batch in draw(sampler, 64, 60, None):
        sampler.update_priorities(batch.sequence, np.ones(64))
    assert time.monotonic() - began < 0.3 + 2.0 and 0.25 < calls.waited < 0.35
    assert sampler.stats()["shards_lost"] == 1
    calls.resume(2)
    drawn_until(sampler, 64, lambda numbers: numbers >= 500)
    sampler.flush()
    assert sampler.stats()["waiting"] == 0


def test_no_shard_at_all_is_said_within_the_patience():
    calls, sampler, _ = sampler_of([10, 10], patience=0.2)
    calls.kill(0)
    calls.stop(1)
    began = time.monotonic()
    with pytest.raises(ClusterError, match="patience"):
        sampler.sample(4, 0.4)
    assert time.monotonic() - began < 2.2
    calls.resume(1)
    with pytest.raises(RuntimeError, match="nothing to sample"):
        Sampler(ThreadCalls([make_replay] * 2), LAYOUT).sample(4, 0.4)


def test_bad_arguments_are_refused_before_anything_is_sent():
    _, sampler, _ = sampler_of([10])
    for call, error in (
        (lambda: sampler.sample(0, 0.4), ValueError),
        (lambda: sampler.sample(4.5, 0.4), TypeError),
        (lambda: sampler.sample(4, -1.0), ValueError),
        (lambda: sampler.sample(4, 0.4, 0), TypeError),
        (lambda: sampler.sample(4, 0.4, distinct=True), ValueError),
        (lambda: sampler.update_priorities([0, 1], [1.0, np.nan]), ValueError),
        (lambda: sampler.update_priorities([0, 1], [1.0]), ValueError),
        (lambda: sampler.update_priorities([0.5], [1.0]), TypeError),
    ):
        with pytest.raises(error):
            call()
        assert sampler.stats()["calls"] == 0 and sampler.stats()["sent"] == 0


def test_what_a_shard_refuses_is_raised_and_counted():
    calls, sampler, _ = sampler_of([30, 30], **ALONE)
    sampler.update_priorities(sampler.sample(64, 0.4).sequence, np.ones(64))
    answer, calls.shards[0].answer = calls.shards[0].answer, lambda request: 1 // 0
    with pytest.raises(ZeroDivisionError):
        sampler.sample(64, 0.4)
    calls.shards[0].answer = answer
    sampler.flush()
    assert sampler.stats()["waiting"] == 0 < sampler.stats()["late"] and sampler.sample(64, 0.4).weights.size == 64


def run_schedule(seed):
    """Losses, stops, returns, inserts and updates in a random order, a batch after each."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    calls, sampler, _ = sampler_of(
        rng.integers(0, 40, count).tolist(),
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


@pytest.mark.parametrize("seeds", [range(15), slow(range(1000, 2000))])
def test_random_schedules_of_losses_and_returns(seeds):
    for seed in seeds:
        run_schedule(seed)
