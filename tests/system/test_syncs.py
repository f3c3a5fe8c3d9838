"""Learners in parallel: gradients of parts of a batch, weights in shared memory, and how their steps combine."""

import contextlib
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from impls.training import TrainingError, load
from impls.training.actor import evaluate
from impls.training.environments import Environment
from impls.training.learner import Vectors
from impls.training.learners import make
from impls.training.weights import spans
from tests.learning import ALGORITHMS, batch_of, tiny

torch = pytest.importorskip("torch", reason="learners need the extra `train`")
pytest.importorskip("numba")

from impls.training.arrangement import SYNCS, Arrangement  # noqa: E402
from impls.training.parallel import syncs  # noqa: E402
from impls.training.parallel import syncs as waits  # noqa: E402
from impls.training.parallel.batches import OwnBatches  # noqa: E402
from impls.training.parallel.board import (  # noqa: E402
    Board,
    Counter,
    Row,
)
from impls.training.parallel.counter import lock, unlock  # noqa: E402
from impls.training.parallel.learning import Learning  # noqa: E402
from impls.training.parallel.loop import ParallelLoop  # noqa: E402
from impls.training.parallel.pace import Pace  # noqa: E402
from impls.training.parallel.syncs import LEARNING, SharedGradients  # noqa: E402
from impls.training.parallel.transports import Shared  # noqa: E402
from tests.matrix import matrix  # noqa: E402
from tests.parallel_runs import advance, kill, running, small  # noqa: E402

torch.set_num_threads(1)
ROWS = 16
WEIGHTS = np.linspace(0.1, 1, ROWS).astype(np.float32)
LEARNERS = ("dense", "torch")
each_learner = pytest.mark.parametrize("name", LEARNERS)
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def shape_of(algorithm, **changes):
    return tiny(algorithm, hidden=(16, 16), **({"gradient_clip": 0.5, "batch": ROWS} | changes))


