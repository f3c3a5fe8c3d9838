"""The page's section about transports of experience and weights, and the table of [Hou2023] that it repeats."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dse.records import Record, how_to_measure, in_order
from impls.terminal import plural
from reports.claims.quoted import Quoted

from .. import style
from ..chart import Chart, Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from ..tidy import About, commit_of, timed

MICRO, SYSTEM = "transport", "training transport"
COMMAND = "python -m benchmarks run transports"
OPS = ("environment step", "gradient step", "cycle", "transfer", "cpu")
HEAD = (
    *("transport", "rows a hand-over", "B", "CPU (%)", "sampling (Hz)", "update frames (Hz)", "updates (Hz)"),
    *("transfer cycle (s)", "age (s)", "loss (%)"),
)
PAPER, TABLE_3 = "[Hou2023]", "hou2023.table_3"
SHARED = "shared"
ORDER = (SHARED, "queue", "fill", "pipe", "file", "torch")
READING = (
    "Actor processes, one unless a row says more, and one learner process train the workload, their ratio free. "
    "Sampling counts environment steps and updates gradient steps; CPU is of all cores; the transfer cycle is the time "
    "between two transfers that brought records, and the age that of the newest record that the learner can sample, "
    "when it samples; the loss is the learner's time in transfer over all its time. Shared: the actor inserts by "
    "itself, which takes no time of the learner's but that the two may wait for each other; queue n: "
    "multiprocessing's, of at most n records, emptied whenever the learner samples; fill n: moved only once it is "
    "full, and whole; pipe: its pipe. Medians over blocks of time; * rests on an unstable one."
)


@dataclass(frozen=True)
class Row:
    """A running system: the median of each column's record, by its op."""

    records: Mapping[str, Record]

    @property
    def setting(self) -> tuple[str, int, int]:
        """Workload, with the samplers and cores where they are not the usual, batch, and rows a hand-over."""
        record = self.records["cpu"]
        counts = {name: record.options.get(f"{name}s") for name in ("sampler", "core")}
        unusual = [plural(count, name) for name, count in counts.items() if count]
        return ", ".join([record.options["workload"], *unusual]), record.batch, int(record.options["rows"])

    @property
    def name(self) -> str:
        """The transport's name in records."""
        return self.records["cpu"].contestant

    @property
    def place(self) -> tuple[int, int]:
        """The place of its kind of transport in ``ORDER``, and how many records that takes."""
        kind, _, size = self.name.partition(" ")
        return ORDER.index(kind), int(size or 0)

    @property
    def values(self) -> dict[str, float]:
        """The columns in their units, under the names of the quoted table."""
        seconds = {op: record.seconds for op, record in self.records.items()}
        return {
            "cpu": 100 * seconds["cpu"] / int(self.records["cpu"].machine.get("cores", 1)),
            "sampled": 1 / seconds["environment step"],
            "frames": self.setting[1] / seconds["gradient step"],
            "updates": 1 / seconds["gradient step"],
            "cycle": seconds.get("interval", math.nan),
            "age": seconds["cycle"],
            "loss": 100 * seconds["transfer"] / seconds["gradient step"],
        }

    @property
    def is_unstable(self) -> bool:
        """Whether a rate rests on an unstable timing."""
        return any(self.records[op].status == "unstable" for op in OPS[:2])


def rows_of(measurements: Sequence[Record]) -> list[Row]:
    """Select every system of ``ORDER`` of whose columns none lacks, by its setting and then as they were measured."""
    systems: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in timed(measurements):
        if record.primitive == SYSTEM:
            key = record.batch, record.contestant, *sorted(record.options.items())
            systems.setdefault(key, {})[record.op] = record
    whole = [Row(found) for found in systems.values() if set(OPS) <= set(found)]
    known = [row for row in whole if row.name.partition(" ")[0] in ORDER]
    return sorted(known, key=lambda row: (row.setting, row.place))


