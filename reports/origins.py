"""Which files, commits, days and machines records are of, in words: below each section of the page, and in READMEs."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from dse import records
from dse.records import Record
from impls.files import list_files
from impls.terminal import plural


def placed(found: Sequence[Record], results: Path) -> list[tuple[str, Record]]:
    """Return each record of a machine with its file, as a path below ``results``."""
    paths = list_files(results / found[0].machine_key, "**/*.jsonl") if found else []
    files = {_key_of(one): str(path.relative_to(results)) for path in paths for one in records.read_file(path)}
    return [(files.get(_key_of(one), "records of no file"), one) for one in found]


def _key_of(record: Record) -> tuple[str, str]:
    """Return what tells a record from all others of its machine: cell and time."""
    return record.cell, record.utc


def rests_on(found: Iterable[tuple[str, Record]]) -> list[str]:
    """Return a phrase for each file that has some of the records: how many, unstable ones, commits, days, machine."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for name, record in found:
        groups[name].append(record)
    return [f"{name}: {counted(group)}; {where(group)}" for name, group in sorted(groups.items())]


def counted(group: Sequence[Record]) -> str:
    """Count records, and those of them that are unstable, skipped or failed."""
    counts = Counter(record.status for record in group)
    others = ", ".join(f"{counts[name]:,} {name}" for name in ("unstable", "skipped", "failed") if counts[name])
    return f"{plural(len(group), 'record')}{f' ({others})' if others else ''}"


def where(group: Sequence[Record]) -> str:
    """Name the machine, the commits and the days of records that are all of one machine."""
    return f"machine {group[-1].machine_key}, at {commits(group)}, {span(record.utc for record in group)}"


def commits(group: Iterable[Record]) -> str:
    """List the commits of records, 8 letters of each."""
    return ", ".join(sorted({(record.commit or "no commit")[:8] for record in group}))


def span(times: Iterable[str]) -> str:
    """Return the first and the last day."""
    days = sorted({time[:10] for time in times})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def listing(results: Path) -> list[list[str]]:
    """Return a row for each file of results, for a workload's training runs together: file, counts, when, command."""
    rows = [_row_of_records(path, results) for path in list_files(results, "**/*.jsonl")]
    rows += [_row_of_json(path, results) for path in list_files(results, "**/*.json") if path.name != SUMMARY]
    rows += [[_name(path, results), "", "", TOML[path.stem]] for path in list_files(results, "*/platform.toml")]
    rows += [[_name(path, results), "", "", TOML["quoted"]] for path in list_files(results, "quoted/*.toml")]
    rows += [_row_of_runs(path, results) for path in list_files(results, "*/training/*")]
    return sorted(rows)


SUMMARY = "summary.json"
TOML = {"platform": "`python -m dse platform probe`", "quoted": "by hand, from papers"}
JSON = {
    "peers-accuracy": "`make peers`",
    "gpu-check": "`make gpu`",
    "synthesis": "`python -m tests.oracles.rtl.synthesis`",
}  # command by the beginning of the file's name


def _row_of_records(path: Path, results: Path) -> list[str]:
    found = records.read_file(path)
    by_command = Counter(record.run.command for record in found)
    ((command, _),) = by_command.most_common(1) or [("", 0)]
    others = f" and {len(by_command) - 1} more" if len(by_command) > 1 else ""
    when = f"{commits(found)}, {span(record.utc for record in found)}" if found else ""
    return [_name(path, results), counted(found), when, f"`{command}`{others}"]


def _row_of_json(path: Path, results: Path) -> list[str]:
    content = json.loads(path.read_text(encoding="utf-8"))
    entries = len(content)
    command = next((command for start, command in JSON.items() if path.stem.startswith(start)), "")
    return [_name(path, results), f"{entries:,} entries", "", command]


def _row_of_runs(folder: Path, results: Path) -> list[str]:
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in list_files(folder, f"*/{SUMMARY}")]
    days = span(run["utc"] for run in runs)
    return [
        f"`{folder.relative_to(results)}/`",
        f"{len(runs)} runs",
        days,
        f"`python -m impls.training train {folder.name}`",
    ]


def _name(path: Path, results: Path) -> str:
    return f"`{path.relative_to(results)}`"
