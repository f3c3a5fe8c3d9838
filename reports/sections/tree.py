"""The page's sections about the trees: their records, the answers from them, figures, the cost model, untimed cells."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from dse.answers.printer import write
from dse.answers.tree_answer import tree_answer
from dse.records import Record, RecordError
from dse.times import cost_model
from dse.times.tree_times import Question, Table, family_of
from dse.tree import Recommendation, answer
from reports.claims import peer_claims

from ..chart import Chart, Material, Section, measured
from ..markup import console, paragraph, paragraphs, table
from ..tidy import OPS, binary, commit_of, machine_of, nearest, timed
from . import peers_figures as of_peers
from . import training_figures
from . import tree_figures as figures

QUESTIONS = ((1_000_000, 256), (100_000, 32))  # N and B of the recommendations shown, each with one update per sample
ANSWERING = "What answering a K costs (its time over the best measured K's, less 1), by a fit without that N:"
REGRETS = ("op", "N", "B", "best K", "model's K*", "its regret", "regret of 16", "printed formula's K*", "its regret")
ELSEWHERE = (peer_claims.PEER, training_figures.PRIMITIVE, training_figures.SHARE, "replay")  # of other sections
SWEPT = ("sum_tree", "measured")
TREES = ("sum_tree", "memory")  # the primitives of sweeps
SWEEP = "python -m benchmarks sweep --preset quick"
BESIDE = "make peers", peer_claims.PEER
"""What times other libraries, and the primitive of their times, which another machine's may stand for."""
GPU = "make gpu, on a machine with a CUDA device"

READINGS = {
    "fanout": "Lower is faster. Two K whose bars overlap, or that differ by less than the noise floor, may be equally "
    "fast. [Zhang2021, Fig. 9] asks the same.",
    "capacity": "A straight line that rises tenfold where N does is linear growth; a flat one does not care how many "
    "leaves there are. [Zhang2021, Fig. 8] asks the same.",
    "batch": "What a line falls by from left to right is the cost of a call, shared by more elements. Dashed lines "
    "share each batch among threads: they pay where they lie below the solid line of the same tree.",
    "layout": "Above 1 the default layout is faster. A bar wholly outside of the gray band is a difference; one that "
    "reaches into it may be noise, for the same tree measured twice differs as much.",
    "floor": "The dashed lines are what one random read of 64 bytes takes, out of a buffer of as many bytes: where "
    "reads may overlap, and where each must wait for the last. An element of a tree takes several of them.",
    "bytes": "Along a thin line the leaves are the same and K changes both the bytes and the work of a level. Points "
    "above each other are trees of the same size.",
    "peers_batch": "Thick lines are ours, thin ones other libraries, gray the slower of them. Where lines are flat the "
    "work of an element counts, where they fall the cost of a call.",
    "peers_capacity": "A line that rises tenfold where N does is linear growth. [Zhang2021, Fig. 8] asks the same of "
    "tianshou and RLlib.",
    "gpu_batch": "Where a line falls by half when B doubles, launching is all of the cost; a captured graph shows what "
    "is left without it.",
    "gpu_lanes": "At 1 every thread takes a sample of its own, at 32 a warp takes one together. More lanes wait less "
    "for memory, fewer leave more samples under way.",
}
"""How to read each figure."""
CHARTS = (
    Chart("fanout", measured(figures.by_fanout), figures.fanout, READINGS["fanout"], SWEEP),
    Chart("capacity", measured(figures.by_capacity), figures.capacity, READINGS["capacity"], SWEEP),
    Chart("batch", measured(figures.by_batch), figures.batch, READINGS["batch"], SWEEP),
    Chart("layout", measured(figures.layout_ratios), figures.layout, READINGS["layout"], SWEEP),
    Chart("floor", measured(figures.against_floor), figures.floor, READINGS["floor"], SWEEP),
    Chart("bytes", measured(figures.by_bytes), figures.tree_bytes, READINGS["bytes"], SWEEP),
    Chart("peers_batch", measured(of_peers.by_batch), of_peers.batch, READINGS["peers_batch"], *BESIDE),
    Chart("peers_capacity", measured(of_peers.by_capacity), of_peers.capacity, READINGS["peers_capacity"], *BESIDE),
    Chart("gpu_batch", measured(of_peers.on_gpu), of_peers.gpu, READINGS["gpu_batch"], GPU, of_peers.GPU),
    Chart("gpu_lanes", measured(figures.by_lanes), figures.lanes, READINGS["gpu_lanes"], GPU, of_peers.GPU),
)


def _measured(material: Material) -> str:
    about, measurements = material.about, material.measurements
    machine = machine_of(measurements)
    caches = ", ".join(f"{name} {binary(size)}" for name, size in about.caches.items()) or "unknown"
    packages = ", ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items())
    runs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for record in measurements:
        runs[record.source, commit_of(record, "with uncommitted changes"), record.run.command].append(record.utc)
    counts = Counter((record.primitive, record.status) for record in measurements)
    cells = [record.status for record in timed(measurements) if (record.primitive, record.source) == SWEPT]
    unstable = f"{cells.count('unstable')} of {len(cells)} cells of the sweeps are unstable: their interval is wide."
    if about.pairs:
        noise = (
            f"The noise floor is {about.noise_floor:.1%}: in 95 % of {about.pairs} A/A pairs the same cell measured "
            "twice in one run differed by no more. Smaller differences are ties."
        )
    else:
        noise = "No cell was measured twice in one run, so the size of the noise is unknown."
    return (
        paragraph(
            f"Machine {about.key}: {about.cpu}, {about.cores} cores, caches {caches}, {machine.get('kernel', '')}, "
            f"Python {machine.get('python', 'unknown')}, {packages}."
        )
        + table(
            ("source", "commit", "command", "from", "to", "cells"),
            [(*run, min(times), max(times), len(times)) for run, times in sorted(runs.items())],
        )
        + table(
            ("what", "status", "cells"),
            [(primitive, status, count) for (primitive, status), count in sorted(counts.items())],
        )
        + paragraph(f"{noise} {unstable}")
    )


