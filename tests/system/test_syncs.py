"""Learners in parallel: gradients of parts of a batch, weights in shared memory, and how their steps combine."""

import contextlib
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from impls.training import TrainingError
from impls.training.learners import make
from impls.training.weights import spans
from tests.learning import ALGORITHMS, batch_of, tiny

torch = pytest.importorskip("torch", reason="learners need the extra `train`")
pytest.importorskip("numba")

from impls.training.arrangement import SHARING, SYNCS, Arrangement  # noqa: E402
from impls.training.parallel import syncs  # noqa: E402
from impls.training.parallel.batches import OwnBatches  # noqa: E402
from impls.training.parallel.board import Board, Counter, Row  # noqa: E402
from impls.training.parallel.counter import lock, unlock  # noqa: E402
from impls.training.parallel.learning import Learning  # noqa: E402
from impls.training.parallel.pace import Pace  # noqa: E402
from impls.training.parallel.syncs import LEARNING, SharedGradients  # noqa: E402
from impls.training.parallel.transports import Shared  # noqa: E402
from tests.parallel_runs import advance, check_counts, make_loop, running, small  # noqa: E402

torch.set_num_threads(1)
ROWS = 16
WEIGHTS = np.linspace(0.1, 1, ROWS).astype(np.float32)
LEARNERS = ("dense", "torch")
FIXED = "sac, fixed"  # its temperature
PLAIN = {"optimizer": "sgd", "gradient_clip": 0.0, "learning_rate": 0.05}
each_learner = pytest.mark.parametrize("name", LEARNERS)
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def shape_of(algorithm, **changes):
    known = {"gradient_clip": 0.5, "batch": ROWS} | ({"temperature": 0.3} if algorithm == FIXED else {})
    return tiny(algorithm.partition(",")[0], hidden=(16, 16), **(known | changes))


