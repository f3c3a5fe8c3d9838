"""Find two values for one thing: asks the solver's commands, and compares every number that is printed twice.

    python -m tests.told_numbers --seed 1 --count 60

asks 60 questions drawn by the seed, each for text, for all text (--verbose) and for JSON, and writes a line for each
fault, by kind. A number of a text is right where it rounds from the one of the JSON, at two digits or more; numbers of
the JSON that say one thing agree to ``SAME``.
"""

import argparse
import contextlib
import functools
import io
import json
import random
import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from dse.__main__ import main as dse
from dse.cli import run as run_command
from impls.training import load
from tests.committed import RESULTS

SAME = 1e-6
"""Relative difference from which on two values of one thing differ."""
KEYS = sorted(path.parent.name for path in RESULTS.glob("*/platform.toml"))
SHIPPED = ("u200", "h200", "edge")
WORKLOADS = ("cartpole_dqn", "cartpole_ddpg", "hopper_ddpg", "hopper_td3", "hopper_sac", "pong_dqn", "lunarlander_dqn")
PROFILED = {key: sorted({path.name.split("-")[1] for path in (RESULTS / key).glob("profile-*.jsonl")}) for key in KEYS}
FIXED = ("arrangement=serial", "arrangement=apart", "arrangement=pipelined", "learner_implementation=torch")
MORE_FIXED = ("batch=128", "learner=cpu", "fanout=16", "update_interval=4", "environments=8", "capacity=200000")
N = r"~?(\d+(?:,\d{3})*(?:\.\d+)?)"
REASON = r"fewest|fewer|is given up|not worth"
"""What a text says where it does not choose the fastest."""


@dataclass(frozen=True)
class Fault:
    """Two values for one thing."""

    kind: str
    command: str
    what: str
    first: object
    second: object

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {_short(self.first)} | {_short(self.second)}\n    {self.command}"


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Told:
    """What a command told: its exit code, its text, all its text and its JSON (None where it told none)."""

    command: str
    code: int
    text: str
    verbose: str
    plain: dict


# Questions


def questions(seed: int, count: int) -> list[str]:
    """Draw questions of every kind, each the words after ``python -m dse``."""
    draw = random.Random(seed)
    kinds = [mapping, mapping, mapping, tree, explanation, what_if, cores, depth, learners, estimate, fpga, adaptation]
    return [kinds[index % len(kinds)](draw) for index in range(count)]


def system(draw: random.Random) -> str:
    """Draw a platform, by a shipped name, its file or the key of its records, and a workload."""
    key = draw.choice(KEYS)
    which = draw.randrange(4)
    if which == 0:
        return f"--platform {draw.choice(SHIPPED)} --workload {draw.choice(WORKLOADS)}"
    workload = draw.choice(PROFILED[key]) if draw.random() < 0.8 else draw.choice(WORKLOADS)
    where = f"{RESULTS / key / 'platform.toml'}" if which == 1 else f"this --machine {key}"
    return f"--platform {where} --workload {workload}"


def choices(draw: random.Random) -> str:
    """Draw what is fixed, free, excluded and aimed at."""
    words = []
    for options, share in ((FIXED, 0.4), (MORE_FIXED, 0.3)):
        words += [f"--fix {draw.choice(options)}"] if draw.random() < share else []
    words += [f"--free {draw.choice(('presampled', 'environments'))}"] if draw.random() < 0.15 else []
    words += [f"--objective {draw.choice(('training', 'fewest_devices', 'per_watt'))}"] if draw.random() < 0.25 else []
    words += [f"--exclude {draw.choice(('fpga', 'gpu'))}"] if draw.random() < 0.1 else []
    words += [f"--epsilon {draw.choice(('0', '0.05'))}"] if draw.random() < 0.15 else []
    return " ".join(words)


def mapping(draw: random.Random) -> str:
    """Draw a question about a mapping."""
    return f"recommend {system(draw)} {choices(draw)}"


def explanation(draw: random.Random) -> str:
    """Draw a mapping to explain."""
    config = draw.choice((*FIXED, "learner=gpu", "learner=cpu", "learner_threads=2"))
    return f"explain {system(draw)} --config {config}"


def what_if(draw: random.Random) -> str:
    """Draw a changed machine."""
    return f"what-if {system(draw)} --set {draw.choice(('cpu.cores=8', 'cpu.cores=2', 'cpu.memory_gb=64'))}"


def tree(draw: random.Random) -> str:
    """Draw a question about a tree."""
    shape = (
        f"--capacity {draw.choice((10_000, 50_000, 200_000, 1_000_000))} --batch {draw.choice((32, 100, 128, 1000))}"
    )
    where = f"--platform {draw.choice(SHIPPED)}" if draw.random() < 0.3 else f"--machine {draw.choice(KEYS)}"
    more = draw.choice(("", "", "--threads 1", "--updates-per-sample 0.5"))
    return f"recommend {shape} {where} {more}"


def cores(draw: random.Random) -> str:
    """Draw how to share cores out."""
    return f"cores {system(draw)} {draw.choice(('', '--update-interval 16', '--cores 8'))}"


def depth(draw: random.Random) -> str:
    """Draw how many batches to sample ahead."""
    return f"depth {system(draw)} {draw.choice(('', '--fix arrangement=pipelined'))}"


def learners(draw: random.Random) -> str:
    """Draw whether a second learner is worth it."""
    return f"learners {system(draw)}"


