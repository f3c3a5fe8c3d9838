"""The figures of the FPGA, from laws, a quoted log and seeded samples: every curve is dashed, for none was measured."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.published import fixed_point, learner_points, rmm_points
from dse.published.learner_points import Curve
from dse.published.quoted import Quoted
from dse.published.rmm_points import Point

from .. import style
from ..tidy import short

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
    """Draw modeled microseconds of a call over B: a line a design and law, the host's link beside them."""
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
    """Draw modeled milliseconds of a gradient step over B: a line a network, beside the rates of Table VII."""
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
