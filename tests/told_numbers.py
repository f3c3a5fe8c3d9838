"""Find two values for one thing: asks the solver's commands, and compares every number that is printed twice.

Questions are drawn by a seed, each asked for text, for all text (--verbose) and for JSON. A number of a text is right
where it rounds from the one of the JSON, at two digits or more; numbers of the JSON that say one thing agree to
``SAME``.
"""

import contextlib
import functools
import io
import json
import math
import random
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from dse.__main__ import main as dse
from dse.answers import run as run_command
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
        return f"{self.kind}: {self.what}: {self.first} | {self.second}\n    {self.command}"


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


class Reader:
    """Collects what does not agree in the answers of one command."""

    def __init__(self, told: Told) -> None:
        self.told, self.faults = told, []

    def shown(self, kind: str, what: str, shown: str | None, value: float | None) -> None:
        """A printed number must round from a value; none is printed, or none is known, where either is None."""
        if shown and value is not None and not is_rounded(shown.lstrip("+-"), abs(value)):
            self.faults.append(Fault(kind, self.told.command, what, shown, value))

    def same(self, kind: str, what: str, one: float, other: float) -> None:
        """Two values of one thing must be one."""
        self.holds(kind, what, abs(one - other) <= SAME * max(abs(one), abs(other)), one, other)

    def holds(self, kind: str, what: str, holds: bool, first: object, second: object) -> None:
        """What must be so."""
        if not holds:
            self.faults.append(Fault(kind, self.told.command, what, first, second))

    def read(self, kind: str, pattern: str, text: str, *values: float | None, must: bool = True) -> re.Match | None:
        """Each number that a pattern finds in a text must round from its value; what ``must`` be there is found."""
        match = re.search(pattern, text)
        self.holds("unread", kind, match is not None or not must, pattern, flat(text)[:160])
        for shown, value in zip(match.groups(), values, strict=False) if match else ():
            self.shown(kind, flat(match[0])[:60], shown, value)
        return match

    def slower(self, what: str, chosen: float, other: float, has_reason: bool) -> None:
        """What is shown as faster than the choice must come with a reason."""
        kind = "slower than what is shown beside it, without a reason"
        self.holds(kind, what, other <= 1.005 * chosen or has_reason, chosen, other)


def faults(command: str, change=lambda told: told) -> list[Fault]:
    """Ask, and find what has two values; ``change``: what was told, for tests to say otherwise."""
    told = change(ask(command))
    reader = Reader(told)
    kind = command.split(maxsplit=1)[0]
    if not told.code and kind != "recommend":
        READERS[kind](reader, command)
    elif not told.code:
        if "parts" in told.plain:
            for text in (told.text, told.verbose):
                _mapping(reader, text, told.plain)
            _values(reader, told.plain)
            _rate_line(reader, told.verbose, told.plain)
            _alternatives(reader, told.plain)
        else:
            _tree(reader)
    return reader.faults


def flat(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())


def ends(of: dict, value: str = "value", scale: float = 1) -> tuple[float, float, float]:
    """The low and the high end of a value, and the factor that it may be off by."""
    return scale * of["low"], scale * of["high"], max(of["high"] / of[value], of[value] / of["low"])


# A mapping


ROWS = {"tree": ("sampling", "updating"), "records": ("storage",)}


def _taken(plain: dict, name: str, end: str = "seconds") -> float:
    """Microseconds of a row: of a part, or of those that it pools."""
    return 1e6 * sum(part[end] for part in plain["parts"] if part["part"] in ROWS.get(name, (name,)))


