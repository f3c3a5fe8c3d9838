"""Tests of the solver's figures, from made-up curves, terms and points."""

import pytest

from dse.estimate import Estimate, Evidence
from dse.times.curves import FlatThenLinear
from dse.times.several import Terms, factors
from dse.tuning.cores import RateCurve, Scaling, complete, iterate_parted, iterate_turns, take_fewest_cores
from dse.tuning.depth import depth_curve, depth_enough, published_loop
from reports.claims import mapping_loss

pytest.importorskip("seaborn", reason="reports need seaborn")

from reports.sections import mapping as solver_figures
from reports.sections.mapping_points import Depths, Point, Scaled, WhatIf
from tests.page_parts import uncovered

LOOP = published_loop(1.0, 2.0, 0.5, 0.3)


def curve(name, law, at):
    return RateCurve(name, {x: Estimate.within(law.hz(x), 1.05, Evidence(name, "measured")) for x in at})


def shared_cores():
    f_a = complete(curve("f_a", Scaling(900.0, 0.01, 2e-4, 1.0), (1, 2, 4, 8, 16, 32)), 56)
    f_l = complete(curve("f_l", Scaling(60.0, 0.2, 1e-3, 1.0), (1, 2, 4, 8, 16)), 56)
    two = curve("f_a", Scaling(4000.0, 0.1, 0.0, 1.0), (1, 2)), curve("f_l", Scaling(900.0, 0.02, 0.0, 1.0), (1, 2))
    splits = [
        solver_figures.Split("56 cores", f_a, f_l, 16, take_fewest_cores(list(iterate_parted(f_a, f_l, 16, 53)), 0.0)),
        solver_figures.Split("2 cores", *two, 1, max(iterate_turns(*two, 1, 2), key=lambda split: split.hz)),
    ]
    return splits, solver_figures.cores(splits, "Measured on a made-up machine.")


def drawn_ahead():
    points = depth_curve(LOOP, range(6), (0.0, 1.0), steps=100)
    one = Depths("made-up times", points, depth_enough(LOOP))
    return points, solver_figures.depths([one, one], (0.0, 1.0), 100)


def side_by_side():
    passes, small = FlatThenLinear(1e-3, 5e-6), FlatThenLinear(1e-4, 1e-7)
    terms = {batch: Terms(batch, 2e-3, passes, 5e-5, small, 3e-4, small, True) for batch in (256, 1024, 8192)}
    made = [
        Scaled(f"B = {batch}", factors(one, (1, 2, 4, 8), (5, 25)), ((2, 0.4, 0.3, 0.6),) if batch == 256 else ())
        for batch, one in terms.items()
    ]
    return made, solver_figures.scaling_factors(made, "made-up terms")


def devices_and_watts():
    points = [
        Point(("cpu", "gpu"), "pipelined", "G-C-C", 300.0, 200.0, 500.0, 460.0, False),
        Point(("cpu",), "serial", "C-C-C", 100.0, 60.0, 200.0, 210.0, True),
        Point(("cpu", "fpga"), "pipelined", "F-F-F", 2000.0, 900.0, 4000.0, 435.0, True),
    ]
    return points, solver_figures.fronts({"one": points, "other": points}, "made-up")


def fewer_cores():
    cells = [
        WhatIf(64, 1, 900.0, "serial", "G-C-C", "gpu"),
        WhatIf(64, 4, 6965.0, "pipelined", "F-F-F", "fpga"),
        WhatIf(256, 4, 2023.0, "pipelined", "F-F-F", "fpga"),  # nothing fits on one core
    ]
    return cells, solver_figures.what_if(cells, "made-up")


def losses():
    ratios = mapping_loss.ratios(*mapping_loss.random_tables(2000))
    return ratios, solver_figures.losses(ratios, "2,000 tables")


DRAWN = (shared_cores, drawn_ahead, side_by_side, devices_and_watts, fewer_cores, losses)


@pytest.mark.parametrize("draw", DRAWN)
def test_nothing_covers_the_axes_and_the_caption_says_the_source(draw):
    _, figure = draw()
    caption = uncovered(figure)
    assert "modeled" in caption
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert shown[0].get_ylabel()
    assert shown[-1].get_xlabel() or shown[-1].get_label() == "<colorbar>"


def test_the_chosen_cores_are_ringed():
    (many, _), figure = shared_cores()
    left, _ = figure.axes
    rings = [line for line in left.lines if line.get_fillstyle() == "none"]
    assert [ring.get_xdata()[0] for ring in rings] == [many.chosen.actors, many.chosen.learners]
    assert rings[1].get_ydata()[0] == many.chosen.hz  # learners bind


def test_depths_show_the_bound_the_simulations_and_where_the_plateau_begins():
    points, figure = drawn_ahead()
    axes, _ = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["bound"].get_ydata()) == [point.bound_hz for point in points]
    noisy = lines["simulated, times vary (cv = 1)"].get_ydata()
    assert list(noisy) == [point.simulated[1].value for point in points]
    assert lines["D*, enough by the bound"].get_xdata()[0] == 2


def test_factors_are_solid_where_exact_and_dashed_as_printed():
    made, figure = side_by_side()
    shown = [axes for axes in figure.axes if axes.get_visible()]
    for axes, one in zip(shown, made, strict=True):
        points = one.points
        lines = {line.get_label(): line for line in axes.lines}
        exact, printed = lines["SPO, H = 25: exact"], lines["SPO, H = 25: as printed"]
        assert (exact.get_linestyle(), printed.get_linestyle()) == ("-", "--")
        assert list(exact.get_ydata()) == [point.exact for point in points if point.horizon == 25]
        assert list(printed.get_ydata()) == [point.printed for point in points if point.horizon == 25]


def test_learners_that_were_timed_are_stars_with_their_interval():
    _, figure = side_by_side()
    stars = [[line for line in axes.lines if line.get_marker() == "*"] for axes in figure.axes]
    assert [len(found) for found in stars] == [1, 0, 0, 0]
    assert (stars[0][0].get_xdata()[0], stars[0][0].get_ydata()[0]) == (2, 0.4)


def test_what_is_beaten_is_hollow_and_off_the_front():
    points, figure = devices_and_watts()
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["front"].get_ydata()) == [100.0, 2000.0]  # by watts
    hollow = [line.get_ydata()[0] for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert hollow == [one.hz for one in points if not one.is_undominated]
    assert "F-F-F\n2,000 / s" in axes.texts[1].get_text()


def test_each_cell_tells_its_rate_and_mapping():
    cells, figure = fewer_cores()
    axes = figure.axes[0]
    assert [words.get_text() for words in axes.texts] == [
        f"{one.hz:,.0f}\n{one.arrangement}\n{one.letters}" for one in cells
    ]
    shades = axes.collections[0].get_array().reshape(2, 2)
    assert shades.tolist()[1] == [6965.0, 2023.0]
    assert shades.mask.tolist() == [[False, True], [False, False]]


def test_a_curve_of_losses_begins_at_the_share_that_is_not_optimal_and_ends_at_the_worst():
    ratios, figure = losses()
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    for name, ratio in ratios.items():
        at, share = lines[name].get_xdata(), lines[name].get_ydata()
        assert max(share) == (ratio > 1).mean()
        assert max(at) == ratio.max()
        assert share[0] == 1 / ratio.size
    assert len(ratios) == 4
