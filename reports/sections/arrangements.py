"""The page's section about arrangements of training: rates, bounds, predictions, and the kept ratio."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dse import platforms
from dse.platforms.files import FILE
from dse.records import Record, how_to_measure

from .. import style
from ..chart import Chart, Material, Section
from ..laws import predict_runs
from ..markup import Cell, items, paragraph, paragraphs, table
from ..tidy import About, of_one_run, tidy
from .replay_cells import rate

ARRANGEMENT = "training arrangement"
USUAL = {"learners": 1, "sync": "synchronous", "transport": "shared", "weights": "shared"}
"""Options of the runs that the section compares; other topics compare other values of them."""
_SHAPE = ("workload", "update_interval", "arrangement", "actors", "environments", "presampled", "learner", "policy")


@dataclass(frozen=True)
class Point:
    """An arrangement as it ran at an update interval: the records of its rate and of its bound.

    ``free_seconds``: of a gradient step, the longest of what its parts take when neither waits for the other, where
    that was timed.
    """

    rate: Record
    bound: Record | None = None
    free_seconds: float | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the run."""
        return self.rate.options

    @property
    def hz(self) -> float:
        """The measured rate, in gradient steps/s."""
        return 1 / self.rate.seconds

    @property
    def share(self) -> float | None:
        """The share of the bound that was reached, None without a bound."""
        return self.bound.seconds / self.rate.seconds if self.bound else None

    @property
    def name(self) -> str:
        """The arrangement with its actors and environments."""
        options = self.options
        if options["arrangement"] == "serial":
            return f"serial, E = {options['environments']}"
        return f"{options['arrangement']}, A = {options['actors']}, E = {options['environments']}"

    @property
    def processes(self) -> int:
        """How many processes there were."""
        actors = {"serial": 0, "apart": 0, "pipelined": 1}[self.options["arrangement"]]
        return 1 if self.options["arrangement"] == "serial" else 1 + actors + int(self.options["actors"])


def points(measurements: Iterable[Record]) -> list[Point]:
    """Return the runs that were timed, by workload and update interval, the fastest first."""
    by: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in measurements:
        if record.primitive == ARRANGEMENT and record.median_seconds is not None and _is_usual(record.options):
            key = (record.options["ratio"], *(record.options[name] for name in _SHAPE))
            by.setdefault(key, {})[record.op] = record
    runs = {key: ops for key, ops in by.items() if key[0] == "kept" and "rate" in ops}
    made = [Point(ops["rate"], ops.get("bound"), _free(by, key)) for key, ops in runs.items()]
    return sorted(made, key=lambda one: (one.options["workload"], one.options["update_interval"], -one.hz))


def _is_usual(options: Mapping[str, Any]) -> bool:
    """Whether it is a run to compare; those that predictions rest on name the workload's ``identity`` besides."""
    is_whole = {*_SHAPE, "ratio"} <= options.keys() and "identity" not in options
    return is_whole and all(options.get(name) == value for name, value in USUAL.items())


def _free(by: Mapping[tuple[Any, ...], Mapping[str, Record]], key: tuple[Any, ...]) -> float | None:
    """Return seconds of a gradient step by the parts of the same arrangement at a free ratio, whose pace has no u."""
    shape = dict(zip(_SHAPE, key[1:], strict=True))
    for other, ops in by.items():
        is_same = other[0] == "free" and (other[1], *other[3:]) == (key[1], *key[3:])
        if is_same and {"actor turn", "learner step"} <= ops.keys():
            turns = shape["update_interval"] / (shape["actors"] * shape["environments"])
            return max(turns * ops["actor turn"].seconds, ops["learner step"].seconds)
    return None


def groups(every: Sequence[Point]) -> dict[tuple[str, int], list[Point]]:
    """Group runs by workload and update interval."""
    by: dict[tuple[str, int], list[Point]] = {}
    for one in every:
        by.setdefault((one.options["workload"], one.options["update_interval"]), []).append(one)
    return by


def best_of_each(every: Sequence[Point]) -> list[Point]:
    """Return the fastest run of each arrangement, by workload and update interval."""
    best: dict[tuple[Any, ...], Point] = {}
    for one in every:  # the fastest come first
        options = one.options
        best.setdefault((options["workload"], options["update_interval"], options["arrangement"]), one)
    return list(best.values())


