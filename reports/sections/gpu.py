"""The page's section about trees on a GPU: ours beside a library's and beside no tree at all, of one run."""

from collections.abc import Sequence

from dse import stats
from dse.published.peer_claims import one_run
from dse.records import Measurement, RecordError, twins

from ..chart import Section
from ..markup import items, named, paragraph, table
from ..tidy import PREFERRED_CAPACITY, commit_of, sources_of, timed
from .peers import Contestant, contestants, said
from .peers_figures import GPU

OPS = ("sample", "draw", "update")
COMPARED = (("sample", "sampling"), ("update", "updating"))
UNCHECKED, RIVAL = "validate=False", "torchrl_cuda"


def section(found: Sequence[Measurement]) -> str:
    """Times and ratios as HTML. RecordError where no tree was timed on a device."""
    run = one_run(found, GPU)
    cells = [one for one in timed(run) if one.primitive == GPU]
    if not cells:
        raise RecordError("no tree was timed on a GPU; on a machine that has one: make gpu")
    capacities = {one.capacity for one in cells}
    capacity = PREFERRED_CAPACITY if PREFERRED_CAPACITY in capacities else max(capacities)
    compared = contestants([one for one in cells if one.capacity == capacity], run)
    batches = sorted({one.batch for one in cells if one.capacity == capacity})
    skipped = sorted({f"{one.contestant}: {one.reason}" for one in run if one.median_seconds is None})
    return (
        _origin(run)
        + _times(compared, batches, capacity)
        + items([*_ratios(compared, batches), *(f"Not timed, {reason}" for reason in skipped)])
    )


def _origin(run: Sequence[Measurement]) -> str:
    one, floor = run[-1], stats.noise_floor(twins(run, GPU))
    gpus = ", ".join(one.machine.get("gpus") or ["an unknown GPU"])
    return paragraph(
        f"Source: {sources_of(run)} on {gpus}, in one run of {one.command} at {commit_of(one)}, between CUDA events; "
        f"contestants took turns. The noise floor of the run is {floor:.1%}."
    )


def _times(compared: Sequence[Contestant], batches: Sequence[int], capacity: int) -> str:
    rows = []
    for one in sorted(compared, key=lambda one: (not one.ours, one.label)):
        rows.append([named(one.label, one.ours), *(said(one.ns(op, batch)) for batch in batches for op in OPS)])
    groups = [("", 1), *((f"B = {batch:,}", len(OPS)) for batch in batches)]
    return paragraph(f"Nanoseconds per element (measured), N = {capacity:,}. Bold is ours.") + table(
        ("contestant", *(op for _ in batches for op in OPS)), rows, groups
    )


def _ratios(compared: Sequence[Contestant], batches: Sequence[int]) -> list[str]:
    """How many times as long torchrl's tree takes as ours, both launched call by call."""
    ours = next((one for one in compared if (one.name, one.dtype, one.options) == ("cupy", "float32", UNCHECKED)), None)
    sentences = []
    for theirs in (one for one in compared if one.name == RIVAL and ours):
        for op, doing in COMPARED:
            pairs = ((batch, ours.ns(op, batch), theirs.ns(op, batch)) for batch in batches if ours)
            ratios = [f"{b / a:.1f}x at B = {batch:,}" for batch, a, b in pairs if a and b]
            if ratios:
                sentences.append(f"{theirs.label} takes, {doing}, as many times as long as ours: {', '.join(ratios)}.")
    return sentences


SECTIONS = (Section(60, "On a GPU", lambda material: section(material.found)),)
