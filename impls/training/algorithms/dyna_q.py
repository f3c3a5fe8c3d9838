"""Parallel deep Dyna-Q [StoneSachdev, IV-E]: one process acts in the environment, others learn from a model of it.

The process that acts is copy 0 and does what DQN does. Each model worker samples real records from the replay and
trains the model that all share, without a lock. Then it takes random actions in states that were seen, lets the model
predict what follows, and takes a gradient step on that: a simulated update. Its weights meet those of the real process
as copies' do. Of simulated updates at most c for each real one are claimed, each before it begins, so that no moment
has more, whatever ends a worker: a claim is never given back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch, Replay
from .. import clock
from ..actor import seed_of
from ..arrangement import Arrangement
from ..errors import TrainingError
from ..parallel import counter
from ..parallel.board import Counter, Row
from ..parallel.children import Start
from ..workload import Workload
from ..world_model import ModelVectors, WorldModel

ERRORS = 100
"""Last errors of the model that each worker keeps."""
SIMULATED, MODEL_STEPS = range(2)
"""Of each worker: simulated updates, and gradient steps of the model, that it has taken."""
_WORKERS = 12  # sets these random numbers apart from the other uses of a seed
_MODEL = "model_"


def make_arrays(workload: Workload, arrangement: Arrangement, seed: int) -> dict[str, NDArray[Any]]:
    """Arrays that workers share, as they are at first: the model, the updates they claimed, counts and errors of each.

    >>> from impls.training import load
    >>> made = make_arrays(load("cartpole_dyna_q"), Arrangement(model_workers=2), 0)
    >>> {name: made[name].shape for name in ("model_weights", "model_inputs", "claimed", "counts", "errors")}
    {'model_weights': (4998,), 'model_inputs': (9,), 'claimed': (8,), 'counts': (2, 8), 'errors': (2, 100)}
    """
    model = WorldModel(workload, seed).vectors._asdict()
    made: dict[str, NDArray[Any]] = {f"{_MODEL}{name}": each for name, each in model.items()}
    made["claimed"] = np.zeros(counter.LINE_WORDS, np.int64)
    made["counts"] = np.zeros((arrangement.model_workers, counter.LINE_WORDS), np.int64)
    return made | {"errors": np.zeros((arrangement.model_workers, ERRORS), np.float32)}


def report(numbers: Any, real: int, cap: int) -> dict[str, Any]:
    """Updates by simulated and by real records, the cap, the model's steps, and the mean of its last errors.

    ``numbers`` has the arrays by name.
    """
    simulated, trained = (numbers["counts"][:, word] for word in (SIMULATED, MODEL_STEPS))
    made = {"simulated": int(simulated.sum()), "real": real, "cap": cap, "model_steps": int(trained.sum())}
    kept = [errors[:count] for errors, count in zip(numbers["errors"], trained, strict=True)]
    return made | ({"model_error": round(float(np.concatenate(kept).mean()), 4)} if made["model_steps"] else {})


def model_of(workload: Workload, numbers: Any) -> WorldModel:
    """The model that all workers share; ``numbers`` has the arrays by name."""
    return WorldModel(workload, vectors=ModelVectors(*(numbers[f"{_MODEL}{name}"] for name in ModelVectors._fields)))


def prepare(workload: Workload) -> None:
    """Compile what workers call, so that they find it in the cache."""
    states, actions = np.zeros((1, *workload.observation.stacked), np.float32), np.zeros(1, np.int64)
    model, rows = WorldModel(workload), {"observation": states, "next_observation": states}
    model.train(rows | {"action": actions, "reward": np.zeros(1), "terminated": np.zeros(1, np.bool_)})
    model.predict(states, actions)


def follow(start: Start) -> None:
    """Work until the run is over, which raises Stopped. TrainingError when the model has diverged."""
    sync, numbers, replay = start.extra.join(start)
    seed = seed_of(start.seed, _WORKERS, start.epoch, start.number)
    worker = ModelWorker(start.workload, sync, numbers, replay, start.number, seed)
    while True:
        sync.board.check(start.row)
        worker.turn()


class ModelWorker:
    """Model worker ``number`` of a run, with a ``CopySync`` that takes its gradient steps, and what ``arrays`` made."""

    def __init__(self, workload: Workload, sync: Any, numbers: Any, replay: Replay, number: int, seed: int) -> None:
        self._workload, self._sync, self._replay, self._cap = workload, sync, replay, sync.arrangement.cap
        self._board, self._row = sync.board, sync.number
        self._model, self._rng = model_of(workload, numbers), np.random.default_rng(seed)
        self._counts, self._errors = numbers["counts"][number], numbers["errors"][number]
        self._claimed = counter.address_of(numbers["claimed"])
        self._is_waiting = False  # for the cap, with the model trained since its last update

    def turn(self) -> None:
        """Train the model and, once real updates have begun, take a simulated one, or wait for 20 ms until one is free.

        TrainingError when the model has diverged.
        """
        board, row = self._board, self._row
        if not len(self._replay):
            board.look(Counter.STEPS, board.value(Counter.STEPS) + 1, row)
            return
        began, waited = clock.nanoseconds(), board.lines[row][Row.WAITED]
        if not self._is_waiting:
            self._train()
        real = board.value(Counter.UPDATES)
        self._is_waiting = real > 0 and not self.claim(real)
        if self._is_waiting:
            board.look(Counter.UPDATES, real + 1, row)
        elif real:
            self._simulate()
            board.lines[row][Row.TURNS] += 1
        board.lines[row][Row.BUSY] += clock.nanoseconds() - began - (board.lines[row][Row.WAITED] - waited)

    def claim(self, real: int) -> bool:
        """Claim a simulated update, where ``real`` ones allow for another; returns whether they do."""
        return bool(counter.claim(self._claimed, 1, self._cap * real) >= 0)

    def _train(self) -> None:
        error = self._model.train(self._replay.sample(self._workload.model.batch, 0.0, self._rng).rows)
        if not np.isfinite(error):
            raise TrainingError(
                f"the model of the environment has diverged: its error is {error}; give [model] a smaller "
                f"learning_rate than {self._workload.model.learning_rate:g}"
            )
        self._errors[self._counts[MODEL_STEPS] % ERRORS] = error
        self._counts[MODEL_STEPS] += 1

    def _simulate(self) -> None:
        """Take random actions in states that were seen, and a gradient step on what the model says of them."""
        seen = self._replay.sample(self._workload.learner.batch, 0.0, self._rng)
        states = seen.rows["observation"]
        actions = self._rng.integers(self._workload.action.choices, size=len(states))
        following, rewards, ended = self._model.predict(states, actions)
        rows = {"observation": states, "action": actions, "reward": rewards, "terminated": ended}
        rows["next_observation"] = following.reshape(states.shape)
        self._sync.step(Batch(rows, seen.weights, seen.sequence))
        self._counts[SIMULATED] += 1
