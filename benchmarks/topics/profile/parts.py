"""The calls that are timed: one function a part, from a workload and a cell's fields to ``call(turn)``.

Two calls are whole gradient steps: ``Loop`` is the serial loop, ``Learning`` its part without environments on any tree,
so that it also runs in other libraries' environments, with the seconds that are spent in the tree's own calls.
"""

import functools
import math
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import impls
from impls.replay import PrioritizedBuffer
from impls.training import Workload, learners
from impls.training.actor import actor_of, environments_of
from impls.training.environments import Environment
from impls.training.loop import SerialLoop
from impls.training.weights import CONVOLUTIONS, average, layout_of, list_value_layers

from ...cases import Case, prepare
from .cells import CUDA, REFERENCE, TREE, change_tables

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
        self.kept_state: dict[str, Any] = {}  # of a full buffer, where it is kept

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
        return change_tables(self.workload, {"actors": {"environments": count}})

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

    def full_state(self) -> dict[str, Any]:
        """Make the state of a full buffer of random records. MemoryError if they are more than storage may take."""
        capacity = self.workload.replay.capacity
        size = capacity * self.layout.record_bytes
        if size > self.storage_bytes:
            raise MemoryError(f"the buffer takes {size >> 20:,} MiB, here are {self.storage_bytes >> 20:,}")
        filled = {"arrays": self.records(capacity), "leaves": self.rng.random(capacity) + 1e-3, "largest": 1.0}
        return {**filled, "drawable": np.ones(capacity, np.bool_), "written": capacity}

    def batch(self, size: int) -> tuple[dict[str, Any], Any]:
        """Make transitions ``[B, ...]`` and importance weights ``[B]``."""
        rows = {
            "observation": self.observations(size), "next_observation": self.observations(size),
            "action": self.actions(size), "reward": self.values((size,), np.float32),
            "terminated": self.rng.random(size) < 0.01,
        }  # fmt: skip
        return rows, self.rng.uniform(0.5, 1, size).astype(np.float32)


def _learner_of(cell: dict[str, Any]) -> str:
    return str(cell.get("options", {}).get("learner", REFERENCE))


def _environments_of(cell: dict[str, Any]) -> int:
    return int(cell.get("options", {}).get("environments", 1))


def _env(world: World, cell: dict[str, Any]) -> Call:
    if (count := _environments_of(cell)) > 1:
        vector = environments_of(world.with_environments(count), world.number, world.number)
        turns = [world.actions(count) for _ in range(1 << 8)]
        return lambda turn: vector.step(turns[turn % len(turns)])
    environment, actions = Environment(world.workload), world.actions(1 << 12)
    environment.reset(world.number)
    if cell.get("op") == "reset":
        return environment.reset

    def step(turn: int) -> None:
        _, _, terminated, truncated = environment.step(actions[turn % len(actions)])
        if terminated or truncated:
            environment.reset(turn)

    return step


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