def adaptation(draw: random.Random) -> str:
    """Draw how many samplers and which batch."""
    return f"adapt {system(draw)}"


def estimate(draw: random.Random) -> str:
    """Draw what a workload takes on each device."""
    return f"platform estimate {draw.choice(SHIPPED)} --workload {draw.choice(WORKLOADS)}"


def fpga(draw: random.Random) -> str:
    """Draw a network and a batch for an FPGA."""
    return f"fpga --network {draw.choice(('hopper', 'cartpole'))} --batch {draw.choice((64, 128, 256))}"


# Answers


@functools.cache
def ask(command: str) -> Told:
    """Ask a question for text, for all text where the command has that, and for JSON."""
    has_more = command.startswith("recommend")
    code, text = _said(command)
    verbose = _said(f"{command} --verbose")[1] if has_more and not code else ""
    plain = json.loads(_said(f"{command} --json")[1]) if code == 0 else {}
    return Told(f"python -m dse {command}", code, text, verbose, plain)


def _said(command: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = dse(shlex.split(command))
    return code, out.getvalue()


# Numbers


def parse(shown: str) -> float:
    """Parse a printed number."""
    return float(shown.replace(",", ""))


def is_rounded(shown: str, value: float) -> bool:
    """Whether a printed number is a value rounded, to two digits or more, or to a decimal.

    >>> is_rounded("2,400", 2401.6), is_rounded("2,402", 2401.6), is_rounded("2,410", 2401.6)
    (True, True, False)
    """
    number = parse(shown)
    ways = [float(f"{value * off:.{digits}g}") for digits in range(2, 13) for off in (1 - 1e-9, 1 + 1e-9)]
    return number in [*ways, *(float(f"{value:.{places}f}") for places in range(4))]


def is_same(one: float, other: float) -> bool:
    """Whether two values are one, but for rounding of machine numbers."""
    return abs(one - other) <= SAME * max(abs(one), abs(other))


class Reader:
    """Collects what does not agree in the answers of one command."""

    def __init__(self, told: Told) -> None:
        self.told, self.faults = told, []

    def shown(self, kind: str, what: str, shown: str | None, value: float) -> None:
        """A printed number must round from a value."""
        if shown is not None and not is_rounded(shown, value):
            self.faults.append(Fault(kind, self.told.command, what, shown, value))

    def same(self, kind: str, what: str, one: float, other: float) -> None:
        """Two values of one thing must be one."""
        if not is_same(one, other):
            self.faults.append(Fault(kind, self.told.command, what, one, other))

    def holds(self, kind: str, what: str, holds: bool, first: object, second: object) -> None:
        """What must be so."""
        if not holds:
            self.faults.append(Fault(kind, self.told.command, what, first, second))

    def found(self, pattern: str, text: str, what: str) -> re.Match[str] | None:
        """What a pattern finds in a text that must have it."""
        match = re.search(pattern, text)
        self.holds("unread", what, match is not None, pattern, " ".join(text.split())[:160])
        return match


def faults(command: str, change=lambda told: told) -> list[Fault]:
    """Ask, and find what has two values; ``change``: what was told, for tests to say otherwise."""
    told = change(ask(command))
    reader = Reader(told)
    if told.code:
        return []
    plain = told.plain
    if command.startswith("recommend") and "parts" in plain:
        for text in (told.text, told.verbose):
            _headline(reader, text, plain)
            _mapping(reader, text, plain)
        _values(reader, plain)
        _rate_line(reader, told.verbose, plain)
        _alternatives(reader, plain)
        _lines_twice(reader)
    elif command.startswith("recommend"):
        _tree(reader) if "question" in plain and "machine" in plain else _modeled_tree(reader)
        _lines_twice(reader)
    else:
        {
            "explain": _explain,
            "what-if": _what_if,
            "cores": _cores,
            "depth": _depth,
            "learners": _learners,
            "adapt": _adapt,
            "platform": _estimate,
            "fpga": _fpga,
        }[command.split(maxsplit=1)[0]](reader, command)
    return reader.faults


def flat(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())


def _lines_twice(reader: Reader) -> None:
    """Lines that both texts have, by what stands before their first number, must say the same."""

    def by_label(text: str) -> dict[str, set[str]]:
        lines: dict[str, set[str]] = {}
        for line in re.sub(r"\n    +", " ", text).splitlines():
            label = re.split(r"~?\d", line.strip(), maxsplit=1)[0]
            if label.strip():
                lines.setdefault(flat(label), set()).add(flat(line))
        return lines

    brief, whole = by_label(reader.told.text), by_label(reader.told.verbose)
    for label in brief.keys() & whole.keys():
        one, other = brief[label], whole[label]
        if len(one) == len(other) == 1 and not label.startswith(("cannot be told", "learner", "bound by")):
            reader.holds("text against --verbose", label, one == other or _begins(one, other), *one, *other)


def _begins(one: set[str], other: set[str]) -> bool:
    """Whether the whole line only goes on where the brief one ends."""
    return next(iter(other)).startswith(next(iter(one)))


# A mapping


def _headline(reader: Reader, text: str, plain: dict) -> None:
    first = text.splitlines()[0]
    ends = rf"95 % between {N} and {N}|\w+, right within {N}x"
    pattern = (
        rf"about {N} gradient steps a (?:second|joule)(?:, actors aside)?(?: \({N} a second with actors\))?, (?:{ends})"
    )
    if match := reader.found(pattern, first, "headline"):
        value, hz, low, high, factor = match.groups()
        kind = "headline against JSON"
        reader.shown(kind, "rate", value, plain["value"])
        reader.shown(kind, "rate with actors", hz, plain["hz"])
        reader.shown(kind, "low end", low, plain["low"])
        reader.shown(kind, "high end", high, plain["high"])
        reader.shown(kind, "factor", factor, off(plain))
        if low:
            inside = parse(low) <= parse(value) <= parse(high)
            reader.holds("interval without its value", "headline", inside, value, f"[{low}, {high}]")


def off(plain: dict, value: str = "value") -> float:
    """How far off a value may be, as a factor."""
    return max(plain["high"] / plain[value], plain[value] / plain["low"])


ROWS = {"tree": ("sampling", "updating"), "records": ("storage",)}


def _mapping(reader: Reader, text: str, plain: dict) -> None:
    """Rows, breakdown, lines by implementation, ties and cores of a text, against the JSON."""
    parts = {part["part"]: part for part in plain["parts"]}
    pattern = rf"^  (\w+) +\S+ .*? {N} us(?: \[{N}, {N}\]| \(x{N}\))?  \w+$"
    for name, shown, low, high, factor in re.findall(pattern, text, re.M):
        of = [parts[part] for part in ROWS.get(name, (name,)) if part in parts]
        value, bottom, top = (1e6 * sum(part[end] for part in of) for end in ("seconds", "low", "high"))
        for what, one, of_it in (("time", shown, value), ("low end", low, bottom), ("high end", high, top)):
            reader.shown("table against JSON", f"{name}, {what}", one or None, of_it)
        reader.shown("table against JSON", f"{name}, factor", factor or None, max(top / value, value / bottom))
    whole = flat(text)
    shares = {one["what"]: one for one in plain["shares"]}
    if step := re.search(rf"a step of {N} us: (.*?\(-?\d+ %\))(?= \w+ (?:and|another|by)| with|  |$)", whole):
        reader.shown("breakdown against rate", "a step", step[1], 1e6 / plain["hz"])
        for what, sign, shown, percent in re.findall(rf"(?:^|, )([\w ]+?) (-?){N} us \((-?\d+) %\)", step[2]):
            seconds = -shares[what]["seconds"] if sign else shares[what]["seconds"]
            reader.shown("breakdown against JSON", what, shown, 1e6 * seconds)
            reader.shown("breakdown against JSON", f"{what}, %", percent.lstrip("-"), 100 * seconds * plain["hz"])
    for one in plain["by_implementation"]:
        pattern = rf"learner and policy by {one['implementation']}: (?:at most )?about {N}(?: \[{N}, {N}\]| \(x{N}\))"
        if match := reader.found(pattern, whole, "by implementation"):
            value, low, high, factor = match.groups()
            for what, shown, of_it in (
                ("value", value, one["value"]),
                ("low", low, one["low"]),
                ("high", high, one["high"]),
            ):
                reader.shown("by implementation against JSON", what, shown, of_it)
            reader.shown("by implementation against JSON", "factor", factor, off(one))
    for used, have in re.findall(r"(\d+) of (\d+) cores?", whole.partition(" rests on: ")[0]):
        reader.holds("cores", "cores", [float(used), float(have)] == list(plain["cores"]), (used, have), plain["cores"])
    if plain["low"] < 0.999 * plain["value"]:
        _reason(reader, text, plain)


def _reason(reader: Reader, text: str, plain: dict) -> None:
    """Where what a text shows is faster than the choice, the text says why it is not the choice."""
    for one in [*plain["ties"], plain["runner_up"], plain["elsewhere"], *_rates(plain)]:
        if one and one["value"] > (1 + max(plain["epsilon"], 0.005)) * plain["value"] and _names(text, one):
            what = (
                f"{one.get('told') or one.get('implementation')} is shown as {one['value'] / plain['value'] - 1:+.1%}"
            )
            holds = re.search(REASON, text) is not None
            reader.holds(
                "slower than what is shown beside it, without a reason", what, holds, plain["value"], one["value"]
            )


def _rates(plain: dict) -> list[dict]:
    return [{**one, "told": f"learner and policy by {one['implementation']}"} for one in plain["by_implementation"]]


def _names(text: str, one: dict) -> bool:
    return one["told"].split(" (")[0] in flat(text)


def _values(reader: Reader, plain: dict) -> None:
    """Values of the JSON that say one thing."""
    parts = {part["part"]: part for part in plain["parts"]}
    shares = {one["what"]: one["seconds"] for one in plain["shares"]}
    taken = {name: part["seconds"] for name, part in parts.items()}
    kind = "row against breakdown"
    if shares:
        whole = sum(part["charged"] for part in parts.values()) + sum(one["seconds"] for one in plain["transfers"])
        reader.same(
            "breakdown against rate", "sum of a step's parts, and of the rate", sum(shares.values()), 1 / plain["hz"]
        )
        reader.same("charges against rate", "sum of what parts are charged, and of the rate", whole, 1 / plain["hz"])
        reader.same(kind, "learner", taken["learner"], shares["learner"])
        reader.same(kind, "tree", taken["sampling"] + taken["updating"], shares["tree"])
        reader.same(kind, "storage", taken["storage"], shares["storage"])
        acting = sum(shares.get(name, 0.0) for name in ("policy", "environment", "acting"))
        fits = acting <= taken["actors"] * (1 + SAME)
        reader.holds(kind, "policy and environment within actors", fits, taken["actors"], acting)
        for one in plain["shares"]:
            reader.same(
                "breakdown against itself", f"share of {one['what']}", one["share"], one["seconds"] * plain["hz"]
            )
    made = {parts[part]["details"].get("implementation") for part in ("learner", "actors")}
    for one in plain["by_implementation"]:
        if made == {one["implementation"]}:
            for end in ("value", "low", "high"):
                reader.same(
                    "by implementation against headline", f"{one['implementation']}, {end}", one[end], plain[end]
                )
            same = one["interval"] == plain["interval"] and one["upper_bound"] == (plain["upper_bound"])
            ends = f"{one['interval']}, at most: {one['upper_bound']}"
            of_it = f"{plain['interval']}, at most: {plain['upper_bound']}"
            reader.holds("by implementation against headline", "what ends mean", same, ends, of_it)
    for one in plain["by_environments"]:
        if one["environments"] == plain["environments"]:
            reader.same("by environments against headline", "value", one["value"], plain["value"])
    reader.same("distance", "distance below the bound", plain["distance"], 1 - plain["value"] / plain["bound"])
    reader.holds(
        "above its bound", "rate", plain["value"] <= plain["bound"] * (1 + SAME), plain["value"], plain["bound"]
    )
    if plain["objective"] == "training":
        most = plain["learner_hz"] * (1 + SAME)
        reader.holds("above its bound", "fastest learner", plain["value"] <= most, plain["value"], plain["learner_hz"])


def _rate_line(reader: Reader, text: str, plain: dict) -> None:
    whole = flat(text)
    unit = r"gradient steps a (?:second|joule)(?:, actors aside)?"
    if plain["interval"] == "factor":
        pattern = rf" {N} {unit}, within a factor of {N}, not tested here"
    else:
        pattern = rf" {N} {unit} \[{N}, {N}\] at 95 %"
    if match := reader.found(pattern, whole, "rate line"):
        value, *ends = match.groups()
        reader.shown("rate line against JSON", "value", value, plain["value"])
        for shown, of_it in zip(ends, [off(plain)] if len(ends) == 1 else [plain["low"], plain["high"]], strict=True):
            reader.shown("rate line against JSON", "end", shown, of_it)
    if match := reader.found(rf"at most {N} if every part .*?\((-?\d+)% below that\)", whole, "bound"):
        reader.shown("bound against JSON", "bound", match[1], plain["bound"])
        below = round(100 * plain["distance"])
        reader.holds("bound against JSON", "share below", int(match[2]) == below, match[2], plain["distance"])
    if match := reader.found(rf"; {N}(?: a second)? by the fastest learner alone", whole, "fastest learner"):
        reader.shown("bound against JSON", "fastest learner", match[1], plain["learner_hz"])


def _alternatives(reader: Reader, plain: dict) -> None:
    """Ties and others: their cost, and as both texts write them."""
    brief, whole = flat(reader.told.text), flat(reader.told.verbose)
    for one in [*plain["ties"], plain["runner_up"], plain["elsewhere"]]:
        if not one:
            continue
        reader.same("cost of an alternative", one["told"], 1 - one["cost"], one["value"] / plain["value"])
        if match := re.search(rf"[:;] {re.escape(one['told'])} \(([+-]\d+)%\)", brief):
            gain = round(-100 * one["cost"])
            reader.holds("gain of a tie", one["told"], int(match[1]) == gain, match[1], gain)
        pattern = (
            rf"(?:[:%;]|decided:) {re.escape(one['told'])}: (?:at most )?{N}(?: \(x{N}\))?, (costs|gains) ([\d.]+)%"
        )
        if match := re.search(pattern, whole):
            reader.shown("alternative against JSON", one["told"], match[1], one["value"])
            lost = (1 if match[3] == "costs" else -1) * float(match[4])
            reader.holds(
                "alternative against JSON", one["told"], abs(lost - 100 * one["cost"]) < 0.06, lost, one["cost"]
            )


# Two mappings beside each other


def columns(text: str) -> dict[str, list[str]]:
    """Rows of tables that stand beside each other, by name."""
    rows = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.startswith("  "))
    return {row[0]: row[1:] for row in reversed([*rows]) if len(row) == 3}  # a learner's share is below the learner


