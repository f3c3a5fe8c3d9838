"""Tables that READMEs show, each a function from the folder of results to Markdown."""

import ast
import contextlib
import itertools
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import dse
from dse import Record, stats
from dse.learning_runs import Value, write_over_seeds
from dse.platforms.checkout import GitError, git
from dse.records import in_order, twins
from impls.files import list_files
from impls.sumtree.registry import names, options_of, traits
from reports.claims import plugin_claims

from . import origins
from .page import charts, names_of, part, sections
from .sections import plugins as plugins_section
from .sections import replay_cells
from .sections.peers import implementations as implementations_of
from .sections.peers_figures import SUM
from .sections.training import shares

TREES = Path(__file__).resolve().parent.parent / "impls" / "sumtree"
SWEPT = "8fb834d50a"  # the machine of the latest sweep
COMPARED = "d7dae63b89"  # the machine that other libraries were timed on
OPS = ("draw", "update")
OPERATIONS = (("insert", 1), ("insert", 64), ("sample", 256), ("update", 256))  # of a whole replay buffer
BATCHES = (1, 32, 256, 1_024, 16_384)
CAPACITIES = (10_000, 1_000_000)
LIBRARIES = ("numba", "torchrl", "tianshou", "rllib")  # of the table of shares
CELLS = {
    "loop_peer": "whole training loops, ours and other libraries'",
    "memory": "random reads of memory",
    "peer": "trees, ours and other libraries'",
    "serial_step": "whole training steps",
    "training": "parts of training systems",
    "transport": "hand-overs of records and weights",
    "training transport": "systems of actors and one learner, by transport",
    "plugin": "steps of other libraries on our trees",
    "plugin run": "training runs of another library on our trees",
    "replay_operations": "whole replay buffers",
    "replay_sharded": "replay buffers over a Ray cluster",
    "replay_parts": "whole replay buffers",
    "replay_batches": "whole replay buffers",
    "replay_pairs": "replay buffers shared by processes",
    "replay_processes": "replay buffers shared by processes",
    "replay_flush": "replay buffers shared by processes",
    "replay_threads": "replay buffers shared by threads",
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


def implementations(_: Path) -> str:
    """The trees that git has: what the first line of each file says, and the options that not every tree has."""
    listed, rows = [], []
    with contextlib.suppress(GitError):
        listed = git(TREES, "ls-files").split()
    for name in names():
        if (file := f"{name}_tree.py") in listed or not listed:
            about = ast.get_docstring(ast.parse((TREES / file).read_text(encoding="utf-8"))) or ""
            own = [*options_of(name), *["threads"] * traits(name).threaded]
            rows.append((f"`{name}`", about.partition("\n")[0].removesuffix("."), ", ".join(f"`{one}`" for one in own)))
    return _table(("name", "content", "options"), rows)


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
    """Slowdowns of other libraries over the numba tree, for a draw and an update, by batch."""
    timed = [one for one in dse.read_folder(results, COMPARED) if one.median_seconds is not None]
    ((run, _),) = Counter((one.run.code, one.run.command) for one in timed if one.primitive == "peer").most_common(1)
    timed = [one for one in timed if (one.run.code, one.run.command) == run and one.primitive in ("peer", "peer_again")]
    cells = [one for one in timed if one.primitive == "peer" and one.capacity == 10**6]
    compared = implementations_of(cells, timed)
    base = next(one for one in compared if one.kind == ("numba", "float32", ""))
    ns = {batch: base.ns(SUM, batch) or 0.0 for batch in BATCHES}
    rows = [["numba float32, ns per element", *(f"{ns[batch]:,.1f}{base.mark(SUM, batch)}" for batch in BATCHES)]]
    for one in sorted(compared, key=lambda each: each.ns(SUM, 1_024) or 0.0):
        label = f"{one.name} {one.dtype}{', unchecked' * bool(one.options)}"
        ratios = ((one.ns(SUM, batch) or 0.0) / ns[batch] for batch in BATCHES)
        marks = (one.mark(SUM, batch) or base.mark(SUM, batch) for batch in BATCHES)
        told = (f"{ratio:,.2f}x{mark}" for ratio, mark in zip(ratios, marks, strict=True))
        rows += [[f"**{label}**" if one.ours else label, *told]] if one is not base else []
    unstable_cells = sum(one.status == "unstable" for one in cells)
    note = (
        f"Draw and update together, N = 1,000,000; trees of this project in bold. {_origin(cells)}{_noise(timed)}"
        f"{UNSTABLE}, or that of the first row: {unstable_cells} of {len(cells)} timings."
    )
    return _table(["", *(f"B = {batch:,}" for batch in BATCHES)], rows) + f"\n{note}\n"


def share(results: Path) -> str:
    """Which share of a serial training step the tree takes, with its 95 % interval."""
    records = dse.read_folder(results, COMPARED)
    kept = [one for one in shares(records) if one.contestant in LIBRARIES]
    rows = {one.workload: ["", *[""] * len(LIBRARIES)] for one in kept}
    for one in kept:
        if one.contestant == LIBRARIES[0]:
            rows[one.workload][0] = f"`{one.workload}`, {one.step_us / 1e3:.2g} ms a step{'*' * one.is_unstable}"
        cell = f"{one.share:.1%} [{one.low:.1%}, {one.high:.1%}]{'*' * one.is_unstable}"
        rows[one.workload][1 + LIBRARIES.index(one.contestant)] = cell
    note = _origin([one for one in records if one.primitive == "serial_step"])
    unstable = sum(one.is_unstable for one in kept)
    largest = max(kept, key=lambda one: one.share)
    gain = (
        f"A tree that took no time at all would give a step a speedup of at most {largest.most_gain:.2f}, in place of "
        f"{largest.contestant} on `{largest.workload}`"
    )
    counted = f"{unstable} of the {len(kept)} shares are unstable (*: an interval they rest on is wide)"
    return _table(["share of a step", *LIBRARIES], rows.values()) + f"\n{gain}. {counted}. {note}.\n"


def noise(results: Path) -> str:
    """Say in a sentence how noisy the latest sweep was: its A/A floor, over how many pairs, and the unstable cells."""
    records = dse.read_folder(results, SWEPT)
    cells = [one for one in records if (one.primitive, one.source) == ("sum_tree", "measured")]
    statuses, pairs = [one.status for one in cells if one.median_seconds is not None], twins(records)
    return (
        f"In the sweep of machine `{SWEPT}` a cell measured twice differs by up to {stats.noise_floor(pairs):.1%} "
        f"({len(pairs)} A/A pairs), and {statuses.count('unstable')} of {len(statuses)} cells are unstable.\n"
    )


def replay(results: Path) -> str:
    """Microseconds of a whole buffer's operations, ours and other libraries', in a sentence and a table.

    Of several machines, the one with the fewest unstable cells.
    """
    own: dict[str, list[Record]] = defaultdict(list)
    for one in dse.read_folder(results):
        if one.primitive.startswith("replay_operations"):
            own[one.machine_key].append(one)
    if not own:
        return "Not on record yet; measured by `python -m benchmarks run replay`.\n"
    steadiest = min(own.values(), key=lambda each: sum(one.status == "unstable" for one in each))
    part = replay_cells.part(steadiest, "operations")
    compared = replay_cells.operations(part.cells, replay_cells.default_strategy(part.cells))
    shown = {name: compared.cells[name] for name in compared.in_order if compared.sum_of(name)}
    rows = []
    for name, cells in shown.items():
        named = f"**{name}**{replay_cells.remarked(name).removeprefix(name)}" if compared.is_ours[name] else name
        times = (replay_cells.microseconds_of(cells.get(key)) for key in OPERATIONS)
        ahead = "1" if name == compared.ours else compared.ahead_of(name)
        factor = ahead.said(replay_cells.factor) if isinstance(ahead, replay_cells.Value) else ahead or ""
        rows.append([named, *times, replay_cells.total(compared.sum_of(name)).said(replay_cells.microseconds), factor])
    head = ["us a call", *(f"{op}({batch})" for op, batch in OPERATIONS), "sum [95 % interval]", "slowdown"]
    if not part.cells:
        return "Without a time on record; measured by `python -m benchmarks run replay`.\n"
    note = (
        f"N = {part.cells[0].capacity:,}, Hopper's records, one thread; ours in bold, by strategy. "
        f"{_origin(part.run)}{_noise(part.run)}{UNSTABLE}."
    )
    said = replay_cells.sentence(compared)
    return f"{said}\n\n" * bool(said) + _table(head, rows) + f"\n{note}\n"


def cluster(results: Path) -> str:
    """Say how long a step on a replay over a Ray cluster takes, ours and another library's, by the latest records."""
    steps = {
        record.contestant: record
        for record in in_order(dse.read_folder(results))
        if record.primitive == "replay_sharded" and record.samples_seconds
    }
    ours = steps.pop("sharded", None)
    peers = [record for record in steps.values() if ours and record.machine_key == ours.machine_key]
    if ours is None or not peers:
        return "Not on record yet; measured by `python -m benchmarks run replay --only sharded`.\n"
    text = (
        f"Inserting 1 record, sampling {ours.batch} of {ours.capacity:,} and updating them takes "
        f"{replay_cells.microseconds(ours.seconds)} us"
    )
    for peer in peers:
        median, low, high = stats.speedup(peer, ours)
        text += f", and {replay_cells.microseconds(peer.seconds)} us in {peer.contestant}"
        text += f": {median:.1f}x [{low:.1f}, {high:.1f}]"
    return f"{text} (measured). {_origin([ours, *peers])}.\n"


def plugins(results: Path) -> str:
    """Speedups of other libraries' steps on our trees, in a sentence and a table: the machine with most of them."""
    records = [one for one in dse.read_folder(results) if one.primitive in ("plugin", "plugin_again")]
    if not records:
        return "Not on record yet; measured by `python -m benchmarks run plugins`.\n"
    hosts = {one.machine_key: set[str]() for one in reversed(in_order(records))}  # the machine timed last is the first
    for one in records:
        hosts[one.machine_key] |= {one.contestant} if one.samples_seconds else set()
    machine = max(hosts, key=lambda key: len(hosts[key]))
    run = plugin_claims.latest([one for one in records if one.machine_key == machine])
    rows = plugins_section.gains(run)
    if rows.empty:
        return "Without a time on record; measured by `python -m benchmarks run plugins`.\n"
    timed = [one for one in run if one.samples_seconds]
    table = _table(
        plugins_section.HEAD, ([cell.text for cell in plugins_section.cells(row)] for row in rows.itertuples())
    )
    return f"{plugins_section.answer(rows)}\n\n{table}\n{_origin(timed)}{_noise(timed)}{UNSTABLE}.\n"


def _kept(name: str) -> Callable[[Path], str]:
    """Return what gives a file of results, which a command printed, word for word."""
    return lambda results: (results / name).read_text(encoding="utf-8")


race, run, comparison = map(_kept, ("race.md", "run.md", "compare.md"))


def plugin_gains(results: Path) -> str:
    """Speedups of other libraries' steps on our trees, in a sentence."""
    return plugins(results).partition("\n")[0] + "\n"


def files(results: Path) -> str:
    """List each file of results with counts, commits, days and the command that makes it."""
    return _table(["file", "what is in it", "from", "by"], origins.listing(results))


def training(results: Path) -> str:
    """What the recorded training runs returned, and how fast they were; a row a workload, alpha and learner.

    A seed counts once in a row, by its first run: to run a seed again, elsewhere or later, tells of no other seed.
    """
    found = [json.loads(path.read_text("utf-8")) for path in list_files(results, "*/training/*/*/summary.json")]
    runs: dict[tuple[str, float, str], dict[int, Any]] = defaultdict(dict)
    for run in sorted(found, key=lambda one: str(one["utc"])):
        runs[run["workload"], run["alpha"], run.get("learner", "torch")].setdefault(run["seed"], run)
    rows = []
    for (workload, alpha, learner), by_seed in sorted(runs.items()):
        group = [run for _, run in sorted(by_seed.items())]
        means = " ".join(f"{run['test_mean']:,.1f}" for run in group if run.get("test_mean") is not None)
        hz = statistics.median(run["throughput"]["update_hz"] for run in group)
        until = [Value(at or run["steps"], not at) for run in group for at in [run.get("sample_efficiency")]]
        solved = sum(not one.is_beyond for one in until)
        reached = [means, f"{solved} of {len(group)}", write_over_seeds(until, ",.0f")]
        took = f"{statistics.median(run['seconds'] for run in group):,.0f}"
        shape = [f"`{workload}`", f"{alpha:g}", learner, f"{group[0]['steps']:,}"]
        rows.append([*shape, *(reached if solved else [""] * 3), f"{hz:,.1f}", took])
    head = ["workload", "alpha", "learner", "steps", "test return of each seed", "solved", "steps to that"]
    dates = origins.span(run["utc"] for by_seed in runs.values() for run in by_seed.values())
    note = (
        f"Source: measured {dates}, one thread; `summary.json` of each run in `results/*/training`; a seed run "
        "again counts once, by its first run. Steps: the median with its 95 % interval, or each of few seeds; an "
        "unsolved one is beyond its end. Where no return is shown, the run was one of minutes, for its rates."
    )
    return _table([*head, "gradient steps/s", "seconds"], rows) + f"\n{note}\n"


def figures(_: Path) -> str:
    """The figures that the page can have, with what they show and the command that measures them."""
    rows = []
    for one in charts():
        command, comma, rest = one.command.format(key="KEY").partition(", ")
        rows.append([f"`{one.name}`", one.reading, f"`{command}`{comma}{rest}" if command else "laws"])
    return _table(["figure", "how to read it", "rests on"], rows)


def page_sections(_: Path) -> str:
    """The sections of the page in their order, by part."""
    parts = [(name, list(found)) for name, found in itertools.groupby(sections(), part)]
    return _table(["part", "sections"], [(name, names_of(found)) for name, found in parts])


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _ns(one: Record | None) -> str:
    """Nanoseconds per element, marked where modeled or unstable; "" where there are none."""
    if one is None:
        return ""
    ns = 1e9 * one.seconds / one.batch
    text = f"{ns:,.0f}" if ns >= 100 else f"{ns:.1f}" if ns >= 1 else f"{ns:.2f}"
    return f"{'~' * (one.source == 'modeled')}{text}{'*' * (one.status == 'unstable')}"


def _origin(records: Sequence[Record]) -> str:
    """The machine, commits and dates of measured records, in a sentence without its stop."""
    one, when = records[-1], origins.span(each.utc for each in records)
    who = f"{one.machine['cpu']}, {one.machine['cores']} cores"
    return f"Source: measured on {who} (machine `{one.machine_key}`), at {origins.commits(records)}, {when}"


def _noise(records: Sequence[Record]) -> str:
    """Say how much the twins among the records of one primitive differ, as a clause."""
    pairs = twins(records, min(one.primitive for one in records))
    return f"; noise floor {stats.noise_floor(pairs):.1%} over {len(pairs)} A/A pairs"
