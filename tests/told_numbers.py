"""Find two values for one thing: asks the solver's commands, and compares every number that is told twice.

Questions are drawn by a seed, each asked for all text and for JSON. A number of the text must round from one of the
JSON, at two digits or more; numbers of the JSON that say one thing agree to ``SAME``.
"""

import contextlib
import functools
import io
import json
import math
import random
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from dse.__main__ import main as dse
from dse.answers.printer import say
from dse.answers.run import is_inside
from dse.answers.words import HEADS, SENTENCES
from tests.committed import RESULTS

SAME = 1e-6
"""Relative difference from which on two values of one thing differ."""
KEYS = sorted(path.parent.name for path in RESULTS.glob("*/platform.toml"))
SHIPPED = ("u200", "h200", "edge")
WORKLOADS = ("cartpole_dqn", "cartpole_ddpg", "hopper_ddpg", "hopper_td3", "hopper_sac", "pong_dqn", "lunarlander_dqn")
PROFILED = {key: sorted({path.name.split("-")[1] for path in (RESULTS / key).glob("profile-*.jsonl")}) for key in KEYS}
KINDS = (*["recommend"] * 3, *("tree", "explain", "what-if", "cores", "depth", "learners", "fpga", "adapt"))
MAPPING = (
    *(f"--fix arrangement={mode}" for mode in ("serial", "apart", "pipelined")),
    *("--fix learner_implementation=torch", "--fix batch=128", "--fix learner=cpu", "--fix fanout=16"),
    *("--fix update_interval=4", "--fix environments=8", "--fix capacity=200000", "--free presampled"),
    *("--objective training", "--objective fewest_devices", "--objective per_watt", "--exclude fpga", "--epsilon 0.05"),
)
MORE = dict.fromkeys(KINDS, ("",)) | {
    "tree": ("", "", "--threads 1", "--updates-per-sample 0.5"),
    "explain": tuple(f"--config {one}" for one in ("arrangement=apart", "learner=gpu", "learner=cpu", "fanout=16")),
    "what-if": tuple(f"--set {one}" for one in ("cpu.cores=8", "cpu.cores=2", "cpu.memory_gb=64")),
    "cores": ("", "--update-interval 16", "--cores 8"),
    "depth": ("", "--fix arrangement=pipelined"),
    "fpga": tuple(f"--batch {one}" for one in (64, 128, 256)),
}
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
SCALES = (1.0, 1e6, 1e9, 100.0, 1e-6, 1e-9)
"""Units that a text has and the JSON has not: microseconds, nanoseconds, percent, MB and GB."""


@dataclass(frozen=True)
class Fault:
    """Two values for one thing."""

    kind: str
    command: str
    what: str
    first: object
    second: object

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.first} | {self.second}\n    {self.command}"


@dataclass(frozen=True)
class Told:
    """What a command told: its exit code, its text and its JSON."""

    command: str
    code: int
    text: str
    plain: dict


# Questions


def questions(seed: int, count: int) -> list[str]:
    """Draw questions of every kind, each the words after ``python -m dse``."""
    draw = random.Random(seed)
    return [_question(draw, KINDS[index % len(KINDS)]) for index in range(count)]


def _question(draw: random.Random, kind: str) -> str:
    """Draw a question of a kind, about a platform's name, its file or the key of its records, and a workload."""
    key, shipped, workload = draw.choice(KEYS), draw.choice(SHIPPED), draw.choice(WORKLOADS)
    system = f"--platform {shipped} --workload {workload}"
    if draw.random() < 0.75:
        where = draw.choice((f"{RESULTS / key / 'platform.toml'}", f"this --machine {key}"))
        system = f"--platform {where} --workload {draw.choice((*PROFILED[key] * 4, workload))}"
    more = draw.choice(MORE[kind])
    if kind == "tree":
        shape = f"--capacity {draw.choice((10_000, 200_000, 1_000_000))} --batch {draw.choice((32, 100, 1000))}"
        return f"recommend {shape} {draw.choice((f'--platform {shipped}', *[f'--machine {key}'] * 2))} {more}"
    if kind == "fpga":
        return f"fpga --network {draw.choice(('hopper', 'cartpole'))} {more}"
    if kind == "recommend":
        more = " ".join(words for words in MAPPING if draw.random() < 0.15)
    return f"{kind} {system} {more}"