def _beside(reader: Reader, left: dict, right: dict) -> None:
    rows = columns(reader.told.text)
    for index, plain in enumerate((left, right)):
        if "parts" not in plain:
            continue
        cell = rows["rate"][index]
        value, *ends = re.findall(N, cell)
        reader.shown("rate of a column", "value", value, plain["value"])
        for shown, of_it in zip(ends, [off(plain)] if len(ends) == 1 else [plain["low"], plain["high"]], strict=False):
            reader.shown("rate of a column", "end", shown, of_it)
        for part in plain["parts"]:
            if match := re.search(rf"{N} us", rows[part["part"]][index]):
                reader.shown("part of a column", part["part"], match[1], 1e6 * part["seconds"])
        shares = {one["what"]: one["seconds"] for one in plain["shares"]}
        for what, seconds in shares.items():
            match = (
                re.search(rf"{N} us", rows[what][index])
                if what in rows and what not in ("storage", "learner")
                else None
            )
            reader.shown("share of a column", what, match and match[1], 1e6 * abs(seconds))
        if shares:
            learner = next(part for part in plain["parts"] if part["part"] == "learner")
            reader.same("row against breakdown", "learner", learner["seconds"], shares["learner"])


def _explain(reader: Reader, command: str) -> None:
    asked, best = reader.told.plain["asked"], reader.told.plain["best"]
    _beside(reader, asked, best)
    first = flat(reader.told.text.split("\n\n")[0])
    if match := re.search(r"loses ([\d.]+)%", first):
        lost = 100 * (1 - asked["value"] / best["value"])
        reader.shown("explanation against table", "loss", match[1], lost)
    if match := re.search(rf"is busy for {N} us", first):
        engine = re.search(r"(\S+) is busy for", first)[1]
        busy = _busy(asked).get(engine, 0.0)
        reader.shown("explanation against table", f"{engine} busy", match[1], 1e6 * busy)
    for part, shown, then in re.findall(rf"its (\w+) takes {N} us on .*?, {N} us on", first):
        for one, plain in ((shown, asked), (then, best)):
            of = {"tree": ("sampling", "updating"), "actors": ("actors",)}.get(part, (part,))
            value = sum(each["seconds"] for each in plain["parts"] if each["part"] in of)
            reader.shown("explanation against table", part, one, 1e6 * value)
    question = re.sub(r" --config \S+", "", command.replace("explain", "recommend", 1))
    _one_answer(reader, "explain against recommend", best, ask(question).plain)