def _mapping(reader: Reader, text: str, plain: dict) -> None:
    """Headline, rows, breakdown, lines by implementation, ties and cores of a text, against the JSON."""
    within = rf"95 % between {N} and {N}|\w+, error bound: a factor of {N}"
    unit = r"gradient steps/(?:s|J)(?:, actors aside)?"
    pattern = rf"about {N} {unit}(?: \({N}/s with actors\))?, (?:{within})"
    head = text.split("\n", maxsplit=1)[0]
    reader.read("headline against JSON", pattern, head, plain["value"], plain["hz"], *ends(plain))
    pattern = rf"^  (\w+) +\S+ .*? {N} us(?: \[{N}, {N}\]| \(x{N}\))?  \w+$"
    for name, *numbers in re.findall(pattern, text, re.M):
        row = {end: _taken(plain, name, end) for end in ("seconds", "low", "high")}
        for shown, value in zip(numbers, (row["seconds"], *ends(row, "seconds")), strict=True):
            reader.shown("table against JSON", name, shown, value)
    whole = flat(text)
    shares = {one["what"]: one["seconds"] for one in plain["shares"]}
    if step := re.search(rf"a step of {N} us: (.*?\(-?\d+ %\))(?= \w+ (?:and|another|by)| with|  |$)", whole):
        reader.shown("breakdown against rate", "a step", step[1], 1e6 / plain["hz"])
        for what, shown, percent in re.findall(rf"(?:^|, )([\w ]+?) -?{N} us \((-?\d+) %\)", step[2]):
            reader.shown("breakdown against JSON", what, shown, 1e6 * shares[what])
            reader.shown("breakdown against JSON", f"{what}, %", percent, 100 * shares[what] * plain["hz"])
    for one in plain["by_implementation"]:
        pattern = rf"policy by {one['implementation']}: (?:at most )?about {N}(?: \[{N}, {N}\]| \(x{N}\))"
        reader.read("by implementation against JSON", pattern, whole, one["value"], *ends(one))
    for used, have in re.findall(r"(\d+) of (\d+) cores?", whole.partition(" rests on: ")[0]):
        reader.holds("cores", "cores", [float(used), float(have)] == list(plain["cores"]), (used, have), plain["cores"])
    named = [{**one, "told": f"learner and policy by {one['implementation']}"} for one in plain["by_implementation"]]
    for one in [*plain["ties"], plain["elsewhere"], *named]:
        if one and one["told"].split(" (")[0] in whole and plain["low"] < 0.999 * plain["value"]:
            chosen = plain["value"] * max(1, (1 + plain["epsilon"]) / 1.005)
            reader.slower(one["told"], chosen, one["value"], re.search(REASON, text) is not None)


def _values(reader: Reader, plain: dict) -> None:
    """Values of the JSON that say one thing."""
    shares = {one["what"]: one["seconds"] for one in plain["shares"]}
    if shares:
        whole = math.fsum(one["charged"] for one in plain["parts"]) + sum(one["seconds"] for one in plain["transfers"])
        reader.same("breakdown against rate", "sum of a step's parts", sum(shares.values()), 1 / plain["hz"])
        reader.same("charges against rate", "sum of what parts are charged", whole, 1 / plain["hz"])
        for name in ("learner", "tree", "storage"):
            reader.same("row against breakdown", name, _taken(plain, name), 1e6 * shares[name])
        acting = 1e6 * sum(shares.get(name, 0.0) for name in ("policy", "environment", "acting"))
        fits = acting <= _taken(plain, "actors") * (1 + SAME)
        reader.holds("row against breakdown", "policy and environment", fits, _taken(plain, "actors"), acting)
        for one in plain["shares"]:
            reader.same("breakdown against itself", one["what"], one["share"], one["seconds"] * plain["hz"])
    made = {one["details"].get("implementation") for one in plain["parts"] if one["part"] in ("learner", "actors")}
    for one in plain["by_implementation"]:
        for key in ("value", "low", "high", "interval", "upper_bound") if made == {one["implementation"]} else ():
            reader.holds("by implementation against headline", key, one[key] == plain[key], one[key], plain[key])
    reader.same("distance", "distance below the bound", plain["distance"], 1 - plain["value"] / plain["bound"])
    for most in (plain["bound"], plain["learner_hz"] if plain["objective"] == "training" else plain["bound"]):
        reader.holds("above its bound", "rate", plain["value"] <= most * (1 + SAME), plain["value"], most)


def _rate_line(reader: Reader, text: str, plain: dict) -> None:
    low, high, factor = ends(plain)
    is_factor = plain["interval"] == "factor"
    shown = rf", within a factor of {N}, not tested here" if is_factor else rf" \[{N}, {N}\] at 95 %"
    pattern = rf" {N} gradient steps/(?:s|J)(?:, actors aside)?{shown}"
    last = (factor,) if is_factor else (low, high)
    reader.read("rate line against JSON", pattern, flat(text), plain["value"], *last)
    pattern = rf"at most {N} if every part .*?\((-?\d+)% below that\)"
    if match := reader.read("bound against JSON", pattern, flat(text), plain["bound"]):
        below = round(100 * plain["distance"])
        reader.holds("bound against JSON", "share below", int(match[2]) == below, match[2], plain["distance"])
    pattern = rf"; {N}(?:/s)? by the fastest learner alone"
    reader.read("bound against JSON", pattern, flat(text), plain["learner_hz"])