# Answers


@functools.cache
def ask(command: str) -> Told:
    """Ask a question for all text and for JSON."""
    code, text = _said(f"{command} --verbose")
    plain = json.loads(_said(f"{command} --json")[1]) if code == 0 else {}
    return Told(f"python -m dse {command}", code, text, plain)


def _said(command: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = dse(shlex.split(command))
    return code, out.getvalue()


class Reader:
    """Collects what does not agree in the answer of one command."""

    def __init__(self, told: Told) -> None:
        self.told, self.faults = told, []

    def same(self, kind: str, what: str, one: float, other: float) -> None:
        """Two values of one thing must be one."""
        self.holds(
            kind,
            what,
            math.isclose(one, other, rel_tol=SAME, abs_tol=1e-12),
            one,
            other,
        )

    def holds(self, kind: str, what: str, holds: bool, first: object, second: object) -> None:
        """What must be so."""
        if not holds:
            self.faults.append(Fault(kind, self.told.command, what, first, second))


def faults(command: str, change: Callable[[Told], Told] = lambda told: told) -> list[Fault]:
    """Ask, and find what has two values; ``change``: what was told, for tests to say otherwise."""
    told = change(ask(command))
    reader, kind = Reader(told), command.split(maxsplit=1)[0]
    if not told.code:
        _text(reader)
        _paces(reader)
        kind = "tree" if "implementation" in told.plain["choice"] else kind
        READERS[kind](reader, command, told.plain)
    return reader.faults


def _leaves(found: object) -> Iterator[object]:
    """Yield every key and value."""
    if isinstance(found, dict):
        yield from found
        found = list(found.values())
    if isinstance(found, list):
        for one in found:
            yield from _leaves(one)
    else:
        yield found


def _text(reader: Reader) -> None:
    """Each number of the text rounds from one of the JSON, or stands in its words or in a sentence."""
    leaves = [*_leaves(reader.told.plain)]
    words = " ".join([reader.told.command, *map(str, leaves), *SENTENCES.values(), *HEADS.values()])
    numbers = np.array([float(one) for one in leaves if isinstance(one, (int, float))])
    known = np.abs(np.concatenate([numbers, numbers - 1])[:, None] * SCALES).ravel()
    named = {*NUMBER.findall(words)}
    for shown in {*NUMBER.findall(reader.told.text)} - named:
        is_told = np.any(np.abs(known - parse(shown)) <= step_of(shown) * (0.5 + SAME))
        reader.holds(
            "text against JSON",
            "a number",
            bool(is_told),
            shown,
            "none",
        )


def parse(shown: str) -> float:
    """Parse a printed number."""
    return float(shown.replace(",", ""))


def step_of(shown: str) -> float:
    """The unit of the last digit of a printed number that may be known, which has two digits at least.

    >>> step_of("2,400"), step_of("2,410"), step_of("0.5"), step_of("7")
    (100.0, 10.0, 0.01, 0.1)
    """
    digits = len(shown.replace(",", "").replace(".", "").strip("0"))
    value = parse(shown)
    return float(10.0 ** (math.floor(math.log10(value)) - max(digits, 2) + 1)) if value else 0.1


def _paces(reader: Reader) -> None:
    """The pace of each alternative is its rate over the choice's, or the choice's time over its own."""
    choice = reader.told.plain["choice"]
    for one in reader.told.plain["others"]:
        if "pace" in one and "value" in one:
            rates = (1 / one["value"], 1 / choice["value"]) if one["unit"] == "s" else (one["value"], choice["value"])
            reader.same("pace of an alternative", str(one)[:60], one["pace"], rates[0] / rates[1])


# Mappings


def _parts(plain: dict, **label: str) -> dict[str, dict]:
    return {row["part"]: row for row in plain["rows"] if "part" in row and label.items() <= row.items()}


def _taken(parts: dict[str, dict], name: str) -> float:
    """Seconds of a part, or of those that make one share."""
    return sum(parts[one]["value"] for one in {"tree": ("sampling", "updating")}.get(name, (name,)))


def _mapping(reader: Reader, command: str, plain: dict) -> None:
    choice, parts = plain["choice"], _parts(plain)
    shares = {row["of_a_step"]: row for row in plain["rows"] if "of_a_step" in row}
    if shares:
        sent = sum(row["seconds"] for row in plain["rows"] if "sent" in row)
        whole = sum(part["charged_seconds"] for part in parts.values()) + sent
        reader.same("charges against rate", "sum of what parts are charged", whole, 1 / choice["hz"])
        for name in ("learner", "tree", "storage"):
            reader.same("row against breakdown", name, _taken(parts, name), shares[name]["seconds"])
        acting = sum(shares[name]["seconds"] for name in ("policy", "environment", "acting") if name in shares)
        fits = acting <= _taken(parts, "actors") * (1 + SAME)
        reader.holds(
            "row against breakdown",
            "policy and environment",
            fits,
            _taken(parts, "actors"),
            acting,
        )
        for name, row in shares.items():
            reader.same("breakdown against rate", name, row["share"], row["seconds"] * choice["hz"])
    made = {parts[name]["details"].get("implementation") for name in ("learner", "actors")}
    for one in plain["others"]:
        if "implementation" in one and {one["implementation"]} == made:
            for key in ("value", "low", "high"):
                reader.same("by implementation against choice", key, one[key], choice[key])
    same = [one for one in plain["others"] if {"is_tied", "implementation"} & one.keys()]
    best = max([choice, *same], key=lambda one: one["value"])
    is_told = best["value"] <= 1.005 * choice["value"] or any(one.get("is_tied") for one in plain["others"])
    reader.holds(
        "slower than what is beside it, without a tie",
        "rate",
        is_told,
        choice["value"],
        best["value"],
    )
    reader.same("distance", "distance below the bound", choice["distance"], 1 - choice["value"] / choice["bound"])
    fits = choice["value"] <= choice["bound"] * (1 + SAME)
    reader.holds(
        "above its bound",
        "rate",
        fits,
        choice["value"],
        choice["bound"],
    )


def _against_recommend(reader: Reader, command: str, choice: dict, parts: dict[str, dict]) -> None:
    """One side of a comparison must be what ``recommend`` answers."""
    other = ask(re.sub(r" --(config|set) \S+", "", re.sub(r"^\S+", "recommend", command))).plain
    for key in ("value", "low", "high", "hz", "bound"):
        reader.same("against recommend", key, choice[key], other["choice"][key])
    for name, part in parts.items():
        reader.same("against recommend", name, part["value"], _parts(other)[name]["value"])


def _explain(reader: Reader, command: str, plain: dict) -> None:
    choice, (asked,) = plain["choice"], plain["others"]
    reader.same("loss", "loss", choice["loss"], 1 - asked["value"] / choice["value"])
    sides = [_parts(plain, of=of) for of in ("described", "best")]
    for note in plain["notes"]:
        if note["kind"].startswith("busy_"):
            busy = choice["engines"][note["engine"]]
            reader.same("explanation against engines", note["engine"], note["seconds"], busy[0])
        if note["kind"] == "part_takes":
            for key, parts in zip(("time", "best_time"), sides, strict=True):
                reader.same("explanation against rows", note["part"], note[key]["value"], parts[note["part"]]["value"])
    _against_recommend(reader, command, choice, sides[1])


def _what_if(reader: Reader, command: str, plain: dict) -> None:
    choice = plain["choice"]
    for before in (row for row in plain["others"] if "hz" in row):  # the choice of before, among alternatives of now
        reader.same("change", "rate before", choice["before"], before["value"])
        reader.same("change", "pace", choice["pace"], choice["value"] / before["value"])
        _against_recommend(reader, command, before, {})


def _tree(reader: Reader, command: str, plain: dict) -> None:
    for one in (plain["choice"], *plain["others"]):
        reader.same("time of an element", "step", one["each_seconds"] * plain["question"]["batch"], one["value"])


# Counts


def _cores(reader: Reader, command: str, plain: dict) -> None:
    choice, rates = plain["choice"], {(row["side"], row["cores"]): row["value"] for row in plain["rows"]}
    for one in (choice, *plain["others"]):
        acting, learning = rates["actors", one["actors"]], rates["learners", one["learners"]]
        reader.same("feed against rows", "actors", one["feed_hz"], acting / plain["question"]["update_interval"])
        reader.same("take against rows", "learners", one["take_hz"], learning)
        most = min(one["feed_hz"], one["take_hz"])
        reader.holds(
            "rate against feed and take",
            "rate",
            one["value"] <= most * (1 + SAME),
            one["value"],
            most,
        )


def _depth(reader: Reader, command: str, plain: dict) -> None:
    times = [row for row in plain["rows"] if "engine" in row]
    engines = {row["engine"] for row in times}
    busy = [sum(row["value"] for row in times if row["engine"] == engine) for engine in engines]
    reader.same("rate against times", "busiest engine", plain["choice"]["most_hz"], 1 / max(busy))
    other = ask(command.replace("depth", "recommend", 1)).plain
    if not other:
        return
    parts, question = _parts(other), plain["question"]
    mapping = {name: parts[name]["device"] for name in question["mapping"]}
    chosen = (question["arrangement"], question["mapping"]), (other["choice"]["arrangement"], mapping)
    reader.holds("depth against recommend", "the mapping", chosen[0] == chosen[1], *chosen)
    for name in mapping if chosen[0] == chosen[1] else ():
        reader.same("depth against recommend", name, _parts(plain)[name]["value"], parts[name]["charged_seconds"])


def _learners(reader: Reader, command: str, plain: dict) -> None:
    choice = plain["choice"]
    reader.same("choice against itself", "seconds", choice["seconds"], 1 / choice["value"])
    points = {(row["learners"], row["horizon"]): row["seconds"] for row in plain["rows"] if "learners" in row}
    if choice["learners"] > 1:
        reader.same("choice against rows", "step", choice["seconds"], points[choice["learners"], choice["horizon"]])


def _adapt(reader: Reader, command: str, plain: dict) -> None:
    pairs = [plain["choice"], *plain["others"]]
    best = max(one["value"] for one in pairs)
    loss = next(note["loss"] for note in plain["notes"] if note["kind"] == "searching_apart")
    is_told = any(math.isclose(one["value"] / best, 1 - loss, rel_tol=SAME) for one in pairs)
    reader.holds(
        "loss",
        "of searching apart",
        is_told,
        loss,
        [one["value"] for one in pairs],
    )


def _fpga(reader: Reader, command: str, plain: dict) -> None:
    choice = plain["choice"]
    reader.same("cycles", "a step", choice["cycles"] / plain["question"]["clock_hz"], choice["seconds"])
    reader.same("rate", "a step", 1 / choice["value"], choice["seconds"])
    spent = sum(row["cycles"] for row in plain["rows"] if row.get("part") == "learner" and "cycles" in row)
    reader.same("sum of the learner's cycles", "learner", spent, choice["cycles"])


READERS = {
    "recommend": _mapping,
    "tree": _tree,
    "explain": _explain,
    "what-if": _what_if,
    "cores": _cores,
    "depth": _depth,
    "learners": _learners,
    "adapt": _adapt,
    "fpga": _fpga,
}


# A run and its prediction


def verdicts(seed: int, count: int) -> Iterator[Fault]:
    """Find runs whose measured rate, near an end of the predicted interval, is called inside against what is shown."""
    draw = random.Random(seed)
    for _ in range(count):
        low = draw.uniform(10, 10_000)
        high = low * draw.uniform(1.1, 2.5)
        hz = draw.choice((low, high)) * draw.uniform(0.98, 1.02)
        called = is_inside(SimpleNamespace(low=low, high=high), hz)
        text = say("predicted_rate", {"predicted_hz": low, "low": low, "high": high})
        text += say("measured_rate", {"hz": hz, "updates": 1, "seconds": 1.0, "pace": 1.0})
        _, least, most, shown, *_ = map(parse, NUMBER.findall(text))
        if called != (least <= shown <= most):
            yield Fault("verdict against what is shown", f"{hz:g} in [{low:g}, {high:g}]", "interval", text, called)
