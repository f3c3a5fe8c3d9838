"""The calls that are timed: one function a part, from a workload and a cell's fields to ``call(turn)``."""

import dataclasses
import functools
import math
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from impls.training import Workload, learners
from impls.training.actor import actor_of, environments_of
from impls.training.environments import Environment
from impls.training.weights import average, layout_of

from ...cases import Case, prepare
from .cells import CUDA, REFERENCE

Call = Callable[[int], object]
ROTATED = 4  # batches that the calls of a learner or a policy take in turn
LONGEST_PERIOD = 16  # calls after which their kinds repeat
SLOT_ROWS = 64  # rows of slots that storage's calls take in turn


class World:
    """What the parts of a workload need, each made on first use; ``number`` sets processes apart."""

    def __init__(self, workload: Workload, number: int, storage_bytes: int) -> None:
        self.workload, self.number, self.storage_bytes = workload, number, storage_bytes
        self.rng = np.random.default_rng([number, 7])
        self._policies: dict[str, Any] = {}
        self.full: dict[str, Any] | None = None  # the state of a full replay

    @functools.cached_property
    def folder(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for files of weights, gone when the process ends."""
        return tempfile.TemporaryDirectory(prefix="weights-")

    def learner(self, name: str = REFERENCE, device: str = "cpu") -> Any:
        """Make a learner by an implementation, its initial weights by the process's number as seed."""
        return learners.make(self.workload, name, seed=self.number, device=device)

    def policy(self, name: str = REFERENCE) -> Any:
        """Return the learner by whose policy actors act, one for each implementation."""
        if name not in self._policies:
            self._policies[name] = self.learner(name)
        return self._policies[name]

    def with_environments(self, count: int) -> Workload:
        """Return the workload with actors that step a given number of environments at once."""
        return dataclasses.replace(self.workload, actors=dataclasses.replace(self.workload.actors, environments=count))

    @functools.cached_property
    def layout(self) -> Any:
        """The layout of a record in the buffer."""
        return layout_of(self.workload)

    def observations(self, batch: int) -> Any:
        """Make random observations, ``[B, *shape]``."""
        return self.values((batch, *self.workload.observation.stacked), self.workload.observation.dtype)

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Make random values for a field of records."""
        kind = np.dtype(dtype)
        if kind.kind == "f":
            return self.rng.standard_normal(shape, np.float32)
        return self.rng.integers(0, 256 if kind == np.uint8 else 2, shape, np.uint8).astype(kind, copy=False)

    def actions(self, batch: int) -> Any:
        """Make random actions: ``[B]`` choices or ``[B, size]`` floats."""
        if self.workload.has_choices:
            return self.rng.integers(0, self.workload.action.choices, batch).astype(np.uint8)
        return self.rng.uniform(-1, 1, (batch, self.workload.action_size)).astype(np.float32)

    def records(self, count: int) -> dict[str, Any]:
        """Make records as they are stored, with valid actions."""
        fields = self.layout.fields.items()
        made = {name: self.values((count, *shape), dtype) for name, (shape, dtype) in fields if name != "action"}
        return {**made, "action": self.actions(count)}

    def batch(self, size: int) -> tuple[dict[str, Any], Any]:
        """Make transitions ``[B, ...]`` and importance weights ``[B]``."""
        rows = {
            "observation": self.observations(size),
            "next_observation": self.observations(size),
            "action": self.actions(size),
            "reward": self.values((size,), np.float32),
            "terminated": self.rng.random(size) < 0.01,
        }
        return rows, self.rng.uniform(0.5, 1, size).astype(np.float32)


def _learner_of(cell: dict[str, Any]) -> str:
    return str(cell.get("options", {}).get("learner", REFERENCE))


def _environments_of(cell: dict[str, Any]) -> int:
    return int(cell.get("options", {}).get("environments", 1))


def _env(world: World, cell: dict[str, Any]) -> Call:
    if (count := _environments_of(cell)) > 1:
        return _vector(world, count)
    environment, actions = Environment(world.workload), world.actions(1 << 12)
    environment.reset(world.number)

    def step(turn: int) -> None:
        _, _, terminated, truncated = environment.step(actions[turn % len(actions)])
        if terminated or truncated:
            environment.reset(turn)

    return step


def _vector(world: World, count: int) -> Call:
    environments = environments_of(world.with_environments(count), world.number, world.number)
    actions = [world.actions(count) for _ in range(1 << 8)]
    return lambda turn: environments.step(actions[turn % len(actions)])


def _policy(world: World, cell: dict[str, Any]) -> Call:
    seen = [world.observations(cell["batch"]) for _ in range(ROTATED)]
    explore, rng = (world.workload.exploration.end, world.rng) if cell["contestant"] == "inference" else (0.0, None)
    policy = world.policy(_learner_of(cell))
    return lambda turn: policy.act(seen[turn % ROTATED], explore, rng)


def _actor(world: World, cell: dict[str, Any]) -> Call:
    workload, policy = world.with_environments(_environments_of(cell)), world.policy(_learner_of(cell))
    actor, explore = actor_of(workload, world.number, world.number), workload.exploration.end
    return lambda turn: actor.step(policy, explore, False)


def _learner(world: World, cell: dict[str, Any]) -> Call:
    device = CUDA if cell["contestant"] == CUDA else "cpu"
    learner, batches = world.learner(_learner_of(cell), device), [world.batch(cell["batch"]) for _ in range(ROTATED)]
    return lambda turn: learner.step(*batches[turn % ROTATED])


def _product(world: World, cell: dict[str, Any]) -> Call:
    from impls.training.learners.dense_learner.product import multiply  # noqa: PLC0415  # numba

    units, batch = cell["options"]["units"], cell["batch"]
    left, right = (world.values((units, size), np.float32) for size in (units, batch))
    out = np.empty((units, batch), np.float32)
    return lambda turn: multiply(left, right, out, batch)


def _tree(world: World, cell: dict[str, Any]) -> Call:
    case = Case(cell["contestant"], cell["op"], cell["capacity"], cell["batch"], fanout=cell["fanout"])
    return prepare(case).call


def _storage(world: World, cell: dict[str, Any]) -> Call:
    capacity, batch = records_stored(world, cell["capacity"]), cell["batch"]
    fields = world.layout.fields
    arrays = {name: _filled(world, (capacity, *shape), dtype) for name, (shape, dtype) in fields.items()}
    if cell["op"] == "gather":
        slots = world.rng.integers(0, capacity, (SLOT_ROWS, batch))
        return lambda turn: world.layout.gather(arrays, slots[turn % SLOT_ROWS])
    records = {name: array[:batch].copy() for name, array in arrays.items()}

    def write(turn: int) -> None:
        slots = (turn * batch + np.arange(batch)) % capacity
        for name, array in arrays.items():
            array[slots] = records[name]

    return write


def records_stored(world: World, capacity: int) -> int:
    """Return how many records storage is timed with: all, or as many as fit into the bytes it may take."""
    return max(1, min(capacity, world.storage_bytes // world.layout.record_bytes))


def _filled(world: World, shape: tuple[int, ...], dtype: Any) -> Any:
    """Make an array with every page written, for pages never written to all share one page of zeros."""
    array = np.empty(shape, dtype)
    rows = max(1, (1 << 20) // max(1, math.prod(shape[1:]) * array.itemsize))
    part = world.values((min(rows, shape[0]), *shape[1:]), dtype)
    # Invariant: the rows before ``start`` are written.
    for start in range(0, shape[0], len(part)):
        array[start : start + len(part)] = part[: shape[0] - start]
    return array


def _weights(world: World, cell: dict[str, Any]) -> Call:
    if cell["op"] == "average":
        models = [world.learner().weights() for _ in range(cell["options"]["models"])]
        return lambda turn: average(models)
    return (_shared_weights if cell["options"]["via"] == "shared" else _weight_files)(world, cell["op"])


def _shared_weights(world: World, op: str) -> Call:
    """Publish into, or fetch from, memory that other processes may map."""
    weights = world.learner().weights()
    shared = np.frombuffer(mmap.mmap(-1, weights.nbytes), np.float32)
    if op == "fetch":
        shared[:] = weights
        return lambda turn: world.policy().load_weights(shared)
    return lambda turn: np.copyto(shared, weights)


def _weight_files(world: World, op: str) -> Call:
    """Publish into, or fetch from, a file never seen half written: the new file then takes the old one's name."""
    weights, path, fresh = (
        world.learner().weights(),
        *(Path(world.folder.name) / name for name in ("old.npy", "new.npy")),
    )

    def publish(turn: int) -> None:
        np.save(fresh, weights)
        os.replace(fresh, path)  # noqa: PTH105  # the call that is atomic

    publish(0)
    return publish if op == "publish" else lambda turn: world.policy().load_weights(np.load(path))


_MADE: dict[str, Callable[[World, dict[str, Any]], Call]] = {
    "env": _env,
    "inference": _policy,
    "forward": _policy,
    "actor": _actor,
    "learner": _learner,
    CUDA: _learner,
    "product": _product,
    "storage": _storage,
    "weights": _weights,
}


def make(world: World, cell: dict[str, Any]) -> Call:
    """Make the call of a cell; a contestant that is none of the parts above is a tree."""
    return _MADE.get(cell["contestant"], _tree)(world, cell)


def period(workload: Workload, contestant: str) -> int:
    """Return after how many calls the kinds of a part's calls repeat: not every gradient step of TD3 trains its policy.

    1 where that is more than LONGEST_PERIOD, for then the policy's is a small share.
    """
    is_delayed = workload.traits.delays_policy and contestant in ("learner", "loop", CUDA)
    delay = workload.learner.policy_delay
    return delay if is_delayed and delay <= LONGEST_PERIOD else 1
