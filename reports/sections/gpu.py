"""The page's section about trees on a GPU: ours, a library's and no tree at all, in one run."""

from collections.abc import Sequence

from dse.records import Record, RecordError
from reports.claims.peer_claims import one_run

from ..chart import Material, Section
from ..markup import items, link, named, paragraph, slug, table
from ..tidy import PREFERRED_CAPACITY, nearest, timed, untimed
from . import what_ifs
from .peers import ABOUT_UNSTABLE, Implementation, implementations, origin
from .peers_figures import GPU

OPS = ("sample", "draw", "update")
COMPARED = (("sample", "sampling"), ("update", "updating"))
UNCHECKED, RIVAL = "validate=False", "torchrl_cuda"


def section(measurements: Sequence[Record]) -> str:
    """Return times and ratios as HTML. RecordError where no tree was timed on a device."""
    run = one_run(measurements, GPU)
    cells = [record for record in timed(run) if record.primitive == GPU]
    if not cells:
        raise RecordError("no tree was timed on a GPU; on a machine that has one: make gpu")
    capacity = nearest([record.capacity for record in cells], PREFERRED_CAPACITY)
    compared = implementations([record for record in cells if record.capacity == capacity], run)
    batches = sorted({record.batch for record in cells if record.capacity == capacity})
    skipped = sorted({f"{record.contestant}: {record.reason}" for record in untimed(run)})
    gpus = ", ".join(run[-1].machine.get("gpus") or ["an unknown GPU"])
    return (
        origin(run, GPU, f" on {gpus}, between CUDA events")
        + _times(compared, batches, capacity)
        + items([*_ratios(compared, batches), *(f"Not timed, {reason}" for reason in skipped)])
    )


def _times(compared: Sequence[Implementation], batches: Sequence[int], capacity: int) -> str:
    rows = []
    for tree in sorted(compared, key=lambda tree: (not tree.ours, tree.label)):
        rows.append([named(tree.label, tree.ours), *(tree.said(op, batch) for batch in batches for op in OPS)])
    groups = [("", 1), *((f"B = {batch:,}", len(OPS)) for batch in batches)]
    return paragraph(f"Nanoseconds per element (measured), N = {capacity:,}. Bold is ours; {ABOUT_UNSTABLE}.") + table(
        ("implementation", *(op for _ in batches for op in OPS)), rows, groups
    )


def _ratios(compared: Sequence[Implementation], batches: Sequence[int]) -> list[str]:
    """Say what share of our time torchrl's tree takes, both launched call by call; below 1 it is the faster."""
    ours = next((tree for tree in compared if tree.kind == ("cupy", "float32", UNCHECKED)), None)
    sentences = []
    for theirs in (tree for tree in compared if tree.name == RIVAL and ours):
        for op, doing in COMPARED:
            pairs = ((batch, ours.ns(op, batch), theirs.ns(op, batch)) for batch in batches if ours)
            marks = {batch: (ours.mark(op, batch) or theirs.mark(op, batch)) for batch in batches if ours}
            ratios = [f"{b / a:.1f}x{marks[batch]} at B = {batch:,}" for batch, a, b in pairs if a and b]
            if ratios:
                sentences.append(f"{theirs.label} takes, {doing}, this share of our time: {', '.join(ratios)}.")
    return sentences


def _html(material: Material) -> str:
    """Return the section; where nothing was timed, where its modeled effect stands."""
    try:
        return section(material.measurements)
    except RecordError as error:
        there = link(slug(what_ifs.HEADING), what_ifs.HEADING)
        return paragraph(f"Left out: {error}.") + f"<p>What a GPU would change, modeled: {there}.</p>\n"


SECTIONS = (Section(60, "On a GPU", _html, (GPU,), borrowed=GPU),)
