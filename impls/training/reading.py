"""Workload files: TOML, read strictly, with everything that is wrong told at once.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..strict_toml import Faults, Problem, UnreadableError, by_line, content, kind_of, near, short, tables
from .errors import WorkloadError
from .workload import CONTINUOUS, Workload

KIND = "workload"
_SHIPPED = Path(__file__).parent / "workloads"
_MOST_CHANNELS = 16  # as many as frames can be stacked
_STORED_PER_FRAME = 8  # an insert repeats the frames before it, here an eighth of it at most
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def names() -> list[str]:
    """The shipped workloads."""
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def load(name: str | Path) -> Workload:
    """The shipped workload of that name, or that of a file. WorkloadError with everything that is wrong."""
    where = path_of(name)
    workload, found = read(where)
    if workload is None:
        raise WorkloadError("\n".join(map(str, found)))
    return workload


def path_of(name: str | Path) -> Path:
    """The file of a workload by its name, or the path itself. WorkloadError for a name that nothing has."""
    if str(name) in names():
        return _SHIPPED / f"{name}.toml"
    path = Path(name)
    if path.suffix == ".toml" or len(path.parts) != 1:
        return path
    known = names()
    raise WorkloadError(
        f"no workload {short(str(name))}; there are {', '.join(known)}, or name a .toml file{near(str(name), known)}"
    )


def read(path: Path) -> tuple[Workload | None, list[Problem]]:
    """(workload, nothing), or (None, all that is wrong with the file)."""
    try:
        return parse(content(path, KIND), str(path))
    except UnreadableError as error:
        return None, [Problem(str(path), error.line, str(error))]


def parse(text: str, where: str) -> tuple[Workload | None, list[Problem]]:
    """(workload, nothing), or (None, all that is wrong with the text); ``where`` is what problems call the file."""
    try:
        data = tables(text, KIND)
    except UnreadableError as error:
        return None, [Problem(where, error.line, str(error))]
    if not data:
        return None, [Problem(where, 0, "is empty: a workload has a name, an environment and an algorithm at least")]
    reader = _Reader()
    workload: Workload | None = reader.table(Workload, data, ())
    if workload is not None:
        reader.faults += _between(workload)
    if reader.faults:
        return None, by_line(reader.faults, text, where)
    return workload, []


def faults_of(workload: Workload) -> list[str]:
    """All that reading such a workload from a file would find wrong: sentences, for one that a program changed."""
    reader = _Reader()
    reader.table(Workload, _stated(workload), ())
    found = reader.faults or _between(workload)
    return [f"[{path[0]}] {sentence}" if len(path) > 1 else sentence for path, sentence in found]


def _stated(table: Any) -> dict[str, Any]:
    """What a file would say; a default may be outside the range of what can be stated."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if dataclasses.is_dataclass(value):
            found[field.name] = _stated(value)
        elif value != field.default:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


