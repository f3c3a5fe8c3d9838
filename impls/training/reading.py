"""Workload files: TOML, read strictly, with everything that is wrong reported at once.

    name = "mine"
    environment = "CartPole-v1"
    algorithm = "dqn"
    steps = 50_000
    [observation]
    shape = [4]
    [action]
    choices = 2
    [network]
    hidden = [64, 64]
    [learner]
    batch = 64
    ...

The fields of ``workload.Workload`` and of its tables say which keys there are, what they mean and what they may be;
``python -m impls.training keys`` prints them. A key left out has its default.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..strict_toml import Faults, Field, Files, KeyPath, Reader, UnreadableError
from .errors import WorkloadError
from .workload import FAMILIES, TIMED, Actors, Exploration, Model, Replay, Workload

KIND = "workload"
_ALGORITHM = re.compile(r'(?m)^algorithm = "(\w+)"')
_MOST_CHANNELS = 16  # as many as frames can be stacked
_STORED_PER_FRAME = 8  # least records of an insert for each frame that it repeats


def _build(data: Mapping[str, Any]) -> tuple[Workload | None, Faults]:
    """(workload, no faults), or (None, all faults). UnreadableError for no data."""
    if not data:
        raise UnreadableError("is empty: a workload has a name, an environment and an algorithm at least")
    reader = _Reader()
    workload: Workload | None = reader.table(Workload, data, ())
    faults = list(_between(workload)) if workload else reader.faults
    return None if faults else workload, faults


_FILES = Files(KIND, Path(__file__).parent / "workloads", _build, WorkloadError)
names, path_of, parse, text_of = _FILES.names, _FILES.path_of, _FILES.parse, _FILES.text_of


def load(name: str | Path) -> Workload:
    """The shipped workload of that name, or the one in a file. WorkloadError with everything that is wrong."""
    return _FILES.load(path_of(name))


def timed_names() -> tuple[str, ...]:
    """The shipped workloads that ``load_timed`` takes."""
    found = ((name, _ALGORITHM.search(path_of(name).read_text("utf-8"))) for name in names())
    return tuple(name for name, stated in found if stated and stated[1] in TIMED)


def load_timed(name: str | Path) -> Workload:
    """The same of an algorithm all of whose parts are timed, which profiles and the solver need. WorkloadError else."""
    if (workload := load(name)).algorithm not in TIMED:
        raise WorkloadError(
            f"{workload.name}: neither profiles nor the solver time {workload.algorithm}, of which gradient steps are "
            f"but a part; ask about a workload of {', '.join(TIMED)}, or train it: python -m impls.training {name}"
        )
    return workload


def faults_of(workload: Workload) -> list[str]:
    """All faults that reading such a workload from a file would report, for one that a program changed."""
    _, faults = _build(stated(workload))
    return [f"[{path[0]}] {sentence}" if len(path) > 1 else sentence for path, sentence in faults]


def stated(table: Any) -> dict[str, Any]:
    """The keys that a file would state; defaults are omitted, because some lie outside their key's range."""
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if dataclasses.is_dataclass(value):
            keys[field.name] = stated(value)
        elif value != field.default:
            keys[field.name] = list(value) if isinstance(value, tuple) else value
    return keys


def of_stated(keys: Any) -> Workload | None:
    """The workload of which ``stated`` gave these keys; None for anything else."""
    return _build(keys)[0] if keys and isinstance(keys, dict) else None


class _Reader(Reader):
    """Reads numbers and checks the ranges that the fields of ``Workload`` state."""

    def value(self, field: Field, value: Any, path: KeyPath) -> Any:
        rules = field.metadata
        match rules.get("shape"), value:
            case "true or false", bool():
                return value
            case "a number", int() | float() if not isinstance(value, bool):
                return float(max(rules["low"], min(self._in_range(rules, value, path), rules["high"])))
            case "a whole number", int() if not isinstance(value, bool):
                return self._in_range(rules, value, path)
            case "an array of whole numbers", list() if all(type(part) is int for part in value):
                if not 1 <= len(value) <= rules["most"]:
                    self.fault(path, f"{path[-1]} must have 1 to {rules['most']} numbers, not {len(value)}")
                return tuple(self._in_range(rules, part, path) for part in value)
        return super().value(field, value, path)

    def _in_range(self, rules: Mapping[str, Any], value: Any, path: KeyPath) -> Any:
        low, high, above = rules["low"], rules["high"], rules.get("above", False)
        if not low <= value <= high or (above and value == low):  # so said, NaN is refused too
            bounds = f"above {low:g}" if above else f"at least {low:,}"
            self.fault(path, f"{path[-1]} must be {bounds} and at most {high:,}, not {str(value)[:24]}")
        return value

    def expected(self, field: Field, path: KeyPath) -> str:
        return f"{'' if field.metadata else 'a table, '}{super().expected(field, path)}"

    def kind_of(self, value: object) -> str:
        if isinstance(value, list):
            return "an array of other things"
        return str(value) if isinstance(value, float) else super().kind_of(value)