def _busy(plain: dict) -> dict[str, float]:
    spent: dict[str, float] = {}
    for part in plain["parts"]:
        for engine in (part["engine"], *(engine for _, engine in part["also"])):
            spent[engine] = spent.get(engine, 0.0) + part["charged"]
    for one in plain["transfers"]:
        spent[one["engine"]] = spent.get(one["engine"], 0.0) + one["seconds"]
    return spent


def _one_answer(reader: Reader, kind: str, one: dict, other: dict) -> None:
    for end in ("value", "low", "high", "hz", "bound"):
        if end in one and end in other:
            reader.same(kind, end, one[end], other[end])
    for a, b in zip(one.get("parts", ()), other.get("parts", ()), strict=True):
        reader.same(kind, a["part"], a["seconds"], b["seconds"])


def _what_if(reader: Reader, command: str) -> None:
    before, after = reader.told.plain["before"], reader.told.plain["after"]
    _beside(reader, before, after)
    if "parts" in before and "parts" in after:
        first = reader.told.text.splitlines()[0]
        if match := re.search(rf"makes about {N}.* instead of about {N} \(([+-][\d.]+)%\)", first):
            reader.shown("sentence against JSON", "after", match[1], after["value"])
            reader.shown("sentence against JSON", "before", match[2], before["value"])
            gain = 100 * (after["value"] / before["value"] - 1)
            reader.shown("sentence against JSON", "gain", match[3].lstrip("+-"), abs(gain))
        if re.search(r"is no faster", first):
            ratio = after["value"] / before["value"] - 1
            near = abs(ratio) <= after["epsilon"] + SAME
            reader.holds("no faster, but it is", "gain", near, before["value"], after["value"])
    question = re.sub(r" --set \S+", "", command.replace("what-if", "recommend", 1))
    _one_answer(reader, "what-if against recommend", before, ask(question).plain)


