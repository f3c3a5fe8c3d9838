"""Tables that READMEs show, each a function from the folder of results to Markdown."""

import itertools
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dse
from dse import Measurement
from dse.published.peer_claims import is_ours

from .page import charts, sections
from .sections.training import shares

SWEPT = "8fb834d50a"  # the machine of the latest sweep
COMPARED = "d7dae63b89"  # the machine that other libraries were timed on
OPS = ("draw", "update")
BATCHES = (1, 32, 256, 1_024, 16_384)
CAPACITIES = (10_000, 1_000_000)
LIBRARIES = ("numba", "torchrl", "tianshou", "rllib")  # of the table of shares
CELLS = {
    "answer": "answers, checked",
    "question": "answers, checked",
    "loop_question": "whole training steps",
    "memory": "random reads of memory",
    "peer": "trees beside other libraries",
    "serial_step": "whole training steps",
    "training": "parts of training systems",
}
"""What the cells of a primitive are, but for sum trees; second timings of a cell, for the noise, do not count."""
UNSTABLE = "; * unstable, its interval is wide"


def coverage(results: Path) -> str:
    """How many cells of what have times, of all machines: measured, modeled, and skipped for want of a device."""
    cells: dict[str, Counter[str]] = defaultdict(Counter)
    for one in dse.read_folder(results):
        kind = f"`{one.contestant}` tree" if one.primitive in ("sum_tree", "gpu") else CELLS.get(one.primitive)
        if kind:
            cells[kind][one.source if one.median_seconds is not None else "skipped"] += 1
    columns = ("measured", "modeled", "skipped")
    rows = [[kind, *(f"{count[name]:,}" if count[name] else "" for name in columns)] for kind, count in cells.items()]
    return _table(["cells", *columns], sorted(rows, key=lambda row: (not row[0].startswith("`"), row[0])))


def trees(results: Path) -> str:
    """Nanoseconds per element of each tree with its defaults, at K = 16, B = 256, from the sweep."""
    usual = {"primitive": "sum_tree", "batch": 256, "fanout": 16, "threads": 1, "dtype": "float32", "options": {}}
    usual |= {"distribution": "uniform"}
    cells = {
        (one.contestant, one.capacity, one.op): one
        for one in dse.read_folder(results, SWEPT)
        if one.median_seconds is not None and all(getattr(one, key) == value for key, value in usual.items())
    }
    wanted = list(itertools.product(CAPACITIES, OPS))
    names = sorted({name for name, _, _ in cells})
    rows = [[f"`{name}`", *(_ns(cells.get((name, *cell))) for cell in wanted)] for name in names]
    head = ["ns per element", *(f"{op}, N = {capacity:,}" for capacity, op in wanted)]
    measured = [one for one in cells.values() if one.source == "measured"]
    note = f"K = 16, B = 256, float32, one thread, checks on. {_origin(measured)}; ~ modeled{UNSTABLE}."
    return _table(head, [row for row in rows if any(row[1:])]) + f"\n{note}\n"


def peers(results: Path) -> str:
    """How many times as long other libraries take as the numba tree, for a draw and an update, by batch."""
    cells = [one for one in dse.read_folder(results, COMPARED) if one.primitive == "peer" and one.capacity == 10**6]
    ((run, _),) = Counter((one.commit, one.command) for one in cells).most_common(1)
    cells = [one for one in cells if (one.commit, one.command) == run and one.median_seconds is not None]
    seconds: dict[tuple[str, str, str], Counter[int]] = defaultdict(Counter)
    for one in cells:
        seconds[one.contestant, one.dtype, ", unchecked" * bool(one.options)][one.batch] += one.median_seconds or 0
    ours = seconds["numba", "float32", ""]
    rows = [["numba float32, ns per element", *(f"{1e9 * ours[batch] / batch:,.1f}" for batch in BATCHES)]]
    for (name, dtype, options), times in sorted(seconds.items(), key=lambda item: item[1][1_024]):
        if times is not ours:
            label = f"{name} {dtype}{options}"
            shown = f"**{label}**" if is_ours(name) else label
            rows.append([shown, *(f"{times[batch] / ours[batch]:,.2f}x" for batch in BATCHES)])
    note = f"Draw and update together, N = 1,000,000; trees of this project in bold. {_origin(cells)}."
    return _table(["", *(f"B = {batch:,}" for batch in BATCHES)], rows) + f"\n{note}\n"


