"""The page's section about the published mappings of [Zhang2023] and the exact optimum, with the rates of all."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.estimate import Estimate
from reports.claims import mappings as table5
from reports.claims import quoted
from reports.claims.mappings import Pace, Row
from reports.claims.quoted import Quoted

from .. import style
from ..chart import Chart, Section
from ..markup import Cell, paragraph, table

MAPPING_HEAD = "workload; B; published; Algorithm 3; ours; ours, steps/s; fastest learner; agrees; why".split("; ")
BASELINE_HEAD = ("workload", "B", "published", "baseline", "slower, as printed", "slower, modeled", "bottleneck")
TIMES_HEAD = ("workload", "B", *(f"{what}, {name}" for what in ("learner", "RMM") for name in ("CPU", "GPU", "FPGA")))
HOLDS_HEAD = ("workload", "B", "learner-RMM", "CPU times x", "GPU times x", "FPGA times x")


def mappings(results: Path, picture: str) -> str:
    """Return Table V, Algorithm 3 and the exact optimum, as HTML around the figure. RecordError if nothing is
    quoted."""
    printed = quoted.read(results / "quoted")
    rows = table5.rows(printed, results)
    agreed = sum(row.agrees for row in rows)
    pairs = sum(row.same_pair for row in rows)
    unpinned = table5.agreement(printed, results, pinned_too=False)
    greedy = sum(row.greedy.mapping == row.published.mapping for row in rows)
    sentence = (
        "[Zhang2023, Table V]: mappings learner-RMM-storage on CPU (C), GPU (G) or FPGA (F). Ours, the exact optimum "
        f"with links, storage and shared engines, agrees with {pairs} of {len(rows)} about learner and RMM, with "
        f"{agreed} "
        f"about storage too; with no learner's time taken from Tables V and VII, with {unpinned.pairs} and "
        f"{unpinned.mappings}. Algorithm 3 as printed, from the same times, returns {greedy} of its own table. "
        "Mappings within "
        f"{table5.EPSILON:.0%} of the best tie: fewest devices win, then fewest bytes over links. Times are modeled "
        "from that platform's file, or quoted; tables below show their error bounds, and what those change."
    )
    return (
        paragraph(sentence)
        + picture
        + table(MAPPING_HEAD, map(_mapping_row, rows))
        + paragraph("How far all times of a device may be from these with the published learner and RMM still chosen:")
        + table(HOLDS_HEAD, map(_holds_row, rows))
        + paragraph(
            "Baselines as printed: how many times slower than the published mapping, there and by these models:"
        )
        + table(BASELINE_HEAD, (line for row in rows for line in _baseline_rows(row)))
        + paragraph(
            "Evidence: microseconds of the fastest on each device with the ends of its factor. Modeled, or quoted "
            f"(from {printed.where('seed3_mapping.table_v')}; {printed.where('seed3.table_vii.cartpole')}):"
        )
        + table(TIMES_HEAD, map(_times_row, rows))
    )


def _mapping_row(row: Row) -> tuple[object, ...]:
    agrees = "yes" if row.agrees else "learner and RMM" if row.same_pair else "no"
    published, greedy, ours = (
        Cell(mapping.mapping, "name", mapping.lacks or f"{mapping.hz:,.0f}/s")
        for mapping in (row.published, row.greedy, row.ours)
    )
    rates = (f"{row.ours.hz:,.0f}", f"{row.limit_hz:,.0f}")
    return row.workload, f"{row.batch:,}", published, greedy, ours, *rates, agrees, row.reason


def _holds_row(row: Row) -> tuple[object, ...]:
    return row.workload, f"{row.batch:,}", row.published.pair, *map(_factors, row.holds.values())


def _factors(ends: tuple[float, float] | None) -> str:
    first, last = table5.FACTORS[0], table5.FACTORS[-1]
    if ends is None:
        return f"none from {first:.2g} to {last:g}"
    if ends == (first, last):
        return f"any from {first:.2g} to {last:g}"
    if ends[0] == first:
        return f"up to {ends[1]:.2g}"
    return f"from {ends[0]:.2g}" + ("" if ends[1] == last else f" to {ends[1]:.2g}")


def _baseline_rows(row: Row) -> Iterator[tuple[object, ...]]:
    for baseline, behind in row.baselines:
        modeled = f"{row.published.hz / baseline.hz:,.3g}x" if baseline.hz else baseline.lacks
        names = (row.published.mapping, baseline.mapping)
        yield row.workload, f"{row.batch:,}", *names, f"{behind:g}x", modeled, baseline.bottleneck


def _times_row(row: Row) -> tuple[object, ...]:
    cells = [_time(times.get(letter)) for times in (row.learner, row.rmm) for letter in table5.DEVICES]
    return row.workload, f"{row.batch:,}", *cells


def _time(time: Estimate | None) -> Cell:
    if time is None:
        return Cell("does not fit")
    if time.source == "quoted":
        return Cell(f"{1e6 * time.value:,.4g}", note=f"quoted: {time.rests_on.id}")
    if time.low == time.high:
        return Cell(f"{1e6 * time.value:,.3g}", note=f"{time.source}: {time.rests_on.id}")
    return Cell(f"{1e6 * time.value:,.3g}", note=f"{1e6 * time.low:,.3g} to {1e6 * time.high:,.3g}, {time.source}")


@style.styled
def throughput(printed: Quoted, results: Path) -> Figure:
    """Draw modeled steps/s of every learner-RMM pair over B, and of the fastest learner alone, after Fig. 13."""
    paces = list(table5.paces(printed, results))
    workloads = list(dict.fromkeys(pace.workload for pace in paces))
    figure, panels = style.panels("What does each mapping give?", workloads, 6.4, sharey=False)
    chosen = {(name, batch): _published(printed, name, batch) for name, batch in table5.asked(printed)}
    for axes, name in zip(panels, workloads, strict=True):
        own = [pace for pace in paces if pace.workload == name]
        for position, pair in enumerate(dict.fromkeys(pace.pair for pace in own)):
            _pair(axes, [pace for pace in own if pace.pair == pair and pace.hz], pair, position)
        limits = dict(sorted((pace.batch, pace.limit_hz) for pace in own))
        axes.plot(list(limits), list(limits.values()), "k:", lw=2.5, label="fastest learner alone", zorder=0)
        rings = [(pace.batch, pace.hz) for pace in own if pace.hz and chosen[name, pace.batch] == pace.pair]
        marks = {"markersize": 15, "markerfacecolor": "none", "color": "0.25"}
        axes.plot(*zip(*rings, strict=True), "o", label="published", **marks)
        style.x_axis(axes, limits, "batch B")
        axes.margins(x=0.15)
        axes.set(ylabel="gradient steps / s")
    caption = (
        "Learner-RMM on CPU (C), GPU (G), FPGA (F), each with the data storage where it is best; ringed: the pair of "
        "[Zhang2023, Table V]. Modeled from that platform's file, with the learners of Tables V and VII; actors left "
        "out. The dotted line is what [Zhang2023, Fig. 13] calls the theoretical optimum."
    )
    return style.captioned(figure, caption)


def _pair(axes: Axes, line: Sequence[Pace], pair: str, position: int) -> None:
    """Draw one pair: the learner sets the color, the RMM the marker and dash."""
    learner, rmm = divmod(position, len(table5.DEVICES))
    marks = style.marks(rmm, ("-", "--", "-.")[rmm]) | {"color": style.COLORS[learner]}
    axes.plot(*style.columns(line, "batch", "hz"), label=pair, alpha=0.85, **marks)


def _published(printed: Quoted, name: str, batch: int) -> str:
    speedups = printed.table(f"{table5.TABLE}.{name}.{batch}")
    return next(mapping for mapping, behind in speedups.items() if behind == 1).rpartition("-")[0]


CHARTS = (
    Chart(
        "mapping_throughput",
        lambda material: (material.printed, material.results),
        lambda rests_on, _: throughput(*rests_on),
        "The highest line of a panel is the mapping to choose for its batch. The nearer it is to the dotted line, the "
        "better everything hides behind the learner. [Zhang2023, Fig. 13] asks the same.",
    ),
)


SECTIONS = (
    Section(
        100,
        "Published mappings (modeled)",
        lambda asked: mappings(asked.results, asked.pictures(CHARTS)),
        files=("quoted/*.toml",),
        is_modeled=True,
    ),
)