def section(material: Material) -> str:
    """Return the table in the columns of [Hou2023, Table 3], single hand-overs, and the figure, as HTML."""
    rows = rows_of(material.measurements)
    if not rows:
        why = paragraph(f"Left out: no transport was timed; {how_to_measure('run transports')}.")
        return why + paragraphs(material.missing(CHARTS))
    latest = in_order(row.records["cpu"] for row in rows)[-1]
    source = f"Source: measured on {latest.machine.get('cpu')}, at {commit_of(latest, 'with uncommitted changes')}."
    printed, said = _printed(material.printed), answers(rows)
    return (
        (paragraphs(said[:1]) + items(said[1:]) if said else "")
        + paragraph(f"{READING} {source}")
        + table(HEAD, [*map(_cells, rows), *printed])
        + paragraph(f"Rows of {PAPER} are quoted: {material.printed.where(TABLE_3)}. A dash: not printed.")
        + hand_overs(material.measurements)
        + material.pictures(CHARTS)
        + paragraphs(material.missing(CHARTS))
    )


def answers(rows: Sequence[Row]) -> list[str]:
    """Say what transfer costs the learner by shared memory and by others: first over all settings, then for each."""
    settings = dict.fromkeys(row.setting for row in rows)
    compared = {setting: both for setting in settings if (both := _by_shared_and_others(rows, setting))}
    if not compared:
        return []
    worst = max((row for _, others in compared.values() for row in others.values()), key=_loss)
    most = max((shared for shared, _ in compared.values()), key=_loss)
    least = sum(_loss(shared) <= min(map(_loss, others.values())) for shared, others in compared.values())
    lead = (
        f"Transfer takes at most {_percent(most)} of the learner's time by shared memory and up to "
        f"{_percent(worst)} by another ({worst.name}); shared memory takes least in {least} of {len(compared)} "
        "settings (measured)."
    )
    return [lead, *(_answer(setting, *both) for setting, both in compared.items())]


def _by_shared_and_others(rows: Sequence[Row], setting: tuple[str, int, int]) -> tuple[Row, dict[str, Row]] | None:
    """Return a setting's row by shared memory, and those by the others; None without either."""
    others = {row.name: row for row in rows if row.setting == setting}
    shared = others.pop(SHARED, None)
    return (shared, others) if shared and others else None


def _answer(setting: tuple[str, int, int], shared: Row, others: Mapping[str, Row]) -> str:
    workload, batch, count = setting
    worst = max(others.values(), key=_loss)
    slowest = min(others.values(), key=lambda row: row.values["updates"])
    updates, sampled = (slowest.values[name] / shared.values[name] for name in ("updates", "sampled"))
    mark = "*" * (shared.is_unstable or slowest.is_unstable)
    return (
        f"{workload}, B = {batch:,}, {plural(count, 'row')} a hand-over: transfer takes {_percent(shared)} "
        f"of the learner's time by shared memory and at most {_percent(worst)} by another ({worst.name}); "
        f"updates by {slowest.name}, the slowest, are {updates:.2f}{mark} times those by shared memory, and its "
        f"sampling {sampled:.2f}{mark} times."
    )


def _loss(row: Row) -> float:
    return row.values["loss"]


def _percent(row: Row) -> str:
    return f"{_loss(row):.2f} %"


def _cells(row: Row) -> list[Cell]:
    _, batch, count = row.setting
    values, mark = row.values, "*" * row.is_unstable
    said = [f"{values[name]:,.0f}{mark if name != 'cpu' else ''}" for name in ("cpu", "sampled", "frames")]
    numbers = [str(count), f"{batch:,}", *said, f"{values['updates']:,.1f}{mark}"]
    cycle = "-" if math.isnan(values["cycle"]) else f"{values['cycle']:.2g}"
    numbers += [cycle, f"{values['age']:.2g}", f"{values['loss']:.2f}"]
    name = filter(None, [row.name, row.setting[0].partition(", ")[2], row.records["cpu"].reason])
    return [named(", ".join(name), ours=row.name == SHARED), *map(Cell, numbers)]