# A tree


def _tree(reader: Reader) -> None:
    plain, told = reader.told.plain, reader.told
    batch, made = plain["question"]["batch"], plain["tree"]
    for text in (told.text, told.verbose):
        whole = flat(text)
        head = text.splitlines()[0]
        taken = next(
            (one for one in [plain["choice"], *plain["ties"]] if _is_made(one["configuration"], made)), plain["choice"]
        )
        _step(reader, "headline against JSON", head, taken)
        if match := re.search(rf", {N} ns an element", head):
            reader.shown("headline against JSON", "ns an element", match[1], 1e9 * taken["seconds"] / batch)
        if match := re.search(r"fastest by the nearest records: .*?(?=  | regret| runner-up| note|$)", whole):
            _step(reader, "least time against JSON", match[0], plain["choice"])
        if match := re.search(r"(of K = [^:]+: )?regret at most (\d+)%", whole):
            reader.shown("regret against JSON", "regret", match[2], 100 * plain["regret_95"])
            same = _is_made(plain["choice"]["configuration"], made) or bool(match[1])
            reader.holds("certainty of another tree", "regret and P(best)", same, _named(plain["choice"]), head[:90])
        if match := re.search(r"runner-up: (.*?us a step.*?\))", whole):
            _step(reader, "runner-up against JSON", match[1], plain["runner_up"])
            slower = plain["runner_up"]["seconds"] < 0.995 * taken["seconds"]
            reason = re.search(r"fewest|less sure|statistically tied", whole, re.I)
            times = f"{1e6 * taken['seconds']:.3g} us", f"{1e6 * plain['runner_up']['seconds']:.3g} us"
            kind = "slower than what is shown beside it, without a reason"
            reader.holds(kind, "tree and its runner-up", not slower or bool(reason), *times)


def _is_made(configuration: dict, made: dict) -> bool:
    options = dict(configuration["options"])
    return (configuration["contestant"], configuration["fanout"], configuration["threads"], options) == (
        *(made["implementation"], made["fanout"], made["threads"]),
        made["options"],
    )


def _named(one: dict) -> str:
    configuration = one["configuration"]
    return f"{configuration['contestant']} K={configuration['fanout']} threads={configuration['threads']}"