class _Reader:
    """Reads tables into dataclasses, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.faults: Faults = []

    def table(self, of: type, data: Mapping[str, Any], path: tuple[str, ...]) -> Any:
        """The table as an ``of``, or None with faults."""
        before, given, fields = len(self.faults), {}, {field.name: field for field in dataclasses.fields(of)}
        for key, value in data.items():
            if key in fields:
                given[key] = self._value(fields[key], value, (*path, key))
            else:
                self.faults.append(((*path, key), f"unknown key {short(key)}{near(key, fields)}"))
        lacking = [name for name, field in fields.items() if name not in given and _is_needed(field)]
        if lacking:
            what = f"[{'.'.join(path)}]" if path else "this workload"
            shown = [f"[{name}]" if dataclasses.is_dataclass(fields[name].type) else name for name in lacking]
            self.faults.append((path, f"{what} lacks {', '.join(shown)}"))
        return None if len(self.faults) > before else of(**given)

    def _value(self, field: "dataclasses.Field[Any]", value: Any, path: tuple[str, ...]) -> Any:
        meta: Mapping[str, Any] = field.metadata or {"shape": "table"}
        match str(meta["shape"]), value:
            case ("table", dict()):
                of: Any = field.type
                return self.table(of, value, path)
            case ("text", str()):
                return self._text(meta["choices"], value, path)
            case ("flag", bool()):
                return value
            case ("real", int() | float()) if not isinstance(value, bool):
                return float(min(self._in_range(meta, value, path), meta["high"]))
            case ("whole", int()) if not isinstance(value, bool):
                return self._in_range(meta, value, path)
            case ("wholes", list()) if all(type(part) is int for part in value):
                if not 1 <= len(value) <= meta["most"]:
                    self._fault(path, f"must have 1 to {meta['most']} numbers, not {len(value)}")
                return tuple(self._in_range(meta, part, path) for part in value)
        self._fault(path, f"must be {_WANTED[meta['shape']].format(path[-1])}, not {_found(value)}")
        return None

    def _fault(self, path: tuple[str, ...], sentence: str) -> None:
        self.faults.append((path, f"{path[-1]} {sentence}"))

    def _text(self, choices: tuple[str, ...], value: str, path: tuple[str, ...]) -> str:
        plain = " ".join(value.split())
        if choices and value not in choices:
            self._fault(path, f"must be one of {', '.join(choices)}, not {short(value)}{near(value, choices)}")
        elif path == ("name",) and not _NAME.fullmatch(value):
            self._fault(path, f"must be of at most 64 letters, digits, _ and -, not {short(value)}")
        elif not plain or not plain.isprintable():
            self._fault(path, f"must be printable text, not {short(value)}")
        return plain

    def _in_range(self, meta: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> Any:
        low, high, above = meta["low"], meta["high"], meta.get("above", False)
        if not low <= value <= high or (above and value == low):  # so said, NaN is refused too
            bounds = f"above {low:g}" if above else f"at least {low:,}"
            self._fault(path, f"must be {bounds} and at most {high:,}, not {str(value)[:24]}")
        return value


_WANTED = {
    "table": "a table, [{}]",
    "text": "text in quotes",
    "flag": "true or false",
    "real": "a number",
    "whole": "a whole number",
    "wholes": "an array of whole numbers",
}


def _found(value: object) -> str:
    if isinstance(value, list):
        return "an array of other things"
    return str(value) if isinstance(value, float) else kind_of(value)


def _is_needed(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _between(workload: Workload) -> Faults:
    """What is wrong between keys that may each be right."""
    faults: Faults = []
    action, learner, replay = workload.action, workload.learner, workload.replay
    if (action.choices > 0) == (action.size > 0):
        faults.append((("action",), "[action] has either choices or size"))
    elif workload.algorithm not in CONTINUOUS and not action.choices:
        faults.append((("algorithm",), f"{workload.algorithm} needs an [action] with choices, this one has a size"))
    if workload.network.kind == "convolution" and workload.algorithm != "dqn":
        faults.append((("network", "kind"), f"a convolution is for dqn, the algorithm is {workload.algorithm}"))
    if workload.network.dueling and workload.algorithm != "dqn":
        faults.append((("network", "dueling"), f"dueling is for dqn, the algorithm is {workload.algorithm}"))
    faults += _of_frames(workload)
    if learner.target_interval == 1 and learner.tau == 1:
        told = "there is no target network; give tau below 1 or target_interval above 1"
        faults.append((("learner", "tau"), told))
    least = max(learner.batch, workload.actors.count * workload.actors.local_storage)
    if learner.learning_starts < least:
        told = f"learning_starts must be at least {least:,}, a batch and every actor's local storage once"
        faults.append((("learner", "learning_starts"), told))
    if replay.capacity < least + workload.observation.frames:
        told = f"capacity must be at least {least + workload.observation.frames:,}, a batch and every local storage"
        faults.append((("replay", "capacity"), told))
    if workload.algorithm == "dqn" and max(workload.exploration.start, workload.exploration.end) > 1:
        key = "start" if workload.exploration.start > 1 else "end"
        faults.append((("exploration", key), f"{key} must be at most 1 for dqn, of which it is a chance"))
    return faults


def _of_frames(workload: Workload) -> Faults:
    """What is wrong with how observations are shown and stored."""
    faults: Faults = []
    seen, actors = workload.observation, workload.actors
    if workload.network.kind == "convolution":
        if len(seen.stacked) != 3:
            faults.append((("network", "kind"), "a convolution takes observations of 3 dimensions, frames included"))
        elif seen.stacked[0] > _MOST_CHANNELS:
            told = (
                f"a convolution takes frames [H, W], or [C, H, W] with C at most {_MOST_CHANNELS}, not {seen.shape[0]}"
            )
            faults.append((("observation", "shape"), told))
    least = _STORED_PER_FRAME * seen.frames
    if seen.frames > 1 and actors.local_storage < least:
        told = f"local_storage must be at least {least} with {seen.frames} frames, which each insert repeats"
        stated = actors.local_storage > 1  # otherwise it is the frames that a file states
        faults.append((("actors", "local_storage") if stated else ("observation", "frames"), told))
    return faults
