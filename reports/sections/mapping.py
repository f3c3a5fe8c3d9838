"""The page's section about mappings: whole answers, the solver's figures, and the published algorithm's loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dse.answers.mapping_answer import mapping_answer
from dse.answers.printer import write
from dse.mapping.question import find_mapping
from dse.platforms import PlatformError
from dse.records import SOURCES, RecordError
from dse.solver.law import EPSILONS
from dse.tuning.cores import Allocation, RateCurve, iterate_parted, take_fewest_cores
from impls.terminal import plural
from reports.claims import mapping_loss

from .. import style
from ..chart import Chart, Material, Section
from ..markup import console, paragraph, paragraphs, table
from ..tidy import About
from . import mapping_points as points
from .mapping_points import PLATFORM, WORKLOAD, Depths, Evidence, Point, Scaled, WhatIf

HERE_WORKLOAD = "cartpole_dqn"
PROFILE = f"python -m benchmarks profile --workload {HERE_WORKLOAD}"
NOT_PROBED = f"it was not probed; on it: python -m dse platform probe, then {PROFILE}"
UNANSWERED = (PlatformError, RecordError, ValueError)
RECORDS = ("training", "serial_step", "sum_tree", "memory")  # their primitives
LOSS_HEAD = ("variant", "tables that are not optimal", "step / optimum: mean of those", "worst", "mean of all tables")


def _evidence(material: Material) -> Evidence:
    return points.evidence(material.results)


def _cores(evidence: Evidence, _: About) -> Figure:
    f_a, f_l, total, description = points.platform_cores(evidence)
    splits = []
    for u in points.INTERVALS:
        chosen = take_fewest_cores(list(iterate_parted(f_a, f_l, u, total - points.RESERVED)), points.WITHIN)
        splits.append(Split(f"{WORKLOAD}, update_interval = {u}", f_a, f_l, u, chosen))
    origin = f"{total} cores of {PLATFORM}, {points.RESERVED} reserved to replay. {description}."
    return cores(splits, origin)


def _scaling(made: Sequence[Scaled], about: About) -> Figure:
    origin = (
        f"from terms measured on machine {about.key}: steps of the learner that would run there, on one thread, its "
        "replay, weights through shared memory, averages; a learner has a core of its own, and waits for no other"
    )
    return scaling_factors(made, origin)


CHARTS = (
    Chart(
        "solver_cores",
        _evidence,
        _cores,
        "The slower side sets the pace: the choice is where the lower of both rings is highest. With more environment "
        "steps a gradient step, actors need more of the cores. [Zhang2021, Fig. 12] asks the same.",
    ),
    Chart(
        "solver_depth",
        _evidence,
        lambda evidence, _: depths(points.depths(evidence), points.CVS, points.STEPS),
        "Right of D* the bound is flat: more batches ahead only grow stale. Where one part takes nearly all of the "
        "time there is little to gain.",
    ),
    Chart(
        "solver_scaling",
        lambda material: points.scaled(material.folder / "platform.toml", material.results),
        _scaling,
        "A line that falls like 1 / L gains nothing from more learners. Where a solid line lies below the dashed one, "
        "the printed formula promises more than the step's own times give. [Zhang2022, Figs. 5.14 and 5.15] ask the "
        "same.",
    ),
    Chart(
        "solver_front",
        _evidence,
        lambda evidence, _: fronts(points.fronts(evidence), PLATFORM),
        "Along the dashed line more steps cost more watts or another device; a hollow point is never worth it. Those "
        "whose bars overlap may change places.",
    ),
    Chart(
        "solver_what_if",
        _evidence,
        lambda evidence, _: what_if(points.what_if(evidence), f"{WORKLOAD} on {PLATFORM}"),
        "A change of hatching is a change of the learner's device. From left to right a step works through more "
        "records; upwards another core frees actors or the replay from waiting.",
    ),
    Chart(
        "solver_loss",
        lambda _: mapping_loss.ratios(*mapping_loss.random_tables()),
        lambda ratios, _: losses(ratios, f"{mapping_loss.TABLES:,} random tables"),
        "Lower is better. What a line stands at above 1.5 is the share of tables that take at least half as long again "
        "as they need.",
    ),
)


def here(material: Material) -> tuple[str, str]:
    """Return (the command that asks for the mapping of this machine, what it prints, or why there is no answer)."""
    platform = material.folder / "platform.toml"
    command, said, why = _asked(platform, HERE_WORKLOAD, material.results, material.answers)
    return command, said or f"{why}."


def _html(material: Material) -> str:
    pictures, left_out = material.pictures(CHARTS), material.missing(CHARTS)
    return section(material.results, material.about.key, pictures, left_out, material.answers)


def section(
    results: Path, key: str, pictures: str, left_out: Sequence[str], answers: dict[Any, Any] | None = None
) -> str:
    """Return the section as HTML around its figures; ``answers`` has what was asked before."""
    kept = {} if answers is None else answers
    return (
        _answer(results / key / "platform.toml", HERE_WORKLOAD, results, f"the machine of this page, {key}", kept)
        + _answer(PLATFORM, WORKLOAD, results, "the platform of [Zhang2023]", kept)
        + pictures
        + paragraphs(left_out)
        + _loss_table()
    )


def _answer(platform: str | Path, workload: str, results: Path, whose: str, answers: dict[Any, Any]) -> str:
    """Return the answer as the command prints it; else why there is none, and the remedy."""
    command, said, why = _asked(platform, workload, results, answers)
    if why:
        return paragraph(f"Left out, {workload} on {whose}: {why}.")
    return paragraph(f"{workload} on {whose}: {command}") + console(said)


def _asked(platform: str | Path, workload: str, results: Path, answers: dict[Any, Any]) -> tuple[str, str, str]:
    """Return (command, what it prints, why it has no answer), asked once for all sections that show them."""
    name = f"this --machine {platform.parent.name}" if isinstance(platform, Path) else platform
    command = f"python -m dse recommend --platform {name} --workload {workload}"
    if isinstance(platform, Path) and not platform.is_file():
        return command, "", NOT_PROBED
    try:
        if command not in answers:
            answers[command] = "\n".join(write(mapping_answer(find_mapping(platform, workload, results=results))))
        return command, answers[command], ""
    except UNANSWERED as error:
        return command, "", str(error)


def _loss_table() -> str:
    rows = []
    for loss in mapping_loss.losses():
        overall = 1 + loss.share * (loss.mean - 1)
        rows.append((loss.variant, f"{loss.share:.1%}", f"{loss.mean:.2f}x", f"{loss.worst:.3f}x", f"{overall:.3f}x"))
    sentence = (
        f"[Zhang2023, Alg. 3] and its readings over {mapping_loss.TABLES:,} random tables of times, each against the "
        "joint optimum of learner and RMM, which by definition is 1 on every table (modeled):"
    )
    return paragraph(sentence) + table(LOSS_HEAD, rows)


SECTIONS = (Section(90, "Which mapping", _html, RECORDS, ("KEY/platform.toml", "quoted/*.toml"), is_modeled=True),)


MOST_TICKS = 9
LOSS_POINTS = 300  # that a curve has at most
DATA_PARALLEL = "data parallel"
RATE, SPEED_UP = "gradient steps / s", "speed-up / L (ratio)"


@dataclass(frozen=True)
class Split:
    """The question of one panel: two curves over cores, and the allocation to ring."""

    title: str
    f_a: RateCurve
    f_l: RateCurve
    update_interval: float
    chosen: Allocation


@style.styled
def cores(splits: Sequence[Split], origin: str) -> Figure:
    """Draw the gradient steps/s that actors feed and learners take, over cores, the chosen points ringed
    [Zhang2021, Fig. 12]. ``origin`` of the rates, for the caption.
    """
    question, titles = "How many cores for actors, how many for learners?", [split.title for split in splits]
    figure, panels = style.panels(question, titles, 6.5, RATE, sharey=False)
    for axes, split in zip(panels, splits, strict=True):
        chosen, feeding = split.chosen, 1 / split.update_interval
        _curve(axes, split.f_a, "actors feed, f_a / update_interval", 0, feeding)
        _curve(axes, split.f_l, "learners take, f_l", 1, 1.0)
        axes.axhline(chosen.hz, color="0.35", linewidth=1, linestyle="-.", label="the system")
        style.ring(axes, chosen.actors, feeding * split.f_a.rates[chosen.actors].value)
        style.ring(axes, chosen.learners, split.f_l.rates[chosen.learners].value)
        axes.text(0.03, 0.97, _described(chosen), transform=axes.transAxes, va="top", fontsize=9)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** 0.25)  # room for the words
        style.x_axis(axes, _few(sorted(set(split.f_a.cores) | set(split.f_l.cores))), "cores")
    rates = [rate for split in splits for curve in (split.f_a, split.f_l) for rate in curve.rates.values()]
    sources = [source for source in (*SOURCES, "interpolated") if any(rate.source == source for rate in rates)]
    known = " Markers: measured or quoted." if {"measured", "quoted"} & set(sources) else ""
    note = f"Ringed: the chosen cores.{known} Bands: error bounds of the models."
    return style.captioned(figure, f"{note} Sources: {', '.join(sources)}. {origin}")


def _curve(axes: Axes, curve: RateCurve, label: str, position: int, factor: float) -> None:
    """Draw points with intervals where there are some, a dotted line and a band where a law stands in."""
    color, marker = style.COLORS[position], style.MARKERS[position]
    rates = {x: curve.rates[x] for x in curve.cores}
    lows, highs = ([factor * getattr(rate, end) for rate in rates.values()] for end in ("low", "high"))
    line = [factor * rate.value for rate in rates.values()]
    laws = any(rate.source in ("modeled", "extrapolated") for rate in rates.values())
    how = {"linestyle": ":", "marker": ""} if laws else {"linestyle": "-", "marker": marker}
    axes.plot(list(rates), line, color=color, label=label, **how)
    if laws:
        axes.fill_between(list(rates), lows, highs, color=color, alpha=0.15, linewidth=0)
    known = [
        (x, *(factor * value for value in (rate.value, rate.low, rate.high)))
        for x, rate in rates.items()
        if rate.source in ("measured", "quoted")
    ]
    if known:
        style.bars(axes, *zip(*known, strict=True), fmt=marker, color=color)


def _described(chosen: Allocation) -> str:
    """Describe the allocation in three short lines."""
    who = f"{chosen.actors} for actors, {chosen.learners} for learners"
    bound = "both sides equal" if chosen.bottleneck == "neither" else f"bottleneck: {chosen.bottleneck}"
    if chosen.in_turns:
        who, bound = f"{chosen.cores} cores serve both serially", "nobody waits"
    ratio = f"{chosen.ratio:.3g} env steps a gradient step"
    return f"{who}, {chosen.idle} idle\n{bound}, {ratio}\n{chosen.hz:,.4g} gradient steps / s"


@style.styled
def depths(panels_of: Sequence[Depths], cvs: Sequence[float], steps: int) -> Figure:
    """Draw gradient steps/s over D: the bound, a simulation for each cv with its interval, and D* as a line."""
    titles = [panel.name for panel in panels_of]
    figure, panels = style.panels("How many batches should be sampled ahead? (modeled)", titles, y=RATE, sharey=False)
    for axes, panel in zip(panels, panels_of, strict=True):
        at, bound = style.columns(panel.points, "depth", "bound_hz")
        axes.plot(at, bound, color="0.25", linestyle="--", label="bound")
        for position, cv in enumerate(cvs):
            rates, *ends = style.columns([point.simulated[position] for point in panel.points], "value", "low", "high")
            label = "simulated, exact times" if cv == 0 else f"simulated, times vary (cv = {cv:g})"
            axes.plot(at, rates, label=label, **style.marks(position, ":"))
            axes.fill_between(at, *ends, color=style.COLORS[position], alpha=0.2)
        axes.axvline(panel.enough, color="0.35", linewidth=1, linestyle="-.", label="D*, enough by the bound")
        axes.set(xscale="linear", yscale="linear", xlabel="batches sampled ahead D (D + 1 are under way)")
    figure = style.captioned(
        figure,
        f"Source: modeled; actors left out. Bands: 95 % intervals of means over {steps:,} simulated steps; some "
        "lie above the bound by chance. The bound reaches its plateau at D*; queues may need more.",
    )
    for axes, panel in zip(panels, panels_of, strict=True):
        style.ticks(axes.xaxis, _few([point.depth for point in panel.points]))
        _from_zero(axes, 1.15 * max(rate.high for point in panel.points for rate in point.simulated))
    return figure


def _from_zero(axes: Axes, high: float) -> None:
    """Set a linear axis from 0 with a handful of round ticks, before the limits, of which logarithmic ones drop 0."""
    round_ones = MaxNLocator(7, steps=(1, 2, 5, 10)).tick_values(0, high)
    style.ticks(axes.yaxis, [tick for tick in round_ones if 0 <= tick <= high], "{:,g}".format)
    axes.set_ylim(0, high)


@style.styled
def scaling_factors(panels_of: Sequence[Scaled], learned_from: str) -> Figure:
    """Draw the speed-up for each learner over L: a panel a setting, a line an H; solid by [Zhang2022, Eqs. 5.1, 5.2 and
    5.5], dashed as printed in Eqs. 5.3 and 5.6. ``learned_from`` says what the terms rest on, for the caption.
    """
    rows, titles = -(-len(panels_of) // 2), [panel.name for panel in panels_of]
    cells = {"nrows": rows, "ncols": 2, "sharex": True}
    figure, panels = style.panels("How well do learners scale? (modeled)", titles, 3.5 + 2.3 * rows, SPEED_UP, **cells)
    for cell, (axes, panel) in enumerate(zip(panels, panels_of, strict=True)):
        for position, horizon in enumerate(dict.fromkeys(point.horizon for point in panel.points)):
            line = [point for point in panel.points if point.horizon == horizon]
            at, exact, printed = style.columns(line, "learners", "exact", "printed")
            name = DATA_PARALLEL if horizon is None else f"SPO, H = {horizon}"
            axes.plot(at, exact, label=f"{name}: exact", **style.marks(position))
            how = style.marks(position, "--") | {"markerfacecolor": "white"}
            axes.plot(at, printed, label=f"{name}: as printed", **how)
        for timed in panel.measured:
            label = f"{DATA_PARALLEL}: measured"
            style.bars(axes, *timed, fmt="*", color="black", markersize=12, zorder=5, label=label)
        axes.set(xscale="linear", yscale="linear")
        if cell >= len(panels_of) - 2:  # nothing is below it
            axes.set_xlabel("learners L")
            axes.tick_params(labelbottom=True)
        style.ticks(axes.xaxis, _few(sorted({point.learners for point in panel.points})))
    figure = style.captioned(
        figure,
        f"Source: modeled, {learned_from}. 1 is perfect. Exact: from the times of a step, Eqs. 5.1, 5.2 and 5.5 of "
        "[Zhang2022]; printed: its Eqs. 5.3 and 5.6. H: gradient steps between averages of the weights. Star: "
        "measured, learners as processes that share the cores with actors, from the least to the most.",
    )
    for axes in panels:
        _from_zero(axes, 1.05)
    return figure


def _few(values: Sequence[int]) -> list[int]:
    """Keep all of a few values; of many those that about double, and the last."""
    if len(values) <= MOST_TICKS:
        return list(values)
    chosen = [values[0]]
    # Invariant: each chosen value is at least twice the one before.
    for value in values[1:]:
        if value >= 2 * max(chosen[-1], 1):
            chosen.append(value)
    return [*(value for value in chosen if 1.4 * value < values[-1]), values[-1]]


@style.styled
def fronts(panels_of: Mapping[str, Sequence[Point]], platform: str) -> Figure:
    """Draw gradient steps/s over watts: a panel a workload, a point a set of devices, hollow if dominated."""
    question = "What do more devices and watts buy? (modeled)"
    figure, panels = style.panels(question, list(panels_of), 6.5, RATE, sharey=False)
    for axes, row in zip(panels, panels_of.values(), strict=True):
        rising = sorted(row, key=lambda point: point.watts)
        best = [point for point in rising if point.is_undominated]
        axes.plot(*style.columns(best, "watts", "hz"), color="0.6", linestyle="--", label="front")
        for rank, point in enumerate(rising):
            count = len(point.devices)
            marks = style.marks(count - 1, "none")
            style.bars(axes, point.watts, point.hz, point.low, point.high, fmt="none", ecolor=marks["color"])
            face = {} if point.is_undominated else {"markerfacecolor": "white"}
            axes.plot(point.watts, point.hz, markeredgewidth=1.6, **marks, **face)
            axes.plot([], [], label=plural(count, "device"), **marks)
            side = "right" if 2 * rank < len(rising) else "left"  # the side of the words that touches the point
            words = f"{point.arrangement}\n{point.letters}\n{point.hz:,.0f} / s"
            axes.annotate(words, (point.watts, point.hz), _AWAY[side], ha=side, **_LABEL)
        axes.set(xscale="linear", xlim=(0, 1.4 * rising[-1].watts), xlabel="power of the devices (W)")
    return style.captioned(
        figure,
        f"The fastest mapping on each set of devices of {platform}: learner-RMM-storage on CPU (C), GPU (G), FPGA (F). "
        "Hollow: another is as fast with no more watts or devices. Bars: error bounds of rates, by the factors of "
        "their laws. Source: steps modeled, watts quoted as the power that makers state, whatever the load. A set that "
        "is not shown is no faster than a part of it.",
    )


_AWAY = {"right": (-9, 0), "left": (9, 0)}
_PALE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75}
_LABEL = {"textcoords": "offset points", "va": "center", "fontsize": 8.5, "bbox": {**_PALE, "pad": 1}}


@style.styled
def what_if(cells: Sequence[WhatIf], title: str) -> Figure:
    """Draw gradient steps/s by batch and cores that may be used, hatched by the learner's device."""
    figure, (axes,) = style.panels("What if there were fewer cores, or larger batches? (modeled)", [title], 6.5)
    batches, cores = (sorted({getattr(cell, name) for cell in cells}) for name in ("batch", "cores"))
    rates: NDArray[np.float64] = np.full((len(cores), len(batches)), np.nan)
    for cell in cells:
        rates[cores.index(cell.cores), batches.index(cell.batch)] = cell.hz
    axes.set(xscale="linear", yscale="linear", xlabel="batch B", ylabel="cores that may be used")
    edges = [np.arange(count + 1) + 0.5 for count in (len(batches), len(cores))]
    shades = axes.pcolormesh(*edges, rates, norm=LogNorm(), cmap="YlGnBu", alpha=0.75)
    learners = list(dict.fromkeys(cell.learner for cell in cells))
    for cell in cells:
        x, y = batches.index(cell.batch) + 1, cores.index(cell.cores) + 1
        hatch = _HATCHES[learners.index(cell.learner) % len(_HATCHES)]
        label = f"learner on {cell.learner.upper()}"
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, hatch=hatch, label=label, **_TILE))
        axes.text(x, y, f"{cell.hz:,.0f}\n{cell.arrangement}\n{cell.letters}", **_WORDS)
    axes.grid(visible=False)
    figure.subfigs[0].colorbar(shades, ax=axes, label="gradient steps / s")
    figure = style.captioned(
        figure,
        "Each cell: gradient steps/s, execution mode, and learner-RMM-storage on CPU (C), GPU (G), FPGA (F); of "
        f"mappings within {EPSILONS['ratio']:.0%} of the fastest the one on fewest devices. Every cell is solved "
        "again. Source: modeled, or extrapolated as in the answer.",
    )
    style.ticks(axes.xaxis, range(1, len(batches) + 1), lambda tick: f"{batches[int(tick) - 1]:,}")
    style.ticks(axes.yaxis, range(1, len(cores) + 1), lambda tick: f"{cores[int(tick) - 1]:,}")
    return figure


