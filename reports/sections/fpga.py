"""The page's section about an FPGA: claims judged by laws, better design points, and what nobody checked.

Everything here is modeled, computed or quoted, and says which; no FPGA was used.
"""

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

from dse.published import quoted, rmm_points
from dse.published.claims import Claim
from dse.published.quoted import Quoted
from dse.published.rmm_points import BATCHES, POINTS, PUBLISHED, Point, Taken

from ..chart import Chart, Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from . import fpga_figures as figures
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
            "Nothing in this section was measured. Modeled: by cycle laws that equal simulated hardware, at "
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
            rows.append([_name(point), LAWS[law], *times])
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


def _name(point: Point) -> Cell:
    return named(point.name, point is not PUBLISHED, rmm_points.said(point.design))


def _gains() -> list[str]:
    """Say how many times as long the published design takes as each of ours."""
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
    Chart("fpga_latency", PRINTED, lambda *_: figures.latency(), READINGS["fpga_latency"]),
    Chart("fpga_banks", PRINTED, lambda *_: figures.banks(), READINGS["fpga_banks"]),
    Chart("fpga_fixed_point", PRINTED, lambda *_: figures.leaf_bits(), READINGS["fpga_fixed_point"]),
    Chart("fpga_learner", PRINTED, lambda printed, _: figures.learner(printed), READINGS["fpga_learner"]),
)


def _html(material: Material) -> str:
    body = section(material.results, verdicts(FPGA_PAPER, material))
    return body + material.pictures(CHARTS) + paragraphs(material.missing(CHARTS))


SECTIONS = (Section(70, "On an FPGA (modeled)", _html, files=("quoted/*.toml", "fpga/*.json"), is_modeled=True),)
