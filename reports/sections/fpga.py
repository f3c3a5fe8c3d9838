"""The page's section about an FPGA: claims judged by laws, better design points, and what nobody checked.

Everything here is modeled, computed or quoted, and says which; no FPGA was used.
"""

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.claims import fixed_point, learner_points, quoted, rmm_points
from reports.claims.claims import Claim
from reports.claims.learner_points import Curve
from reports.claims.quoted import Quoted
from reports.claims.rmm_points import BATCHES, POINTS, PUBLISHED, Point, Taken

from .. import style
from ..chart import Chart, Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from ..tidy import short
from .claims import FPGA_PAPER, judged, verdicts

KINDS = {"lut": "LUT", "ff": "registers", "dsp": "DSP", "bram36": "BRAM36", "uram": "UltraRAM"}
LAWS = {"rtl": "simulated hardware", "published": "formula as printed"}
LARGEST = BATCHES[-1]
MIB = 8 * 1024 * 1024
"""The bits of a MiB."""
UNCHECKED = (
    "The clock: nothing was placed or routed, so every time assumes the clock that the figures of [Zhang2023] imply.",
    "Dispatch across SLRs: the crossbar is simulated and synthesized for a few banks on its own, not laid out over "
    "dies, where it may need more registers and so more cycles.",
    "The laws were compared with simulated hardware on smaller trees than these; at this size they are extrapolated.",
    "Interleaved banks return another leaf for a prefix value than leaves in order; each leaf's chance is the same.",
    "Look-up tables are a fit to synthesis by Yosys, whose counts differ from those of the vendor's tools.",
    "A random number generator, the host's interface and the replay data itself are in none of the counts.",
    "Queues in block RAM, or back pressure, for batches beyond those that the resources are stated for: the cycles "
    "assume queues that hold the whole batch.",
    "Power.",
)


def section(results: Path, known: Iterable[Claim]) -> str:
    """Return the paper's ``known`` claims, design points and open ends as HTML. RecordError where nothing is quoted."""
    quotes = quoted.read(results / "quoted")
    return (
        paragraph(
            "Nothing of hardware was measured, of processors what is said to be. Modeled: by cycle laws that equal "
            "simulated hardware, at "
            f"{PUBLISHED.design.clock_hz / 1e6:g} MHz. Computed: arithmetic and seeded samples. Quoted: printed by "
            "others."
        )
        + judged(FPGA_PAPER, known, f"claim of {FPGA_PAPER}")
        + _designs()
        + _resources(quotes)
        + paragraph("Not checked:")
        + items(UNCHECKED)
    )


def _designs() -> str:
    """Return modeled cycles and microseconds of every point and law, and the host's link below them."""
    rows = []
    for point in POINTS:
        for law in point.laws:
            calls = [rmm_points.call(point.design, op, batch, law) for batch in BATCHES for op in ("sample", "update")]
            times = [Cell(f"{call.cycles:,.0f}", note=f"{1e6 * call.seconds:,.3g} us") for call in calls]
            rows.append([named(point.name, point is not PUBLISHED, rmm_points.said(point.design)), LAWS[law], *times])
    link = [(Cell("", note=f"+{1e6 * rmm_points.link_seconds(batch):,.3g} us"),) * 2 for batch in BATCHES]
    rows.append([named("host link, there and back"), "fit to a quoted log", *(cell for two in link for cell in two)])
    groups = [("", 2), *((f"B = {batch:,}", 2) for batch in BATCHES)]
    return (
        paragraph(
            "Design points: modeled cycles of a call, below them the time. Leaves have equal priority, which favors "
            "banks that are sub-trees. The link comes on top where a host samples, 8 bytes an element each way."
        )
        + table(("design", "cycles by", *("sample", "update") * len(BATCHES)), rows, groups)
        + items(_gains())
    )


def _gains() -> list[str]:
    """Say the slowdown of the published design over each of ours."""
    sentences = []
    for point in POINTS[1:]:
        parts = []
        for op, doing in (("sample", "sampling"), ("update", "updating")):
            pairs = ((_cycles(PUBLISHED, op, batch) / _cycles(point, op, batch), batch) for batch in BATCHES)
            parts.append(f"{doing} {', '.join(f'{ratio:.1f}x at B = {batch:,}' for ratio, batch in pairs)}")
        over = f"Modeled, cycles of the published design over those of {point.name}"
        sentences.append(f"{over}: {'; '.join(parts)}.")
    return sentences