def _step(reader: Reader, kind: str, text: str, one: dict) -> None:
    ends = {"seconds": one["seconds"], "low": one["low_seconds"], "high": one["high_seconds"]}
    pattern = rf"about {N} us a step \((?:95 % between {N} and {N}|\w+, right within {N}x)"
    if match := reader.found(pattern, text, kind):
        for shown, end in zip(match.groups()[:3], ("seconds", "low", "high"), strict=True):
            reader.shown(kind, end, shown, 1e6 * ends[end])
        reader.shown(kind, "factor", match[4], off(ends, "seconds"))


def _modeled_tree(reader: Reader) -> None:
    plain, told = reader.told.plain, reader.told
    choice, batch = plain["choice"], plain["question"]["batch"]
    for text in (told.text, told.verbose):
        head = text.splitlines()[0]
        time = {f"{end}_seconds": choice["time"][end] for end in ("low", "high")} | {"seconds": choice["time"]["value"]}
        _step(reader, "headline against JSON", head, time)
        if match := reader.found(rf", {N} ns an element", head, "ns an element"):
            reader.shown("headline against JSON", "ns an element", match[1], 1e9 * choice["time"]["value"] / batch)
        if match := re.search(rf"smallest expected time has .*?, about {N} us", flat(text)):
            reader.shown("least time against JSON", "seconds", match[1], 1e6 * plain["best"]["time"]["value"])
        elif plain["best"]["time"]["value"] < 0.995 * choice["time"]["value"]:
            reader.holds("slower than what is shown beside it, without a reason", "tree", False, choice, plain["best"])


# Counts


def _cores(reader: Reader, command: str) -> None:
    plain, text = reader.told.plain, flat(reader.told.text)
    choice, u = plain["choice"], plain["update_interval"]
    acting, learning = (
        plain[side]["rates"][str(choice[what])] for side, what in (("f_a", "actors"), ("f_l", "learners"))
    )
    kind = "headline against JSON"
    if match := reader.found(rf": about {N} gradient steps a second(?:, right within {N}x)?", text, "headline"):
        reader.shown(kind, "rate", match[1], choice["hz"])
        reader.shown(kind, "factor", match[2], off(choice, "hz"))
    if match := reader.found(
        rf" {N}(?: \[{N}, {N}\]| \(x{N}\))? gradient steps a second, (?:bound|both|each)", text, "rate"
    ):
        for shown, value in zip(
            match.groups(), (choice["hz"], choice["low"], choice["high"], off(choice, "hz")), strict=True
        ):
            reader.shown("rate against JSON", "rate", shown, value)
    pattern = rf"actors feed {N}.*? learners take {N}.*?; if neither waited: {N} environment steps"
    if match := reader.found(pattern, text, "feed and take"):
        reader.shown("feed against JSON", "feed", match[1], acting["hz"] / u)
        reader.shown("take against JSON", "take", match[2], learning["hz"])
        reader.shown("ratio against feed and take", "ratio", match[3], acting["hz"] / learning["hz"])
    if not choice["in_turns"]:
        reader.same("rate against feed and take", "rate", choice["hz"], min(acting["hz"] / u, learning["hz"]))
    rows = re.findall(rf"^ +([\d,]+) +([\d,]+) +{N} +{N} +{N}  (\S.*?)  +", reader.told.text, re.M)
    for row, split in zip(
        rows, (choice, *plain["around"], *([] if choice["in_turns"] else [plain["turns"]])), strict=True
    ):
        reader.shown("table against JSON", "steps a second", row[2], split["hz"])
        reader.shown("table against JSON", "feed", row[3], plain["f_a"]["rates"][str(split["actors"])]["hz"] / u)
        reader.shown("table against JSON", "take", row[4], plain["f_l"]["rates"][str(split["learners"])]["hz"])
        if split["hz"] > 1.005 * choice["hz"]:
            is_said = re.search(r"more than any split|fewest cores", text)
            values = choice["hz"], split["hz"]
            reader.holds("slower than what is shown beside it, without a reason", "cores", bool(is_said), *values)


def _depth(reader: Reader, command: str) -> None:
    plain, text = reader.told.plain, flat(reader.told.text)
    busiest = max(plain["busy"].values())
    if match := re.search(rf"at most about {N} gradient steps a second", text):
        reader.shown("headline against JSON", "rate", match[1], plain["most_hz"])
    if match := reader.found(rf"D\* = (\d+) by the closed form, {N}", text, "closed form"):
        reader.shown("closed form against JSON", "rate", match[2], plain["most_hz"])
        reader.same("closed form against headline", "D", float(match[1]), float(plain["depth"]))
    reader.same("rate against times", "rate of the busiest engine", plain["most_hz"], 1 / busiest)
    if match := reader.found(rf"a round takes {N} us, {N} us of it on the busiest", text, "round"):
        reader.shown("round against JSON", "round", match[1], 1e6 * plain["round_seconds"])
        reader.shown("round against JSON", "busiest", match[2], 1e6 * busiest)
    for point in plain["points"]:
        if match := reader.found(rf"(?m)^ +{point['depth']}  +{N} ", reader.told.text, "table"):
            reader.shown("table against JSON", f"D = {point['depth']}", match[1], point["bound_hz"])
    for engine, seconds in plain["busy"].items():
        spent = sum(one["seconds"] for one in plain["times"] if one["engine"] == engine)
        reader.same("times against busy engines", engine, spent, seconds)
    other, kind = ask(f"{command.replace('depth', 'recommend', 1)} --epsilon 0.01").plain, "depth against recommend"
    if "parts" not in other:
        return
    mapping = {part["part"]: part["device"] for part in other["parts"] if part["part"] in plain["mapping"]}
    chosen = (plain["arrangement"], plain["mapping"]), (other["arrangement"], mapping)
    reader.holds(kind, "the mapping", chosen[0] == chosen[1], *chosen)
    times = {one["name"]: one["seconds"] for one in plain["times"]}
    for part in other["parts"] if chosen[0] == chosen[1] else ():
        if part["part"] in times:
            reader.same(kind, f"{part['part']} ({part['choice']})", times[part["part"]], part["charged"])


