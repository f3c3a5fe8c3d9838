"""The cells of a workload's profile, in groups that are timed in alternation."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dse.platforms.fingerprint import fingerprint
from impls.training import Workload, identity, learners
from impls.training.arrangement import SEVERAL, Arrangement
from impls.training.settings import stated
from impls.training.weights import layout_of, list_value_layers, networks

ALONE = "nothing"  # load of an actor, a learner or a tree that is alone on its core
TREE = "numba"  # recommended unless a sweep says otherwise
CUDA = "cuda"
REFERENCE = "torch"  # of learners, and of the policies that actors act by; every workload has it

PARTS = {
    "env step": "the environment alone, random actions, resets included; of E environments at once, a turn of all",
    "env reset": "the beginning of an episode: the reset of the environment alone",
    "inference act": "actions for B observations at once, exploration included",
    "actor step": "environment, inference and local storage, of E at once; processes as threads, wall time of a turn",
    "learner step": "a gradient step on B records by a given number of threads of each implementation of the learner",
    "cuda step": "a gradient step by torch on a CUDA device, where there is one: B records sent, priorities fetched",
    "product step": "[H, H] times [H, B], H units of the last hidden layer, by dense's kernel: the bound of its step",
    "forward act": "the policy for B observations, nothing else",
    "numba draw": "B leaves and their priorities, of the workload's capacity and fanout",
    "numba update": "B priorities",
    "numba step": "draw, get, update: the tree's calls of a gradient step",
    "storage gather": "the transitions at B random slots",
    "storage write": "B records into the next slots",
    "loop step": "a gradient step of the serial loop with all that goes with it, from a full buffer on",
    "weights publish": "a learner's weights into shared memory, or into a file that then takes the old file's name",
    "weights fetch": "the published weights into an actor's networks",
    "weights average": "the mean of k models' weights",
}


@dataclass(frozen=True)
class Preset:
    """The batches, the numbers of models, and the seconds of a sample, of the longest cell, and within which cells are
    begun; the numbers E of environments that an actor steps at once, besides 1."""

    batches: tuple[int, ...]
    convolution_batches: tuple[int, ...]
    models: tuple[int, ...]
    sample_seconds: float
    longest_cell_seconds: float
    most_seconds: float
    storage_bytes: int
    environments: tuple[int, ...] = (8,)
    is_full: bool = False


PRESETS = {
    "brief": Preset((32, 512), (8, 64), (2, 8), 0.02, 3.0, 75.0, 1 << 28),  # what `make demo` measures
    "quick": Preset((32, 128, 512, 2_048), (8, 32, 64), (2, 4, 8), 0.03, 3.0, 90.0, 1 << 28),
    "full": Preset(
        tuple(1 << power for power in range(5, 15)), (1, *(1 << power for power in range(2, 9))), (2, 4, 8, 16, 32),
        0.12, 12.0, 270.0, 1 << 30, (8, 16), is_full=True,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A part of ``PARTS`` as it is timed, under the names of a record.

    ``options`` name the workload and describe the cell. ``beside`` is a part that runs meanwhile, on the same core or
    on one of its own.
    """

    contestant: str
    op: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1
    threads: int = 1
    capacity: int = 0
    fanout: int = 16
    dtype: str = "float32"
    beside: "Cell | None" = field(default=None, compare=False)

    @property
    def processes(self) -> int:
        """How many processes do the same work at once."""
        return self.threads if self.contestant == "actor" else 1

    def placed(self, other: "Cell", cores: str) -> "Cell":
        """Return the cell while another part runs on the "shared" core, or on its "own"."""
        options = {**self.options, "beside": other.contestant, "cores": cores}
        return dataclasses.replace(self, options=options, beside=other)


def change_tables(workload: Workload, tables: Mapping[str, Mapping[str, Any]]) -> Workload:
    """Return the workload with other values, by their table and name."""
    changed = {name: dataclasses.replace(getattr(workload, name), **values) for name, values in tables.items()}
    return dataclasses.replace(workload, **changed)


def options_of(workload: Workload) -> dict[str, Any]:
    """Return the options of a workload's records: its name and identity, and what describes its curves.

    ``macs`` and ``parameters`` are those of the network that acts.
    """
    acting = next(size for name, size in networks(workload).items() if name != "critic")
    size = {"macs": acting.macs, "parameters": acting.parameters, "update_interval": workload.learner.update_interval}
    return {"workload": workload.name, "identity": identity(workload), **size}


