"""The figures of the solver's small models: cores shared out, batches drawn ahead, learners side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dse.records import SOURCES
from dse.tuning.core_split import Allocation, RateCurve

from . import look
from .scaling_points import Scaled
from .solver_points import Depths

MOST_TICKS = 9
DATA_PARALLEL = "data parallel"


@dataclass(frozen=True)
class Split:
    """One question of a panel: two curves over cores, and the allocation to ring."""

    title: str
    f_a: RateCurve
    f_l: RateCurve
    update_interval: float
    chosen: Allocation


@look.styled
def cores(splits: Sequence[Split], origin: str) -> Figure:
    """Gradient steps a second that actors feed and learners take, over cores, the chosen points ringed (Fig. 12).

    ``origin``: of what is measured, where and when; for the caption.
    """
    figure, panels = look.panels(
        "How many cores for actors, how many for learners?", [split.title for split in splits], 6.5, sharey=False
    )
    for axes, split in zip(panels, splits, strict=True):
        _curve(axes, split.f_a, "actors feed, f_a / update_interval", 0, 1 / split.update_interval)
        _curve(axes, split.f_l, "learners take, f_l", 1, 1.0)
        chosen = split.chosen
        axes.axhline(chosen.hz, color="0.35", linewidth=1, linestyle="-.", label="the system")
        for count, curve, factor in (
            (chosen.actors, split.f_a, 1 / split.update_interval),
            (chosen.learners, split.f_l, 1.0),
        ):
            axes.plot(count, factor * curve.rates[count].hz, "o", **_RING)
        axes.text(0.03, 0.97, _told(chosen), transform=axes.transAxes, va="top", fontsize=9)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** 0.25)  # room for the words
        look.ticks(axes.xaxis, _few(sorted(set(split.f_a.cores) | set(split.f_l.cores))))
        axes.tick_params(labelleft=True)
        axes.set(xlabel="cores", ylabel="")
    panels[0].set(ylabel="gradient steps / s")
    sources = _sources(splits)
    known = " Markers: measured or quoted." if {"measured", "quoted"} & set(sources) else ""
    note = f"Ringed: the chosen numbers of cores.{known} Bands: 95 % intervals of laws."
    return look.captioned(figure, f"{note} Sources: {', '.join(sources)}. {origin}")


_RING = {"markersize": 15, "fillstyle": "none", "color": "black", "zorder": 5}


def _curve(axes: Axes, curve: RateCurve, label: str, position: int, factor: float) -> None:
    """Points with intervals where there are some, a dotted line and a band where a law stands in."""
    color, marker = look.COLORS[position], look.MARKERS[position]
    rates = {x: curve.rates[x] for x in curve.cores}
    lows, highs = ([factor * getattr(rate, end) for rate in rates.values()] for end in ("low", "high"))
    line = [factor * rate.hz for rate in rates.values()]
    laws = any(rate.source in ("modeled", "extrapolated") for rate in rates.values())
    axes.plot(
        list(rates), line, color=color, linestyle=":" if laws else "-", marker="" if laws else marker, label=label
    )
    if laws:
        axes.fill_between(list(rates), lows, highs, color=color, alpha=0.15, linewidth=0)
    known = {x: rate for x, rate in rates.items() if rate.source in ("measured", "quoted")}
    if known:
        middle = [factor * rate.hz for rate in known.values()]
        ends = [
            [factor * (one.hz - one.low) for one in known.values()],
            [factor * (one.high - one.hz) for one in known.values()],
        ]
        axes.errorbar(list(known), middle, ends, fmt=marker, color=color, elinewidth=1, capsize=2.5)


def _told(chosen: Allocation) -> str:
    """The allocation in three short lines."""
    who = f"{chosen.actors} for actors, {chosen.learners} for learners"
    bound = "both sides equal" if chosen.bottleneck == "neither" else f"bound by {chosen.bottleneck}"
    if chosen.in_turns:
        who, bound = f"{chosen.cores} cores serve both in turns", "nobody waits"
    ratio = f"{chosen.ratio:.3g} env steps a gradient step"
    return f"{who}, {chosen.idle} idle\n{bound}, {ratio}\n{chosen.hz:,.4g} gradient steps / s"


def _sources(splits: Sequence[Split]) -> list[str]:
    found = {rate.source for split in splits for curve in (split.f_a, split.f_l) for rate in curve.rates.values()}
    return [source for source in SOURCES if source in found]


@look.styled
def depths(panels_of: Sequence[Depths], cvs: Sequence[float]) -> Figure:
    """Gradient steps a second over D: the bound, and a simulation for each cv with its interval; D* as a line."""
    titles = [one.name for one in panels_of]
    steps = panels_of[0].points[0].simulated[0].steps
    figure, panels = look.panels("How many batches should be drawn ahead? (modeled)", titles, sharey=False)
    for axes, one in zip(panels, panels_of, strict=True):
        at = [point.depth for point in one.points]
        axes.plot(at, [point.bound_hz for point in one.points], color="0.25", linestyle="--", label="bound")
        for position, cv in enumerate(cvs):
            color, marker = look.COLORS[position], look.MARKERS[position]
            found = [point.simulated[position] for point in one.points]
            label = "simulated, exact times" if cv == 0 else f"simulated, times vary (cv = {cv:g})"
            axes.plot(at, [one.hz for one in found], color=color, marker=marker, linestyle=":", label=label)
            axes.fill_between(at, [one.low for one in found], [one.high for one in found], color=color, alpha=0.2)
        axes.axvline(one.enough, color="0.35", linewidth=1, linestyle="-.", label="D*, enough by the bound")
        axes.set(xscale="linear", yscale="linear", xlabel="batches drawn ahead D (D + 1 are under way)", ylabel="")
        axes.tick_params(labelleft=True)
    panels[0].set(ylabel="gradient steps / s")
    figure = look.captioned(
        figure,
        f"Source: modeled; actors left out. Bands: 95 % intervals of means over {steps:,} simulated steps; some "
        "lie above the bound by chance. The bound reaches its plateau at D*; queues may need more.",
    )
    for axes, one in zip(panels, panels_of, strict=True):
        look.ticks(axes.xaxis, _few([point.depth for point in one.points]))
        _from_zero(axes, 1.15 * max(found.high for point in one.points for found in point.simulated))
    return figure


def _from_zero(axes: Axes, high: float) -> None:
    """A linear axis from 0 with a handful of round ticks, set before the limits, of which logarithmic ones drop 0."""
    look.ticks(
        axes.yaxis,
        [tick for tick in MaxNLocator(7, steps=(1, 2, 5, 10)).tick_values(0, high) if 0 <= tick <= high],
        "{:,g}".format,
    )
    axes.set_ylim(0, high)


@look.styled
def scaling_factors(panels_of: Sequence[Scaled], learned_from: str) -> Figure:
    """Speed-up for each learner over L: a panel a setting, a line an H; solid from 5.1, 5.2, 5.5, dashed as printed.

    ``learned_from``: what the terms of the formulas rest on, for the caption.
    """
    rows = -(-len(panels_of) // 2)
    titles = [one.name for one in panels_of] + [""] * (2 * rows - len(panels_of))
    figure, panels = look.panels(
        "How well do learners scale? (modeled)", titles, 3.5 + 2.3 * rows, nrows=rows, ncols=2, sharex=True
    )
    for axes in panels[len(panels_of) :]:
        axes.set_visible(False)
    for place, (axes, one) in enumerate(zip(panels, panels_of, strict=False)):
        for position, horizon in enumerate(dict.fromkeys(point.horizon for point in one.points)):
            line = [point for point in one.points if point.horizon == horizon]
            at = [point.learners for point in line]
            name = DATA_PARALLEL if horizon is None else f"SPO, H = {horizon}"
            style = {"color": look.COLORS[position], "marker": look.MARKERS[position]}
            axes.plot(at, [point.exact for point in line], label=f"{name}: exact", **style)
            printed = [point.printed for point in line]
            axes.plot(at, printed, linestyle="--", markerfacecolor="white", label=f"{name}: as printed", **style)
        for count, factor, low, high in one.measured:
            ends = [[factor - low], [high - factor]]
            axes.errorbar(count, factor, ends, fmt="*", **_MEASURED, label=f"{DATA_PARALLEL}: measured")
        axes.set(xscale="linear", yscale="linear", xlabel="learners L", ylabel="speed-up / L (ratio)")
        axes.label_outer()
        if place >= len(panels_of) - 2:  # nothing is below it
            axes.set_xlabel("learners L")
            axes.tick_params(labelbottom=True)
        look.ticks(axes.xaxis, _few(sorted({point.learners for point in one.points})))
    figure = look.captioned(
        figure,
        f"Source: modeled, {learned_from}. 1 is perfect. Exact: from the times of a step, eqs. 5.1, 5.2 and 5.5 of "
        "seed 4; printed: its eqs. 5.3 and 5.6. H: gradient steps between averages of the weights. Star: "
        "measured, learners as threads of one process, with its 95 % interval.",
    )
    for axes in panels:
        _from_zero(axes, 1.05)
    return figure


_MEASURED = {"color": "black", "markersize": 12, "elinewidth": 1, "capsize": 2.5, "zorder": 5}


def _few(values: Sequence[int]) -> list[int]:
    """All of a few values; of many those that about double, and the last."""
    if len(values) <= MOST_TICKS:
        return list(values)
    chosen = [values[0]]
    for value in values[1:]:
        if value >= 2 * max(chosen[-1], 1):
            chosen.append(value)
    return [*(one for one in chosen if 1.4 * one < values[-1]), values[-1]]