@dataclass(frozen=True)
class Prediction:
    """Gradient steps/s that the solver predicts of a run, in [``low``, ``high``]."""

    point: Point
    hz: float
    low: float
    high: float


def predictions(material: Material, chosen: Sequence[Point]) -> Iterator[Prediction]:
    """Predict runs from the machine's records; nothing of those that records do not tell of, or without a platform.

    Each is predicted once for all that show it.
    """
    if not (path := material.folder / FILE).is_file():
        return
    todo = [one for one in chosen if ("prediction", one.rate.cell) not in material.answers]
    answers = predict_runs(material.measurements, platforms.load(path), [one.options for one in todo])
    for one, answer in zip(todo, answers, strict=True):
        material.answers["prediction", one.rate.cell] = answer and (answer.hz, answer.low, answer.high)
    for one in chosen:
        if rate := material.answers["prediction", one.rate.cell]:
            yield Prediction(one, *rate)


REACHED, LARGEST = 0.85, 0.01
HEAD = ("arrangement", "D", "gradient steps/s", "bound", "share of it", "bound at a free ratio", "busiest", "predicted")


def section(material: Material) -> str:
    """Return everything known about arrangements, as HTML."""
    every = points(material.measurements)
    if not every:
        why = f"Left out: no arrangement was timed; {how_to_measure('run arrangements')}."
        return paragraphs([why, *material.missing(CHARTS)])
    return (
        paragraphs(_answer(name, interval, own) for (name, interval), own in groups(every).items())
        + material.pictures(CHARTS)
        + paragraph(
            "Gradient steps/s (measured) with 95 % intervals, by the default implementations from a full replay "
            "on. Bound: the rate at which the part that works most would never wait, by its work in the same run "
            f"among the others; the target is {REACHED:.0%} of it by the best parallel arrangement. At a free ratio "
            "neither side waits for the other. Predicted from all records of this machine."
        )
        + _tables(material, every)
        + _long(material.measurements)
        + paragraphs(material.missing(CHARTS))
    )


def _answer(workload: str, interval: int, own: Sequence[Point]) -> str:
    """Say which arrangement is the fastest, and how near the best parallel one comes to its bound."""
    best, parallel = own[0], next((one for one in own if one.bound), None)
    steps = f"{rate(best.rate).said(_count)} gradient steps/s"
    said = f"{workload}, u = {interval}: {best.name} is the fastest with {steps}"
    if parallel is None or parallel.share is None:
        return f"{said}."
    reached = "" if parallel.share >= REACHED else f", less than {REACHED:.0%}"
    name = "it" if parallel is best else f"the best parallel one, {parallel.name},"
    return f"{said}; {name} reaches {parallel.share:.0%} of its bound{reached}."


def _tables(material: Material, every: Sequence[Point]) -> str:
    """Return a table for each workload and update interval; predictions of the fastest of each arrangement."""
    predicted = predictions(material, best_of_each(every))
    told = {id(one.point): f"{one.hz:,.0f} [{one.low:,.0f}, {one.high:,.0f}]" for one in predicted}
    html = ""
    for (workload, interval), own in groups(every).items():
        rows = [_row(one, told.get(id(one), ""), one is own[0], material.about.cores) for one in own]
        html += paragraph(f"{workload}, u = {interval}:") + table(HEAD, rows)
    return html


def _row(one: Point, told: str, is_best: bool, cores: int) -> list[Cell]:
    over = f"oversubscribed: {one.processes} processes" if one.processes > cores else ""
    return [
        Cell(one.name, "name", over),
        Cell(str(one.options["presampled"])),
        Cell(rate(one.rate).said(_count), "number best" if is_best else "number"),
        Cell(rate(one.bound).said(_count) if one.bound else "", "number"),
        Cell(f"{one.share:.0%}" if one.share else ""),
        Cell(_count(1 / one.free_seconds) if one.free_seconds else ""),
        Cell(str(one.rate.metrics.get("busiest", ""))),
        Cell(told, "number"),
    ]


_count = "{:,.0f}".format


