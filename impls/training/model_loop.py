"""The serial loop of SAC on records that a model of the environment makes, which its algorithms have in common.

The model learns from real records, SAC from the model's. After each environment step the model is trained where that is
due, rollouts begin in real states, and SAC takes G gradient steps. Where rollouts begin, how long they are, and which
of their records a batch has is what an algorithm decides.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..replay import Batch, Layout
from ..replay.batches import not_finite
from .actor import Inserted
from .ensemble import Ensemble, make_model
from .errors import TrainingError
from .loop import SerialLoop
from .weights import layout_of
from .workload import Workload
from .world_model import WorldModel

Rows = dict[str, NDArray[Any]]


class Ring:
    """The last N = ``capacity`` records, of which batches are sampled uniformly, with replacement."""

    def __init__(self, capacity: int, layout: Layout) -> None:
        # Invariant: the s-th record inserted lies in slot s % N until the (s + N)-th does.
        self.capacity, self.arrays, self.written = capacity, layout.allocate(capacity), 0

    def insert(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Store records ``[n, ...]`` over the oldest ones."""
        slots = (self.written + np.arange(len(rows["reward"]))) % self.capacity
        for name, array in self.arrays.items():
            array[slots] = rows[name]
        self.written += len(slots)

    def sample(self, batch: int, rng: np.random.Generator) -> Rows:
        """B = ``batch`` records. ValueError where there are none."""
        slots = rng.integers(min(self.written, self.capacity), size=batch)
        return {name: array[slots] for name, array in self.arrays.items()}

    def state_dict(self) -> dict[str, Any]:
        """Records and their number, as copies."""
        filled = min(self.written, self.capacity)
        return {"arrays": {name: array[:filled].copy() for name, array in self.arrays.items()}, "written": self.written}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a ring, or of a replay, of this capacity and layout."""
        for name, array in state["arrays"].items():
            self.arrays[name][: len(array)] = array
        self.written = int(state["written"])


class ModelLoop(SerialLoop):
    """The serial loop, whose learner sees no real record: they train the model, and say where its rollouts begin."""

    def __init__(self, workload: Workload, **options: Any) -> None:
        self.workload, settings, layout = workload, workload.model, layout_of(workload)
        rows, capacity = settings.rollouts * settings.horizon, workload.replay.capacity
        try:
            self._allocate(rows, layout)
            self._real = Ring(capacity, layout)
        except MemoryError:
            needed = (settings.segments * rows + capacity) * layout.record_bytes / 1e9
            raise TrainingError(
                f"{settings.segments:,} segments of {rows:,} records, and {capacity:,} real ones, take "
                f"{needed:,.1f} GB, which are not to be had; give [model] fewer segments, or a smaller capacity"
            ) from None
        super().__init__(workload, **options)
        self.model: WorldModel = make_model(workload, self.seed)
        self._modeled = 0  # the step at which the model was last trained
        # Of real records before the model was trained on them: how many, and those within 1 and 2 of its deviations.
        self._judged = np.zeros(3)

    @property
    def rollouts(self) -> int:
        """Transitions that the model has made."""
        raise NotImplementedError

    def _allocate(self, rows: int, layout: Layout) -> None:
        """Allocate memory for the model's records, of which an environment step makes up to a number of ``rows``."""
        raise NotImplementedError

    def _roll_out(self) -> dict[str, float]:
        """Make and store the records of an environment step; returns losses of what it trains besides, by name."""
        raise NotImplementedError

    def _sample_made(self, batch: int) -> Batch:
        """B of the model's records, for a gradient step."""
        raise NotImplementedError

    def _insert(self, inserted: Inserted) -> None:
        super()._insert(inserted)
        records = inserted.records
        if self._modeled and isinstance(self.model, Ensemble):
            self._judged += len(records["reward"]) * np.array([1, *self.model.calibration(records)])
        self._real.insert(records)

    def _update(self) -> None:
        """Let the model make records, and take G gradient steps on them."""
        settings, others = self.workload.model, {}
        if not self._modeled or self.step - self._modeled >= settings.interval:
            others["model"] = self._train_model()
        others |= self._roll_out()
        for _ in range(settings.updates):
            stepped = self._stepped(self._sample_made(self.workload.learner.batch))
            if not np.isfinite(errors := stepped.priorities.astype(np.float64)).all():  # which no replay sees
                raise not_finite(errors)
            self.updates += 1
        self.losses = {**self.losses, **stepped.losses, **others}

    def _train_model(self) -> float:
        """Take a step on uniform batches of real records for each environment step since; returns its last error."""
        batch = self.workload.model.batch * self.model.members
        for _ in range(self.step - self._modeled):
            error = self.model.train(self._real.sample(batch, self._rng))
        self._modeled = self.step
        return error

    def _take_step(self, states: NDArray[Any]) -> Rows:
        """Records of what the model says of the policy's actions in states ``[M, ...]``."""
        actions = self.learner.act(states, 0.0, self._rng)
        following, rewards, ended = self.model.predict(states, actions, self._rng)
        if not (np.isfinite(following).all() and np.isfinite(rewards).all()):
            raise ValueError(
                "the model of the environment predicts NaN or inf; training has diverged: give [model] a smaller "
                f"learning_rate than {self.workload.model.learning_rate:g}"
            )
        rows = {"observation": states, "action": actions, "reward": rewards, "terminated": ended}
        return rows | {"next_observation": following.reshape(states.shape)}

    def report(self) -> dict[str, Any]:
        """The number of transitions that the model made, and how well an ensemble's deviations fit its errors.

        ``within_deviations``: shares of true changes within 1 and 2 deviations, of records before they were learned.
        """
        counts: dict[str, Any] = {"rollouts": self.rollouts}
        if count := self._judged[0]:
            counts["within_deviations"] = (self._judged[1:] / count).round(4).tolist()
        return super().report() | counts

    def state_dict(self) -> dict[str, Any]:
        """All that the next iteration depends on; real records are the buffer's."""
        own = {"model": self.model.state_dict(), "modeled": self._modeled, "judged": self._judged.tolist()}
        return super().state_dict() | own

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity."""
        super().load_state_dict(state)
        self._real.load_state_dict(state["buffer"])
        self.model.load_state_dict(state["model"])
        self._modeled, self._judged = int(state["modeled"]), np.array(state.get("judged", self._judged))