def _alternatives(reader: Reader, plain: dict) -> None:
    """Ties and others: their cost, and as both texts write them."""
    brief, whole = flat(reader.told.text), flat(reader.told.verbose)
    for one in filter(None, [*plain["ties"], plain["elsewhere"]]):
        name, percent = one["told"], 100 * one["cost"]
        reader.same("cost of an alternative", name, 1 - one["cost"], one["value"] / plain["value"])
        if match := re.search(rf"[:;] {re.escape(name)} \(([+-]\d+)%\)", brief):
            reader.holds("gain of a tie", name, int(match[1]) == round(-percent), match[1], percent)
        pattern = rf"[:%;] {re.escape(name)}: (?:at most )?{N}(?: \(x{N}\))?, (costs|gains) ([\d.]+)%"
        match = reader.read("alternative against JSON", pattern, whole, one["value"], must=False)
        if match:
            lost = (1 if match[3] == "costs" else -1) * float(match[4])
            reader.holds("alternative against JSON", name, abs(lost - percent) < 0.06, lost, percent)


# Two mappings in two columns


def _columns(reader: Reader, *answers: dict) -> None:
    lines = (re.split(r"\s{2,}", line.strip()) for line in reader.told.text.splitlines() if line.startswith("  "))
    rows = {row[0]: row[1:] for row in reversed([*lines]) if len(row) == 3}  # a learner's share is below the learner
    for index, plain in enumerate(answers):
        if "parts" not in plain:
            continue
        low, high, factor = ends(plain)
        value, *shown = re.findall(N, rows["rate"][index])
        wanted = (plain["value"], factor) if len(shown) == 1 else (plain["value"], low, high)
        for number, one in zip([value, *shown], wanted, strict=False):
            reader.shown("rate of a column", "rate", number, one)
        taken = {one["what"]: one["seconds"] for one in plain["shares"] if one["what"] in rows}
        for name, seconds in (taken | {one["part"]: one["seconds"] for one in plain["parts"]}).items():
            reader.read("part of a column", rf"{N} us", rows[name][index], 1e6 * seconds, must=False)
        if taken:
            learner = next(one["seconds"] for one in plain["shares"] if one["what"] == "learner")
            reader.same("row against breakdown", "learner", _taken(plain, "learner"), 1e6 * learner)


def _one_answer(reader: Reader, command: str, plain: dict) -> None:
    """A column must be what ``recommend`` answers."""
    question = re.sub(r" --(config|set) \S+", "", re.sub(r"^\S+", "recommend", command))
    other = ask(question).plain
    for key in ("value", "low", "high", "hz", "bound"):
        if key in plain and key in other:
            reader.same("against recommend", key, plain[key], other[key])
    for one, two in zip(plain.get("parts", ()), other.get("parts", ()), strict=True):
        reader.same("against recommend", one["part"], one["seconds"], two["seconds"])


def _explain(reader: Reader, command: str) -> None:
    asked, best = reader.told.plain["asked"], reader.told.plain["best"]
    _columns(reader, asked, best)
    first, kind = flat(reader.told.text.split("\n\n")[0]), "explanation against table"
    reader.read(kind, rf"loses {N}%", first, 100 * (1 - asked["value"] / best["value"]), must=False)
    if match := re.search(rf"(\S+) is busy for {N} us", first):
        on = [one for one in asked["parts"] if match[1] in (one["engine"], *dict(one["also"]).values())]
        spent = sum(one["charged"] for one in on)
        spent += sum(one["seconds"] for one in asked["transfers"] if one["engine"] == match[1])
        reader.shown(kind, f"{match[1]} busy", match[2], 1e6 * spent)
    for part, *numbers in re.findall(rf"its (\w+) takes {N} us on .*?, {N} us on", first):
        for shown, plain in zip(numbers, (asked, best), strict=True):
            reader.shown(kind, part, shown, _taken(plain, part))
    _one_answer(reader, command, best)


def _what_if(reader: Reader, command: str) -> None:
    before, after = reader.told.plain["before"], reader.told.plain["after"]
    _columns(reader, before, after)
    if "parts" in before and "parts" in after:
        first, gain = reader.told.text.splitlines()[0], after["value"] / before["value"] - 1
        pattern = rf"makes about {N}.* instead of about {N} \(([+-][\d.]+)%\)"
        reader.read("sentence against JSON", pattern, first, after["value"], before["value"], 100 * gain, must=False)
        is_near = "is no faster" not in first or abs(gain) <= after["epsilon"] + SAME
        reader.holds("no faster, but it is", "gain", is_near, before["value"], after["value"])
    _one_answer(reader, command, before)


# A tree


