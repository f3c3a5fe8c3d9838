"""The figure of arrangements: the fastest of each over the update interval, with bound and prediction."""

import pandas as pd
from matplotlib.figure import Figure

from .. import style
from ..chart import Chart, Material
from ..tidy import About, of_one_run, tidy
from .arrangements_points import best_of_each, points, predictions

COMMAND = "python -m benchmarks arrangements"
ORDER = ("serial", "apart", "pipelined")
APART = 0.03  # by so much predictions are set to the right, as a share of x


def rates(material: Material) -> pd.DataFrame:
    """Select the fastest run of each arrangement, in gradient steps a second: measured, ``bound`` and ``hz`` predicted.

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
    """Draw gradient steps a second over the update interval: a panel a workload, a line an arrangement."""
    names = sorted(rows["workload"].unique())
    figure, panels = style.panels(
        "Which arrangement trains fastest?", names, 6, "gradient steps a second", sharey=False
    )
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
