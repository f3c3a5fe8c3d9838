"""The one description of a benchmark case, which the sweep, asv and pytest-benchmark all time.

A case says what is timed; :func:`prepare` turns it into a filled tree, rotating inputs and a call, checked against the
oracle on the very inputs that it will be timed with.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import impls
from impls import SumTree
from impls.sumtree.oracle import Oracle

OPS = {
    "sample": "prefix_sum_index(mass): the leaves that B prefix values fall on",
    "draw": "sample(uniforms): B leaves and their priorities",
    "update": "B priorities, of leaves as training samples them",
    "get": "B priorities read",
    "insert": "the next B slots, first in first out, all at one priority",
    "step": "one step of training: draw, get, update; modeled for an FPGA without the get",
    "total": "the root",
    "upload": "B uniforms from the host to where the tree is",
    "download": "B indices from there to the host",
}
DISTRIBUTIONS = {
    "uniform": "priorities uniform in [0, 1)",
    "rank0.2": "rank**-0.2, ranks shuffled (rank-based PER, alpha 0.2)",
    "rank0.6": "rank**-0.6",
    "rank1.0": "rank**-1.0",
    "mostly_zero": "9 of 10 leaves are 0: a buffer being filled",
    "newest_max": "the newest 5 % at the highest priority, the rest uniform",
}
ROTATION = 1 << 18  # distinct elements the inputs rotate through, so that no branch predictor learns them
MOST_BATCHES = 1 << 12  # arrays that hold them: more would not stay in the cache, and time their objects instead
INSERTED_PRIORITY = 1.0


@dataclass(frozen=True)
class Case:
    """One cell of a benchmark. ``options`` are the implementation's own, ``duplicates`` the fraction of a batch that
    repeats one leaf. ValueError for an unknown op or distribution, ``emulate``, and a fraction outside [0, 1]."""

    contestant: str
    op: str
    capacity: int
    batch: int
    fanout: int = 16
    threads: int = 1
    dtype: str = "float32"
    options: Mapping[str, Any] = field(default_factory=dict)
    distribution: str = "uniform"
    duplicates: float = 0.0

    def __post_init__(self) -> None:
        for what, value, known in (("op", self.op, OPS), ("distribution", self.distribution, DISTRIBUTIONS)):
            if value not in known:
                raise ValueError(f"{what} must be one of {', '.join(known)}, not {value!r}")
        if self.options.get("emulate"):
            raise ValueError("emulate=True is for tests: it is never timed")
        if not 0 <= self.duplicates <= 1:
            raise ValueError(f"duplicates must be in [0, 1], not {self.duplicates}")

    @property
    def workload(self) -> str:
        """Distribution and duplicates, as a record names them."""
        return self.distribution + (f"+dup{self.duplicates:g}" if self.duplicates else "")


class WrongAnswerError(Exception):
    """The implementation's answer on the case's own inputs is not the oracle's: it must not be timed."""


@dataclass(frozen=True)
class Prepared:
    """A case ready to be timed: ``call(turn)`` does one batch, on the inputs of that turn."""

    case: Case
    tree: SumTree
    call: Callable[[int], object]


def prepare(case: Case, seed: int = 0, make: Callable[..., Any] | None = None) -> Prepared:
    """Fill the tree, make the inputs, check the answer. RuntimeError (not available here), WrongAnswerError.

    ``make`` makes the tree, by default ``impls.make``. The tree's ``place`` converts the inputs for it, outside of the
    clock; another library's tree may have a ``leniency``, by which its answers are judged.
    """
    shape = {"fanout": case.fanout, "dtype": case.dtype, "threads": case.threads}
    tree = (make or impls.make)(case.contestant, case.capacity, **shape, **case.options)
    load(tree, case.distribution, seed)
    inputs = _inputs(case.capacity, case.batch, case.dtype, case.distribution, case.duplicates, seed)
    call = _CALLS[case.op](tree, _placed(tree, inputs))
    leaves = _leaves(case.capacity, case.dtype, case.distribution, seed)
    _check(case, inputs, tree, leaves, call(0))
    return Prepared(case, tree, call)


def load(tree: SumTree, distribution: str, seed: int = 0) -> None:
    """Give the tree the priorities of a distribution."""
    leaves = _leaves(tree.capacity, tree.dtype.name, distribution, seed)
    tree.load_state_dict({"leaves": leaves, "capacity": tree.capacity, "dtype": tree.dtype.name})


# Inputs: the same for every implementation of a cell, made once.