def _learners(reader: Reader, command: str) -> None:
    plain, text = reader.told.plain, flat(reader.told.text)
    single, best = plain["single_seconds"], plain["best_seconds"]
    if match := reader.found(rf"about {N} us a gradient step(?: instead of {N})?", text, "headline"):
        reader.shown("headline against JSON", "seconds", match[1], 1e6 * (best if match[2] else single))
        reader.shown("headline against JSON", "single", match[2], 1e6 * single)
    if match := re.search(rf"choice: L = (\d+).*?: {N} us a gradient step instead of {N}", text):
        reader.shown("choice against JSON", "best", match[2], 1e6 * best)
        reader.shown("choice against JSON", "single", match[3], 1e6 * single)
        row = reader.found(rf"(?m)^ +{match[1]} .*", reader.told.text, "table")
        near = [parse(one) for one in re.findall(r"[\d,.]+", row[0])] if row else []
        reader.holds(
            "choice against table", "best", any(is_rounded(f"{one:g}", 1e6 * best) for one in near), 1e6 * best, near
        )
    if match := reader.found(rf"{N} times as many gradient steps, {N} a learner", text, "verdict"):
        second = plain["second_learner"]
        reader.shown("verdict against JSON", "times", match[1], single / second["spo_seconds"])
        reader.shown("verdict against JSON", "a learner", match[2], single / second["spo_seconds"] / 2)


def _adapt(reader: Reader, command: str) -> None:
    plain, text = reader.told.plain, flat(reader.told.text)
    if match := reader.found(rf"about {N} records trained a second", text, "headline"):
        reader.shown("headline against JSON", "records", match[1], plain["choice_records_hz"])
    if match := reader.found(rf"together they find .*?: {N} records", text, "apart"):
        reader.shown("pair against JSON", "records", match[1], plain["pair_records_hz"])
    if match := re.search(rf"the fastest of all .*?: {N}; searching apart loses ([\d.]+)%", text):
        reader.shown("best against JSON", "records", match[1], plain["best_records_hz"])
        reader.shown("best against JSON", "loss", match[2], 100 * plain["loss"])
    reader.same("loss", "loss", 1 - plain["loss"], plain["pair_records_hz"] / plain["best_records_hz"])
    if plain["choice_records_hz"] < 0.995 * plain["pair_records_hz"]:
        reason = re.search(r"smallest batch|keep up|is what the workload states", text)
        kind = "slower than what is shown beside it, without a reason"
        reader.holds(kind, "adapt", bool(reason), plain["choice_records_hz"], plain["pair_records_hz"])


def _estimate(reader: Reader, command: str) -> None:
    plain, text = reader.told.plain, reader.told.text
    rows = [row for row in plain["estimates"] if row["value"] is not None]
    if match := re.search(rf"is fastest on (\w+): about {N} us(?:, right within {N}x)?", flat(text)):
        fits = [row for row in rows if row["device"] == match[1] and is_rounded(match[2], 1e6 * row["value"])]
        reader.holds("headline against table", "fastest", bool(fits), match[2], [row["value"] for row in rows])
    for row in rows:
        line = re.search(rf"(?m)^{re.escape(row['device'])} +{re.escape(row['what'])} +{N}(?: \(x{N}\))? ", text)
        if line:
            reader.shown("table against JSON", row["what"], line[1], {"s": 1e6, "J": 1e3}[row["unit"]] * row["value"])


def _fpga(reader: Reader, command: str) -> None:
    plain, text = reader.told.plain["choice"], flat(reader.told.text)
    if match := reader.found(rf"about {N} gradient steps a second", text, "headline"):
        reader.shown("headline against JSON", "rate", match[1], 1 / plain["seconds"])
    if match := reader.found(rf"{N} cycles a step \({N} us, {N} a second\)", text, "cycles"):
        for shown, value in zip(
            match.groups(), (plain["cycles"], 1e6 * plain["seconds"], 1 / plain["seconds"]), strict=True
        ):
            reader.shown("cycles against JSON", "cycles", shown, value)
    if match := reader.found(rf"RMM {N} cycles; learner {N}: (.*?)(?: utilization|$)", text, "learner"):
        spent = sum(parse(one) for one in re.findall(r"([\d,]+) (?=samples|fill|weight|reduction)", match[3]))
        reader.same("sum of the learner's cycles", "learner", parse(match[2]), spent)


# A run beside its prediction


