"""The serial loop: Algorithm 1's ratio and order, batches drawn ahead, and what it refuses."""

import numpy as np
import pytest

from impls.training import TrainingError

torch = pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training.learner import Learner  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402  # with torch
from tests.test_actors import fake  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.parametrize(("interval", "starts"), [(1, 16), (3, 16), (7, 20), (8, 17)])
def test_every_update_interval_th_step_is_followed_by_one_update(interval, starts):
    loop = SerialLoop(fake(learner={"update_interval": interval, "learning_starts": starts}), contestant="numpy")
    for step in range(1, 101):
        loop.advance()
        assert loop.step == step
        assert loop.updates == sum(1 for each in range(starts, step + 1) if each % interval == 0)
    assert loop.learner.steps == loop.updates


@pytest.mark.parametrize(("environments", "interval"), [(1, 1), (4, 1), (4, 3), (3, 4), (8, 2)])
@pytest.mark.parametrize("name", ["Uneven-v0", "FineCarts-v0"])
def test_a_turn_of_several_environments_is_followed_by_the_updates_due(name, environments, interval):
    tables = {"observation": {"shape": (4,)}} if name == "FineCarts-v0" else {}
    learner = {"update_interval": interval, "learning_starts": 17}
    loop = SerialLoop(fake(name, learner=learner, actors={"environments": environments}, **tables), contestant="numpy")
    episodes = ended = shorter = 0
    for turn in range(1, 81):
        before, episodes = loop.step, episodes + ended
        ended = len(loop.advance())
        shorter += environments - (loop.step - before)
        # A turn is shorter by those environments whose episodes ended in the turn before it.
        assert shorter == (episodes if environments > 1 else 0)
        assert (loop.turns, loop.buffer.written) == (turn, loop.step)
        assert loop.updates == sum(1 for each in range(17, loop.step + 1) if each % interval == 0)
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


def test_an_environment_that_does_not_repeat_itself_is_not_resumed(tmp_path):
    workload = fake("Restless-v0", actors={"count": 2})
    loop = SerialLoop(workload, contestant="numpy")
    for _ in range(11):
        loop.advance()
    with pytest.raises(TrainingError, match="the same seed and actions led elsewhere"):
        SerialLoop(workload, contestant="numpy").load_state_dict(loop.state_dict())


def test_training_that_diverges_is_a_sentence():
    loop = SerialLoop(fake(), contestant="numpy")
    loop.learner.parameters[:] = np.nan
    with pytest.raises(
        TrainingError, match="after 16 steps and 0 gradient steps: a TD error is nan; training has diverged"
    ):
        for _ in range(20):
            loop.advance()


def test_a_buffer_larger_than_memory_is_a_sentence():
    with pytest.raises(TrainingError, match=r"8,589,934,592 records take .* GB, which are not to be had"):
        SerialLoop(fake(observation={"shape": (4096, 4096)}, replay={"capacity": 1 << 33}), contestant="flat")
