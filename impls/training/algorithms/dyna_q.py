"""Parallel deep Dyna-Q [StoneSachdev, IV-E]: one process acts in the environment, others learn from a model of it.

The process that acts is copy 0 and does what DQN does. Each model worker samples real records from the replay and
trains the model that all share, without a lock. Then it takes random actions in states that were seen, lets the model
predict what follows, and takes a gradient step on that: a simulated update. Its weights meet those of the real process
as copies' do. Of simulated updates at most c for each real one are claimed, each before it begins, so that no moment
has more, whatever ends a worker: a claim is never given back.

By experience "queue" the model learns as printed: the process that acts also sends its records to a queue in shared
memory, and a worker that finds a batch there takes it and trains the model by it, so that each record trains it once.
The process that acts waits while the queue is full, so no record is dropped; what waits is saved with a run.

By "swept" priorities workers do prioritized sweeping [Moore1993], which the report names as future work (IV-F), on the
replay's sum tree. Simulated updates begin in states sampled by their records' priorities, in any case. After an update
with |TD error| e in the state of a record, the record has the priority of e, and the record before it, of the same
episode, at least that of gamma * e. There states are swept in the order of their priorities, here they are sampled; the
probability of the change, known there, is 1 here, as one record came before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch, Replay
from .. import clock
from ..actor import Inserted, seed_of
from ..arrangement import Arrangement
from ..errors import TrainingError
from ..parallel import counter
from ..parallel.board import Counter, Row
from ..parallel.children import Start
from ..weights import layout_of
from ..workload import Workload
from ..world_model import ModelVectors, WorldModel

ERRORS = 100
"""Last errors of the model that each worker keeps."""
SIMULATED, MODEL_STEPS, RAISED = range(3)
"""Of each worker: simulated updates, and gradient steps of the model, that it has taken; priorities that it raised."""
HANDED, TAKEN = range(2)
"""Records that the process that acts has put into the queue, and those that workers have taken from the queue."""
_WORKERS = 12  # sets these random numbers apart from the other uses of a seed
_MODEL, _QUEUE = "model_", "queue_"


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
    if _is_handed(arrangement):
        made["records"] = np.zeros((2, counter.LINE_WORDS), np.int64)
        made["follows"] = np.zeros(workload.replay.capacity * (arrangement.priorities == "swept"), np.bool_)
    if arrangement.experience == "queue":
        fields, size = layout_of(workload).fields, arrangement.queue_size
        made |= {f"{_QUEUE}{name}": np.zeros((size, *shape), dtype) for name, (shape, dtype) in fields.items()}
    return made | {"errors": np.zeros((arrangement.model_workers, ERRORS), np.float32)}


def _is_handed(arrangement: Arrangement) -> bool:
    """Whether workers need what the process that acts knows of its records."""
    return arrangement.experience == "queue" or arrangement.priorities == "swept"


def report(numbers: Any, real: int, cap: int) -> dict[str, Any]:
    """Updates by simulated and by real records, the cap, the model's steps, and the mean of its last errors.

    Where there is a queue or a sweep, also records put into the queue, those taken from it, and priorities raised.
    ``numbers`` has the arrays by name.
    """
    simulated, trained, raised = (numbers["counts"][:, word] for word in (SIMULATED, MODEL_STEPS, RAISED))
    made = {"simulated": int(simulated.sum()), "real": real, "cap": cap, "model_steps": int(trained.sum())}
    if "records" in numbers.arrays:
        handed, taken = numbers["records"][:, 0]
        made |= {"handed": int(handed), "taken": int(taken), "raised": int(raised.sum())}
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


def make_sender(workload: Workload, sync: Any, numbers: Any) -> Callable[[Inserted], None] | None:
    """The function by which the process that acts hands records over before it inserts them; None where it need not."""
    return Experiences(workload, sync, numbers).hand_over if _is_handed(sync.arrangement) else None


class Experiences:
    """Records that the process that acts sends to model workers; ``numbers`` has the arrays of ``make_arrays``.

    ``follows [capacity]`` says of the record with a sequence number, modulo the capacity, whether the one before it led
    to its state. The queue has the records from number ``TAKEN`` to ``HANDED``, each in the place of its number modulo
    the queue's size.
    """

    def __init__(self, workload: Workload, sync: Any, numbers: Any) -> None:
        self._sync, self._follows = sync, numbers["follows"]
        names = layout_of(workload).fields if sync.arrangement.experience == "queue" else ()
        self._queue = {name: numbers[f"{_QUEUE}{name}"] for name in names}
        self._size = sync.arrangement.queue_size
        self._handed, self._taken = map(counter.address_of, numbers["records"])
        self._last: Any = None  # the next observation and the end of the record before, [1, ...]

    def hand_over(self, inserted: Inserted) -> None:
        """Put records ``[n, ...]`` into the queue, waiting while it lacks room, and note which follow one another.

        It is called by one process, before it inserts them. TrainingError for a worker that failed meanwhile.
        """
        rows, first = inserted.records, counter.value_of(self._handed)
        count, board, row = len(rows["reward"]), self._sync.board, self._sync.number
        if self._queue:
            self._sync.wait(lambda: board.look_at(self._taken, first + count - self._size, row))
        for name, places in self._queue.items():
            places[(first + np.arange(count)) % self._size] = rows[name]
        if len(self._follows):
            led, ended = self._last or (rows["next_observation"][:1], np.ones(1, np.bool_))
            led, ended = np.append(led, rows["next_observation"], 0), np.append(ended, rows["terminated"])
            is_same = (led[:-1] == rows["observation"]).reshape(count, -1).all(1)
            self._follows[(first + np.arange(count)) % len(self._follows)] = is_same & ~ended[:-1]
            self._last = led[-1:], ended[-1:]
        counter.add(self._handed, count)

    def take(self, count: int) -> dict[str, NDArray[Any]] | None:
        """The next records ``[count, ...]`` of the queue, which nobody else is given; None while there are fewer."""
        if counter.value_of(self._handed) - counter.value_of(self._taken) < count:
            return None
        with self._sync.hold_mutex():
            first = counter.value_of(self._taken)
            if counter.value_of(self._handed) - first < count:
                return None
            rows = {name: places[(first + np.arange(count)) % self._size] for name, places in self._queue.items()}
            counter.add(self._taken, count)
        return rows

    def follows(self, sequence: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each record ``[B]`` follows the one before it; those about to be overwritten may be said not to."""
        flags: NDArray[np.bool_] = self._follows[sequence % len(self._follows)]
        return flags