def _cycles(point: Point, op: str, batch: int) -> float:
    return rmm_points.call(point.design, op, batch).cycles


def _resources(quotes: Quoted) -> str:
    """Return the resources of a pipeline and of the whole by the fitted law, their shares of the slice, and the printed
    module as quoted."""
    available = quotes.table(f"{rmm_points.SHELL}.{PUBLISHED.slr}")
    printed = quotes.table("seed3.table_vi.rmm")
    cells = (_quoted_cell(printed, available, kind) for kind in KINDS)
    quoted_row = [named("published (quoted)"), PUBLISHED.slr.upper(), *cells, f"{printed['sram_mb']:g}"]
    taken = {point.name: rmm_points.taken(point, quotes) for point in POINTS}
    rows = [_resource_row(point, taken[point.name]) for point in POINTS]
    batch = taken[PUBLISHED.name].batch
    return (
        paragraph(
            f"Resources (modeled by a fit to synthesis, for batches of up to {batch:,}): the whole with its "
            f"dispatcher; below it the share of the slice it is meant for ({quotes.where(rmm_points.SHELL)}), and "
            "those of each pipeline with its memories."
        )
        + table(("design", "slice", *KINDS.values(), "tree, MiB"), [quoted_row, *rows])
        + items(_fitting(taken, quotes))
    )


def _quoted_cell(printed: dict[str, float], available: dict[str, float], kind: str) -> Cell:
    if kind not in printed:
        return Cell("not printed")
    return Cell(f"{printed[kind]:,.0f}", note=f"{printed[kind] / available[kind]:.0%}")


def _resource_row(point: Point, taken: Taken) -> list[object]:
    cells = []
    for kind in KINDS:
        whole, each, share = getattr(taken.whole, kind), getattr(taken.pipeline, kind), taken.shares[kind]
        text = f"{whole:,g}" if whole < 1e6 else f"{whole:,.0f}"
        cells.append(Cell(text, "fault" if share > 1 else "", f"{share:.0%}; {each:,g} each"))
    label = named(f"{point.name}, our hardware") if point is PUBLISHED else named(point.name, ours=True)
    return [label, point.slr.upper(), *cells, f"{taken.whole.sram_bits / MIB:.2f}"]


def _fitting(taken: dict[str, Taken], quotes: Quoted) -> list[str]:
    """Say whether each design fits its slice, also with the queues of the largest batch."""
    sentences = []
    for point in POINTS:
        small = taken[point.name]
        large = rmm_points.taken(point, quotes, LARGEST)
        calls = LARGEST / small.batch * _cycles(point, "sample", small.batch)
        sentences.append(
            f"Modeled, {point.name}: {_fits(point, small)}, {small.dispatch_lut / small.whole.lut:.0%} of its LUTs for "
            f"dispatch. With queues for batches of {LARGEST:,} it {_fits(point, large)}; sampling "
            f"so many in calls of {small.batch:,} would take {calls:,.0f} cycles."
        )
    return sentences


def _fits(point: Point, taken: Taken) -> str:
    over = [f"{KINDS[kind]} {share:.0%}" for kind, share in taken.shares.items() if share > 1]
    return f"does not fit {point.slr.upper()} ({', '.join(over)})" if over else f"fits {point.slr.upper()}"


PRINTED = attrgetter("printed")
READINGS = {
    "fpga_latency": "Modeled, so dashed throughout. Where a line is flat a batch waits for the pipeline to fill; the "
    "formula as printed has no such part. A host waits for the link as well, which takes longer than all of them.",
    "fpga_banks": "A batch takes as many times an even share as its busiest bank has. Sub-trees as banks suffer from a "
    "buffer that is filled in part, or where the newest leaves weigh most; dealing leaves out in turn does not.",
    "fpga_fixed_point": "Each bit more takes four times the samples to be noticed, once every leaf fits at all. Hollow "
    "markers below the horizontal line are widths at which the samples made here differ from those of float64.",
    "fpga_learner": "Modeled, so dashed throughout. The published CartPole design meets its own printed rate, and uses "
    "few of the multipliers there are. Where a star lies below its network's line, the GPU of [Zhang2023] is ahead.",
}
"""How to read each figure."""
CHARTS = (
    Chart("fpga_latency", PRINTED, lambda *_: latency(), READINGS["fpga_latency"]),
    Chart("fpga_banks", PRINTED, lambda *_: banks(), READINGS["fpga_banks"]),
    Chart("fpga_fixed_point", PRINTED, lambda *_: leaf_bits(), READINGS["fpga_fixed_point"]),
    Chart("fpga_learner", PRINTED, lambda printed, _: learner(printed), READINGS["fpga_learner"]),
)