def _between(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults between keys that may each be right."""
    action, learner, replay = workload.action, workload.learner, workload.replay
    if (action.choices > 0) == (action.size > 0):
        yield ("action",), "[action] has either choices or size"
    elif workload.has_choices and not action.choices:
        yield ("algorithm",), f"{workload.algorithm} needs an [action] with choices, this one has a size"
    if workload.network.kind == "convolution" and workload.family != "dqn":
        yield ("network", "kind"), f"a convolution is for dqn, the algorithm is {workload.algorithm}"
    if workload.network.dueling and workload.family != "dqn":
        yield ("network", "dueling"), f"dueling is for dqn, the algorithm is {workload.algorithm}"
    yield from _of_frames(workload)
    if workload.algorithm in FAMILIES:
        yield from _of_models(workload)
    elif workload.model != Model():
        yield ("model",), f"{workload.algorithm} learns no model of the environment; leave [model] out"
    if learner.target_interval == 1 and learner.tau == 1:
        yield ("learner", "tau"), "there is no target network; give tau below 1 or target_interval above 1"
    environments = workload.actors.count * workload.actors.environments
    least = max(learner.batch, environments * workload.actors.local_storage)
    if learner.learning_starts < least:
        room = f"{least:,}, a batch and every environment's local storage once"
        yield ("learner", "learning_starts"), f"learning_starts must be at least {room}"
    least += workload.observation.frames * workload.actors.environments
    if workload.algorithm == "a3c":
        yield from _of_rollouts(workload)
    elif not replay.capacity:
        yield ("replay",), "has no [replay] with a capacity, which every algorithm but a3c needs"
    elif replay.capacity < least:
        yield ("replay", "capacity"), f"capacity must be at least {least:,}, a batch and every local storage"
    if workload.family == "dqn" and max(workload.exploration.start, workload.exploration.end) > 1:
        key = "start" if workload.exploration.start > 1 else "end"
        yield ("exploration", key), f"{key} must be at most 1 for dqn, of which it is a chance"


def _of_rollouts(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults of a3c, which learns once from each n steps, and then forgets them."""
    learner = workload.learner
    if workload.replay != Replay():
        yield ("replay",), "a3c has no replay; leave [replay] out"
    if not learner.batch == learner.update_interval == learner.learning_starts:
        numbers = f"{learner.batch}, {learner.update_interval} and {learner.learning_starts}"
        yield (
            ("learner", "batch"),
            (
                "a3c learns from each n steps once: batch, update_interval and learning_starts must all be n, not "
                f"{numbers}"
            ),
        )
    if workload.actors != Actors():
        yield ("actors",), "a3c has one actor of one environment, which hands over each step; give it more copies"
    if workload.exploration != Exploration():
        yield ("exploration",), "a3c explores by its policy alone; leave [exploration] out"
    if workload.observation.frames > 1:
        yield ("observation", "frames"), "a3c takes no stacks of frames; leave frames out, or let the environment stack"


def _of_models(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults of what a model of the environment does not predict."""
    seen, name = workload.observation, workload.algorithm
    if seen.dtype == "uint8" or seen.frames > 1 or workload.network.kind == "convolution":
        yield (
            ("observation",),
            f"{name} predicts numbers, not images; give it dtype float32, frames 1 and an mlp, or train dqn",
        )
    own = {key: getattr(workload.model, key) for key in ("interval", "rollouts", "segments", "updates", "epochs")}
    if name != "memr" and (idle := next((key for key in own if own[key] != getattr(Model(), key)), None)):
        yield ("model", idle), f"{idle} is of memr, and would change nothing of {name}; leave it out"
    if workload.clip_rewards:
        yield ("clip_rewards",), f"{name} predicts rewards, none of which is exactly 0; leave clip_rewards out"
    if name == "memr":
        yield from _of_segments(workload)


def _of_segments(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults of memr, which learns from segments of what a model says of its own actions."""
    replay = workload.replay
    if workload.action.choices:
        yield (
            ("action",),
            f"memr has actions of numbers, not of {workload.action.choices} choices; give [action] a size",
        )
    if replay.presampled:
        path, told = ("replay", "presampled"), f"must be 0, not {replay.presampled:,}"
        yield path, f"memr samples after each step, with priorities of that step: presampled {told}; leave it out"
    if replay.initial_priority != "max":
        path, told = ("replay", "initial_priority"), replay.initial_priority
        yield (
            path,
            f"priorities of memr are of actions, not of errors: initial_priority {told} is not max; leave it out",
        )


def _of_frames(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults between the shape of observations, the network and local storage."""
    seen, storage = workload.observation, workload.actors.local_storage
    if workload.network.kind == "convolution" and len(seen.stacked) != 3:
        yield ("network", "kind"), "a convolution takes observations of 3 dimensions, frames included"
    elif workload.network.kind == "convolution" and seen.stacked[0] > _MOST_CHANNELS:
        shapes = f"[H, W], or [C, H, W] with C at most {_MOST_CHANNELS}"
        yield ("observation", "shape"), f"a convolution takes frames {shapes}, not {seen.shape[0]}"
    least = _STORED_PER_FRAME * seen.frames
    if seen.frames > 1 and storage < least and workload.algorithm != "a3c":
        stated = storage > 1  # otherwise it is the frames that a file states
        path = ("actors", "local_storage") if stated else ("observation", "frames")
        yield path, f"local_storage must be at least {least} with {seen.frames} frames, which each insert repeats"