@dataclass(frozen=True)
class _Inputs:
    """``batches`` rows ``[B]`` of each input: uniforms (also as the host has them), prefix values, indices as training
    samples them, slots in insertion order, priorities; and the priorities ``[B]`` of an insertion."""

    batches: int
    on_host: list[Any]
    uniforms: list[Any]
    masses: list[Any]
    indices: list[Any]
    slots: list[Any]
    priorities: list[Any]
    inserted: Any


@functools.lru_cache(maxsize=4)
def _leaves(capacity: int, dtype: str, distribution: str, seed: int) -> Any:
    rng = np.random.default_rng([seed, capacity])
    match distribution:
        case "uniform":
            leaves = rng.random(capacity)
        case "mostly_zero":
            leaves = np.where(np.arange(capacity) < max(1, capacity // 10), rng.random(capacity) + 1e-3, 0.0)
        case "newest_max":
            leaves = np.where(np.arange(capacity) < max(1, capacity // 20), 1.0, rng.random(capacity))
        case _:
            leaves = rng.permutation(np.arange(1.0, capacity + 1) ** -float(distribution.removeprefix("rank")))
    return leaves.astype(dtype)


@functools.lru_cache(maxsize=4)
def _inputs(capacity: int, batch: int, dtype: str, distribution: str, duplicates: float, seed: int) -> _Inputs:
    rng = np.random.default_rng([seed, capacity, batch])
    leaves = _leaves(capacity, dtype, distribution, seed)
    ends = np.cumsum(leaves, dtype=np.float64)
    batches = min(MOST_BATCHES, max(1, ROTATION // batch))
    shape = (batches, batch)
    uniforms = rng.random(shape)
    masses = uniforms * ends[-1] * (1 - 1e-12)  # below the total, however an implementation rounds it
    indices = ends.searchsorted(rng.random(shape) * ends[-1], side="right").clip(max=capacity - 1)
    repeated = rng.random(shape) < duplicates
    indices = np.where(repeated, indices[:, :1], indices)
    slots = np.arange(batches * batch).reshape(shape) % capacity
    positive = leaves[leaves > 0]  # training never sets a priority to 0
    priorities = positive[rng.integers(0, positive.size, shape)].astype(np.float64)
    inserted = np.full(batch, INSERTED_PRIORITY)
    return _Inputs(batches, list(uniforms), *map(list, (uniforms, masses, indices, slots, priorities)), inserted)


def _placer(tree: SumTree) -> Callable[[Any], Any]:
    """Return what turns a batch into the tree's own arrays; commits older than ``place`` take NumPy arrays."""
    return getattr(tree, "place", lambda batch: batch)


def _placed(tree: SumTree, inputs: _Inputs) -> _Inputs:
    """Return the inputs as the tree takes them; the very same lists if it takes NumPy arrays as they are.

    On a device a list is one array and its rows, for sending the rows one by one would take minutes.
    """
    place = _placer(tree)
    if place(inputs.inserted) is inputs.inserted:
        return inputs
    lists = (inputs.uniforms, inputs.masses, inputs.indices, inputs.slots, inputs.priorities)
    if getattr(tree, "device", "cpu") == "cpu":
        placed = ([place(batch) for batch in rows] for rows in lists)
    else:
        placed = (list(place(np.stack(rows))) for rows in lists)
    return _Inputs(inputs.batches, inputs.on_host, *placed, place(inputs.inserted))


# Calls: what one turn of each op does.


def _batched(operation: Callable[..., object], rows: list[Any], inputs: _Inputs) -> Callable[[int], object]:
    batches = inputs.batches
    return lambda turn: operation(rows[turn % batches])


def _update(tree: SumTree, inputs: _Inputs) -> Callable[[int], object]:
    update, indices, priorities, batches = tree.update, inputs.indices, inputs.priorities, inputs.batches
    return lambda turn: update(indices[turn % batches], priorities[turn % batches])


def _insert(tree: SumTree, inputs: _Inputs) -> Callable[[int], object]:
    update, slots, inserted, batches = tree.update, inputs.slots, inputs.inserted, inputs.batches
    return lambda turn: update(slots[turn % batches], inserted)


def _step(tree: SumTree, inputs: _Inputs) -> Callable[[int], object]:
    uniforms, priorities, batches = inputs.uniforms, inputs.priorities, inputs.batches

    def step(turn: int) -> object:
        indices, _ = tree.sample(uniforms[turn % batches])
        tree.get(indices)
        tree.update(indices, priorities[turn % batches])
        return indices

    return step


_CALLS: dict[str, Callable[[SumTree, _Inputs], Callable[[int], object]]] = {
    "sample": lambda tree, inputs: _batched(tree.prefix_sum_index, inputs.masses, inputs),
    "draw": lambda tree, inputs: _batched(tree.sample, inputs.uniforms, inputs),
    "update": _update,
    "get": lambda tree, inputs: _batched(tree.get, inputs.indices, inputs),
    "insert": _insert,
    "step": _step,
    "total": lambda tree, inputs: lambda turn: tree.total(),
    "upload": lambda tree, inputs: _batched(_placer(tree), inputs.on_host, inputs),
    "download": lambda tree, inputs: _batched(impls.to_numpy, inputs.indices, inputs),
}


# The gate: the answer on the case's own inputs, and the tree's leaves and total afterwards.


@dataclass(frozen=True)
class Leniency:
    """What the gate forgives other libraries: rounding to ``tolerance`` times the total or the largest leaf, so many
    ``faults`` a batch, sampling by random numbers of its own, the first of equal indices winning, or any of them, and
    priorities that nobody can read back (``blind``)."""

    tolerance: float = 0.0
    faults: float = 0.0
    own_random_numbers: bool = False
    first_duplicate_wins: bool = False
    any_duplicate_wins: bool = False
    blind: bool = False


def _check(case: Case, inputs: _Inputs, tree: SumTree, leaves: Any, answer: Any) -> None:
    """Compare the answer of turn 0, and the tree after it, with the oracle's. WrongAnswerError where they differ."""
    lenient = getattr(tree, "leniency", Leniency())
    oracle = Oracle(case.capacity, case.dtype, getattr(tree, "rounded", None))
    oracle.leaves[:] = oracle.rounded(leaves)
    total = oracle.total()
    wrong, written = 0, None
    match case.op:
        case "sample":
            wrong = _misses(oracle, answer, inputs.masses[0], lenient)
        case "draw":
            wrong = _misses(oracle, answer[0], inputs.uniforms[0] * total, lenient)
            wrong += _differ(oracle, answer[1], impls.to_numpy(answer[0]), lenient)
        case "get":
            wrong = _differ(oracle, answer, inputs.indices[0], lenient)
        case "upload" | "download":
            sent = inputs.uniforms[0] if case.op == "upload" else inputs.indices[0]
            wrong = int((impls.to_numpy(answer) != sent).sum())
        case "update":
            written = inputs.indices[0], inputs.priorities[0]
        case "insert":
            written = inputs.slots[0], inputs.inserted
        case "step":
            written = impls.to_numpy(answer), inputs.priorities[0]
            wrong = _misses(oracle, answer, inputs.uniforms[0] * total, lenient)
    if written and wrong <= lenient.faults * case.batch:
        order = slice(None, None, -1 if lenient.first_duplicate_wins else 1)
        oracle.update(written[0][order], written[1][order])
        stored = None if lenient.blind else impls.to_numpy(tree.get(_placer(tree)(written[0])))
        if lenient.any_duplicate_wins:
            _follow(oracle, written, stored)
        wrong = _differ(oracle, stored, written[0], lenient)
    if wrong > lenient.faults * case.batch:
        raise WrongAnswerError(f"{wrong} of {case.batch} answers are not the oracle's")
    if not lenient.blind and abs(tree.total() - oracle.total()) > max(1e-9, lenient.tolerance) * max(
        total, oracle.total()
    ):
        raise WrongAnswerError(f"the total is {tree.total()!r}, the oracle's {oracle.total()!r}")


def _follow(oracle: Oracle, written: Any, stored: Any) -> None:
    """Let the oracle hold the tree's priority wherever this batch wrote that priority to that leaf."""
    pairs = set(zip(written[0].tolist(), written[1].astype(oracle.dtype).tolist(), strict=True))
    for index, priority in zip(written[0].tolist(), stored.tolist(), strict=True):
        if (index, priority) in pairs:
            oracle.update(index, priority)


def _misses(oracle: Oracle, answer: Any, mass: Any, lenient: Leniency) -> int:
    """Count the leaves of an answer that the prefix values do not fall on, or that may not be sampled at all."""
    tolerance = 1.0 if lenient.own_random_numbers else max(1e-9, lenient.tolerance)
    return oracle.misses(impls.to_numpy(answer), mass, tolerance).size


def _differ(oracle: Oracle, answer: Any, indices: Any, lenient: Leniency) -> int:
    """Count the priorities of an answer that are not those of the leaves."""
    if lenient.blind:
        return 0
    slack = lenient.tolerance * oracle.leaves.max()
    right = oracle.get(np.clip(indices, 0, oracle.leaves.size - 1))
    return int((np.abs(impls.to_numpy(answer) - right) > slack).sum())