_HATCHES = ("", "//", "..")
_TILE = {"facecolor": "none", "edgecolor": "0.55", "linewidth": 0.5}
_WORDS = {"ha": "center", "va": "center", "fontsize": 9, "bbox": {**_PALE, "pad": 1.5}}


@style.styled
def losses(ratios: Mapping[str, NDArray[np.float64]], tables: str) -> Figure:
    """Draw the share of tables on which each variant has at least a given slowdown over the optimum."""
    figure, (axes,) = style.panels("What does the published algorithm lose? (modeled)", [tables])
    count = 1
    for position, (name, ratio) in enumerate(ratios.items()):
        worse, count = np.sort(ratio[ratio > 1])[::-1], ratio.size
        at = np.unique(np.geomspace(1, worse.size, LOSS_POINTS).astype(int)) if worse.size else np.array([], int)
        dashes = ("-", "--", "-.", ":")[position % 4]
        axes.plot(worse[at - 1], at / count, label=name, color=style.COLORS[position], linestyle=dashes)
    axes.axvline(1, color="0.35", linewidth=3, label="joint optimum")
    axes.set(xscale="linear", xlabel="time of a step / the joint optimum's, at least (ratio)", ylabel="share of tables")
    figure = style.captioned(
        figure,
        "Times of learner and RMM on CPU, GPU and FPGA are log-uniform over two decades; parts on the GPU take turns, "
        "others run at once. A line begins at the share of tables that are not optimal and ends at the worst. Source: "
        "modeled, random by a fixed seed.",
    )
    lowest = int(np.floor(np.log10(1 / count)))
    style.ticks(axes.yaxis, [10.0**power for power in range(lowest, 0)], lambda share: f"{100 * share:g} %")
    style.ticks(axes.xaxis, np.arange(1, 2.01, 0.1), "{:.1f}".format)
    axes.set_ylim(0.5 / count, 0.3)
    return figure
