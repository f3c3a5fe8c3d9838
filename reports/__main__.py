"""Draw the figures of a machine's records and write the page that shows them.

Every figure as .svg and .png, and index.html, which holds them all and needs nothing else.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dse import machines
from dse.published import quoted
from dse.published.quoted import Quoted
from dse.recommend import QUESTIONS_FILE
from dse.records import Measurement, RecordError
from impls.terminal import answering

from . import (
    figures,
    fpga_figures,
    learning,
    look,
    peer_figures,
    peer_rows,
    solver_section,
    table,
    training_figures,
    training_rows,
)
from .page import Drawn, Material, page
from .solver_section import Asked, SolverChart
from .table import About

PEERS = "make peers"
GPU = "make gpu, on a machine with a CUDA device"
TRAINING = "python -m benchmarks profile --workload cartpole_dqn"


@dataclass(frozen=True)
class Chart:
    """A figure: the rows it shows, how to read it, and what would measure it."""

    name: str
    rows: Callable[[pd.DataFrame], pd.DataFrame]
    draw: Callable[[pd.DataFrame, About], Figure]
    reading: str
    command: str = "python -m benchmarks sweep --preset quick"


CHARTS = (
    Chart(
        "fanout",
        table.by_fanout,
        figures.fanout,
        "Lower is faster. Two K whose bars overlap, or that differ by less than the noise floor, may be equally "
        "fast. Figure 9 of seed 0 asks the same.",
    ),
    Chart(
        "capacity",
        table.by_capacity,
        figures.capacity,
        "A straight line that rises tenfold where N does is linear growth; a flat one does not care how many "
        "leaves there are. Figure 8 of seed 0 asks the same.",
    ),
    Chart(
        "batch",
        table.by_batch,
        figures.batch,
        "What a line falls by from left to right is the cost of a call, shared by more elements. Dashed lines share "
        "each batch among threads: they pay where they lie below the solid line of the same tree.",
    ),
    Chart(
        "layout",
        table.layout_ratios,
        figures.layout,
        "Above 1 the default layout is faster. A bar wholly outside of the gray band is a difference; one that reaches "
        "into it may be noise, for the same tree measured twice differs as much.",
    ),
    Chart(
        "floor",
        table.against_floor,
        figures.floor,
        "The dashed lines are what one random read of 64 bytes takes, out of a buffer of as many bytes: where reads "
        "may overlap, and where each must wait for the last. An element of a tree takes several of them.",
    ),
    Chart(
        "bytes",
        table.by_bytes,
        figures.tree_bytes,
        "Along a thin line the leaves are the same and K changes both the bytes and the work of a level. Trees below "
        "each other are equally large.",
    ),
    Chart(
        "peers_batch",
        peer_rows.by_batch,
        peer_figures.batch,
        "Thick lines are ours, thin ones other libraries, gray the slower of them. Where lines are flat the work of an "
        "element counts, where they fall the cost of a call.",
        PEERS,
    ),
    Chart(
        "peers_capacity",
        peer_rows.by_capacity,
        peer_figures.capacity,
        "A line that rises tenfold where N does is linear growth. Figure 8 of seed 0 asks the same of tianshou and "
        "RLlib.",
        PEERS,
    ),
    Chart(
        "gpu_batch",
        peer_rows.on_gpu,
        peer_figures.gpu,
        "Where a line falls by half when B doubles, launching is all of the cost; a captured graph shows what is left "
        "without it.",
        GPU,
    ),
    Chart(
        "gpu_lanes",
        table.by_lanes,
        figures.lanes,
        "At 1 every thread draws a sample of its own, at 32 a warp draws one together. More lanes wait less for "
        "memory, fewer leave more samples under way.",
        GPU,
    ),
)

TRAINING_CHARTS = (
    Chart(
        "training_cores",
        training_rows.over_cores,
        training_figures.cores,
        "A system takes as many steps as the slower side allows: actors on some cores, learners on the others. Figure "
        "12 of seed 0 shares out cores by these curves.",
        TRAINING,
    ),
    Chart(
        "training_batch",
        training_rows.over_batch,
        training_figures.batch,
        "Left of the knee a larger batch costs little; right of it time grows as B does. Seed 3's Figure 11 and the "
        "thesis' Figures 5.3 and 5.5 ask the same.",
        TRAINING,
    ),
    Chart(
        "training_tree",
        training_rows.of_trees,
        training_figures.trees,
        "To be held against a gradient step of the same batch. Figure 5.2 of the thesis asks the same.",
        TRAINING,
    ),
    Chart(
        "training_average",
        training_rows.averages,
        training_figures.averages,
        "A straight line through 0 would be proportional to k. Figures 5.4 and 5.6 of the thesis ask the same.",
        TRAINING,
    ),
    Chart(
        "training_beside",
        training_rows.beside,
        training_figures.beside,
        "On one core 2 is a fair half of it and nothing more; what lies above is lost to the caches. On cores of their "
        "own 1 is no loss; what lies above is what both share: caches, memory, and whatever else runs.",
        TRAINING,
    ),
)


LEARNING = Chart(
    "training_curves",
    lambda frame: frame,  # runs are no records: build() reads them
    learning.draw,
    "A policy is tested every so many steps, with no noise on its actions; the best one's weights are kept.",
    "python -m impls.training cartpole_dqn --out results/{key}/training/cartpole_dqn/alpha0.6-seed0",
)


@dataclass(frozen=True)
class ModeledChart:
    """A figure that rests on laws instead of records, and how to read it. ``draw`` is told what others printed."""

    name: str
    draw: Callable[[Quoted], Figure]
    reading: str


MODELED_CHARTS = (
    ModeledChart(
        "fpga_latency",
        lambda printed: fpga_figures.latency(),
        "Modeled, so dashed throughout. Where a line is flat a batch waits for the pipeline to fill; the formula as "
        "printed has no such part. A host waits for the link as well, which takes longer than all of them.",
    ),
    ModeledChart(
        "fpga_banks",
        lambda printed: fpga_figures.banks(),
        "A batch takes as many times an even share as its busiest bank has. Sub-trees as banks suffer from a buffer "
        "that is filled in part, or where the newest leaves weigh most; dealing leaves out in turn does not.",
    ),
    ModeledChart(
        "fpga_fixed_point",
        lambda printed: fpga_figures.leaf_bits(),
        "Each bit more takes four times the draws to be noticed, once every leaf is held at all. Hollow markers below "
        "the horizontal line are widths at which the draws made here differ from those of float64.",
    ),
    ModeledChart(
        "fpga_learner",
        fpga_figures.learner,
        "Modeled, so dashed throughout. The published CartPole design meets its own printed rate, and uses few of the "
        "multipliers there are. Where a star lies below its network's line, seed 3's GPU is ahead.",
    ),
)


def main(arguments: list[str] | None = None) -> int:
    """Build the report; returns the exit code: 0 done, 2 cannot be done (one sentence says why)."""
    options = _parser().parse_args(arguments)
    try:
        found, note = machines.read(options.results, options.machine, machines.ANYTHING, skip=(QUESTIONS_FILE,))
        if note and not options.json:
            print(note)
        built = build(found, options.results, options.out, note, _silent if options.json else _told)
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = error.filename or options.out
        print(
            f"error: {where}: cannot be written ({error.strerror}); choose another folder with --out", file=sys.stderr
        )
        return 2
    if options.json:
        print(json.dumps(built))
        return 0
    for name, reason in built["left_out"].items():
        print(f"left out {name}: {reason}")
    for path in built["figures"]:
        print(f"figure: {path}")
    print(f"page: {built['page']}")
    return 0


def _told(doing: str) -> None:
    print(doing, file=sys.stderr, flush=True)


def _silent(doing: str) -> None:
    """Say nothing, for whoever reads JSON."""


def build(
    found: Sequence[Measurement],
    results: Path,
    out: Path,
    note: str = "",
    tell: Callable[[str], None] = _silent,
) -> dict[str, Any]:
    """Draw and write everything into ``out``; returns the paths of page and figures, and why others were left out.

    ``note``: a sentence on whose records these are, for the top of the page. ``tell`` is called with a line before each
    figure that is drawn, and before the page is made.
    """
    out.mkdir(parents=True, exist_ok=True)
    frame, about = table.tidy(found), table.about(found)
    drawn, paths, left_out = [], [], {}
    names = [one.name for one in (*CHARTS, *TRAINING_CHARTS, LEARNING, *MODELED_CHARTS, *solver_section.CHARTS)]

    def begin(name: str) -> None:
        tell(f"drawing figure {names.index(name) + 1} of {len(names)}: {name}")

    charts = [(chart, chart.rows(frame)) for chart in (*CHARTS, *TRAINING_CHARTS)]
    for chart, rows in (*charts, (LEARNING, learning.curves(results / about.key))):
        if rows.empty:
            left_out[chart.name] = (
                f"not measured on machine {about.key}; this would measure it: {chart.command.format(key=about.key)}"
            )
            continue
        begin(chart.name)
        drawn.append(_written(chart, chart.draw(rows, about), out, paths))
    try:
        printed = quoted.read(results / "quoted")
        for modeled in MODELED_CHARTS:
            begin(modeled.name)
            drawn.append(_written(modeled, modeled.draw(printed), out, paths))
    except RecordError as error:
        left_out |= {chart.name: str(error) for chart in MODELED_CHARTS}
    for solved in solver_section.CHARTS:
        begin(solved.name)
        try:
            drawn.append(_written(solved, solved.draw(Asked(found, about.key, results)), out, paths))
        except RecordError as error:
            left_out[solved.name] = str(error)
    tell("making the page of them")
    index = out / "index.html"
    index.write_text(page(Material(found, about, results, drawn, left_out, note)), encoding="utf-8")
    whose = {"machine": about.key, "machine_note": note, "results": str(results)}
    return {"page": str(index), "figures": paths, "left_out": left_out, **whose}


def _written(chart: Chart | ModeledChart | SolverChart, figure: Figure, out: Path, paths: list[str]) -> Drawn:
    """Write a figure in both formats, add their paths to ``paths``."""
    pictures = {ending: look.picture(figure, ending) for ending in ("svg", "png")}
    for ending, content in pictures.items():
        path = out / f"{chart.name}.{ending}"
        path.write_bytes(content)
        paths.append(str(path))
    return Drawn(chart.name, figure.subfigs[0].get_suptitle(), pictures["png"], chart.reading)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument(
        "--machine",
        metavar="KEY",
        help="key of another machine with records; `python -m benchmarks list` shows them (default: this machine, or "
        "the nearest with records)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("reports/build"), metavar="FOLDER", help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


if __name__ == "__main__":
    sys.exit(answering(main))
