"""The page's section about the history of speed: what asv timed at several commits, and which commit was slower."""

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dse.records import RecordError
from impls.files import list_files

from .. import style
from ..chart import Chart, Material, Section
from ..markup import named, paragraph, paragraphs, table
from ..tidy import About

FOLDER, BENCHMARKS, MACHINE = "asv", "benchmarks.json", "machine.json"
TIMED = "time_"  # how the methods begin whose results are seconds
CALLED = {"fanout": "K", "capacity": "N", "batch": "B"}  # parameters that have a letter
THRESHOLD = 0.10
"""How much longer a commit must take at least to be called slower: ``regressions_thresholds`` of asv.conf.json."""
HASH = 8
MOST = 8  # series of a panel: as many as there are colors
MEASURE = "asv run --machine {key} --bench Fanout HEAD~3..HEAD"
FIRST = ["benchmark", "setting"]
CHANGED = ("commit", "the one before", "verdict", "benchmark", "setting", "before (us)", "after (us)", "ratio")
SERIES = ("benchmark", "setting", "commits", "first (us)", "last (us)", "last / first", "slower at", "faster at")
RULE = (
    f"A commit counts as slower than the one before it where it takes over {THRESHOLD:.0%} longer and the 99 % "
    "intervals that asv stored of both lie apart; as faster likewise. What was timed at a single commit, what this "
    "machine has no device for and, as asv does, what another version of a benchmark took is omitted."
)


@dataclass(frozen=True)
class Change:
    """Two commits that follow each other, and the seconds of the same call at both."""

    benchmark: str
    setting: str
    before: Any
    after: Any

    @property
    def ratio(self) -> float:
        """The slowdown of the later one."""
        return float(self.after.seconds / self.before.seconds)

    @property
    def verdict(self) -> str:
        """Return "slower", "faster", or "" for what may be noise."""
        if self.ratio > 1 + THRESHOLD and self.after.low > self.before.high:
            return "slower"
        if self.ratio < 1 / (1 + THRESHOLD) and self.after.high < self.before.low:
            return "faster"
        return ""


def folder_of(results: Path, key: str) -> Path:
    """Return the folder of a machine's history, or that of another machine if it has none. RecordError without any."""
    found = [path.parent for path in list_files(results / FOLDER, f"*/{MACHINE}")]
    if not found:
        raise RecordError(f"no history is on record; this would measure one: {MEASURE.format(key=key)}")
    return next((path for path in found if path.name == key), found[0])


def rows(material: Material) -> pd.DataFrame:
    """Return the seconds of each timed call at each commit, with asv's 99 % intervals.

    What was timed at a single commit is omitted. Commits are in the order of their dates; ``place`` counts them. A
    result that asv left out has no row.
    """
    folder = folder_of(material.results, material.about.key)
    columns = [*FIRST, "environment", "commit", "date", "seconds", "low", "high"]
    found = pd.DataFrame(_stored(material.results, folder)[0], columns=columns)
    if found["environment"].nunique() > 1:  # a series each: what one of them took says nothing of another
        found["setting"] += ", " + found["environment"]
    found = found.assign(machine=folder.name)
    commits = found.drop_duplicates("commit").sort_values(["date", "commit"])["commit"]
    found["place"] = found["commit"].map({commit: place for place, commit in enumerate(commits)})
    several = found.groupby(FIRST)["commit"].transform("nunique") > 1
    return found[several].sort_values([*FIRST, "place"]).reset_index(drop=True)


def _stored(results: Path, folder: Path) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return a row for each value of a machine's files, and why a file was left out."""
    made, left_out, names = [], [], _read(results / FOLDER / BENCHMARKS)
    for path in list_files(folder, "*.json"):
        if path.name != MACHINE:
            run = _read(path)
            try:
                made += list(_rows(run, names))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                why = f"{type(error).__name__}: {error}, as of an asv before 0.5"
                left_out.append(f"Left out: {path.name} ({why}); measure that commit again.")
    return made, left_out


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: is no file of asv's ({error}); measure that history again") from None


def _rows(run: Any, benchmarks: Any) -> Iterator[tuple[Any, ...]]:
    """Yield what asv stored of a commit: a value for each combination of parameters, the last changing fastest."""
    for name, stored in run["results"].items():
        if name not in benchmarks or not name.rpartition(".")[2].startswith(TIMED):
            continue
        known, now = dict(zip(run["result_columns"], stored, strict=False)), benchmarks[name]
        versions = {known.get("version"), now.get("version")} - {None}
        if len(versions) > 1 or len(now["param_names"]) != len(known["params"]):  # the benchmark was another one
            continue
        settings = list(itertools.product(*known["params"]))
        values, lows, highs = (
            known.get(column) or [None] * len(settings) for column in ("result", "stats_ci_99_a", "stats_ci_99_b")
        )
        for setting, value, low, high in zip(settings, values, lows, highs, strict=True):
            if value is not None and not math.isnan(value):
                ends = (-math.inf if low is None else low, math.inf if high is None else high)
                told = ", ".join(map(_told, now["param_names"], setting))
                short = name.partition(".")[2]
                yield short, told, run.get("env_name", ""), run["commit_hash"][:HASH], run["date"], value, *ends


def _told(name: str, written: str) -> str:
    """Write a parameter; asv stores them as Python writes them.

    >>> _told("contestant", "'numba'"), _told("fanout", "16"), _told("capacity", "100000")
    ('numba', 'K = 16', 'N = 100,000')
    """
    if written.startswith("'"):
        return written.strip("'")
    return f"{CALLED.get(name, name)} = {int(written):,}" if written.isdigit() else f"{name} = {written}"