def _long(measurements: Iterable[Record]) -> str:
    """Say of each long run of the kept ratio how far environment steps led and lagged, and the error of the ratio."""
    found = [one for one in measurements if (one.primitive, one.op) == (ARRANGEMENT, "ratio") and one.median_seconds]
    runs = sorted(found, key=lambda one: (one.options["workload"], one.options["arrangement"]))
    if not runs:
        command = "run arrangements --long"
        return paragraph(f"The kept ratio over a long run was not measured; {how_to_measure(command)}.")
    return paragraph("The kept ratio of environment steps to gradient steps over long runs:") + items(map(_kept, runs))


def _kept(record: Record) -> str:
    options, report = record.options, record.metrics["report"]
    most = options["update_interval"] + options["actors"] * options["environments"]
    off = max(abs(ratio - 1) for ratio in record.metrics["ratios"])
    return (
        f"{options['workload']}, {options['arrangement']}: {record.metrics['steps']:,} environment steps, at most "
        f"{report['lead']:,} ahead ({most:,} allowed) and {report['lag']:,} behind; over a tenth of the run the ratio "
        f"is off by at most {off:.2%}{'' if off <= LARGEST else f', more than {LARGEST:.0%}'}."
    )


COMMAND = "python -m benchmarks run arrangements"
ORDER = ("serial", "apart", "pipelined")
APART = 0.03  # by so much predictions are set to the right, as a share of x


def rates(material: Material) -> pd.DataFrame:
    """Select the fastest run of each arrangement, in gradient steps/s: measured, ``bound`` and ``hz`` predicted.

    ``place`` is the arrangement's among all; NaN where there is no bound or no prediction.
    """
    chosen = best_of_each(points(material.measurements))
    if not chosen:
        return pd.DataFrame()
    known = {id(one.point): one for one in predictions(material, chosen)}
    frame = tidy([one.rate for one in chosen])
    seconds = {"ns": "median_seconds", "low_ns": "high_seconds", "high_ns": "low_seconds"}
    of = [known.get(id(one)) for one in chosen]
    return frame.assign(
        **{name: 1 / frame[column].astype(float) for name, column in seconds.items()},
        **{name: [one.options[name] for one in chosen] for name in ("workload", "update_interval", "arrangement")},
        place=[ORDER.index(one.options["arrangement"]) for one in chosen],
        bound=[1 / one.bound.seconds if one.bound else float("nan") for one in chosen],
        **{name: [getattr(one, name) if one else float("nan") for one in of] for name in ("hz", "low", "high")},
    )


@style.styled
def draw(rows: pd.DataFrame, about: About) -> Figure:
    """Draw gradient steps/s over the update interval: a panel a workload, a line an arrangement."""
    names = sorted(rows["workload"].unique())
    figure, panels = style.panels("Which arrangement trains fastest?", names, 6, "gradient steps/s", sharey=False)
    for axes, name in zip(panels, names, strict=True):
        own = rows[rows["workload"] == name]
        for (place, arrangement), part in own.sort_values("update_interval").groupby(["place", "arrangement"]):
            style.line(axes, part, "update_interval", str(arrangement), place)
            color = style.COLORS[place]
            bound = of_one_run(part)
            if bound["bound"].notna().any():
                axes.plot(bound["update_interval"], bound["bound"], "--", color=color, label=f"{arrangement}, bound")
            told = part[part["hz"].notna()]
            if not told.empty:
                x = told["update_interval"] * (1 + APART * (1 + place))
                look = {"fmt": "x", "color": color, "alpha": 0.8, "label": f"{arrangement}, predicted"}
                style.bars(axes, x, told["hz"], told["low"], told["high"], **look)
        style.x_axis(axes, rows["update_interval"], "update interval u")
    note = (
        "Of each arrangement the fastest of 1 or 2 actors of 1 or 8 environments. Dashed: the rate at which its "
        "busiest part would never wait. Crosses: predicted from this machine's records."
    )
    return style.finish(figure, rows, about, note)


CHARTS = (
    Chart(
        "arrangements",
        rates,
        draw,
        "Higher is faster. Where a line reaches its dashed bound, one part is busy all the time and the others wait "
        "for it; what it lies below is what handing over and waiting cost. [Zhang2021, Fig. 12] finds its split of "
        "cores where the rates of actors and of learners meet.",
        COMMAND,
    ),
)


SECTIONS = (Section(81, "Arrangements of training", section, (ARRANGEMENT,)),)