def _html(material: Material) -> str:
    body = section(material.results, verdicts(FPGA_PAPER, material))
    return body + material.pictures(CHARTS) + paragraphs(material.missing(CHARTS))


SECTIONS = (Section(70, "On an FPGA (modeled)", _html, files=("quoted/*.toml", "fpga/*.json"), is_modeled=True),)


OPS = {"sample": "sampling a batch", "update": "updating a batch"}
LAW = {"rtl": "law of simulated hardware", "published": "formula as printed"}
DASHES = {"rtl": "--", "published": ":"}
LINK_COLOR = "0.35"
UNSEEN_ABOVE = 1e12  # samples, above which no line says anything
RATES = {
    "CartPole": "seed3.table_vii.cartpole",
    "Hopper": "seed3_learner.table_vii.hopper",
    "Pong": "seed3_learner.table_vii.pong",
}
NEEDED = ("leaf_bits", "needed")
BIT_TICKS = tuple(range(6, 25, 2))


@style.styled
def latency() -> Figure:
    """Draw modeled microseconds of a call over B: a line a design and law, the host's link with them."""
    titles = [f"{what}, N = {short(rmm_points.CAPACITY)}" for what in OPS.values()]
    question, y = "How long would an FPGA take for a batch? (modeled)", "modeled time of a call (us)"
    figure, panels = style.panels(question, titles, 6.5, y)
    for axes, op in zip(panels, OPS, strict=True):
        for position, point in enumerate(rmm_points.BUILDABLE):
            for law in point.laws:
                _curve(axes, point, op, law, position)
        link = [1e6 * rmm_points.link_seconds(batch) for batch in rmm_points.CURVE]
        label = "host link, there and back (quoted log)"
        axes.plot(rmm_points.CURVE, link, color=LINK_COLOR, linestyle="-.", label=label)
        style.x_axis(axes, rmm_points.CURVE, "elements of a call B")
        axes.tick_params("x", rotation=40)
    clock = rmm_points.PUBLISHED.design.clock_hz / 1e6
    return style.captioned(
        figure,
        f"Source: modeled; cycles at {clock:g} MHz, nothing was built or placed. Leaves of equal priority; S "
        "is the same for every B, where [Zhang2023] takes fewer for a small one. The link, a fit to a log of a U200 at "
        "8 bytes an element each way, comes on top for a host.",
    )


def _curve(axes: Axes, point: Point, op: str, law: str, position: int) -> None:
    times = [1e6 * rmm_points.call(point.design, op, batch, law).seconds for batch in rmm_points.CURVE]
    design = point.design
    shape = f"{point.name} ({design.micro}, K = {design.fanout}, S = {design.banks})"
    face = "white" if law == "published" else style.COLORS[position]
    marks = style.marks(position, DASHES[law])
    axes.plot(rmm_points.CURVE, times, label=f"{shape}: {LAW[law]}", markerfacecolor=face, **marks)


@style.styled
def learner(quoted: Quoted) -> Figure:
    """Draw modeled milliseconds of a gradient step over B: a line a network, and the rates of Table VII."""
    question, y = "How long would an FPGA train on a batch? (modeled)", "modeled time of a gradient step (ms)"
    figure, (axes,) = style.panels(question, ["best design for each batch, in two slices of an Alveo U200"], 6.5, y)
    for position, line in enumerate(learner_points.curves(quoted)):
        label = f"{line.network}, {line.macs:,} MACs a sample"
        axes.plot(*_milliseconds(line), label=label, **style.marks(position, "--"))
    published = _milliseconds(learner_points.published_curve(quoted))
    axes.plot(*published, color=style.COLORS[0], linestyle=":", label="cartpole, published design (DP = 2)")
    for position, (name, table_name) in enumerate(RATES.items()):
        row = quoted.table(table_name)
        at = 1e3 / (row["watts"] * row["gps_per_watt"])
        marks = {"color": style.COLORS[position], "markersize": 13, "markeredgecolor": "black", "linestyle": "none"}
        axes.plot([row["batch"]], [at], "*", label=f"{name}, its fastest mapping (quoted)", **marks)
    style.x_axis(axes, (8, 32, 128, 512, 2_048, 16_384), "samples of a gradient step B")
    return style.captioned(
        figure,
        "Source: modeled by the formula of [Zhang2023], fp32 MACs of 5 DSP at the clock its figures imply; nothing was "
        "built. Stars: quoted, what Table VII's steps per second and watt imply, for the whole system: CartPole's on "
        "the FPGA, Hopper's and Pong's on its GPU. mnih2013 is the network of [Mnih2013], which Table III names for "
        "Pong.",
    )


