"""How right the models are, what papers claim and what the records say of it, and what was measured."""

import itertools
import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from dse.records import RecordError
from impls.files import list_files

from .. import laws
from ..figure import Figure, Section, Table
from ..frame import Data

held_out, serial_loops = cache(laws.held_out), cache(laws.serial_loops)
ERRORS = ["law", "out", "cells", "median", "worst", "factor", "within", "as_fitted"]
SLOWER = 1.1  # times, as ``regressions_thresholds`` of asv.conf.json
TIMES = {"us": "result", "us_low": "stats_ci_99_a", "us_high": "stats_ci_99_b"}
SERIES = ["benchmark", "setting"]
LETTERS = {"fanout": "K", "capacity": "N", "batch": "B"}
RECORD = ["machine_key", "primitive", "status", "contestant", "op", "reason", "utc", "commit"]
REFUTED = ["paper", "place", "text", "value", "low", "high", "unit", "printed", "rule", "evidence"]
MACHINE = ["cpu", "cores", "python", "packages"]


def list_errors(data: Data) -> pd.DataFrame:
    """List the errors of each law on what its constants were not fitted to: a workload, or a machine."""
    return pd.DataFrame(map(vars, held_out(data.results)), columns=ERRORS)


def list_loops(data: Data) -> pd.DataFrame:
    """List serial loops predicted from other workloads' loops, next to their measured rates in gradient steps/s."""
    rows = [(loop.machine, loop.workload, *loop.predicted, loop.measured_hz, 100 * loop.error)
            for loop in serial_loops(data.results)]  # fmt: skip
    return pd.DataFrame(rows, columns=["machine", "workload", "predicted", "low", "high", "measured", "error (%)"])


def say_errors(data: Data) -> str:
    """Say how far predicted loops and predicted parts are off."""
    loops, parts = list_loops(data)["error (%)"].abs(), list_errors(data)
    unread = ", ".join(laws.untold(data.results))
    left = f" Left out, for no record holds their workload: {unread}." if unread else ""
    if loops.empty or parts.empty:
        return left.strip()
    within = np.average(parts["within"], weights=parts["cells"])
    return (
        f"A loop predicted from other workloads' loops is off by {loops.median():.0f} % (median of {len(loops)}, at "
        f"most {loops.max():.0f} %); {within:.0%} of the predicted parts are within the factor that answers state."
    ) + left


def read_history(data: Data) -> pd.DataFrame:
    """Read what asv timed at several commits of this machine, or else of another: seconds with 99 % intervals.

    RecordError for a file that is not of asv 0.5 or newer.
    """
    machines = {path.parent.name: path.parent for path in list_files(data.results / "asv", "*/machine.json")}
    folder = machines.get(data.machine, next(iter(machines.values()), None))
    paths = [path for path in list_files(folder, "*.json") if path.name != "machine.json"] if folder else []
    parts = [part for path in paths for part in _read_commit(path)]
    rows = pd.concat(parts) if parts else pd.DataFrame(columns=[*SERIES, *TIMES, "environment", "commit", "date"])
    if rows["environment"].nunique() > 1:
        rows["setting"] += ", " + rows["environment"]
    rows = rows[rows.groupby(SERIES)["commit"].transform("nunique") > 1].sort_values(
        ["date", *SERIES], ignore_index=True
    )
    commits = list(dict.fromkeys(rows["commit"]))
    known = {"machine": folder and folder.name, "source": "measured", "utc": pd.to_datetime(rows["date"], unit="ms")}
    label = f"commits by date, {' to '.join(commits[:: max(1, len(commits) - 1)])}"
    return rows.assign(**known, place=rows["commit"].map(commits.index), x_label=label).astype({"utc": str})


def _read_commit(path: Path) -> Iterator[pd.DataFrame]:
    """Yield the times of each benchmark at a commit, a row a setting: of its parameters the last changes fastest."""
    try:
        files = path, path.parents[1] / "benchmarks.json"
        run, now = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        for name, stored in run["results"].items():
            known = dict(zip(run["result_columns"], stored, strict=False))
            is_same = name in now and known.get("version") in (None, now[name]["version"])
            if is_same and name.rpartition(".")[2].startswith("time_"):
                settings = itertools.product(*known["params"])
                names = [", ".join(map(_name, now[name]["param_names"], setting)) for setting in settings]
                rows = pd.DataFrame({"setting": names, **{us: known.get(column) for us, column in TIMES.items()}})
                rows[list(TIMES)] = 1e6 * rows[list(TIMES)].astype(float)
                code = {"environment": run.get("env_name", ""), "commit": run["commit_hash"][:8], "date": run["date"]}
                yield rows.dropna(subset="us").assign(benchmark=name.partition(".")[2], **code)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{path}: is no result of asv 0.5 or newer ({error}); measure that commit again") from None


def _name(parameter: str, written: str) -> str:
    """Write a parameter; asv stores it as Python does.

    >>> _name("contestant", "'numba'"), _name("capacity", "100000")
    ('numba', 'N = 100,000')
    """
    value = f"{int(written):,}" if written.isdigit() else written
    return written.strip("'") if written.startswith("'") else f"{LETTERS.get(parameter, parameter)} = {value}"