def _tree(reader: Reader) -> None:
    plain, is_modeled = reader.told.plain, "machine" not in reader.told.plain
    choice, best = plain["choice"], plain.get("best")
    if not is_modeled:
        same = (one for one in [choice, *plain["ties"]] if _configuration(one) == _configuration(plain["tree"]))
        choice, best = next(same, choice), choice
    seconds = _seconds(choice)
    for text in (reader.told.text, reader.told.verbose):
        whole, head = flat(text), text.splitlines()[0]
        _step(reader, "headline against JSON", head, choice)
        pattern = rf", {N} ns per element"
        each = 1e9 * seconds["seconds"] / plain["question"]["batch"]
        reader.read("headline against JSON", pattern, head, each, must=is_modeled)
        if is_modeled:
            pattern = rf"smallest expected time has .*?, about {N} us"
            least = _seconds(best)["seconds"]
            found = reader.read("least time against JSON", pattern, whole, 1e6 * least, must=False)
            reader.slower("tree", 1 / seconds["seconds"], 1 / least, found is not None)
            continue
        if match := re.search(r"fastest by the nearest records: .*?(?=  | runner-up| note|$)", whole):
            _step(reader, "least time against JSON", match[0], best)
        if match := re.search(r"runner-up: (.*?us per step.*?\))", whole):
            _step(reader, "runner-up against JSON", match[1], plain["runner_up"])
            reason = re.search(r"fewest|less sure|tied, take", whole, re.I) is not None
            reader.slower("runner-up", 1 / seconds["seconds"], 1 / plain["runner_up"]["seconds"], reason)


def _seconds(one: dict) -> dict:
    ends = {name.removesuffix("_seconds"): one.get(name) for name in ("seconds", "low_seconds", "high_seconds")}
    return one["time"] | {"seconds": one["time"]["value"]} if "time" in one else ends


def _configuration(one: dict) -> tuple:
    made = one.get("configuration", one)
    name = made.get("contestant") or made["implementation"]
    return name, made["fanout"], made["threads"], dict(made["options"])


def _step(reader: Reader, kind: str, text: str, one: dict) -> None:
    time = _seconds(one)
    pattern = rf"about {N} us per step \((?:95 % between {N} and {N}|\w+, error bound: a factor of {N})"
    low, high, factor = ends(time, "seconds", 1e6)
    reader.read(kind, pattern, text, 1e6 * time["seconds"], low, high, factor)


# Counts


def _choice(reader: Reader, command: str) -> tuple[dict, dict]:
    """Compare the choice's number with the JSON, and with those of others; returns the choice, and notes by kind."""
    plain, text = reader.told.plain, flat(reader.told.text)
    choice, notes = plain["choice"], {note["kind"]: note for note in plain["notes"]}
    pattern = rf": (?:about |at most )?{N} {choice['unit']} \((?:{N} to {N}, )?{choice['source']}\)"
    reader.read("headline against JSON", pattern, text, choice["value"], *ends(choice)[:2])
    reasons = " ".join([*notes, *(note.get("text", "") for note in plain["notes"])])
    has_reason = re.search(r"fewest|second_learner|smallest batch|workload states", reasons) is not None
    for row in plain["others"]:
        reader.slower(command, choice["value"], row.get("value", 0.0), has_reason or row.get("in_turns", False))
    return choice, notes


def _cores(reader: Reader, command: str) -> None:
    choice, notes = _choice(reader, command)
    rates = {(row["side"], row["cores"]): row["value"] for row in reader.told.plain["rows"]}
    u = reader.told.plain["question"]["update_interval"]
    for row in (choice, *reader.told.plain["others"]):
        reader.same("feed against table", "actors", u * row["feed_hz"], rates["actors", row["actors"]])
        reader.same("feed against table", "learners", row["take_hz"], rates["learners", row["learners"]])
        most = min(row["feed_hz"], row["take_hz"])  # a run, in which both sides share what they wait for
        is_less = row["in_turns"] or row["value"] <= most * (1 + SAME)
        reader.holds("rate against feed and take", "rate", is_less, row["value"], most)
    (spare,) = (note["spare"] for kind, note in notes.items() if kind.startswith("bound_by"))
    reader.same("feed against note", "spare", spare, u * choice["feed_hz"] / choice["take_hz"])