def options_of_run(workload: Workload, arrangement: Arrangement, learner: str, **shape: int) -> dict[str, Any]:
    """Return the options of a run by several processes, or by one, that learns and acts by an implementation.

    ``shape`` has other numbers than the workload: ``actors``, ``environments``, ``presampled``, ``update_interval``.
    """
    names = ("learners", "strategy", "sync", "transport", "weights", "ratio")
    return {
        "workload": workload.name, "arrangement": arrangement.name, "actors": workload.actors.count,
        "environments": workload.actors.environments, "presampled": workload.replay.presampled,
        "update_interval": workload.learner.update_interval, "batch": workload.learner.batch,
        "learner": learner, "policy": learner, **{name: getattr(arrangement, name) for name in names},
        **shape, **({"units": arrangement.units} if arrangement.units != "one" else {}),
    }  # fmt: skip


def shape_run(workload: Workload, options: Mapping[str, Any]) -> tuple[Workload, Arrangement]:
    """Return the workload and the arrangement of a run that has these options."""
    tables = {
        "actors": {"count": options["actors"], "environments": options["environments"]},
        "learner": {name: options[name] for name in ("update_interval", "batch")},
        "replay": {"presampled": options["presampled"]},
    }
    names = (*SEVERAL, "strategy", "transport", "weights", "ratio", "units")
    named = {name: options[name] for name in names if name in options}
    return change_tables(workload, tables), Arrangement(name=options["arrangement"], **named)


def facts_of(workload: Workload, preset: str = "", cells: Sequence[Sequence[Cell]] = ()) -> dict[str, Any]:
    """Return what a run's records hold of a workload, so that they can be read when its file is gone.

    Of a profile by a preset also that and how many cells it has, so that a reader knows whether some are left.
    """
    profile = {"preset": preset, "cells": sum(map(len, cells))}
    return {"workload": stated(workload)} | ({"profile": profile} if preset else {})


def implementations(workload: Workload) -> list[str]:
    """Return the implementations of learner and policy that suit the workload here, the reference first."""
    others = (name for name in learners.names() if name != REFERENCE)
    return [REFERENCE, *(name for name in others if learners.unsuited(name, workload) is None)]


def groups(workload: Workload, preset: Preset, cores: int, learners: Sequence[str] | None = None) -> list[list[Cell]]:
    """Return every cell, in groups that answer one question each; ``learners`` by default as ``implementations``."""
    build = _CellBuilder(workload, preset, cores, implementations(workload) if learners is None else learners)
    parts = build.loops(), build.cuda(), build.actors(), build.vectors(), build.learners(), *build.learner_batches()
    rest = build.forward(), build.trees(), build.storage(), build.weights(), build.together()
    return [list(group) for group in (*parts, *rest)]


def list_layer_cells(workload: Workload, preset: Preset, cores: int) -> list[list[Cell]]:
    """Return the cells of each layer of a value network, a group a layer; none where a policy is trained too."""
    build = _CellBuilder(workload, preset, cores, [REFERENCE])
    return [list(build.layer(number)) for number in range(1, len(list_value_layers(workload)) + 1)]


