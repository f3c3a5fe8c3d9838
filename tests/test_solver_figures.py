"""The figures of the solver's small models, from made-up curves and terms."""

import pytest

from dse.solver.allocation import Rate, RateCurve, Scaling, allocate, completed
from dse.solver.multi_learner import Terms, factors
from dse.solver.presampling import depth_curve, depth_enough, published_loop
from dse.training import FlatThenLinear

pytest.importorskip("seaborn", reason="reports need seaborn")

LOOP = published_loop(1.0, 2.0, 0.5, 0.3)


def curve(name, law, at):
    points = {x: Rate(law.hz(x), 0.96 * law.hz(x), 1.05 * law.hz(x), "measured") for x in at}
    return RateCurve(name, points)


def shared_cores():
    from reports import solver_figures  # noqa: PLC0415

    f_a = completed(curve("f_a", Scaling(900.0, 0.01, 2e-4, 1.0), (1, 2, 4, 8, 16, 32)), 56)
    f_l = completed(curve("f_l", Scaling(60.0, 0.2, 1e-3, 1.0), (1, 2, 4, 8, 16)), 56)
    two = curve("f_a", Scaling(4000.0, 0.1, 0.0, 1.0), (1, 2)), curve("f_l", Scaling(900.0, 0.02, 0.0, 1.0), (1, 2))
    splits = [
        solver_figures.Split("56 cores", f_a, f_l, 16, allocate(f_a, f_l, 16, 56, 3)),
        solver_figures.Split("2 cores", *two, 1, allocate(*two, 1, 2, turns=True)),
    ]
    return splits, solver_figures.cores(splits, "Measured on a made-up machine.")


def drawn_ahead():
    from reports import solver_figures  # noqa: PLC0415

    points = depth_curve(LOOP, range(6), (0.0, 1.0), steps=100)
    return points, solver_figures.depths("made-up times", points, (0.0, 1.0), depth_enough(LOOP))


def side_by_side():
    from reports import solver_figures  # noqa: PLC0415

    passes, small = FlatThenLinear(1e-3, 5e-6), FlatThenLinear(1e-4, 1e-7)
    made = {
        f"B = {batch}": factors(Terms(batch, 2e-3, passes, 5e-5, small, 3e-4, small, True), (1, 2, 4, 8), (5, 25))
        for batch in (256, 8192)
    }
    return made, solver_figures.scaling_factors(made, "made-up terms")


@pytest.mark.parametrize("draw", [shared_cores, drawn_ahead, side_by_side])
def test_nothing_covers_the_axes_and_the_caption_says_the_source(draw):
    _, figure = draw()
    figure.canvas.draw()
    top, bottom = figure.subfigs
    (legend,), (caption,) = top.legends, bottom.texts
    below, place = legend.get_window_extent(), caption.get_window_extent()
    assert figure.bbox.x0 <= below.x0 <= below.x1 <= figure.bbox.x1
    assert all(axes.get_window_extent().y0 >= below.y1 for axes in figure.axes)
    assert figure.bbox.y0 <= place.y0 <= place.y1 <= below.y0 + 1
    assert figure.bbox.x0 <= place.x0 <= place.x1 <= figure.bbox.x1
    assert "modeled" in caption.get_text()
    assert figure.axes[0].get_xlabel()
    assert "/" in figure.axes[0].get_ylabel()


def test_the_chosen_cores_are_ringed_and_told():
    (many, few), figure = shared_cores()
    left, right = figure.axes
    rings = [line for line in left.lines if line.get_fillstyle() == "none"]
    assert [ring.get_xdata()[0] for ring in rings] == [many.chosen.actors, many.chosen.learners]
    assert rings[1].get_ydata()[0] == many.chosen.hz  # learners bind
    assert "bound by learners" in left.texts[0].get_text()
    assert few.chosen.in_turns
    assert right.texts[0].get_text().startswith("2 cores serve both in turns, 0 idle")


def test_depths_show_the_bound_the_simulations_and_where_the_plateau_begins():
    points, figure = drawn_ahead()
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["bound in closed form"].get_ydata()) == [point.bound_hz for point in points]
    noisy = lines["simulated, times vary (cv = 1)"].get_ydata()
    assert list(noisy) == [point.simulated[1].hz for point in points]
    assert lines["D* = 2 ahead, 3 under way"].get_xdata()[0] == 2
    assert axes.get_ylim()[0] == 0


def test_factors_are_solid_where_exact_and_dashed_as_printed():
    made, figure = side_by_side()
    for axes, points in zip(figure.axes, made.values(), strict=True):
        lines = {line.get_label(): line for line in axes.lines}
        exact, printed = lines["SPO, H = 25: exact"], lines["SPO, H = 25: as printed"]
        assert (exact.get_linestyle(), printed.get_linestyle()) == ("-", "--")
        assert list(exact.get_ydata()) == [point.exact for point in points if point.horizon == 25]
        assert list(printed.get_ydata()) == [point.printed for point in points if point.horizon == 25]