def parts_of(rows, count):
    """A batch as a learner takes it, in ``count`` equal parts; the noise of dense rows is ``[n, B, size]``."""
    cuts = [slice(at, at + ROWS // count) for at in range(0, ROWS, ROWS // count)]
    if isinstance(rows, dict):
        return [{name: part[cut] for name, part in rows.items()} for cut in cuts]
    noise = [np.ascontiguousarray(rows.noise[:, cut]) for cut in cuts]
    return [type(rows)(*(part[cut] for part in rows[:-1]), each) for cut, each in zip(cuts, noise, strict=True)]


def assert_equal_states(one, other, rtol=0.0, atol=0.0):
    ours, theirs = one.state_dict(), other.state_dict()
    for name in ("weights", "targets", "mean", "square"):
        assert_allclose(ours[name], theirs[name], rtol=rtol, atol=atol, err_msg=name)
    assert (ours["updates"], ours["steps"]) == (theirs["updates"], theirs["steps"])


@pytest.mark.parametrize(
    ("name", "algorithm"),
    matrix(LEARNERS, ALGORITHMS, brief=lambda name, algorithm: name != "dense" or algorithm not in ("ddpg", "sac")),
)
def test_phases_make_up_the_step(name, algorithm):
    shape = shape_of(algorithm, policy_delay=2)
    one, other = (make(shape, name, seed=1) for _ in range(2))
    for at in range(5):
        batch = batch_of(shape, ROWS, at)
        stepped, rows = one.step(batch, WEIGHTS), other.rows(batch, WEIGHTS)
        for number, phase in enumerate(other.phases()):
            derived = other.gradient(phase, rows)
            assert (derived.priorities is None) == (number > 0)
            assert derived.loss == pytest.approx(stepped.losses[phase.network], rel=1e-6, abs=1e-7)
            if number == 0:
                assert_array_equal(derived.priorities, stepped.priorities)
            other.apply(phase, derived.gradient.copy())
        other.finish()
        assert_equal_states(one, other, rtol=1e-6, atol=1e-7)


@each_learner
@each_algorithm
@pytest.mark.parametrize("count", [2, 4])
def test_the_mean_of_parts_is_the_gradient_of_the_batch(name, algorithm, count):
    shape = shape_of(algorithm, policy_delay=1)
    learner = make(shape, name, seed=1)
    learner.step(batch_of(shape, ROWS, 1), WEIGHTS)  # so that targets differ from weights
    rows = learner.rows(batch_of(shape, ROWS), WEIGHTS)
    for phase in learner.phases():
        before = learner.state_dict()
        whole = learner.gradient(phase, rows)
        gradient = whole.gradient.copy()
        assert gradient.shape == learner.parameters[spans(shape)[phase.network]].shape
        each = [learner.gradient(phase, part) for part in parts_of(rows, count)]
        assert np.mean([part.loss for part in each]) == pytest.approx(whole.loss, rel=1e-4, abs=1e-6)
        sums = np.zeros_like(gradient)
        for part in parts_of(rows, count):
            sums += learner.gradient(phase, part).gradient
        assert_allclose(sums / count, gradient, rtol=1e-4, atol=1e-5 * np.abs(gradient).max())
        if whole.priorities is not None:
            assert_allclose(np.concatenate([part.priorities for part in each]), whole.priorities, rtol=1e-5)
        after = learner.state_dict()
        assert all(np.array_equal(before[key], after[key]) for key in ("weights", "targets", "mean", "square"))
        learner.apply(phase, gradient)


@each_learner
@pytest.mark.parametrize("algorithm", (*ALGORITHMS, "sac, fixed"))
def test_two_learners_on_one_memory_step_as_one(name, algorithm):
    fixed = {"temperature": 0.3} if algorithm == "sac, fixed" else {}
    shape = shape_of(algorithm.partition(",")[0], policy_delay=2, **fixed)
    alone, first, second = (make(shape, name, seed=seed) for seed in (1, 1, 2))
    memory = Vectors(*(each.copy() for each in first.vectors()))
    first.place(memory)
    second.place(memory)
    for at in range(6):
        turn = (first, second)[at % 2]
        turn.rng = alone.rng  # the noise of one run
        turn.count(at)
        state = alone.rng.bit_generator.state
        ours = turn.step(batch_of(shape, ROWS, at), WEIGHTS)
        alone.rng.bit_generator.state = state
        theirs = alone.step(batch_of(shape, ROWS, at), WEIGHTS)
        assert_array_equal(ours.priorities, theirs.priorities)
    first.count(6)
    assert_equal_states(first, alone)
    assert_array_equal(memory.parameters, alone.weights())
    state = first.state_dict()
    second.load_state_dict(state)  # what is loaded lies in the shared memory too
    memory.mean[:] = 7
    assert (second.state_dict()["mean"] == 7).all()


def test_learners_on_another_device_share_no_memory():
    learner = make(tiny(), "torch")
    vectors = learner.vectors()
    learner.device, learner._is_on_host = torch.device("meta"), False
    for share in (learner.vectors, lambda: learner.place(vectors)):
        with pytest.raises(TrainingError, match=r"memory of the cpu, not on meta; leave out --device, or choose --le"):
            share()


class Crowd:
    """Learners of an arrangement, each as a process would have it, here in threads of one process."""

    def __init__(self, workload, sync, count, name="dense", **more):
        self.workload, self.arrangement = workload, Arrangement(name="apart", sync=sync, learners=count, **more)
        first = make(workload, name, seed=1)
        self.board = Board(count + 1, 1, len(first.parameters))
        self.board.watch = lambda: None
        self.board.add(Counter.STEPS, 1_000_000)
        self.common = SharedGradients(first, self.arrangement)
        others = [make(workload, name, seed=2 + at) for at in range(1, count)]
        self.learners = [first, *others]
        for at, other in enumerate(others, 1):
            SharedGradients.attach(self.common.memory_handle(), other, self.arrangement, at)
        self.syncs = [
            syncs.make(self.arrangement, learner, self.board, at, self.common)
            for at, learner in enumerate(self.learners)
        ]

    def together(self, each):
        """The results of ``each(number)`` for every learner, in threads."""
        with ThreadPoolExecutor(len(self.learners)) as pool:
            return [call.result(100) for call in [pool.submit(each, at) for at in range(len(self.learners))]]

    def step(self, number, batch):
        """A gradient step of a learner on a batch, as soon as it has claimed one."""
        pace = Pace.of(self.workload, self.arrangement)
        claims = (self.syncs[number].claim(pace) for _ in range(5000))  # another learner may be faster
        before = next(claim for claim in claims if claim is not None)
        return self.syncs[number].step(batch, before)


def batch(transitions, weights=WEIGHTS, cut=slice(None)):
    return SimpleNamespace(rows={name: part[cut] for name, part in transitions.items()}, weights=weights[cut])


@each_learner
@each_algorithm
@pytest.mark.parametrize("count", [2, 4])
def test_a_step_by_parts_is_the_step_of_one_learner(name, algorithm, count):
    shape = shape_of(algorithm, policy_delay=2)
    crowd, alone = Crowd(shape, "synchronous", count, name), make(shape, name, seed=1)
    size, versions = ROWS // count, []
    for at in range(5):
        transitions, noise = batch_of(shape, ROWS, at), alone._noise(ROWS)
        alone._noise = lambda rows, noise=noise: noise
        for number, learner in enumerate(crowd.learners):
            part = np.ascontiguousarray(noise[:, number * size : (number + 1) * size])
            learner._noise = lambda rows, part=part: part
        whole = alone.step(transitions, WEIGHTS)
        del alone._noise
        parts = crowd.together(
            lambda number, rows=transitions: crowd.step(
                number, batch(rows, cut=slice(number * size, (number + 1) * size))
            )
        )
        assert_allclose(np.concatenate([part.priorities for part in parts]), whole.priorities, rtol=1e-3, atol=1e-5)
        assert parts[0].losses == pytest.approx(whole.losses, rel=1e-3, abs=1e-5)
        versions.append(crowd.board.fetch(np.empty_like(alone.parameters), 0))
    assert crowd.board.value(Counter.UPDATES) == crowd.board.value(Counter.CLAIMED_UPDATES) == 5
    assert versions == [2, 4, 6, 8, 10]  # each step's weights are handed out once
    assert {learner.steps for learner in crowd.learners} == {5}
    crowd.syncs[0].settle()
    assert_equal_states(crowd.learners[0], alone, rtol=1e-2, atol=5e-4)


@each_learner
@each_algorithm
def test_steps_in_turns_are_those_of_one_learner(name, algorithm):
    shape = shape_of(algorithm, policy_delay=2)
    crowd, alone = Crowd(shape, "lock", 2, name), make(shape, name, seed=1)
    transitions, noise = batch_of(shape, ROWS), alone._noise(ROWS)
    for learner in (alone, *crowd.learners):
        learner._noise = lambda rows: noise
    crowd.together(lambda number: [crowd.step(number, batch(transitions)) for _ in range(6)])
    for _ in range(12):
        alone.step(transitions, WEIGHTS)
    assert crowd.board.value(Counter.UPDATES) == crowd.board.value(Counter.CLAIMED_UPDATES) == 12
    crowd.syncs[0].settle()
    assert_equal_states(crowd.learners[0], alone)
    handed_out = np.empty_like(alone.parameters)
    assert crowd.board.fetch(handed_out, 0) == 24
    assert_array_equal(handed_out, alone.parameters)


@each_learner
def test_steps_at_once_are_each_counted(name):
    shape = shape_of("td3", policy_delay=2)
    crowd = Crowd(shape, "hogwild", 2, name)
    crowd.together(lambda number: [crowd.step(number, batch(batch_of(shape, ROWS, number))) for _ in range(6)])
    crowd.syncs[0].settle()
    state = crowd.learners[0].state_dict()
    assert (state["steps"], state["updates"]) == (12, {"critic": 12, "policy": 6})
    assert crowd.board.fetch(np.empty_like(crowd.learners[0].parameters), 0) == 24
    alone = Crowd(shape, "hogwild", 2, name)
    one, noise = make(shape, name, seed=1), np.zeros((1, ROWS, 2), np.float32)
    for learner in (one, *alone.learners):
        learner._noise = lambda rows: noise
    for at in range(4):  # nobody interferes: the steps of one learner
        alone.step(at % 2, batch(batch_of(shape, ROWS, at)))
        one.step(batch_of(shape, ROWS, at), WEIGHTS)
    alone.syncs[0].settle()
    assert_equal_states(alone.learners[0], one)


def test_steps_of_others_during_a_step_are_counted():
    crowd = Crowd(shape_of("dqn"), "hogwild", 2)
    learner, plain = crowd.learners[1], crowd.learners[1].step
    for others in (3, 1):

        def step(*arguments, others=others):
            crowd.board.add(Counter.UPDATES, others)
            return plain(*arguments)

        learner.step = step
        crowd.step(1, batch(batch_of(crowd.workload, ROWS)))
    crowd.board.rows[1, Row.TURNS] = 2
    assert crowd.common.overlaps.tolist() == [[0, 0], [4, 3]]
    assert crowd.common.overlapping_steps(crowd.board) == {"mean": 2.0, "most": 3}


def test_a_step_is_claimed_once_and_not_before_it_is_due():
    crowd = Crowd(shape_of("dqn", learning_starts=10, update_interval=5), "lock", 2)
    pace = Pace.of(crowd.workload, crowd.arrangement)
    crowd.board.set(Counter.STEPS, pace.due(3))
    claims = [crowd.syncs[at % 2].claim(pace) for at in range(5)]
    assert claims == [0, 1, 2, None, None]


def test_a_mutex_whose_owner_died_is_taken_over(monkeypatch):
    monkeypatch.setattr(waits, "PATIENCE_SECONDS", 5.0)
    crowd = Crowd(shape_of("dqn"), "lock", 2)
    mutex = crowd.common.address(LEARNING)
    owner = threading.Thread(target=lock, args=(mutex,))  # which ends without an unlock
    owner.start()
    owner.join()
    for _ in range(2):
        crowd.step(0, batch(batch_of(crowd.workload, ROWS)))
    assert crowd.board.value(Counter.UPDATES) == 2
    assert lock(mutex)
    unlock(mutex)


@pytest.mark.parametrize("sync", ["lock", "synchronous"])
def test_the_parent_does_not_wait_for_a_learner_that_does_nothing(sync, monkeypatch):
    crowd = Crowd(shape_of("dqn"), sync, 2)
    monkeypatch.setattr(waits, "PATIENCE_SECONDS", 0.0)
    looks = iter(range(100))
    crowd.board.watch = lambda: next(looks)  # StopIteration where the wait has no end
    is_over = threading.Event()

    def hold():
        assert lock(crowd.common.address(LEARNING))
        is_held.set()
        is_over.wait(100)
        unlock(crowd.common.address(LEARNING))

    is_held = threading.Event()
    owner = threading.Thread(target=hold, daemon=True)
    owner.start()
    assert is_held.wait(100)
    with pytest.raises(TrainingError, match="has done nothing for 0 s"):
        crowd.step(0, batch(batch_of(crowd.workload, ROWS)))
    is_over.set()
    owner.join()


def test_a_claimed_step_waits_for_a_batch():
    crowd = Crowd(shape_of("dqn"), "lock", 2)
    learned, sent = [], [None, None, (batch(batch_of(crowd.workload, ROWS)), 0), None]
    batches = SimpleNamespace(
        take=lambda beta, updates: sent.pop(0), learned=lambda batch, priorities: learned.append(priorities.shape)
    )
    pace = Pace.of(crowd.workload, crowd.arrangement)
    learning = Learning(crowd.workload, batches, crowd.board, pace, crowd.syncs[1])
    assert [learning.advance() for _ in range(3)] == [False, False, True]
    counted = [crowd.board.value(word) for word in (Counter.CLAIMED_UPDATES, Counter.UPDATES)]
    assert (counted, learned) == ([1, 1], [(ROWS,)])
    assert list(learning.losses) == ["action_values"]
    assert crowd.board.rows[:2, Row.TURNS].tolist() == [0, 1]
    assert not learning.advance()
    assert crowd.board.value(Counter.CLAIMED_UPDATES) == 2


def test_batches_know_when_they_were_sampled():
    workload, samples = shape_of("dqn", presampled=2), iter(range(9))
    replay = SimpleNamespace(
        outputs=lambda rows: SimpleNamespace(batch=rows), sample=lambda rows, *_, out: (rows, next(samples))
    )
    board = Board(1, 1, 1)
    batches = OwnBatches(replay, workload, None, Shared(), board, Arrangement(), 0)
    taken = [batches.take(0.5, updates) for updates in range(5)]
    assert taken == [((ROWS, 0), 0), ((ROWS, 1), 0), ((ROWS, 2), 0), ((ROWS, 3), 1), ((ROWS, 4), 2)]


def test_a_learner_with_a_bank_samples_from_it_and_keeps_what_its_policy_learns_from():
    made, asked = iter(range(100)), []

    def sample(rows, beta, rng, *, out, **bank):
        asked.append(bank)
        return out.number

    replay = SimpleNamespace(outputs=lambda rows: SimpleNamespace(batch=rows, number=next(made)), sample=sample)
    own = {"sync": "local", "period": 3, "learners": 2, "banks": 2, "weights_of_banks": "printed"}
    batches = OwnBatches(replay, shape_of("td3", presampled=0), None, Shared(), Board(1, 1, 1), Arrangement(**own), 1)
    numbers = [batches.take(0.5, at)[0] for at in range(8)]
    assert asked[0] == {"bank": 1, "weights": "printed"}
    assert all(len(set(numbers[at : at + 3])) == 3 for at in range(6))  # the last 3 stay as they are


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": 512, "local_storage": 300, "learning_starts": 600}, "512 .*2 equal banks of at least 300"),
        ({"capacity": 512, "local_storage": 30, "learning_starts": 50}, "after 50 steps.* learning_starts .*60"),
    ],
)
def test_no_bank_is_too_small_or_empty_when_learning_begins(changes, words):
    arrangement = Arrangement(name="apart", learners=2, banks=2, sync="local", strategy="banked")
    arrangement.check(small(capacity=512, local_storage=30, learning_starts=60))
    with pytest.raises(TrainingError, match=words):
        arrangement.check(small(**changes))


