"""Read the answer that ``python -m dse recommend --json`` writes, as the setting of a run."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import names as trees
from ..checks import near, short
from . import learners
from .arrangement import COPIES, NAMES
from .errors import TrainingError
from .options import MAPPED, Setting, arrangement_of, start_of, with_options, with_values
from .workload import Workload

PARTS = ("actors", "sampling", "storage", "learner", "updating")
STDIN = "-"
DEVICE_TREE = "cupy"  # the tree that may lie on another device than the records, which a serial run keeps by the actors
_VALUES = {
    "batch": ("learner", "batch", 1),
    "update_interval": ("learner", "update_interval", 1),
    "depth": ("replay", "presampled", 0),
    "environments": ("actors", "environments", 1),
}
"""Where the numbers of an answer stand in a workload, and the least that each may be."""
_FIXED = {
    "capacity": ("replay", "capacity", 1),
    "actor_count": ("actors", "count", 1),
    "local_storage": ("actors", "local_storage", 1),
    "sync_interval": ("actors", "sync_interval", 1),
}
"""The same for the values that a question fixed, the answer's ``values``."""


def read(file: str) -> "Answer":
    """The answer in a file, or from the standard input where its name is -. TrainingError where it is none."""
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"{file}: cannot be read ({error.strerror}); give the file of an answer") from None
    except UnicodeDecodeError:
        raise TrainingError(f"{_called(file)}: is no text; it should be what dse recommend --json wrote") from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TrainingError(
            f"{_called(file)}: is no JSON ({error}); it should be what dse recommend --json wrote"
        ) from None
    return Answer(content, _called(file))


def _called(file: str) -> str:
    return "the answer from the standard input" if file == STDIN else file