def _milliseconds(line: Curve) -> tuple[list[int], list[float]]:
    return list(line.seconds), [1e3 * seconds for seconds in line.seconds.values()]


@style.styled
def banks() -> Figure:
    """Draw the load of the busiest bank over an even share: a panel a banking, a line a filling of the buffer."""
    loads = rmm_points.loads()
    bankings = list(dict.fromkeys(load.banking for load in loads))
    titles = {"contiguous": "a sub-tree a bank (contiguous)", "interleaved": "leaf i in bank i mod S (interleaved)"}
    question = "How evenly is work spread over the banks? (modeled)"
    y = "busiest bank over even share (ratio)"
    figure, panels = style.panels(question, [titles[banking] for banking in bankings], y=y)
    fillings = list(dict.fromkeys(load.filling for load in loads))
    for axes, banking in zip(panels, bankings, strict=True):
        for position, filling in enumerate(fillings):
            line = [load for load in loads if (load.banking, load.filling) == (banking, filling)]
            marks = style.marks(position, "--") | {"markersize": 11 - 1.7 * position}  # equal ones are seen beneath
            axes.plot(*style.columns(line, "batch", "over_even"), label=filling, **marks)
        axes.axhline(1, color="0.4", linewidth=1)
        style.x_axis(axes, rmm_points.BANKED, "elements of a call B")
    return style.captioned(
        figure,
        f"Source: modeled; mean over seeded batches, S = {loads[0].banks}, N = {rmm_points.CAPACITY:,}. At 1 every "
        "bank has as much to do; a batch takes as long as its busiest bank. All but the last line sample.",
    )


@style.styled
def leaf_bits() -> Figure:
    """Draw how many samples would tell fixed-point leaves from float64, over their bits: a line a skew; hollow where
    ours did."""
    question = "How many bits must a leaf have? (computed from seeded samples)"
    figure, (axes,) = style.panels(question, [f"{fixed_point.CAPACITY:,} leaves, largest priority just fits"])
    for position, skew in enumerate(fixed_point.SKEWS):
        line = [fit for fit in fixed_point.fits() if fit.skew == skew and fit.needed < UNSEEN_ABOVE]
        failing = [fit for fit in line if not fit.passes]
        axes.plot(*style.columns(line, *NEEDED), label=f"priorities {skew}", **style.marks(position, "--"))
        axes.plot(*style.columns(failing, *NEEDED), markerfacecolor="white", **style.marks(position, "none"))
    axes.axhline(fixed_point.DRAWS, color="0.35", linewidth=1, label=f"{short(fixed_point.DRAWS)} samples, made here")
    for design, dashes in ((rmm_points.PUBLISHED.design, "-."), (rmm_points.WIDE.design, (0, (1, 2)))):
        whose = "published, by its 4.5 MB" if design is rmm_points.PUBLISHED.design else "ours"
        label = f"{design.leaf_bits} bits ({whose})"
        axes.axvline(design.leaf_bits, color="0.35", linewidth=1.2, linestyle=dashes, label=label)
    axes.set(xscale="linear", xlabel="bits of a leaf", ylabel="samples that would tell it from float64 (number)")
    figure = style.captioned(
        figure,
        f"Source: computed. Hollow: {fixed_point.DRAWS:,} seeded samples fail the chi-square test "
        f"(p <= {fixed_point.LEVEL:g}); at the samples of a line about half of all tries would. Bits are those of an "
        "unsigned fixed-point leaf.",
    )
    style.ticks(axes.xaxis, BIT_TICKS)
    style.ticks(axes.yaxis, [10.0**power for power in range(2, 13)], _counted)
    return figure


def _counted(count: float) -> str:
    """Write a count plainly up to a thousand, then in its unit.

    >>> [_counted(10.0**power) for power in (2, 5, 9, 12)]
    ['100', '100k', '1G', '1T']
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return f"{count:g}"