def _printed(quoted: Quoted) -> list[list[Cell]]:
    """Return the rows that [Hou2023, Table 3] prints, without its column for the GPU."""
    prefix = f"{TABLE_3}.rows."
    names = dict.fromkeys(name.removeprefix(prefix).split(".")[0] for name in quoted.numbers if name.startswith(prefix))
    return [_quoted_cells(name, quoted.table(prefix + name)) for name in names]


def _quoted_cells(name: str, values: Mapping[str, float]) -> list[Cell]:
    columns = ("batch", "cpu", "sampled", "frames", "updates", "cycle", "age", "loss")
    numbers = ["-", *(f"{values[column]:,g}" if column in values else "-" for column in columns)]
    return [named(f"{name.replace('_', ' ')} {PAPER}"), *map(Cell, numbers)]


def hand_overs(measurements: Sequence[Record]) -> str:
    """Return single hand-overs as a table, nothing where none was timed."""
    found = {(one.contestant, one.op, one.batch): one for one in timed(measurements) if one.primitive == MICRO}
    if not found:
        return ""
    columns = list(dict.fromkeys((op, batch) for _, op, batch in found))
    heads = [op if op.endswith("weights") else f"{op}, {plural(batch, 'row')}" for op, batch in columns]
    lines = []
    for name in dict.fromkeys(name for name, _, _ in found if name in ORDER):
        records = [found.get((name, *column)) for column in columns]
        lines.append([named(name), *(Cell(_microseconds(record) if record else "") for record in records)])
    sentence = (
        "Single hand-overs in one process on one core, in microseconds: send is the actor's part, hand over lasts "
        "until the receiver has inserted the rows into the replay; weights are those of the policy that acts. A "
        "queue's rows are pickled by a thread of its own, which send does not wait for."
    )
    return paragraph(sentence) + table(("by", *heads), lines)


def _microseconds(record: Record) -> str:
    return f"{1e6 * record.seconds:,.3g}{'*' * (record.status == 'unstable')}"


def frame(material: Material) -> pd.DataFrame:
    """Select a row a system: its setting, transport, sampling and update rates."""
    return pd.DataFrame(
        [
            dict(zip(("workload", "batch", "rows"), row.setting, strict=True)) | row.values | {"name": row.name}
            for row in rows_of(material.measurements)
        ]
    )


@style.styled
def draw(rows: pd.DataFrame, about: About) -> Figure:
    """Draw update rates over sampling rates, a panel a setting and a mark a transport."""
    parts = dict(iter(rows.groupby(["workload", "batch", "rows"])))
    titles = [f"{workload}, B = {batch:,}, {count} a hand-over" for workload, batch, count in parts]
    layout = {"nrows": -(-len(parts) // 2), "ncols": min(2, len(parts)), "sharey": False}
    question = "What does a transport cost actors and their learner?"
    figure, panels = style.panels(question, titles, 3.2 * layout["nrows"] + 1, "updates (Hz)", **layout)
    names = list(dict.fromkeys(rows["name"]))
    for axes, part in zip(panels, parts.values(), strict=True):
        for one in part.itertuples():
            axes.plot([one.sampled], [one.updates], label=one.name, **style.marks(names.index(one.name), ""))
        axes.set(xscale="linear", xlabel="sampling (Hz)")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.tick_params(labelbottom=True)
    note = f"Up and to the right is better. Source: measured on {about.cpu}, {about.cores} cores."
    return style.captioned(figure, note)


CHARTS = (
    Chart(
        "transports",
        frame,
        draw,
        "Gradient steps/s over environment steps/s of a system of actors and one learner whose ratio "
        "is free, by what hands records over.",
        COMMAND,
    ),
)
SECTIONS = (Section(58, "Transports", section, (MICRO, SYSTEM), ("quoted/hou2023.toml",)),)