def test_no_period_is_longer_than_the_run():
    workload, own = small(steps=100, learning_starts=10, update_interval=4), {"sync": "local", "learners": 2}
    Arrangement(name="apart", period=23, **own).check(workload)  # after steps 12, 16, .. 100
    with pytest.raises(TrainingError, match=r"24, .* 100 steps .* 23 gradient steps.*--period"):
        Arrangement(name="apart", period=24, **own).check(workload)


def cut_in_two(at):
    return slice(at * ROWS // 2, (at + 1) * ROWS // 2)


def train_together(crowd, steps):
    """Gradient steps of two learners on halves of the same batches, with noise of the same kind."""
    noise = np.random.default_rng(3).standard_normal((steps, 2, ROWS, 2)).astype(np.float32)
    size = {"td3": 1, "sac": 2}.get(crowd.workload.algorithm, 0)

    def each(number):
        learner, cut = crowd.learners[number], cut_in_two(number)
        for at in range(steps):
            learner._noise = lambda rows, at=at: np.ascontiguousarray(noise[at, :size, cut])
            crowd.step(number, batch(batch_of(crowd.workload, ROWS, at), cut=cut))

    crowd.together(each)


@each_learner
@each_algorithm
def test_averages_of_every_step_of_plain_descent_are_those_of_one_step_together(name, algorithm):
    shape = shape_of(algorithm, policy_delay=2, optimizer="sgd", gradient_clip=0.0, learning_rate=0.01)
    first = make(shape, name, seed=1).weights()
    one, other = Crowd(shape, "synchronous", 2, name), Crowd(shape, "local", 2, name, period=1)
    for crowd in (one, other):
        train_together(crowd, 100)
    for learner in other.learners:
        assert_allclose(learner.parameters, one.learners[0].parameters, rtol=0, atol=1e-6)
        assert_allclose(learner.target_parameters, one.learners[0].target_parameters, rtol=0, atol=1e-6)
    assert np.abs(other.learners[0].parameters - first).max() > 1e-3


@each_learner
@each_algorithm
def test_learners_of_a_period_learn_apart_against_fixed_targets(name, algorithm):
    """Against the same by hand: H = 3 steps of each learner's critic, their mean, then of its policy, their mean."""
    every = 2 if algorithm in ("dqn", "td3") else 1
    rate = 0.1 if algorithm == "dqn" else 1e-3  # so that other weights choose other actions
    shape = shape_of(algorithm, policy_delay=1, tau=0.1, target_interval=every, learning_rate=rate)
    crowd, hands = Crowd(shape, "local", 2, name, period=3), [make(shape, name, seed=1) for _ in range(2)]
    before = hands[0].weights()
    train_together(crowd, 3)
    noise = np.random.default_rng(3).standard_normal((3, 2, ROWS, 2)).astype(np.float32)
    size, count = {"td3": 1, "sac": 2}.get(algorithm, 0), len(hands[0].phases())

    def average():
        mean = np.mean([hand.parameters for hand in hands], 0)
        for hand in hands:
            hand.parameters[:] = mean

    rows = {}
    for number, hand in enumerate(hands):
        hand.act_by(before)  # by which double DQN chooses until the average
        for at in range(3):
            cut = cut_in_two(number)
            hand._noise = lambda rows, at=at, cut=cut: np.ascontiguousarray(noise[at, :size, cut])
            part = batch(batch_of(shape, ROWS, at), cut=cut)
            rows[number, at] = hand.rows(part.rows, part.weights)
            critic = hand.phases()[0]
            hand.apply(critic, hand.gradient(critic, rows[number, at]).gradient.copy())
    average()
    for place in range(1, count):
        for number, hand in enumerate(hands):
            for at in range(3):
                phase = hand.phases()[place]
                hand.apply(phase, hand.gradient(phase, rows[number, at]).gradient.copy())
        average()
    targets = hands[0].target_parameters
    for _ in range(3 // every):  # as often as it has multiples in 1, 2, 3
        targets += np.float32(0.1) * (hands[0].parameters[: len(targets)] - targets)
    handed_out = np.empty_like(before)
    assert (crowd.board.fetch(handed_out, 0), crowd.board.value(Counter.UPDATES)) == (2, 3)
    for learner in crowd.learners:
        assert_allclose(learner.parameters, hands[0].parameters, rtol=0, atol=2e-6)
        assert_allclose(learner.target_parameters, targets, rtol=0, atol=2e-6)
        assert_array_equal(learner.weights(), crowd.common.averaged)
        learner.load_weights(before)  # as the best of a run, which is then tested
        assert_array_equal(learner.weights(), before)
        learner.load_weights(handed_out)
    assert_array_equal(handed_out, crowd.common.averaged)


def test_plain_descent_is_a_step_along_the_gradient():
    for name in LEARNERS:
        learner = make(shape_of("ddpg", optimizer="sgd", gradient_clip=0.0, learning_rate=0.25), name, seed=1)
        rows, (phase, *_) = learner.rows(batch_of(learner.workload, ROWS), WEIGHTS), learner.phases()
        before, gradient = learner.weights(), learner.gradient(phase, rows).gradient.copy()
        learner.apply(phase, gradient)
        span = spans(learner.workload)[phase.network]
        assert_allclose(learner.parameters[span], before[span] - 0.25 * gradient, rtol=1e-6, atol=1e-8)
        assert learner.state_dict()["updates"]["critic"] == 1


def test_learners_with_banks_die_and_all_of_them_go_on():
    workload, own = small(steps=100_000, hidden=(8,)), {"sync": "local", "learners": 2, "banks": 2, "period": 7}
    with running(workload, strategy="banked", **own) as loop:
        advance(loop, lambda: loop.updates >= 30)
        saved = loop.state_dict()
        kill(loop, "learner-1")
        with pytest.raises(TrainingError, match=r"learner 1 was ended from outside \(exit code -9\)"):
            advance(loop, lambda: False)
    assert saved["updates"] == saved["learner"]["steps"]
    weights = saved["learners"]["parameters"]
    assert_array_equal(weights[0], saved["learner"]["weights"])
    with running(workload, saved=saved, strategy="banked", **own) as loop:
        assert_array_equal(loop.state_dict()["learners"]["parameters"], weights)
        handed_out = np.empty_like(weights[0])
        loop.board.fetch(handed_out, 0)
        assert_array_equal(handed_out, saved["learners"]["averaged"][0])
        advance(loop, lambda: loop.updates >= saved["updates"] + 20)
        with loop.paused():
            assert len(loop.buffer.state_dict()["banks"]) == 2
            assert not np.array_equal(loop.learner.parameters, weights[0])


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_period_that_a_resume_breaks_goes_on(algorithm):
    targets = {"target_interval": 20, "tau": 1.0} if algorithm == "dqn" else {}
    workload, saved = small(steps=100_000, hidden=(8,), algorithm=algorithm, **targets), None
    first = make(workload, seed=0).state_dict()["targets"]
    for least in (7, 14, 21):  # none of which is a period after the one before
        with running(workload, saved=saved, sync="local", learners=2, period=10) as loop:
            advance(loop, lambda loop=loop, least=least: loop.updates >= least)
            saved = loop.state_dict()
        every, trained = saved["updates"], saved["learner"]["updates"]
        assert saved["kept"][0] == every % 10
        assert trained.get("policy", every // 10 * 10) == every // 10 * 10
        assert saved["learner"]["steps"] == every
    assert not np.array_equal(saved["learner"]["targets"], first)


def test_learners_with_copies_begin_with_the_numbers_of_one_that_was_alone():
    workload = small(hidden=(8,))
    alone = ParallelLoop(workload, Arrangement(name="apart"), seed=1)
    crowd = ParallelLoop(workload, Arrangement(name="apart", sync="local", learners=2, period=1), seed=2)
    with contextlib.closing(alone), contextlib.closing(crowd):
        alone.learner.vectors().mean[:] = 3
        crowd.load_state_dict(alone.state_dict())
        for kept, own in zip(crowd.state_dict()["learners"].values(), (*alone.learner.vectors(), None), strict=True):
            expected = alone.learner.parameters if own is None else own  # last what they averaged, by which actors act
            assert_array_equal(kept, np.broadcast_to(expected, kept.shape))
        assert_array_equal(crowd.learner.weights(), alone.learner.parameters)


def test_learners_die_and_their_state_goes_on():
    workload = small(steps=100_000, hidden=(8,))
    with running(workload, sync="synchronous", learners=2) as loop:
        advance(loop, lambda: loop.updates >= 30)
        assert {int(turns) for turns in loop.board.rows[:2, Row.TURNS]} <= {loop.updates, loop.updates - 1}
        report, saved = loop.report(), loop.state_dict()
        assert report["lag"] <= workload.learner.update_interval
        assert report["stale_gradients"] == {"mean": 0.0, "most": 0}
        assert_array_equal(loop.learner.parameters, saved["learner"]["weights"])
        kill(loop, "learner-1")
        with pytest.raises(TrainingError, match=r"learner 1 was ended from outside \(exit code -9\)"):
            advance(loop, lambda: False)
    assert saved["updates"] == saved["learner"]["steps"] == saved["learner"]["updates"]["action_values"]
    go_on(workload, saved, "hogwild")


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["lock", "synchronous"])
def test_a_state_goes_on_with_other_learners(sync):
    workload = small(steps=100_000, hidden=(8,))
    with running(workload, learners=1) as loop:
        advance(loop, lambda: loop.updates >= 30)
        saved = loop.state_dict()
    go_on(workload, saved, sync)


@pytest.mark.slow
@pytest.mark.parametrize("sync", SYNCS)
def test_two_learners_learn(sync):
    pytest.importorskip("gymnasium")
    workload = dataclasses.replace(load("cartpole_dqn"), steps=4000)
    environment = Environment(workload)
    with running(workload, sync=sync, learners=2) as loop:
        before = evaluate(workload, loop.learner, environment, 10, 1)
        advance(loop, lambda: loop.done(workload.steps))
        with loop.paused():
            after = evaluate(workload, loop.learner, environment, 10, 1)
    environment.close()
    assert np.mean(before) < 40
    assert np.mean(after) > 80


def go_on(workload, saved, sync):
    """Resume a state by two learners and a keeper, until both have taken steps."""
    with running(workload, "pipelined", saved=saved, sync=sync, learners=2) as loop:
        advance(loop, lambda: loop.board.rows[:2, Row.TURNS].min() >= 5)
        with loop.paused():  # in which no learner takes another turn
            state = loop.state_dict()
            turns = int(loop.board.rows[:2, Row.TURNS].sum()) // (2 if sync == "synchronous" else 1)
            assert_array_equal(loop.learner.parameters, state["learner"]["weights"])
        assert state["updates"] == saved["updates"] + turns
        assert state["learner"]["steps"] == state["updates"]
        assert not np.array_equal(state["learner"]["weights"], saved["learner"]["weights"])