class Answer:
    """An answer; every fault of it is a TrainingError that names it. ``content``: what JSON made of the file."""

    def __init__(self, content: Any, file: str) -> None:
        self._file = file
        if isinstance(content, dict) and "repairs" in content:
            raise self._fault("says that nothing fits the machine, so there is nothing to run")
        keys = ("workload", "arrangement", "parts", *_VALUES)
        missing = [key for key in keys if key not in content] if isinstance(content, dict) else keys
        if missing:
            raise self._fault(f"is no answer of dse recommend --json about a workload: it has no {missing[0]!r}")
        self._content: dict[str, Any] = content
        self._parts = self._by_name(content["parts"])

    def setting(self, workload: Workload, options: argparse.Namespace) -> Setting:
        """The setting of a run of the workload: the answer's, with the options that it does not decide.

        Learning starts once there can be a batch of the answer's size, which no rate depends on.
        """
        for name, default in MAPPED.items():
            if getattr(options, name) != default:
                raise TrainingError(f"--{name} is decided by the answer of --mapping; leave one of them out")
        if self._content["workload"] != workload.name:
            about = short(self._content["workload"])
            raise self._fault(
                f"is about the workload {about}, not {workload.name!r}; ask about that, or name the other"
            )
        name, learner, actors = self._arrangement(), self._parts["learner"], self._parts["actors"]
        fanout, contestant = self._tree(name)
        values = self._values(_VALUES, self._content) | self._values(_FIXED, self._content.get("values") or {})
        values["replay", "fanout"] = fanout
        if name != "serial":
            values["actors", "count"] = self._whole("processes of actors", actors["details"].get("processes"), 1)
        values["learner", "learning_starts"] = start_of(workload, values)
        threads = self._whole("threads of the learner", learner["details"].get("threads") or 1, 1)
        decided: dict[str, Any] = {"name": name, "threads": threads, "strategy": self._content.get("strategy")}
        decided = {key: value for key, value in (decided | self._combined(name)).items() if value}
        changed = with_values(with_options(workload, options), values, options.steps)
        arrangement = arrangement_of(changed, options, **decided)
        policy = self._implementation(actors)
        return Setting(changed, arrangement, contestant, self._implementation(learner), policy, self._device(name))

    def _arrangement(self) -> str:
        name = self._content["arrangement"]
        answered = [each for each in NAMES if each != COPIES]
        if name not in answered:
            raise self._fault(
                f"has the arrangement {short(name)}, there are {', '.join(answered)}{near(str(name), answered)}"
            )
        return str(name)

    def _tree(self, arrangement: str) -> tuple[int, str]:
        """(K, contestant) of the tree: on the actors' device, or cupy's on a GPU."""
        home, details = self._parts["actors"]["device"], self._parts["sampling"]["details"]
        contestant = details.get("contestant")
        tree = self._parts["sampling"]["device"] if contestant == DEVICE_TREE else home
        for part, its in (("sampling", tree), ("updating", tree), ("storage", home)):
            device = self._parts[part]["device"]
            if device != its:
                what = "the tree is on one device" if its != home else "the replay is where actors are"
                raise self._fault(f"has {part} on {short(device)}, not on {short(its)}: in a run here {what}")
        if contestant not in trees():
            raise self._fault(
                f"has the tree {short(contestant)}, there are {', '.join(trees())}{near(str(contestant), trees())}"
            )
        if arrangement != "serial" and contestant != "numba":
            raise self._fault(f"has the tree {contestant}: processes share the tree numba alone, so run it serial")
        if details.get("options") or details.get("threads", 1) not in (None, 1):
            raise self._fault("has a tree of several threads or with options, which no replay here takes")
        return self._whole("the tree's fanout", details.get("fanout"), 2), str(contestant)

    def _combined(self, arrangement: str) -> dict[str, Any]:
        """How many learners there are, and how they combine."""
        details = self._parts["learner"]["details"]
        count = self._whole("learners", details.get("learners", 1), 1)
        if count > 1 and arrangement == "serial":
            raise self._fault(f"has {count} learners in one process, which runs one; ask for apart or pipelined")
        if self._whole("devices of the learner", details.get("devices", 1), 1) > 1:
            raise self._fault("has a learner on several devices, which nothing here runs")
        whole = {key: self._whole(key, details.get(key) or 1, 1) for key in ("period", "banks") if details.get(key)}
        return {"learners": count, "sync": details.get("sync"), **whole} if count > 1 else {}

    def _device(self, arrangement: str) -> str:
        learner = self._parts["learner"]
        device = learner["device"]
        if device == self._parts["actors"]["device"]:
            return "cpu"
        if "pipelines" in learner["details"] or device.lower().startswith("fpga"):
            raise self._fault(f"has the learner on the FPGA {short(device)}, which nothing here runs")
        if learner["details"].get("learners", 1) > 1:
            raise self._fault(f"has several learners on {short(device)}: they share their weights on a processor alone")
        return "cuda"

    def _implementation(self, part: Mapping[str, Any]) -> str:
        name = part["details"].get("implementation", learners.REFERENCE)
        if name not in learners.names():
            known = learners.names()
            raise self._fault(f"has the learner {short(name)}, there are {', '.join(known)}{near(str(name), known)}")
        return str(name)

    def _values(self, keys: Mapping[str, tuple[str, str, int]], source: Any) -> dict[tuple[str, str], Any]:
        if not isinstance(source, dict):
            raise self._fault("has values that are no table")
        present = {key: place for key, place in keys.items() if key in source}
        return {(table, key): self._whole(name, source[name], least) for name, (table, key, least) in present.items()}

    def _whole(self, what: str, value: Any, least: int) -> int:
        if type(value) is not int or value < least:
            raise self._fault(f"has {short(value)} as {what}, which must be a whole number of at least {least}")
        return value

    def _by_name(self, parts: Any) -> dict[str, dict[str, Any]]:
        listed = parts if isinstance(parts, list) else []
        by_name = {one["part"]: one for one in listed if isinstance(one, dict) and one.get("part") in PARTS}
        for part in PARTS:
            if part not in by_name:
                raise self._fault(f"has no part {part!r}; it should be what dse recommend --json wrote")
            one = by_name[part]
            if not (isinstance(one.get("device"), str) and isinstance(one.get("details"), dict)):
                raise self._fault(f"says of {part} neither device nor details")
        return by_name

    def _fault(self, sentence: str) -> TrainingError:
        return TrainingError(f"{self._file}: {sentence}")