def answered(material: Material, question: Question) -> Recommendation:
    """Return the answer from the material's records to a question, which several sections show."""
    if question not in material.answers:
        material.answers[question] = answer(Table(material.measurements), question)
    return material.answers[question]


def questions(material: Material) -> list[Question]:
    """Return the questions shown, each of the N, B and dtype nearest to the usual that were measured."""
    rows, cores = figures.trees(material.frame, source="measured"), material.about.cores
    if rows.empty:
        return [Question(*usual, 1.0, cores) for usual in QUESTIONS]
    near = ((nearest(rows["capacity"], n), nearest(rows["batch"], b)) for n, b in QUESTIONS)
    dtype = nearest(rows["dtype"], "float32")
    return [Question(int(n), int(b), 1.0, cores, dtype) for n, b in dict.fromkeys(near)]


def _recommended(material: Material) -> str:
    answers = (tree_answer(answered(material, question)) for question in questions(material))
    return "".join(console("\n".join(write(answer))) for answer in answers)


def _model(material: Material) -> str:
    errors, parts = [], {}
    for op in OPS:
        cells = [record for record in timed(material.measurements) if _is_default_tree(record, op)]
        points = [cost_model.Point(cell.capacity, cell.fanout, cell.batch, cell.seconds) for cell in cells]
        if len(points) < cost_model.LEAST_POINTS:
            continue
        parts[op] = (family_of(cells[0], material.about.caches, Table(material.measurements).floor), points)
        off = [check.error for check in cost_model.cross_validate(*parts[op])]
        errors += [(op, len(off), f"{statistics.median(off):.0%}", f"{max(off):.0%}")] if off else []
    regrets, sentences = [], []
    for what, chosen in ((" + ".join(parts), list(parts.values())), *((op, [part]) for op, part in parts.items())):
        regrets_of = cost_model.fanout_regrets(*chosen)
        regrets += [_regret_row(what, regret) for regret in regrets_of]
        sentences += [_regret_sentence(what, regrets_of)] if regrets_of else []
    if not errors:
        raise RecordError("no model can be checked; measure more: " + SWEEP)
    return (
        paragraph(
            "The model of the default numba tree: each cell, unstable ones too, predicted by a fit without its (N, K)."
        )
        + table(("op", "held-out cells", "median error", "worst error"), errors)
        + (paragraph(ANSWERING) + table(REGRETS, regrets) if regrets else "")
        + paragraphs(sentences)
    )


def _is_default_tree(record: Record, op: str) -> bool:
    shape = (record.primitive, record.contestant, record.op, record.threads, record.dtype, record.distribution)
    return shape == ("sum_tree", "numba", op, 1, "float32", "uniform") and not record.options


def _regret_row(op: str, row: cost_model.FanoutRegret) -> tuple[Any, ...]:
    ours, sixteen, printed = (f"{part:.0%}" for part in (row.predicted_regret, row.sixteen_regret, row.printed_regret))
    return op, f"{row.capacity:,}", f"{row.batch:,}", row.best, row.predicted, ours, sixteen, row.printed, printed


def _regret_sentence(op: str, regrets: Sequence[cost_model.FanoutRegret]) -> str:
    model, sixteen, printed = (
        statistics.fmean(getattr(regret, name) for regret in regrets)
        for name in ("predicted_regret", "sixteen_regret", "printed_regret")
    )
    verdict = "worse than" if model > sixteen else "as good as" if model == sixteen else "better than"
    return (
        f"For {op} the model is {verdict} always answering 16: over {len(regrets)} (N, B) its mean regret is "
        f"{model:.1%}, that of 16 is {sixteen:.1%}, that of the printed formula {printed:.1%}."
    )


def _untimed(material: Material) -> str:
    capacities: dict[tuple[str, ...], list[int]] = defaultdict(list)
    measurements = [record for record in material.measurements if not record.primitive.startswith(ELSEWHERE)]
    for record in measurements:
        if record.status in ("skipped", "failed"):
            what = (record.status, record.contestant, record.op, record.reason or "no reason given")
            capacities[what].append(record.capacity)
    if not capacities:
        return paragraph(f"None: each of {len(measurements)} cells of the sweeps has a time.")
    rows = [(*what, len(sizes), f"{min(sizes):,} to {max(sizes):,}") for what, sizes in sorted(capacities.items())]
    return table(("status", "implementation", "op", "reason", "cells", "N"), rows)


SECTIONS = (
    Section(20, "What to choose", _recommended, TREES),
    Section(30, "Figures", lambda asked: asked.pictures(CHARTS) + paragraphs(asked.missing(CHARTS)), (*TREES, "peer")),
    Section(40, "The cost model", _model, TREES),
    Section(160, "What was measured", _measured, ("",), is_folded=True),
    Section(170, "Skipped and failed cells", _untimed, (*TREES, "gpu", "answer"), is_folded=True),
)
