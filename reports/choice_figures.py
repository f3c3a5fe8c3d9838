"""The figures of mappings compared: devices and watts, fewer cores, larger batches, the published algorithm's loss."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from . import look
from .solver_points import Point, WhatIf

LOSS_POINTS = 300  # of a curve


@look.styled
def fronts(panels_of: Mapping[str, Sequence[Point]], platform: str) -> Figure:
    """Gradient steps a second over watts: a panel a workload, a point a set of devices; hollow where one beats it."""
    figure, panels = look.panels("What do more devices and watts buy? (modeled)", list(panels_of), 6.5, sharey=False)
    for axes, points in zip(panels, panels_of.values(), strict=True):
        rising = sorted(points, key=lambda point: point.watts)
        best = [point for point in rising if point.is_undominated]
        axes.plot([one.watts for one in best], [one.hz for one in best], color="0.6", linestyle="--", label="front")
        for place, one in enumerate(rising):
            count = len(one.devices)
            style = {"color": look.COLORS[count - 1], "marker": look.MARKERS[count - 1], "linestyle": "none"}
            ends = [[one.hz - one.low], [one.high - one.hz]]
            axes.errorbar(one.watts, one.hz, ends, fmt="none", ecolor=style["color"], elinewidth=1, capsize=2.5)
            axes.plot(one.watts, one.hz, markeredgewidth=1.6, **(style if one.is_undominated else style | _HOLLOW))
            axes.plot([], [], label=f"{count} device{'s' * (count > 1)}", **style)
            side = "right" if 2 * place < len(rising) else "left"  # of the words that is at the point
            words = f"{one.arrangement}\n{one.letters}\n{one.hz:,.0f} / s"
            axes.annotate(words, (one.watts, one.hz), _AWAY[side], ha=side, **_LABEL)
        axes.set(xscale="linear", xlim=(0, 1.4 * rising[-1].watts), xlabel="power of the devices (W)", ylabel="")
        axes.tick_params(labelleft=True)
    panels[0].set(ylabel="gradient steps / s")
    return look.captioned(
        figure,
        f"The fastest mapping on each set of devices of {platform}: learner-RMM-storage on CPU (C), GPU (G), FPGA (F). "
        "Hollow: another is as fast with no more watts or devices. Bars: 95 % intervals. Source: steps modeled, watts "
        "quoted as the power that makers state, whatever the load. A set that is not shown is no faster than a part of "
        "it.",
    )


_HOLLOW = {"markerfacecolor": "white"}
_AWAY = {"right": (-9, 0), "left": (9, 0)}
_LABEL = {
    "textcoords": "offset points",
    "va": "center",
    "fontsize": 8.5,
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1},
}


@look.styled
def what_if(cells: Sequence[WhatIf], title: str) -> Figure:
    """Gradient steps a second by batch and cores that may be used; hatched by the learner's device."""
    figure, (axes,) = look.panels("What if there were fewer cores, or larger batches? (modeled)", [title], 6.5)
    batches, cores = (sorted({getattr(one, name) for one in cells}) for name in ("batch", "cores"))
    rates: NDArray[np.float64] = np.full((len(cores), len(batches)), np.nan)
    for one in cells:
        rates[cores.index(one.cores), batches.index(one.batch)] = one.hz
    axes.set(xscale="linear", yscale="linear", xlabel="batch B", ylabel="cores that may be used")
    edges = [np.arange(count + 1) + 0.5 for count in (len(batches), len(cores))]
    shades = axes.pcolormesh(*edges, rates, norm=LogNorm(), cmap="YlGnBu", alpha=0.75)
    learners = list(dict.fromkeys(one.learner for one in cells))
    for one in cells:
        x, y = batches.index(one.batch) + 1, cores.index(one.cores) + 1
        hatch = _HATCHES[learners.index(one.learner) % len(_HATCHES)]
        label = f"learner on {one.learner.upper()}"
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, hatch=hatch, label=label, **_TILE))
        axes.text(x, y, f"{one.hz:,.0f}\n{one.arrangement}\n{one.letters}", **_WORDS)
    axes.grid(visible=False)
    figure.subfigs[0].colorbar(shades, ax=axes, label="gradient steps / s")
    figure = look.captioned(
        figure,
        "Each cell: gradient steps a second, arrangement, and learner-RMM-storage on CPU (C), GPU (G), FPGA (F); of "
        "mappings within 1 % of the fastest the one on fewest devices. Every cell is solved again. Source: modeled, or "
        "extrapolated as in the answer.",
    )
    look.ticks(axes.xaxis, range(1, len(batches) + 1), lambda place: f"{batches[int(place) - 1]:,}")
    look.ticks(axes.yaxis, range(1, len(cores) + 1), lambda place: f"{cores[int(place) - 1]:,}")
    return figure


_HATCHES = ("", "//", "..")
_TILE = {"facecolor": "none", "edgecolor": "0.55", "linewidth": 0.5}
_WORDS = {
    "ha": "center",
    "va": "center",
    "fontsize": 9,
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1.5},
}


@look.styled
def losses(ratios: Mapping[str, NDArray[np.float64]], tables: str) -> Figure:
    """Share of tables on which each variant takes at least so many times as long as the optimum."""
    figure, (axes,) = look.panels("What does the published algorithm lose? (modeled)", [tables])
    count = 1
    for position, (name, ratio) in enumerate(ratios.items()):
        worse, count = np.sort(ratio[ratio > 1])[::-1], ratio.size
        at = np.unique(np.geomspace(1, worse.size, LOSS_POINTS).astype(int)) if worse.size else np.array([], int)
        dashes = ("-", "--", "-.", ":")[position % 4]
        axes.plot(worse[at - 1], at / count, label=name, color=look.COLORS[position], linestyle=dashes)
    axes.axvline(1, color="0.35", linewidth=3, label="joint optimum")
    axes.set(xscale="linear", xlabel="time of a step / the joint optimum's, at least (ratio)", ylabel="share of tables")
    figure = look.captioned(
        figure,
        "Times of learner and RMM on CPU, GPU and FPGA are drawn log-uniform over two decades; parts on the GPU take "
        "turns, others run at once. A line begins at the share of tables that are not optimal and ends at the worst. "
        "Source: modeled, drawn by a fixed seed.",
    )
    lowest = int(np.floor(np.log10(1 / count)))
    look.ticks(axes.yaxis, [10.0**power for power in range(lowest, 0)], lambda share: f"{100 * share:g} %")
    look.ticks(axes.xaxis, np.arange(1, 2.01, 0.1), "{:.1f}".format)
    axes.set_ylim(0.5 / count, 0.3)
    return figure