def changes(found: pd.DataFrame) -> list[Change]:
    """Return every pair of commits that follow each other in a series."""
    made = []
    for (benchmark, setting), part in found.groupby(FIRST):
        made += [Change(benchmark, setting, *pair) for pair in itertools.pairwise(part.itertuples(index=False))]
    return made


@style.styled
def draw(found: pd.DataFrame, about: About) -> Figure:
    """Draw a panel for each benchmark: time of a call over commits, a line for each setting."""
    parts = dict(iter(found.groupby("benchmark")))
    commits = found.drop_duplicates("commit").sort_values("place")["commit"].tolist()
    layout = {"nrows": math.ceil(len(parts) / 2), "ncols": min(2, len(parts)), "sharey": False}
    height = 2 + 3.5 * layout["nrows"]
    figure, grid = style.panels("Which commit was slower?", list(parts), height, "time of a call (us)", **layout)
    ringed = {(one.benchmark, one.setting, one.after.place) for one in changes(found) if one.verdict == "slower"}
    for axes, (benchmark, part) in zip(grid, parts.items(), strict=True):
        settings = sorted(part["setting"].unique())[:MOST]
        for position, setting in enumerate(settings):
            points = part[part["setting"] == setting]
            us, low, high = (1e6 * points[name] for name in ("seconds", "low", "high"))
            low, high = (ends.where(ends.abs() != math.inf, us) for ends in (low, high))
            look = style.marks(position)
            style.bars(axes, points["place"], us, low, high, fmt="none", ecolor=look["color"], alpha=0.7)
            axes.plot(points["place"], us, label=setting, **look)
            for place, value in zip(points["place"], us, strict=True):
                if (benchmark, setting, place) in ringed:
                    style.ring(axes, place, value)
        axes.set_xscale("linear")
        style.ticks(axes.xaxis, range(len(commits)), lambda place: commits[int(place)])
        axes.tick_params(axis="x", rotation=30, labelbottom=True)
        axes.set(xlabel="commit, by date")
    caption = (
        "Bars: 99 % intervals as asv stored them, none where it had too few samples. Ringed: slower than the commit "
        f"before. Source: measured by asv on machine {found['machine'].iloc[0]}."
    )
    return style.captioned(figure, caption)


CHARTS = (
    Chart(
        "history",
        rows,
        draw,
        "A line that jumps up and stays up is a commit that made that call slower; one that jumps once and comes back "
        "is noise that asv did not see.",
        MEASURE,
    ),
)


def _html(material: Material) -> str:
    if missing := material.missing(CHARTS):
        return paragraphs(missing)
    found = rows(material)
    if found.empty:
        raise RecordError(f"no call was timed at two commits; this would: {MEASURE.format(key=material.about.key)}")
    every = changes(found)
    told = [one for one in every if one.verdict]
    slower = list(dict.fromkeys(one.after.commit for one in told if one.verdict == "slower"))
    says = (
        f"Slower than the commit before: {', '.join(slower)}."
        if slower
        else "No commit was shown to be slower than the one before, by the rule below, which small changes escape."
    )
    commits, machine = found["commit"].nunique(), found["machine"].iloc[0]
    ends = [(points[0], points[-1]) for _, part in found.groupby(FIRST) if (points := [*part.itertuples(index=False)])]
    longer = sum(last.seconds > first.seconds and not _is_open(first, last) for first, last in ends)
    drift = f"From its first commit to its last, {longer} of {len(ends)} calls took longer by intervals that lie apart."
    whose = "" if machine == material.about.key else f", for machine {material.about.key} has no history of its own"
    return (
        paragraph(f"asv timed {commits} commits on machine {machine}{whose}. {says} {drift}")
        + material.pictures(CHARTS)
        + paragraph(RULE)
        + paragraphs(_stored(material.results, folder_of(material.results, material.about.key))[1])
        + (table(CHANGED, (_change_row(one, every) for one in told)) if told else "")
        + table(SERIES, _series_rows(found, every))
    )


def _change_row(one: Change, every: Iterable[Change]) -> tuple[object, ...]:
    """Return the cells of a change, with the commit at which the call took again what it took before, if it did."""
    times = (_us(one.before), _us(one.after), f"{one.ratio:.2f}x")
    after = (later.after for later in every if later.before == one.after)
    back = next((point.commit for point in after if _is_open(point, one.before)), "")
    verdict = f"{one.verdict}; came back at {back}" if back else one.verdict
    return (one.after.commit, one.before.commit, verdict, one.benchmark, named(one.setting), *times)


def _series_rows(found: pd.DataFrame, every: Iterable[Change]) -> Iterator[tuple[object, ...]]:
    at: dict[tuple[str, str, str], list[str]] = {}
    for one in every:
        at.setdefault((one.benchmark, one.setting, one.verdict), []).append(one.after.commit)
    for (benchmark, setting), part in found.groupby(FIRST):
        points = list(part.itertuples(index=False))
        steps = (", ".join(at.get((benchmark, setting, verdict), ())) for verdict in ("slower", "faster"))
        first, last = points[0], points[-1]
        ratio = f"{last.seconds / first.seconds:.2f}x{', intervals overlap' * _is_open(first, last)}"
        yield benchmark, named(setting), len(points), _us(first), _us(last), ratio, *steps


def _is_open(first: Any, last: Any) -> bool:
    """Tell whether the intervals of two points overlap."""
    return bool(first.low <= last.high and last.low <= first.high)


def _us(point: Any) -> str:
    return f"{1e6 * point.seconds:,.4g}"


SECTIONS = (Section(47, "History", _html, files=(f"{FOLDER}/*/*.json",)),)
