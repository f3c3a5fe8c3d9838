"""The serial loop: Algorithm 1's ratio and order, batches drawn ahead, and what it refuses."""

import numpy as np
import pytest

from impls.replay import PrioritizedBuffer, Replay
from impls.training import TrainingError

torch = pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training.learner import Learner  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402  # with torch
from tests.committed import ROOT  # noqa: E402
from tests.learning import assert_goes_on, change  # noqa: E402
from tests.system.test_actors import fake  # noqa: E402

torch.set_num_threads(1)


TURNS = [
    (1, 1, 16),
    (1, 3, 16),
    (1, 7, 20),
    (1, 8, 17),
    (4, 1, 17),
    (4, 3, 17),
    (3, 4, 17),
    (8, 2, 17),
]


@pytest.mark.parametrize(("environments", "interval", "starts"), TURNS)
@pytest.mark.parametrize("name", ["Uneven-v0", "FineCarts-v0"])
def test_a_turn_is_followed_by_the_updates_due(name, environments, interval, starts):
    workload = change(
        fake(name),
        update_interval=interval,
        learning_starts=starts,
        environments=environments,
    )
    workload = change(workload, shape=(4,) if name == "FineCarts-v0" else (2,))
    loop, episodes, ended, shorter = SerialLoop(workload, contestant="numpy"), 0, 0, 0
    for turn in range(1, 101):
        before, episodes = loop.step, episodes + ended
        ended = len(loop.advance())
        shorter += environments - (loop.step - before)
        # A turn is shorter by those environments whose episodes ended in the turn before it.
        assert shorter == (episodes if environments > 1 else 0)
        assert (loop.turns, loop.buffer.written) == (turn, loop.step)
        assert loop.updates == sum(1 for step in range(starts, loop.step + 1) if step % interval == 0)
    assert loop.learner.steps == loop.updates
    assert episodes > 4
    loop.close()


def test_the_order_of_an_iteration_is_that_of_algorithm_1():
    loop, told = SerialLoop(fake(), contestant="numpy"), []
    for of, name in (
        (loop.learner, "act"), (loop._actors[0]._environment, "step"), (loop.buffer, "insert"), (loop.buffer, "sample"),
        (loop.learner, "step"), (loop.buffer, "update_priorities"),
    ):  # fmt: skip
        kind = "Learner" if isinstance(of, Learner) else type(of).__name__
        setattr(of, name, _telling(getattr(of, name), f"{kind}.{name}", told))
    for _ in range(17):
        loop.advance()
    begin = ["Learner.act", "Environment.step", "PrioritizedBuffer.insert"]
    learn = ["PrioritizedBuffer.sample", "Learner.step", "PrioritizedBuffer.update_priorities"]
    assert told == begin * 15 + (begin + learn) * 2


def _telling(call, name, told):
    def wrapped(*given):
        told.append(name)
        return call(*given)

    return wrapped


def test_a_batch_is_drawn_d_gradient_steps_before_it_is_learnt_from():
    loop = SerialLoop(fake(replay={"presampled": 5}), contestant="numpy")
    drawn, learnt = [], []
    sample, step = loop.buffer.sample, loop.learner.step
    loop.buffer.sample = lambda *given: drawn.append(sample(*given)) or drawn[-1]
    loop.learner.step = lambda rows, weights: (learnt.append(rows), step(rows, weights))[1]
    for _ in range(60):
        loop.advance()
    assert len(drawn) == len(learnt) + 5
    assert all(one.rows is other for one, other in zip(drawn, learnt, strict=False))


def test_training_that_diverges_is_a_sentence():
    loop = SerialLoop(fake(), contestant="numpy")
    loop.learner.parameters[:] = np.nan
    with pytest.raises(TrainingError, match="after 16 steps and 0 gradient steps: a TD error is nan"):
        for _ in range(20):
            loop.advance()


def test_a_buffer_larger_than_memory_is_a_sentence():
    with pytest.raises(TrainingError, match=r"8,589,934,592 records take .* GB, which are not to be had"):
        SerialLoop(fake(observation={"shape": (4096, 4096)}, replay={"capacity": 1 << 33}), contestant="flat")