class _CellBuilder:
    """Makes the groups of one workload."""

    def __init__(self, workload: Workload, preset: Preset, cores: int, learners: Sequence[str]) -> None:
        self._workload, self._preset, self._cores, self._learners = workload, preset, cores, learners
        self._options, self._batch = options_of(workload), workload.learner.batch
        self._shape = {"capacity": workload.replay.capacity, "fanout": workload.replay.fanout}
        self._is_convolution = workload.network.kind == "convolution"
        self._batches = sorted({*(preset.convolution_batches if self._is_convolution else preset.batches), self._batch})
        doubled = [1 << power for power in range(cores.bit_length()) if 1 << power <= cores]
        rest = [cores - count for count in doubled if count < cores]  # for those that have the other cores
        self._counts = sorted({*doubled, *rest, cores, *([2 * cores] if preset.is_full else [])})
        # Numbers of environments at once besides 1, the workload's own among them.
        self._environments = sorted({*preset.environments, workload.actors.environments} - {1})

    def _cell(self, contestant: str, op: str, batch: int = 1, threads: int = 1, **more: Any) -> Cell:
        shape = {key: more.pop(key) for key in ("capacity", "fanout") if key in more}
        return Cell(contestant, op, {**self._options, **more}, batch, threads, **shape)

    def actors(self) -> Iterator[Cell]:
        """f_a(x) of Eq. 5 of [Zhang2021], and the parts of an actor's step."""
        yield from (self._cell("env", op) for op in ("step", "reset"))
        for learner in self._learners:
            for batch in sorted({1, self._workload.actors.count, *self._environments}):
                yield self._cell("inference", "act", batch, learner=learner)
            for count in self._counts:
                yield self._cell("actor", "step", threads=count, learner=learner)

    def vectors(self) -> Iterator[Cell]:
        """Turns of actors that step E environments at once, in one process, and of these environments alone."""
        for count in self._environments:
            yield self._cell("env", "step", environments=count)
            for learner in self._learners:
                yield self._cell("actor", "step", learner=learner, environments=count)

    def learners(self) -> Iterator[Cell]:
        """A gradient step by threads of torch; the others take one. Several learners: ``benchmarks learning``."""
        for count in (count for count in self._counts if count <= self._cores):
            for learner in self._learners[: None if count == 1 else 1]:
                yield self._cell("learner", "step", self._batch, count, learner=learner)
        if "dense" in self._learners:
            yield self._cell("product", "step", self._batch, learner="dense", units=self._workload.network.hidden[-1])

    def learner_batches(self) -> Iterator[list[Cell]]:
        """T_train over the other batches, by one thread and, for torch, by all."""
        others = [batch for batch in self._batches if batch != self._batch]
        for threads in sorted({1, 1 if self._is_convolution and not self._preset.is_full else self._cores}):
            some = self._learners[: None if threads == 1 else 1]
            yield [self._cell("learner", "step", batch, threads, learner=name) for name in some for batch in others]

    def cuda(self) -> Iterator[Cell]:
        """A gradient step over the batch on a GPU of this machine."""
        return (self._cell(CUDA, "step", batch) for batch in (self._batches if fingerprint()["gpus"] else ()))

    def layer(self, number: int) -> Iterator[Cell]:
        """Both passes of a layer alone and its update, by threads of torch, and on a GPU of this machine."""
        for op in ("forward", "backward", "update"):
            for count in (count for count in self._counts if count <= self._cores):
                yield self._cell("layer", op, self._batch, count, layer=number, device="cpu")
            if fingerprint()["gpus"]:
                yield self._cell("layer", op, self._batch, layer=number, device=CUDA)

    def forward(self) -> Iterator[Cell]:
        """A forward pass over the batch; in a short profile, of others than the reference over few batches."""
        for learner in self._learners:
            is_short = learner != REFERENCE and not self._preset.is_full
            for batch in sorted({1, self._batch} if is_short else {1, 4, 8, 16, *self._batches}):
                yield self._cell("forward", "act", batch, learner=learner)

    def trees(self) -> Iterator[Cell]:
        """Draws and updates at the workload's capacity and fanout."""
        return (self._cell(TREE, op, batch, **self._shape) for batch in self._batches for op in ("draw", "update"))

    def storage(self) -> Iterator[Cell]:
        """Reading a batch, and writing a local storage's records."""
        for op, batch in (("gather", self._batch), ("write", self._workload.actors.local_storage)):
            yield self._cell("storage", op, batch, capacity=self._shape["capacity"])

    def loops(self) -> Iterator[Cell]:
        """The whole serial loop by each implementation, where its records fit into what storage may take."""
        fits = self._shape["capacity"] * layout_of(self._workload).record_bytes <= self._preset.storage_bytes
        count = self._workload.actors.environments
        shape = self._shape | ({"environments": count} if count > 1 else {})
        for learner in self._learners if fits else ():
            yield self._cell("loop", "step", self._batch, learner=learner, policy=learner, **shape)

    def weights(self) -> Iterator[Cell]:
        """Handing weights from a learner to an actor, and averaging them."""
        yield from (self._cell("weights", op, via=via) for via in ("shared", "file") for op in ("publish", "fetch"))
        yield from (self._cell("weights", "average", models=count) for count in self._preset.models)

    def together(self) -> Iterator[Cell]:
        """The two pairs that share cores in a loop: actors and learners, between which an allocation divides the cores,
        and a learner and its tree, whose nodes a gradient step drives out of the cache."""
        actor = self._cell("actor", "step", learner=REFERENCE)
        learner = self._cell("learner", "step", self._batch, learner=REFERENCE)
        tree = self._cell(TREE, "step", self._batch, **self._shape)
        for part in (actor, learner, tree):
            yield dataclasses.replace(part, options={**part.options, "beside": ALONE})
        for first, second in ((actor, learner), (learner, tree)):
            has_own = self._cores > 1 and (first is actor or self._preset.is_full)
            for cores in ("shared", "own") if has_own else ("shared",):
                yield first.placed(second, cores)
                yield second.placed(first, cores)