def _layer(world: World, cell: dict[str, Any]) -> Call:
    """Make a layer's pass on B random inputs, or its update by Adam.

    Forward: the outputs, with what autograd keeps. Backward: gradients of weights and, but for the first, of inputs.
    """
    import torch  # noqa: PLC0415  # heavy

    number, device, batch = cell["options"]["layer"], cell["options"]["device"], cell["batch"]
    layer, image = list_value_layers(world.workload)[number - 1], world.workload.observation.stacked[1:]
    outputs, channels, *kernel = layer.shape
    if kernel:
        for _, size, stride, padding in CONVOLUTIONS[: number - 1]:
            image = tuple((side + 2 * padding - size) // stride + 1 for side in image)
        stride, padding = CONVOLUTIONS[number - 1][2:]
        module: Any = torch.nn.Conv2d(channels, outputs, kernel[0], stride, padding)
    else:
        module, image = torch.nn.Linear(channels, outputs), ()
    module = module.to(device)
    inputs = torch.randn(batch, channels, *image, device=device).requires_grad_(number > 1)
    wait = torch.cuda.synchronize if device == CUDA else lambda: None
    if cell["op"] == "forward":
        return lambda turn: (module(inputs).relu(), wait())
    active = module(inputs).relu()
    wanted, gradients = [*module.parameters(), *[inputs] * (number > 1)], torch.randn_like(active)
    if cell["op"] == "backward":
        return lambda turn: (torch.autograd.grad(active, wanted, gradients, retain_graph=True), wait())
    active.backward(gradients)
    optimizer = torch.optim.Adam(module.parameters())
    return lambda turn: (optimizer.step(), wait())


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


def note_on(world: World, cell: dict[str, Any]) -> str | None:
    """Say with how many records storage is timed, where they are fewer than its capacity."""
    if cell["contestant"] != "storage" or (records := records_stored(world, cell["capacity"])) == cell["capacity"]:
        return None
    return f"timed with {records:,} records, {records * world.layout.record_bytes / 2**20:,.0f} MiB of storage"


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
    weights = world.learner().weights()
    path, fresh = (Path(world.folder.name) / name for name in ("old.npy", "new.npy"))

    def publish(turn: int) -> None:
        np.save(fresh, weights)
        os.replace(fresh, path)  # noqa: PTH105  # the call that is atomic

    publish(0)
    return publish if op == "publish" else lambda turn: world.policy().load_weights(np.load(path))


def _loop(world: World, cell: dict[str, Any]) -> Call:
    return Loop(world, TREE, cell["options"]["learner"], cell["options"]["policy"]).call


_MADE: dict[str, Callable[[World, dict[str, Any]], Call]] = {
    "env": _env, "inference": _policy, "forward": _policy, "actor": _actor, "learner": _learner, CUDA: _learner,
    "product": _product, "layer": _layer, "storage": _storage, "loop": _loop, "weights": _weights,
}  # fmt: skip


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


class TimedTree:
    """A tree of ours or of another library under the contract's names; ``seconds`` were spent in its calls.

    Batches are converted for the library outside of the clock, as in the cells of ``cases``.
    """

    def __init__(self, tree: Any) -> None:
        self._tree, self.seconds = tree, 0.0
        self.capacity, self.dtype = tree.capacity, tree.dtype
        self.smallest_priority = getattr(tree, "smallest_priority", 1e-30)
        self.largest_priority = getattr(tree, "largest_priority", 1e30)
        self._place = getattr(tree, "place", np.asarray)

    def update(self, indices: Any, priorities: Any) -> None:
        """Set the priorities ``[B]`` of leaves ``[B]``."""
        indices, priorities = self._place(indices), self._place(np.asarray(priorities, np.float64))
        begin = time.perf_counter()
        self._tree.update(indices, priorities)
        self.seconds += time.perf_counter() - begin

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        """Sample leaves ``[B]`` and their priorities ``[B]`` by uniforms ``[B]``."""
        uniforms = self._place(uniforms)
        begin = time.perf_counter()
        leaves, priorities = self._tree.sample(uniforms)
        self.seconds += time.perf_counter() - begin
        return np.clip(impls.to_numpy(leaves), 0, self.capacity - 1), np.maximum(impls.to_numpy(priorities), 1e-30)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Fill the tree, outside of the clock."""
        self._tree.load_state_dict(state)


class Learning:
    """A full buffer and a learner; ``call`` is a gradient step with the insertions that come between two steps."""

    def __init__(self, world: World, tree: Any) -> None:
        workload, replay = world.workload, world.workload.replay
        self.tree = TimedTree(tree)
        self._buffer = PrioritizedBuffer(self.tree, world.layout, alpha=replay.alpha, epsilon=replay.epsilon)
        self._buffer.load_state_dict(world.full_state())
        self._learner = world.learner()
        self._sampled = workload.learner.batch, replay.beta, world.rng
        self._interval, self._size, self._due = workload.learner.update_interval, workload.actors.local_storage, 0
        self._records = world.records(self._size)
        is_given = replay.initial_priority == "td_error"
        self._errors = world.rng.random(self._size).astype(np.float32) if is_given else None

    def call(self, turn: int) -> None:
        """Insert the due records, then take one gradient step."""
        self._due += self._interval
        # Invariant: ``_due`` is the number of records collected and not yet inserted.
        while self._due >= self._size:
            self._buffer.insert(self._records, self._errors)
            self._due -= self._size
        batch = self._buffer.sample(*self._sampled)
        result = self._learner.step(batch.rows, batch.weights)
        self._buffer.update_priorities(batch.sequence, result.priorities)


class Loop:
    """The serial loop as it trains, from a full buffer on; ``call`` takes the environment steps of one gradient step.

    The sum of a step's parts is compared with it. ``learner``, ``policy``: their implementations.
    """

    def __init__(self, world: World, contestant: str, learner: str = REFERENCE, policy: str = REFERENCE) -> None:
        workload, self._calls = world.workload, 0
        self._loop = SerialLoop(workload, contestant=contestant, learner=learner, policy=policy)
        self._loop.buffer.load_state_dict(world.full_state())
        self._loop.step = max(workload.learner.learning_starts, workload.exploration.random_steps)

    def call(self, turn: int) -> None:
        """Advance up to the next gradient step; of several that a turn brings, the next calls have the rest."""
        self._calls += 1
        while self._loop.updates < self._calls:
            self._loop.advance()