def run_faults(low: float, high: float, hz: float) -> list[Fault]:
    """Compare what ``run`` says of a measured rate with the interval and the ratio that it shows."""
    value = (low * high) ** 0.5
    part = {"seconds": 1e-3, "low": 1e-3, "high": 1e-3, "charged": 1e-3, "source": "measured"}
    answer = SimpleNamespace(
        objective="ratio",
        value=value,
        hz=value,
        low=low,
        high=high,
        interval="95 %",
        upper_bound=False,
        parts=[SimpleNamespace(**part)],
    )
    summary = {
        "settled": {"update_hz": hz, "updates": 100, "seconds": 1.0},
        "throughput": {"cpu_percent": 100.0},
        "updates": 100,
        "steps": 100,
    }
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run_command._show(answer, summary, False)
    text = out.getvalue()
    reader = Reader(Told(f"run, measured {hz:g} in [{low:g}, {high:g}]", 0, text, "", {}))
    ends = reader.found(rf"between {N} and {N}", text, "predicted")
    predicted = reader.found(rf"about {N}", text, "predicted")
    measured = reader.found(rf"measured: +{N} .*?([\d.]+) times the predicted; (within|outside) ?", text, "measured")
    if ends and measured and predicted:
        is_inside = parse(ends[1]) <= parse(measured[1]) <= parse(ends[2])
        shown = f"{measured[1]} {measured[3]} [{ends[1]}, {ends[2]}]"
        reader.holds(
            "verdict against what is shown", "interval", is_inside == (measured[3] == "within"), shown, is_inside
        )
        reader.shown("ratio against rates", "ratio", measured[2], hz / value)
    return reader.faults


def verdicts(seed: int, count: int) -> Iterator[Fault]:
    """Find faults of runs whose measured rates lie near the ends of the interval."""
    draw = random.Random(seed)
    for _ in range(count):
        low = draw.uniform(10, 10_000)
        high = low * draw.uniform(1.1, 2.5)
        yield from run_faults(low, high, draw.choice((low, high)) * draw.uniform(0.98, 1.02))


# One thing in answers of different commands


def across(key: str, workload: str) -> list[Fault]:
    """Compare the time of one tree, and of one learner, in the answers of different commands about one machine."""
    where = f"--platform this --machine {key} --workload {workload}"
    told = {name: ask(f"{name} {where}") for name in ("recommend", "cores", "learners")}
    if any(one.code for one in told.values()):
        return []
    plain = told["recommend"].plain
    parts = {part["part"]: part for part in plain["parts"]}
    reader = Reader(told["recommend"])
    tree = sum(parts[name]["seconds"] for name in ROWS["tree"])
    details = parts["updating"]["details"]
    spec = load(workload)
    asked = ask(f"recommend --capacity {spec.replay.capacity} --batch {spec.learner.batch} --machine {key}").plain
    kind = "one tree, two commands"
    for one in [asked["choice"], *asked["ties"]] if asked else []:
        configuration = one["configuration"]
        if (
            configuration["contestant"],
            configuration["fanout"],
            configuration["threads"],
            configuration["options"],
        ) == (
            *(details.get("contestant"), details.get("fanout"), details.get("threads", 1)),
            [],
        ):
            what = f"{_named(one)}, us: mapping, tree"
            reader.same(kind, what, 1e6 * tree, 1e6 * one["seconds"])
    what = f"{parts['updating']['choice']}, us: mapping, learners' T_replay"
    reader.same(kind, what, 1e6 * tree, 1e6 * told["learners"].plain["terms"]["replay_seconds"])
    by = parts["learner"]["details"].get("implementation")
    fixed = ask(
        f"recommend {where} --fix arrangement=serial --fix learner_implementation=torch --fix learner_threads=1"
    )
    terms = told["learners"].plain["terms"]["passes"]
    serial = ask(f"recommend {where} --fix arrangement=serial").plain
    kind = "one learner, two commands"
    if "parts" in fixed.plain:
        learner = next(part for part in fixed.plain["parts"] if part["part"] == "learner")
        alone = terms["fixed_seconds"] + terms["each_seconds"] * spec.learner.batch
        what = "torch, 1 thread, us: mapping (serial), learners' T_pass"
        reader.same(kind, what, 1e6 * learner["seconds"], 1e6 * alone)
    if "parts" in serial:
        learner = next(part for part in serial["parts"] if part["part"] == "learner")
        alone = 1 / told["cores"].plain["f_l"]["rates"]["1"]["hz"]
        if by == learner["details"].get("implementation"):
            reader.same(kind, f"{by}, us: mapping (serial), cores' f_l(1)", 1e6 * learner["seconds"], 1e6 * alone)
    return reader.faults


def main() -> int:
    """Ask, and write what has two values; returns 1 where anything has."""
    parser = argparse.ArgumentParser(prog="python -m tests.told_numbers", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--across", action="store_true", help="also compare commands about each profiled workload")
    options = parser.parse_args()
    found: list[Fault] = []
    answered = 0
    for command in questions(options.seed, options.count):
        begun = time.perf_counter()
        one = faults(command)
        print(f"{time.perf_counter() - begun:5.1f} s  {command}", file=sys.stderr)
        answered += not ask(command).code
        found += one
    found += verdicts(options.seed, options.count)
    for key, workloads in PROFILED.items() if options.across else ():
        found += [fault for workload in workloads for fault in across(key, workload)]
    for fault in sorted(found, key=lambda fault: fault.kind):
        print(fault)
    kinds = sorted({fault.kind for fault in found})
    print(f"{answered} of {options.count} questions answered, {len(found)} faults of {len(kinds)} kinds")
    for kind in kinds:
        print(f"  {sum(fault.kind == kind for fault in found):4} {kind}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