def share(results: Path) -> str:
    """Which share of a serial training step the tree takes, with its 95 % interval."""
    records = dse.read_folder(results, COMPARED)
    rows = {one.workload: ["", *[""] * len(LIBRARIES)] for one in shares(records)}
    for one in shares(records):
        if one.contestant in LIBRARIES:
            if one.contestant == LIBRARIES[0]:
                rows[one.workload][0] = f"`{one.workload}`, {one.step_us / 1e3:.2g} ms a step"
            cell = f"{one.share:.1%} [{one.low:.1%}, {one.high:.1%}]{'*' * one.is_unstable}"
            rows[one.workload][1 + LIBRARIES.index(one.contestant)] = cell
    note = _origin([one for one in records if one.primitive == "serial_step"])
    return _table(["share of a step", *LIBRARIES], rows.values()) + f"\n{note}{UNSTABLE}.\n"


def training(results: Path) -> str:
    """What the recorded training runs returned, and how fast they were; a row a workload and alpha."""
    runs = defaultdict(list)
    for path in sorted(results.glob("*/training/*/*/summary.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        runs[run["workload"], run["alpha"]].append(run)
    rows = []
    for (workload, alpha), group in runs.items():
        means = [run["test_mean"] for run in group if run.get("test_mean") is not None]
        steps = [run["sample_efficiency"] for run in group if run.get("sample_efficiency")]
        solved = f"{len(steps)} of {len(group)}" if steps else ""
        hz = statistics.median(run["throughput"]["update_hz"] for run in group)
        trained = " ".join(f"{mean:,.1f}" for mean in means) if steps else ""
        first = f"{statistics.median(steps):,.0f}" if steps else ""
        rows.append([f"`{workload}`", f"{alpha:g}", f"{group[0]['steps']:,}", trained, solved, first, f"{hz:,.1f}"])
    head = ["workload", "alpha", "steps", "test return of each seed", "solved", "median steps to that"]
    dates = _span(run["utc"] for group in runs.values() for run in group)
    note = (
        f"Source: measured {dates}, one thread; `summary.json` of each run in `results/*/training`. Where no return is "
        "shown, the run was one of minutes, for its rates."
    )
    return _table([*head, "gradient steps a second"], rows) + f"\n{note}\n"


def figures(_: Path) -> str:
    """The figures that the page can have, with what they show and the command that measures them."""
    rows = []
    for one in charts():
        command, comma, rest = one.command.format(key="KEY").partition(", ")
        rows.append([f"`{one.name}`", one.reading, f"`{command}`{comma}{rest}" if command else "laws"])
    return _table(["figure", "how to read it", "rests on"], rows)


def page_sections(_: Path) -> str:
    """The sections of the page in their order."""
    return "".join(f"{place}. {re.sub('<[^>]*>', '', one.heading)}\n" for place, one in enumerate(sections(), 1))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _ns(one: Measurement | None) -> str:
    """Nanoseconds per element, marked where modeled or unstable; "" where there are none."""
    if one is None:
        return ""
    ns = 1e9 * one.seconds / one.batch
    text = f"{ns:,.0f}" if ns >= 100 else f"{ns:.1f}" if ns >= 1 else f"{ns:.2f}"
    return f"{'~' * (one.source == 'modeled')}{text}{'*' * (one.status == 'unstable')}"


def _origin(records: Sequence[Measurement]) -> str:
    """The machine, commits and dates of measured records, in a sentence without its stop."""
    one = records[-1]
    commits = ", ".join(sorted({(each.commit or "no commit")[:8] for each in records}))
    who = f"{one.machine['cpu']}, {one.machine['cores']} cores"
    return (
        f"Source: measured on {who} (machine `{one.machine_key}`), at {commits}, {_span(each.utc for each in records)}"
    )


def _span(times: Iterable[str]) -> str:
    """The first and the last day."""
    days = sorted({time[:10] for time in times})
    return " to ".join(dict.fromkeys([days[0], days[-1]]))