def _depth(reader: Reader, command: str) -> None:
    choice, notes = _choice(reader, command)
    question, parts = reader.told.plain["question"], [row for row in reader.told.plain["rows"] if "part" in row]
    busy = Counter()
    for row in parts:
        busy[row["engine"]] += row["value"]
    reader.same("rate against times", "rate of the busiest engine", choice["most_hz"], 1 / max(busy.values()))
    reader.same("times against round", "seconds", sum(busy.values()), choice["round_seconds"])
    (slowest,) = (notes[kind] for kind in ("busiest_engine", "takes_turns") if kind in notes)
    reader.same("times against busy engines", "seconds", slowest["seconds"], max(busy.values()))
    other = ask(command.replace("depth", "recommend", 1)).plain
    if "parts" not in other:
        return
    mapping = {part["part"]: part["device"] for part in other["parts"] if part["part"] in question["mapping"]}
    chosen = (question["arrangement"], question["mapping"]), (other["arrangement"], mapping)
    reader.holds("depth against recommend", "the mapping", chosen[0] == chosen[1], *chosen)
    times = {row["part"]: row["value"] for row in parts}
    for part in other["parts"] if chosen[0] == chosen[1] else ():
        if part["part"] in times:
            reader.same("depth against recommend", part["part"], times[part["part"]], part["charged"])


def _learners(reader: Reader, command: str) -> None:
    choice, notes = _choice(reader, command)
    second, hz = notes["second_learner"], choice["single_hz"]
    for row in (row for row in reader.told.plain["rows"] if "as_run" in row):
        reader.same("factor against rates", "as run", row["as_run"], 1 / hz / row["seconds"] / row["learners"])
    reader.same("second learner against rates", "faster", second["faster"], 1 / hz / second["seconds"])
    is_one = choice["learners"] == 1
    reader.holds("rate against one learner", "rate", (choice["value"] == hz) == is_one, choice["value"], hz)


def _adapt(reader: Reader, command: str) -> None:
    choice, notes = _choice(reader, command)
    plain = reader.told.plain
    pairs = {(row["samplers"], row["batch"]): row["value"] for row in (choice, *plain["others"])}
    found = tuple(note["best"] for note in plain["notes"] if note["kind"] == "search_found")
    loss = 1 - pairs[found] / max(pairs.values())
    reader.same("loss", "loss", 1 - notes["searching_apart"]["loss"], 1 - loss)


def _fpga(reader: Reader, command: str) -> None:
    choice, _ = _choice(reader, command)
    spent = sum(row["cycles"] for row in reader.told.plain["rows"] if row.get("part") == "learner" and "cycles" in row)
    most = max(spent, choice["rmm"]["cycles"])
    reader.same("sum of the learner's cycles", "cycles", choice["cycles"], most)
    hz = reader.told.plain["question"]["clock_hz"] / choice["cycles"]
    reader.same("rate against cycles", "rate", choice["value"], hz)


READERS = {
    "explain": _explain,
    "what-if": _what_if,
    "cores": _cores,
    "depth": _depth,
    "learners": _learners,
    "adapt": _adapt,
    "fpga": _fpga,
}


# A run and its prediction


def run_faults(low: float, high: float, hz: float) -> list[Fault]:
    """Compare what ``run`` says of a measured rate with the interval and the ratio that it shows."""
    value = (low * high) ** 0.5
    part = SimpleNamespace(seconds=1e-3, low=1e-3, high=1e-3, charged=1e-3, source="measured")
    rates = {"objective": "ratio", "value": value, "hz": value, "low": low, "high": high}
    answer = SimpleNamespace(**rates, interval="95 %", upper_bound=False, parts=[part])
    settled = {"update_hz": hz, "updates": 100, "seconds": 1.0}
    summary = {"settled": settled, "throughput": {"cpu_percent": 100.0}, "updates": 100, "steps": 100}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run_command._show(run_command.Contender({}, (), "", 1, answer), None, summary, False)
    text = out.getvalue()
    reader = Reader(Told(f"run, measured {hz:g} in [{low:g}, {high:g}]", 0, text, "", {}))
    ends = reader.read("predicted", rf"between {N} and {N}", text)
    pattern = rf"measured: +{N} .*?([\d.]+) times the predicted; (within|outside) ?"
    measured = reader.read("ratio against rates", pattern, text, hz, hz / value)
    if ends and measured:
        is_inside = parse(ends[1]) <= parse(measured[1]) <= parse(ends[2])
        shown = f"{measured[1]} {measured[3]} [{ends[1]}, {ends[2]}]"
        kind = "verdict against what is shown"
        reader.holds(kind, "interval", is_inside == (measured[3] == "within"), shown, is_inside)
    return reader.faults


def verdicts(seed: int, count: int) -> Iterator[Fault]:
    """Find faults of runs whose measured rates lie near the ends of the interval."""
    draw = random.Random(seed)
    for _ in range(count):
        low = draw.uniform(10, 10_000)
        high = low * draw.uniform(1.1, 2.5)
        yield from run_faults(low, high, draw.choice((low, high)) * draw.uniform(0.98, 1.02))