def cut(number, count):
    """The rows of a learner, of ``count`` that share a batch."""
    return slice(number * ROWS // count, (number + 1) * ROWS // count)


def part_of(rows, place):
    """A part of a batch as a learner takes it; the noise of dense rows is ``[n, B, size]``."""
    if isinstance(rows, dict):
        return {name: part[place] for name, part in rows.items()}
    return type(rows)(*(part[place] for part in rows[:-1]), np.ascontiguousarray(rows.noise[:, place]))


def fix_noise(learner, noise, place=slice(None)):
    """Let a learner draw the part of the noise that its rows have."""
    learner._noise = lambda rows: np.ascontiguousarray(noise[:, place])


def assert_equal_states(one, other, rtol=0.0, atol=0.0):
    ours, theirs = one.state_dict(), other.state_dict()
    for name in ("weights", "targets", "mean", "square"):
        assert_allclose(ours[name], theirs[name], rtol=rtol, atol=atol, err_msg=name)
    assert (ours["updates"], ours["steps"]) == (theirs["updates"], theirs["steps"])


@each_learner
@each_algorithm
def test_phases_of_parts_make_up_the_step(name, algorithm):
    shape = shape_of(algorithm, policy_delay=2)
    one, other, same = (make(shape, name, seed=1) for _ in range(3))
    for at in range(5):
        batch = batch_of(shape, ROWS, at)
        stepped, rows = one.step(batch, WEIGHTS), other.rows(batch, WEIGHTS)
        for number, phase in enumerate(other.phases()):
            same.load_state_dict(other.state_dict())
            whole = copy.deepcopy(other.gradient(phase, rows))
            assert whole.loss == pytest.approx(stepped.losses[phase.network], rel=1e-6, abs=1e-7)
            for count in (2, 4):
                places = [cut(at, count) for at in range(count)]
                parts = [copy.deepcopy(other.gradient(phase, part_of(rows, place))) for place in places]
                mean, largest = np.mean([part.gradient for part in parts], 0), np.abs(whole.gradient).max()
                assert_allclose(mean, whole.gradient, rtol=1e-4, atol=1e-5 * largest)
                assert np.mean([part.loss for part in parts]) == pytest.approx(whole.loss, rel=1e-4, abs=1e-6)
                if number == 0:
                    errors = np.concatenate([part.priorities for part in parts])
                    assert_allclose(errors, whole.priorities, rtol=1e-5)
            assert_array_equal(whole.priorities, stepped.priorities if number == 0 else None)
            assert_equal_states(other, same)
            other.apply(phase, whole.gradient)
        other.finish()
        assert_equal_states(one, other, rtol=1e-6, atol=1e-7)


class Crowd:
    """Learners of an arrangement, each as a process would have it, here in threads of one process."""

    def __init__(self, workload, sync, count=2, name="dense", **more):
        self.workload, self.arrangement = workload, Arrangement(name="apart", sync=sync, learners=count, **more)
        self.learners = first, *others = [make(workload, name, seed=1 + at) for at in range(count)]
        self.board, self.pace = Board(count + 1, 1, len(first.parameters)), Pace.of(workload, self.arrangement)
        self.board.watch = lambda: None
        self.board.add(Counter.STEPS, 1_000_000)
        self.common = SharedGradients(first, self.arrangement)
        for at, other in enumerate(others, 1):
            SharedGradients.attach(self.common.memory_handle(), other, self.arrangement, at)
        made = enumerate(self.learners)
        self.syncs = [syncs.make(self.arrangement, learner, self.board, at, self.common) for at, learner in made]
        self.is_shared = sync in SHARING
        self.places = [cut(at, count) if self.is_shared else slice(None) for at in range(count)]

    def together(self, each):
        """The results of ``each(number)`` for every learner, in threads."""
        with ThreadPoolExecutor(len(self.learners)) as pool:
            return [call.result(100) for call in [pool.submit(each, at) for at in range(len(self.learners))]]

    def step(self, number, at=0, noise=None):
        """A gradient step of a learner on its rows of batch ``at``, as soon as it has claimed the step."""
        place, before = self.places[number], None
        if noise is not None:
            fix_noise(self.learners[number], noise, place)
        while before is None:  # another learner may be faster
            before = self.syncs[number].claim(self.pace)
        return self.syncs[number].step(make_batch(self.workload, at, place), before)

    def count_updates(self):
        """Gradient steps taken, all of which were claimed and counted; the parent's learner is as it would be saved."""
        updates = self.board.value(Counter.UPDATES)
        assert self.board.value(Counter.CLAIMED_UPDATES) == updates
        handed_out = np.empty_like(self.learners[0].parameters)
        publications = updates // (self.arrangement.period if self.arrangement.sync == "local" else 1)
        assert self.board.fetch(handed_out, 0) == 2 * publications  # each is handed out once
        assert_array_equal(handed_out, self.learners[0].weights())
        self.syncs[0].settle()
        assert self.learners[0].steps == updates
        return updates


def make_batch(workload, at, place=slice(None)):
    return SimpleNamespace(rows=part_of(batch_of(workload, ROWS, at), place), weights=WEIGHTS[place])


STEPS = [("synchronous", 2, 1e-2, 5e-4), ("synchronous", 4, 1e-2, 5e-4), ("local", 2, 0, 1e-6)]
STEPS += [("lock", 2, 0, 0), ("hogwild", 2, 0, 0)]


@each_learner
@pytest.mark.parametrize(("sync", "count", "rtol", "atol"), STEPS, ids=[f"{count} {sync}" for sync, count, *_ in STEPS])
def test_steps_of_several_are_those_of_one(name, sync, count, rtol, atol):
    """Learners step on parts of a batch (averages of every step where descent is plain), or on whole batches."""
    for algorithm in (*ALGORITHMS, FIXED):
        check_steps(name, algorithm, sync, count, rtol, atol)


def check_steps(name, algorithm, sync, count, rtol, atol):
    shape = shape_of(algorithm, policy_delay=2, **(PLAIN if sync == "local" else {}))
    crowd, alone = Crowd(shape, sync, count, name, period=1), make(shape, name, seed=1)
    first, drawn, turns = alone.weights(), make(shape, name, seed=2), 1 if crowd.is_shared else 3
    alone.vectors().mean[:] = 1e-3
    crowd.learners[0].load_state_dict(alone.state_dict())  # into the memory that learners share
    for at in range(5):
        noise = drawn._noise(ROWS)
        fix_noise(alone, noise)

        def step(number, at=at, noise=noise):
            return [crowd.step(number, at, noise) for _ in range(turns)][-1]

        stepped = [step(number) for number in range(count)] if sync == "hogwild" else crowd.together(step)
        for _ in range(1 if crowd.is_shared else turns * count):
            whole = alone.step(batch_of(shape, ROWS, at), WEIGHTS)
        if crowd.is_shared:
            errors = np.concatenate([part.priorities for part in stepped])
            assert_allclose(errors, whole.priorities, rtol=1e-3, atol=1e-5)
        if sync == "synchronous":
            assert stepped[0].losses == pytest.approx(whole.losses, rel=1e-3, abs=1e-5)
    assert crowd.count_updates() == alone.steps, algorithm
    assert_equal_states(crowd.learners[0], alone, rtol=rtol, atol=atol)
    assert np.abs(alone.weights() - first).max() > 1e-3


def test_learners_of_stacked_frames_share_gradients():
    frames = small(shape=(6, 6), dtype="uint8", frames=4, kind="mlp", hidden=(8,), local_storage=8)
    assert SharedGradients(make(frames, "torch"), Arrangement(name="apart", learners=2)).learners == 2


def test_steps_of_others_during_a_step_are_counted():
    crowd = Crowd(shape_of("dqn"), "hogwild")
    learner, plain = crowd.learners[1], crowd.learners[1].step
    for others in (3, 1):

        def step(*arguments, others=others):
            crowd.board.add(Counter.UPDATES, others)
            return plain(*arguments)

        learner.step = step
        crowd.step(1)
    crowd.board.rows[1, Row.TURNS] = 2
    assert crowd.common.overlaps.tolist() == [[0, 0], [4, 3]]
    assert crowd.common.overlapping_steps(crowd.board) == {"mean": 2.0, "most": 3}


def test_a_step_is_claimed_once_when_it_is_due():
    crowd = Crowd(shape_of("dqn", learning_starts=10, update_interval=5), "lock")
    crowd.board.set(Counter.STEPS, crowd.pace.due(3))
    assert [crowd.syncs[at % 2].claim(crowd.pace) for at in range(5)] == [0, 1, 2, None, None]


def test_a_mutex_whose_owner_died_is_taken_over(monkeypatch):
    monkeypatch.setattr(syncs, "PATIENCE_SECONDS", 5.0)
    crowd = Crowd(shape_of("dqn"), "lock")
    mutex, is_over, is_held = crowd.common.address(LEARNING), threading.Event(), []

    def hold():  # and end without an unlock
        is_held.append(lock(mutex))
        is_over.wait(100)

    owner = threading.Thread(target=hold)
    owner.start()
    while not is_held:
        pass
    assert not lock(mutex)
    is_over.set()
    owner.join()
    for _ in range(2):
        crowd.step(0)
    assert crowd.count_updates() == 2
    assert lock(mutex)
    unlock(mutex)


@pytest.mark.parametrize("sync", SYNCS)
def test_the_parent_waits_for_no_learner_for_ever(sync, monkeypatch):
    crowd, looks = Crowd(shape_of("dqn"), sync), iter(range(100))
    monkeypatch.setattr(syncs, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(syncs, "lock", lambda mutex: False)  # as long as another learner holds the mutex
    crowd.board.watch = lambda: next(looks)  # StopIteration where the wait has no end
    with pytest.raises(TrainingError, match="0 s"):
        crowd.step(0)


def test_a_claimed_step_waits_for_a_batch():
    crowd = Crowd(shape_of("dqn"), "lock")
    learned, sent = [], [None, None, (make_batch(crowd.workload, 0), 0), None]
    batches = SimpleNamespace(take=lambda beta, updates: sent.pop(0))
    batches.learned = lambda batch, priorities: learned.append(priorities.shape)
    learning = Learning(crowd.workload, batches, crowd.board, crowd.pace, crowd.syncs[1])
    assert [learning.advance() for _ in range(3)] == [False, False, True]
    assert (crowd.count_updates(), learned) == (1, [(ROWS,)])
    assert list(learning.losses) == ["action_values"]
    assert crowd.board.rows[:2, Row.TURNS].tolist() == [0, 1]
    assert not learning.advance()
    assert crowd.board.value(Counter.CLAIMED_UPDATES) == 2


def own_batches(workload, sample, number=0, **options):
    """Batches that a learner samples for itself from a replay with such a ``sample``, by outputs that are numbered."""
    numbers = iter(range(100))
    replay = SimpleNamespace(outputs=lambda rows: SimpleNamespace(batch=rows, number=next(numbers)), sample=sample)
    return OwnBatches(replay, workload, None, Shared(), Board(1, 1, 1), Arrangement(**options), number)


def test_batches_know_when_they_were_sampled():
    samples = iter(range(9))
    batches = own_batches(shape_of("dqn", presampled=2), lambda rows, *_, out: (rows, next(samples)))
    taken = [batches.take(0.5, updates) for updates in range(5)]
    assert taken == [((ROWS, at), max(at - 2, 0)) for at in range(5)]


def test_a_bank_keeps_what_a_policy_learns_from():
    asked = []
    own = {"sync": "local", "period": 3, "learners": 2, "banks": 2, "weights_of_banks": "printed"}

    def sample(rows, beta, rng, *, out, **bank):
        asked.append(bank)
        return out.number

    batches = own_batches(shape_of("td3", presampled=0), sample, 1, **own)
    numbers = [batches.take(0.5, at)[0] for at in range(8)]
    assert asked[0] == {"bank": 1, "weights": "printed"}
    assert all(len(set(numbers[at : at + 3])) == 3 for at in range(6))  # the last 3 stay as they are


@each_learner
@each_algorithm
def test_learners_of_a_period_learn_by_fixed_targets(name, algorithm):
    """Against the same by hand: H = 3 steps of each learner's critic, their mean, then of its policy, their mean."""
    every = 2 if algorithm in ("dqn", "td3") else 1
    rate = 0.1 if algorithm == "dqn" else 1e-3  # so that other weights choose other actions
    shape = shape_of(algorithm, policy_delay=1, tau=0.1, target_interval=every, learning_rate=rate)
    crowd, hands = Crowd(shape, "local", 2, name, period=3), [make(shape, name, seed=1) for _ in range(2)]
    before, drawn, rows = hands[0].weights(), make(shape, name, seed=2), {}
    noises = [drawn._noise(ROWS) for _ in range(3)]
    crowd.together(lambda number: [crowd.step(number, at, noises[at]) for at in range(3)])
    for number, hand in enumerate(hands):
        hand.act_by(before)  # by which double DQN chooses until the average
        for at in range(3):
            fix_noise(hand, noises[at], crowd.places[number])
            part = make_batch(shape, at, crowd.places[number])
            rows[number, at] = hand.rows(part.rows, part.weights)
    for place, _ in enumerate(hands[0].phases()):
        for number, hand in enumerate(hands):
            for at in range(3):
                phase = hand.phases()[place]
                hand.apply(phase, hand.gradient(phase, rows[number, at]).gradient.copy())
        mean = np.mean([hand.parameters for hand in hands], 0)
        for hand in hands:
            hand.parameters[:] = mean
    targets = hands[0].target_parameters
    for _ in range(3 // every):  # as often as it has multiples in 1, 2, 3
        targets += np.float32(0.1) * (hands[0].parameters[: len(targets)] - targets)
    assert crowd.count_updates() == 3
    for learner in crowd.learners:
        assert_allclose(learner.parameters, hands[0].parameters, rtol=0, atol=2e-6)
        assert_allclose(learner.target_parameters, targets, rtol=0, atol=2e-6)
        averaged = learner.weights()
        assert_array_equal(averaged, crowd.common.averaged)
        for weights in (before, averaged):  # as the best of a run, which is then tested
            learner.load_weights(weights)
            assert_array_equal(learner.weights(), weights)


@each_learner
def test_plain_descent_is_a_step_along_the_gradient(name):
    learner = make(shape_of("ddpg", **(PLAIN | {"learning_rate": 0.25})), name, seed=1)
    rows, (phase, *_) = learner.rows(batch_of(learner.workload, ROWS), WEIGHTS), learner.phases()
    before, gradient = learner.weights(), learner.gradient(phase, rows).gradient.copy()
    learner.apply(phase, gradient)
    span = spans(learner.workload)[phase.network]
    assert_allclose(learner.parameters[span], before[span] - 0.25 * gradient, rtol=1e-6, atol=1e-8)
    assert learner.state_dict()["updates"]["critic"] == 1


def test_a_period_that_a_resume_breaks_goes_on():
    workload, saved = small(steps=100_000, hidden=(8,), algorithm="sac"), None
    for least in (7, 14):  # neither of which is a whole period
        with running(workload, saved=saved, sync="local", learners=2, period=10) as loop:
            advance(loop, lambda loop=loop, least=least: loop.updates >= least)
            saved = check_counts(loop)
        every, trained = saved["updates"], saved["learner"]["updates"]
        assert saved["kept"][0] == every % 10
        assert trained["policy"] == every // 10 * 10


def test_learners_begin_with_the_numbers_of_one_alone():
    settings = {"sync": "local", "learners": 2, "period": 1}
    alone, crowd = (make_loop(small(hidden=(8,)), **own) for own in ({}, settings))
    with contextlib.closing(alone), contextlib.closing(crowd):
        alone.learner.vectors().mean[:] = 3
        alone.learner.parameters[:] += 1
        crowd.load_state_dict(alone.state_dict())
        for kept, own in zip(crowd.state_dict()["learners"].values(), (*alone.learner.vectors(), None), strict=True):
            expected = alone.learner.parameters if own is None else own  # last what they averaged, by which actors act
            assert_array_equal(kept, np.broadcast_to(expected, kept.shape))
        assert_array_equal(crowd.learner.weights(), alone.learner.parameters)
