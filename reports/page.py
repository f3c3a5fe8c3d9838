"""The page: one HTML file that needs nothing else, every number in it computed from the records."""

import base64
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.cli.tree_text import text
from dse.published import peer_claims, tree_claims
from dse.recommend import answer
from dse.records import Measurement, RecordError
from dse.times import tree_cost_model
from dse.times.tree_times import Question, Table, family_of
from dse.validation.trees import validate

from . import (
    fpga_section,
    gpu_section,
    learning,
    mapping_section,
    peer_section,
    share_table,
    solver_section,
    training_rows,
    training_section,
)
from .markup import paragraph, safe, table
from .table import OPS, About, binary, machine_of, timed

QUESTIONS = ((1_000_000, 256), (100_000, 32))  # N and B of the recommendations shown, each with one update a draw
ANSWERING = "What answering a K costs (its time over the best measured K's, less 1), by a fit without that N:"
REGRETS = ("op", "N", "B", "best K", "model's K*", "its regret", "regret of 16", "printed formula's K*", "its regret")
FPGA = "fpga_"
PREFIXES = (training_section.FIGURES, FPGA, solver_section.FIGURES, mapping_section.FIGURE)  # of sections' figures
TOLD_ELSEWHERE = (peer_claims.PEER, training_rows.PRIMITIVE, share_table.PRIMITIVE)  # with what is not timed of them
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
figure { margin: 1.5rem 0; } figure img { width: 100%; height: auto; border: 1px solid #eee; }
.wide, pre { overflow-x: auto; } pre { background: #f6f6f6; padding: .75rem; font-size: .8rem; }
table { border-collapse: collapse; font-size: .85rem; margin: .75rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; vertical-align: top; }
th[colspan] { text-align: center; border-left: 1px solid #ddd; }
td.number { text-align: right; } td.number, td.name { white-space: nowrap; } td.ours { font-weight: bold; }
td.best { background: #d8f0d0; } td.fault { color: #b00020; } small { color: #555; font-weight: normal; }
"""


@dataclass(frozen=True)
class Drawn:
    """A figure as the page shows it: its question, its picture as PNG bytes, how to read it."""

    name: str
    question: str
    picture: bytes
    reading: str


@dataclass(frozen=True)
class Material:
    """All a page is made of: one machine's records, what was drawn of them, and why other figures were not.

    ``note`` says that they are another machine's than the one that draws, where they are.
    """

    found: Sequence[Measurement]
    about: About
    results: Path
    drawn: Sequence[Drawn]
    left_out: Mapping[str, str]
    note: str = ""


def page(material: Material) -> str:
    """The whole page as HTML."""
    title = f"K-ary sum trees on {material.about.cpu}, {material.about.cores} cores"
    body = "\n".join(_section(heading, make, material) for heading, make in SECTIONS)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{safe(title)}</h1>\n{paragraph(material.note) if material.note else ''}{body}\n</body></html>\n"
    )


def _section(heading: str, make: Callable[[Material], str], material: Material) -> str:
    try:
        body = make(material)
    except RecordError as error:
        body = paragraph(f"Left out: {error}.")
    return f"<section><h2>{heading}</h2>\n{body}</section>"


# The sections, in order.


def _measured(material: Material) -> str:
    about, found = material.about, material.found
    machine = machine_of(found)
    caches = ", ".join(f"{name} {binary(size)}" for name, size in about.caches.items()) or "unknown"
    packages = ", ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items())
    runs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for record in found:
        dirty = " with uncommitted changes" if record.dirty else ""
        runs[record.source, f"{(record.commit or 'no commit')[:10]}{dirty}", record.command].append(record.utc)
    counts = Counter((record.primitive, record.status) for record in found)
    if about.pairs:
        noise = (
            f"The noise floor is {about.noise_floor:.1%}: in 95 % of {about.pairs} A/A pairs the same cell measured "
            "twice in one run differed by no more. Smaller differences are ties."
        )
    else:
        noise = "No cell was measured twice in one run, so nothing tells how large the noise is."
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
            [(primitive, status, number) for (primitive, status), number in sorted(counts.items())],
        )
        + paragraph(noise)
    )


def _recommended(material: Material) -> str:
    held = Table(material.found)
    answers = [answer(held, Question(capacity, batch, 1.0, material.about.cores)) for capacity, batch in QUESTIONS]
    return "".join(f"<pre>{safe(text(given))}</pre>\n" for given in answers)


def _figures(material: Material) -> str:
    return _pictures(material, "") + "".join(map(paragraph, _left_out(material, "")))


def _left_out(material: Material, prefix: str) -> list[str]:
    """Figures of a section that were not drawn, a sentence each."""
    return [f"Left out, {name}: {why}" for name, why in material.left_out.items() if _prefix(name) == prefix]


def _prefix(name: str) -> str:
    """Of a figure in a section of its own."""
    return next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")


def _pictures(material: Material, prefix: str) -> str:
    """The figures of a section."""
    return "".join(
        f'<figure id="{one.name}"><img alt="{safe(one.question)}" '
        f'src="data:image/png;base64,{base64.b64encode(one.picture).decode()}">'
        f"<figcaption>{safe(one.reading)}</figcaption></figure>\n"
        for one in material.drawn
        if _prefix(one.name) == prefix
    )


def _model(material: Material) -> str:
    errors, parts = [], {}
    for op in OPS:
        cells = [record for record in timed(material.found) if _is_default_tree(record, op)]
        points = [tree_cost_model.Point(one.capacity, one.fanout, one.batch, one.seconds) for one in cells]
        if len(points) < tree_cost_model.LEAST_POINTS:
            continue
        parts[op] = (family_of(cells[0], material.about.caches, Table(material.found).floor), points)
        off = [one.error for one in tree_cost_model.cross_validate(*parts[op])]
        errors += [(op, len(off), f"{statistics.median(off):.0%}", f"{max(off):.0%}")] if off else []
    regrets, sentences = [], []
    for what, chosen in ((" + ".join(parts), list(parts.values())), *((op, [part]) for op, part in parts.items())):
        found = tree_cost_model.fanout_regrets(*chosen)
        regrets += [_regret_row(what, one) for one in found]
        sentences += [_regret_sentence(what, found)] if found else []
    if not errors:
        raise RecordError("no model can be checked; measure more: python -m benchmarks sweep --preset quick")
    return (
        paragraph(
            "The model of the default numba tree: each cell, unstable ones too, predicted by a fit without its (N, K)."
        )
        + table(("op", "held-out cells", "median error", "worst error"), errors)
        + (paragraph(ANSWERING) + table(REGRETS, regrets) if regrets else "")
        + "".join(map(paragraph, sentences))
    )


def _is_default_tree(record: Measurement, op: str) -> bool:
    shape = (record.primitive, record.contestant, record.op, record.threads, record.dtype, record.distribution)
    return shape == ("sum_tree", "numba", op, 1, "float32", "uniform") and not record.options


def _regret_row(op: str, one: tree_cost_model.FanoutRegret) -> tuple[Any, ...]:
    return (
        op,
        f"{one.capacity:,}",
        f"{one.batch:,}",
        one.best,
        one.predicted,
        f"{one.predicted_regret:.0%}",
        f"{one.sixteen_regret:.0%}",
        one.printed,
        f"{one.printed_regret:.0%}",
    )


def _regret_sentence(op: str, found: Sequence[tree_cost_model.FanoutRegret]) -> str:
    model, sixteen, printed = (
        statistics.fmean(getattr(one, name) for one in found)
        for name in ("predicted_regret", "sixteen_regret", "printed_regret")
    )
    verdict = "worse than" if model > sixteen else "as good as" if model == sixteen else "better than"
    return (
        f"For {op} the model is {verdict} always answering 16: over {len(found)} (N, B) its mean regret is "
        f"{model:.1%}, that of 16 is {sixteen:.1%}, that of the printed formula {printed:.1%}."
    )


def _claims(material: Material) -> str:
    judged = [*tree_claims.verdicts(material.found), *peer_claims.verdicts(material.found)]
    return table(("claim", "verdict", "evidence"), [(one.text, one.verdict, one.evidence) for one in judged])


def _peers(material: Material) -> str:
    return peer_section.section(material.found, material.results / material.about.key)


def _training(material: Material) -> str:
    left_out = _left_out(material, training_section.FIGURES)
    body = training_section.section(material.found, _pictures(material, training_section.FIGURES), left_out)
    return body + learning.section(material.results / material.about.key)


def _fpga(material: Material) -> str:
    left_out = "".join(map(paragraph, _left_out(material, FPGA)))
    return fpga_section.section(material.results) + _pictures(material, FPGA) + left_out


def _mapping(material: Material) -> str:
    pictures, left_out = (make(material, solver_section.FIGURES) for make in (_pictures, _left_out))
    return solver_section.section(material.results, material.about.key, pictures, left_out)


def _published_mappings(material: Material) -> str:
    return mapping_section.mappings(material.results, _pictures(material, mapping_section.FIGURE))


def _validation(material: Material) -> str:
    checked = validate(material.results, material.about.key)
    rows = [
        (
            f"{one.question.capacity:,}",
            f"{one.question.batch:,}",
            one.question.threads,
            f"{one.question.updates_per_sample:g}",
            one.recommended,
            one.best,
            f"{one.regret:.1%}",
        )
        for one in checked.checked
    ]
    return paragraph(
        f"{len(rows)} questions, every candidate measured afterwards: the recommended one took "
        f"{checked.median_regret:.1%} longer than the best in the median and {checked.worst_regret:.1%} at worst, "
        f"where the same cell measured twice differs by up to {checked.noise_floor:.1%}."
    ) + table(("N", "B", "threads", "updates a draw", "recommended", "best measured", "regret"), rows)


def _untimed(material: Material) -> str:
    capacities: dict[tuple[str, ...], list[int]] = defaultdict(list)
    found = [record for record in material.found if not record.primitive.startswith(TOLD_ELSEWHERE)]
    for record in found:
        if record.status in ("skipped", "failed"):
            what = (record.status, record.contestant, record.op, record.reason or "no reason given")
            capacities[what].append(record.capacity)
    if not capacities:
        return paragraph(f"None: each of {len(found)} cells of the sweeps has a time.")
    rows = [(*what, len(held), f"{min(held):,} to {max(held):,}") for what, held in sorted(capacities.items())]
    return table(("status", "contestant", "op", "reason", "cells", "N"), rows)


SECTIONS = (
    ("What was measured", _measured),
    ("What to choose", _recommended),
    ("Figures", _figures),
    ("The cost model", _model),
    ("Other libraries", _peers),
    ("On a GPU", lambda material: gpu_section.section(material.found)),
    ("On an FPGA (modeled)", _fpga),
    ("Training primitives", _training),
    ("Which mapping", _mapping),
    ("Published mappings (modeled)", _published_mappings),
    ("Predicted loops held against measured ones", lambda one: mapping_section.loops(one.found, one.results)),
    ("Claims of seed 0", _claims),
    ("Recommendations held against measurement", _validation),
    ("Skipped and failed cells", _untimed),
)