def list_changes(data: Data) -> pd.DataFrame:
    """List what a commit made slower or faster by over 10 %, with intervals that lie apart."""
    rows = read_history(data)
    before = rows.groupby(SERIES)[["commit", *TIMES]].shift().add_prefix("before_")
    rows = rows.join(before).assign(ratio=rows["us"] / before["before_us"])
    is_slower = (rows["ratio"] > SLOWER) & (rows["us_low"] > rows["before_us_high"])
    is_faster = (rows["ratio"] < 1 / SLOWER) & (rows["us_high"] < rows["before_us_low"])
    rows["verdict"] = np.select([is_slower, is_faster], ["slower", "faster"], "")
    return rows[rows["verdict"] != ""][["commit", "before_commit", "verdict", *SERIES, "before_us", "us", "ratio"]]


def count_verdicts(data: Data) -> pd.DataFrame:
    """Count the verdicts on each document."""
    return data.claims.groupby(["paper", "verdict"]).size().unstack(fill_value=0).reset_index()


def list_refuted(data: Data) -> pd.DataFrame:
    """List the claims that records or arithmetic refute."""
    return data.claims.query("verdict == 'refuted'")[REFUTED]


def say_verdicts(data: Data) -> str:
    """Say how many claims were judged, and how."""
    said = ", ".join(f"{count} {verdict}" for verdict, count in data.claims["verdict"].value_counts().items())
    return f"Of {len(data.claims)} claims of {data.claims['paper'].nunique()} documents: {said}." if said else ""


def list_records(data: Data) -> pd.DataFrame:
    """List every record of all machines: what it is of, when and by which command it was made."""
    rows = [
        {**{name: getattr(record, name) for name in RECORD}, **{name: record.machine.get(name) for name in MACHINE},
         "command": record.run.command} for record in data.records
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=[*RECORD, *MACHINE, "command"]).fillna("")
    frame["packages"] = [", ".join(map(" ".join, known.items())) if known else "" for known in frame["packages"]]
    return frame.assign(day=frame["utc"].str[:10], machine=frame["machine_key"])


def count_records(data: Data, by: str, where: str = "status == status") -> pd.DataFrame:
    """Count the records with equal values in columns, with their first and last day."""
    rows = list_records(data).query(where).groupby(by.split())
    return rows["day"].agg(records="size", first="min", last="max").reset_index()


def say_records(data: Data) -> str:
    """Say how many records there are, of how many machines and since when."""
    rows = list_records(data)
    said = ", ".join(f"{count:,} {status}" for status, count in rows["status"].value_counts().items())
    days = rows["day"].replace("", None)
    span = f"{len(rows):,} records of {rows['machine'].nunique()} machines, {days.min()} to {days.max()}: {said}."
    floor, pairs = data.noise
    twice = f" On machine {data.machine} a cell that was timed twice in a sweep differs by up to {floor:.1%}"
    return f"{span}{f'{twice} ({pairs} pairs).' if pairs else ''}" if said else ""


SECTIONS = (
    Section(
        "Is it right?",
        "The constants of a law are fitted without a workload, or without a machine, and the law then predicts it.",
        says=say_errors,
        figures=(
            Figure(
                "history", "Which commit was slower?", "place", "us", make=read_history, hue="setting",
                panels=("benchmark",), own_axes=True, labels=("commits by date", "us a call"),
                reading="Timed by asv, with 99 % intervals. A line that jumps up and stays up is a slower commit.",
                command="asv run --machine KEY --bench Fanout HEAD~3..HEAD",
            ),
        ),
        tables=(
            Table("law_errors", "The errors of each law, and the factor that answers state", list_errors),
            Table("predicted_loops", "Whole loops: predicted and measured gradient steps/s", list_loops),
            Table("changes", "Commits that made a call slower or faster", list_changes),
        ),
    ),
    Section(
        "What do the papers claim?",
        "Refuted: not so on these machines, also where our code is faster than printed. Adds up: by "
        "arithmetic on printed numbers. Consistent: for some value of a number that the paper does not print."
        " REFERENCES.md names the documents.",
        says=say_verdicts,
        tables=(
            Table("verdicts", "Verdicts by document", count_verdicts, is_open=True),
            Table("refuted", "The refuted claims", list_refuted, is_open=True),
            Table("claims", "Every claim with its evidence", lambda data: data.claims),
        ),
    ),
    Section(
        "What was measured?",
        "Every table and figure as CSV: python -m reports data.",
        says=say_records,
        tables=(
            Table("records", "Records by machine and primitive", partial(count_records, by="machine primitive status")),
            Table("commands", "Commands and days", partial(count_records, by="machine command commit")),
            Table("missing", "Skipped and failed cells", partial(
                count_records, by="machine primitive contestant reason", where="status in ('skipped', 'failed')")),
            Table("packages", "Packages", partial(count_records, by="machine cpu cores python packages")),
        ),
    ),
)  # fmt: skip