def test_networks_larger_than_memory_are_a_sentence(monkeypatch):
    def initial(*_):
        raise MemoryError

    monkeypatch.setattr("impls.training.learner.initial", initial)
    with pytest.raises(TrainingError, match="networks of 22 weights take more memory than there is; make hidden sma"):
        SerialLoop(fake(), contestant="numpy")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learner": ""}, "there is no learner ''; there are dense, torch"),
        ({"policy": "Dense"}, "there is no learner 'Dense'; there are dense, torch"),
        ({"learner": "dense", "compiled": True}, "--compile is for torch's networks; the learner dense is compiled"),
    ],
)
def test_impossible_implementations_are_refused(options, words):
    with pytest.raises(TrainingError, match=words):
        SerialLoop(fake(), contestant="numpy", **options)


PAIRS = [("torch", "torch"), ("torch", "dense"), ("dense", "torch"), ("dense", "dense")]
"""Implementations of a learner and of the policy by which actors act."""


@pytest.mark.parametrize("environments", [1, 3])
@pytest.mark.parametrize("algorithm", ["dqn", "td3", "sac"])
def test_loops_of_all_implementations_compute_the_same(algorithm, environments):
    """Priorities of actors take random numbers of the learner's, whatever the actors act by."""
    tables = {"replay": {"initial_priority": "td_error"}, "actors": {"environments": environments}}
    workload = change(fake("Uneven-v0", **tables), algorithm=algorithm)
    loops = [
        SerialLoop(
            workload,
            contestant="numpy",
            learner=learner,
            policy=policy,
        )
        for learner, policy in PAIRS
    ]
    for _ in range(140 // environments):
        episodes = [loop.advance() for loop in loops]
        assert all(each == episodes[0] for each in episodes)
    assert loops[0].updates > 100
    for loop in loops[1:]:
        assert list(loop.losses.values()) == pytest.approx(
            list(loops[0].losses.values()),
            rel=1e-3,
            abs=1e-4,
        )
        np.testing.assert_allclose(
            loop.buffer.tree.total(),
            loops[0].buffer.tree.total(),
            rtol=1e-4,
        )
        loop.close()


@pytest.mark.parametrize("algorithm", ["sac", "a3c"])
@pytest.mark.parametrize(
    (
        "learner",
        "policy",
        "tree",
    ),
    [(*PAIRS[1], "numpy"), (*PAIRS[2], "numpy"), (*PAIRS[3], "numba")],
)
def test_a_resumed_loop_goes_on_bit_for_bit(algorithm, learner, policy, tree):
    workload = change(fake(replay={"initial_priority": "td_error"}), algorithm=algorithm)
    if algorithm == "a3c":
        workload = change(workload, batch=3, update_interval=3, learning_starts=3)
    first, second = (
        SerialLoop(
            workload,
            contestant=tree,
            learner=learner,
            policy=policy,
            seed=1,
        )
        for _ in range(2)
    )
    for _ in range(40):
        first.advance()
    assert_goes_on(first, second, lambda loop: (loop.advance(), loop.losses), 30)


def test_the_compiled_replay_trains_as_the_plain_buffer_does(monkeypatch):
    workload = fake(replay={"capacity": 64, "presampled": 2})  # which is full, and written over
    loops = [SerialLoop(workload, contestant=tree, seed=1) for tree in ("numba", "numpy")]
    assert [isinstance(loop.buffer, Replay) for loop in loops] == [True, False]
    for _ in range(150):
        ours, plain = (loop.advance() for loop in loops)
        assert ours == plain
    assert loops[0].updates == loops[1].updates > 50
    np.testing.assert_allclose(loops[0].learner.weights(), loops[1].learner.weights(), atol=1e-5)
    monkeypatch.setattr("impls.training.loop.make_replay", unavailable)
    assert type(SerialLoop(workload, contestant="numba").buffer) is PrioritizedBuffer


def unavailable(*_, **__):
    raise RuntimeError("robust mutexes need Linux")


def test_a_policy_that_fetches_takes_the_learners_weights_where_a_state_has_none_for_it():
    workload = fake(actors={"count": 3})
    first, second = (SerialLoop(workload, contestant="numpy", seed=1) for _ in range(2))
    for _ in range(40):  # the second of three actors is next, and weights are fetched at the first's turns
        first.advance()
    second._fetches, second.policy = True, SerialLoop(workload, contestant="numpy", seed=1).learner
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(second.policy.weights(), first.learner.weights())


def test_the_loop_that_the_readme_shows_learns(capsys):
    program = (ROOT / "impls/README.md").read_text().partition("```python\n")[2].partition("```")[0]
    names = {}
    exec(program.replace("range(20_000)", "range(1_500)"), names)
    assert names["learner"].steps == 500
    assert len(names["memory"]) == 1_500
    assert len(capsys.readouterr().out.splitlines()) > 20
