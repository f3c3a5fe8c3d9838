"""The cells of a workload's profile, in groups that are timed in turns."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls import training
from impls.training import Workload
from impls.training.sizes import networks

ALONE = "nothing"  # beside an actor, a learner or a tree that is alone on its core
TREE = "numba"  # recommended unless a sweep says otherwise

PARTS = {
    "env step": "the environment alone, random actions, resets included",
    "inference act": "actions for B observations at once, exploration included",
    "actor step": "environment, inference and local storage; as many processes as threads, seconds of wall time a step",
    "learner step": "a gradient step on B records by so many threads of torch",
    "parallel_learners step": "the same by L learners on B/L records each and a parameter server, a thread a learner",
    "forward act": "the policy for B observations, nothing else",
    "numba draw": "B leaves and their priorities, of the workload's capacity and fanout",
    "numba update": "B priorities",
    "numba step": "draw, get, update: the tree's calls of a gradient step",
    "storage gather": "the transitions at B random slots",
    "storage write": "B records into the next slots",
    "weights publish": "a learner's weights into shared memory, or into a file that then takes the old file's name",
    "weights fetch": "the published weights into an actor's networks",
    "weights average": "the mean of k models' weights",
}


@dataclass(frozen=True)
class Preset:
    """The batches, the numbers of models, and the seconds of a sample, of the longest cell, and within which cells are
    begun."""

    batches: tuple[int, ...]
    convolution_batches: tuple[int, ...]
    models: tuple[int, ...]
    sample_seconds: float
    longest_cell_seconds: float
    most_seconds: float
    storage_bytes: int
    is_full: bool = False


PRESETS = {
    "quick": Preset((32, 128, 512, 2_048), (8, 32, 64), (2, 4, 8), 0.035, 3.0, 40.0, 1 << 28),
    "full": Preset(
        (32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384),
        (1, 4, 8, 16, 32, 64, 128, 256),
        (2, 4, 8, 16, 32),
        0.12,
        12.0,
        270.0,
        1 << 30,
        is_full=True,
    ),
}


@dataclass(frozen=True)
class Cell:
    """A part of ``PARTS`` as it is timed, under the names of a record.

    ``options`` name the workload and describe the cell. ``beside`` is a part that runs meanwhile, on the same core or
    on one of its own.
    """

    contestant: str
    op: str
    options: Mapping[str, Any]
    batch: int = 1
    threads: int = 1
    capacity: int = 0
    fanout: int = 16
    dtype: str = "float32"
    beside: "Cell | None" = field(default=None, compare=False)

    @property
    def workload(self) -> str:
        """The distribution of priorities, as a record names it."""
        return "uniform"

    @property
    def processes(self) -> int:
        """How many processes do the same work at once."""
        return self.threads if self.contestant == "actor" else 1

    def placed(self, other: "Cell", cores: str) -> "Cell":
        """Return the cell while another part runs on the "shared" core, or on its "own"."""
        options = {**self.options, "beside": other.contestant, "cores": cores}
        return dataclasses.replace(self, options=options, beside=other)


def options_of(workload: Workload) -> dict[str, Any]:
    """Return the options of a workload's records: its name and identity, and what describes its curves.

    ``macs`` and ``parameters`` are those of the network that acts.
    """
    acting = next(size for name, size in networks(workload).items() if name != "critic")
    return {
        "workload": workload.name,
        "identity": training.identity(workload),  # looked up late: asv imports this beside older commits, which lack it
        "macs": acting.macs,
        "parameters": acting.parameters,
        "update_interval": workload.learner.update_interval,
    }


def groups(workload: Workload, preset: Preset, cores: int) -> list[list[Cell]]:
    """Return every cell, in groups that answer one question each."""
    build = _CellBuilder(workload, preset, cores)
    parts = [
        build.actors(),
        build.learners(),
        *build.learner_batches(),
        build.forward(),
        build.trees(),
        build.storage(),
    ]
    return [list(group) for group in (*parts, build.weights(), build.together())]


class _CellBuilder:
    """Makes the groups of one workload."""

    def __init__(self, workload: Workload, preset: Preset, cores: int) -> None:
        self._workload, self._preset, self._cores = workload, preset, cores
        self._options = options_of(workload)
        listed = preset.convolution_batches if workload.network.kind == "convolution" else preset.batches
        self._batches = sorted({*listed, workload.learner.batch})
        doubled = [1 << power for power in range(cores.bit_length()) if 1 << power <= cores]
        rest = [cores - count for count in doubled if count < cores]  # for those that have the other cores
        self._counts = sorted({*doubled, *rest, cores, *([2 * cores] if preset.is_full else [])})

    def _cell(self, contestant: str, op: str, batch: int = 1, threads: int = 1, **more: Any) -> Cell:
        shape = {key: more.pop(key) for key in ("capacity", "fanout") if key in more}
        return Cell(contestant, op, {**self._options, **more}, batch, threads, **shape)

    def actors(self) -> Iterator[Cell]:
        """f_a(x) of Eq. 5 of [Zhang2021], and the parts of an actor's step."""
        yield self._cell("env", "step")
        for batch in sorted({1, self._workload.actors.count}):
            yield self._cell("inference", "act", batch)
        for count in self._counts:
            yield self._cell("actor", "step", threads=count)

    def learners(self) -> Iterator[Cell]:
        """f_l(x) of Eq. 5 of [Zhang2021] by a parameter server, beside the same gradient step by threads of torch."""
        batch = self._workload.learner.batch
        for count in self._counts:
            if count <= self._cores:
                yield self._cell("learner", "step", batch, count)
            if batch % count == 0:
                yield self._cell("parallel_learners", "step", batch, count)

    def learner_batches(self) -> Iterator[list[Cell]]:
        """T_train over the other batches, by one thread and by all."""
        others = [batch for batch in self._batches if batch != self._workload.learner.batch]
        is_slow = self._workload.network.kind == "convolution" and not self._preset.is_full
        for threads in sorted({1, 1 if is_slow else self._cores}):
            yield [self._cell("learner", "step", batch, threads) for batch in others]

    def forward(self) -> Iterator[Cell]:
        """A forward pass over the batch."""
        for batch in sorted({1, 4, 8, 16, *self._batches}):
            yield self._cell("forward", "act", batch)

    def trees(self) -> Iterator[Cell]:
        """Draws and updates at the workload's capacity and fanout."""
        replay = self._workload.replay
        for batch in self._batches:
            for op in ("draw", "update"):
                yield self._cell(TREE, op, batch, capacity=replay.capacity, fanout=replay.fanout)

    def storage(self) -> Iterator[Cell]:
        """Reading a batch, and writing a local storage's records."""
        capacity = self._workload.replay.capacity
        yield self._cell("storage", "gather", self._workload.learner.batch, capacity=capacity)
        yield self._cell("storage", "write", self._workload.actors.local_storage, capacity=capacity)

    def weights(self) -> Iterator[Cell]:
        """Handing weights from a learner to an actor, and averaging them."""
        for via in ("shared", "file"):
            for op in ("publish", "fetch"):
                yield self._cell("weights", op, via=via)
        for count in self._preset.models:
            yield self._cell("weights", "average", models=count)

    def together(self) -> Iterator[Cell]:
        """The two pairs that share cores in a loop: actors and learners, between which an allocation divides the cores,
        and a learner and its tree, whose nodes a gradient step drives out of the cache."""
        replay, batch = self._workload.replay, self._workload.learner.batch
        actor, learner = self._cell("actor", "step"), self._cell("learner", "step", batch)
        tree = self._cell(TREE, "step", batch, capacity=replay.capacity, fanout=replay.fanout)
        for part in (actor, learner, tree):
            yield dataclasses.replace(part, options={**part.options, "beside": ALONE})
        for first, second in ((actor, learner), (learner, tree)):
            has_own = self._cores > 1 and (first is actor or self._preset.is_full)
            for cores in ("shared", "own") if has_own else ("shared",):
                yield first.placed(second, cores)
                yield second.placed(first, cores)