class ModelWorker:
    """Model worker ``number`` of a run, with a ``CopySync`` that takes its gradient steps, and what ``arrays`` made."""

    def __init__(self, workload: Workload, sync: Any, numbers: Any, replay: Replay, number: int, seed: int) -> None:
        self._workload, self._sync, self._replay, self._cap = workload, sync, replay, sync.arrangement.cap
        self._board, self._row = sync.board, sync.number
        self._model, self._rng = model_of(workload, numbers), np.random.default_rng(seed)
        self._counts, self._errors = numbers["counts"][number], numbers["errors"][number]
        self._claimed = counter.address_of(numbers["claimed"])
        handed = Experiences(workload, sync, numbers) if _is_handed(sync.arrangement) else None
        self._queue = handed if sync.arrangement.experience == "queue" else None
        self._swept = handed if sync.arrangement.priorities == "swept" else None
        self._is_waiting = False  # for the cap, with the model trained since its last update

    def turn(self) -> None:
        """Train the model and, once real updates have begun, take a simulated one, or wait for 20 ms until one is free.

        The model is trained in each turn in which the queue has a batch; without a queue, unless the last turn waited.
        TrainingError when the model has diverged.
        """
        board, row = self._board, self._row
        if not (self._queue or len(self._replay)):
            board.look(Counter.STEPS, board.value(Counter.STEPS) + 1, row)
            return
        began, waited = clock.nanoseconds(), board.lines[row][Row.WAITED]
        rows = self._next_rows()
        if rows is not None:
            self._train(rows)
        real = board.value(Counter.UPDATES) if self._model.vectors.scales[0] else 0
        self._is_waiting = real > 0 and not self.claim(real)
        if self._is_waiting:
            board.look(Counter.UPDATES, real + 1, row)
        elif real:
            self._simulate()
            board.lines[row][Row.TURNS] += 1
        elif rows is None:
            board.look(Counter.STEPS, board.value(Counter.STEPS) + 1, row)
        board.lines[row][Row.BUSY] += clock.nanoseconds() - began - (board.lines[row][Row.WAITED] - waited)

    def claim(self, real: int) -> bool:
        """Claim a simulated update, where ``real`` ones allow for another; returns whether they do."""
        return bool(counter.claim(self._claimed, 1, self._cap * real) >= 0)

    def _next_rows(self) -> dict[str, NDArray[Any]] | None:
        """The records of the model's next gradient step; None where there are none, or it waits without a queue."""
        if self._queue:
            return self._queue.take(self._workload.model.batch)
        return None if self._is_waiting else self._replay.sample(self._workload.model.batch, 0.0, self._rng).rows

    def _train(self, rows: dict[str, NDArray[Any]]) -> None:
        error = self._model.train(rows)
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
        stepped = self._sync.step(Batch(rows, seen.weights, seen.sequence))
        self._counts[SIMULATED] += 1
        if self._swept:
            try:
                stepped.check()
                self._sweep(self._swept, seen.sequence, stepped.priorities)
            except ValueError as error:
                raise TrainingError(f"in a simulated update: {error}") from None

    def _sweep(self, swept: Experiences, sequence: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Set the priorities of records ``[B]`` from |TD errors| ``[B]``, and raise those of the records before them.

        Of errors of one record the largest counts. Another process may set a priority between the look at it and the
        rise.
        """
        replay, settings = self._replay, self._workload.replay
        tickets, places = np.unique(sequence, return_inverse=True)
        largest = np.zeros(len(tickets), np.float32)
        np.maximum.at(largest, places, errors)
        replay.update_priorities(tickets, largest)
        follows = swept.follows(tickets)
        before, raised = tickets[follows] - 1, self._workload.learner.gamma * largest[follows]
        leaves = replay.retrieve_priorities(before)
        rises = (leaves > 0) & ((raised + settings.epsilon) ** settings.alpha > leaves)
        replay.update_priorities(before[rises], raised[rises])
        self._counts[RAISED] += int(rises.sum())
