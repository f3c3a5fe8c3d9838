"""The report's section about trees on a GPU, from records made up so that every answer is known."""

import re

import pytest

from reports import tidy
from reports.sections import gpu as gpu_section
from reports.sections import peers_figures, tree_figures
from tests.page.test_reports import GPU_TREES, everything, on_gpu


def ns(name, batch, dtype="float32", **options):
    cost, call = GPU_TREES[name, dtype, tuple(options.items())]
    return cost + call / batch


@pytest.fixture(scope="module")
def html():
    return gpu_section.section(list(everything()))


def test_the_table_holds_every_tree_ours_first(html):
    names = re.findall(r'<td class="name ?(ours)?">(.*?)</td>', html)
    assert [name for ours, name in names if ours] == ["cupy", "cupy, graph, unchecked", "cupy, unchecked"]
    assert [name for ours, name in names if not ours] == ["torchrl_cuda float32", "torchrl_cuda float64"]
    assert f'<td class="number">{ns("cupy", 256):.0f}</td>' in html


def test_ratios_are_of_trees_launched_alike(html):
    ours = {batch: ns("cupy", batch, validate=False) for batch in (256, 65_536)}
    for dtype in ("float32", "float64"):
        said = ", ".join(f"{ns('torchrl_cuda', b, dtype) / t:.1f}x at B = {b:,}" for b, t in ours.items())
        for doing in ("sampling", "updating"):
            assert f"torchrl_cuda {dtype} takes, {doing}, this share of our time: {said}." in html


def test_figures_take_no_other_rows():
    frame = tidy.tidy(list(everything()))
    only = tidy.tidy(list(on_gpu()))
    assert len(peers_figures.on_gpu(frame)) == len(peers_figures.on_gpu(only)) == len(GPU_TREES) * 2 * 2
    assert len(tree_figures.by_lanes(frame)) == len(tree_figures.by_lanes(only)) == 2 * 2 * 3
    assert tidy.about(list(everything())).gpu == "Abacus G1, 1.0, 16 MiB"
