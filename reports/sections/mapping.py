"""The page's section about mappings: whole answers, the solver's figures, and the published algorithm's loss."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dse.cli.mapping_text import text
from dse.mapping.question import recommend_mapping
from dse.platforms import PlatformError
from dse.published import mapping_loss
from dse.records import RecordError
from dse.tuning.core_split import allocate

from ..chart import Chart, Material, Section
from ..markup import console, paragraph, paragraphs, table
from ..tidy import About
from . import mapping_figures as figures
from . import mapping_points as points
from .mapping_points import PLATFORM, WORKLOAD, Evidence, Scaled

HERE_WORKLOAD = "cartpole_dqn"
PROFILE = f"python -m benchmarks profile --workload {HERE_WORKLOAD}"
NOT_PROBED = f"it was not probed; on it: python -m dse platform probe, then {PROFILE}"
UNANSWERED = (PlatformError, RecordError, ValueError)
RECORDS = ("training", "serial_step", "sum_tree", "memory")  # their primitives
LOSS_HEAD = ("variant", "tables that are not optimal", "step / optimum: mean of those", "worst", "mean of all tables")


def _evidence(material: Material) -> Evidence:
    return points.evidence(material.results)


def _cores(evidence: Evidence, _: About) -> Figure:
    curves = points.platform_cores(evidence)
    splits = []
    for u in points.INTERVALS:
        chosen = allocate(curves.f_a, curves.f_l, u, curves.total, points.RESERVED, within=points.WITHIN)
        splits.append(figures.Split(f"{WORKLOAD}, update_interval = {u}", curves.f_a, curves.f_l, u, chosen))
    origin = f"{curves.total} cores of {PLATFORM}, {points.RESERVED} reserved to replay. {curves.description}."
    return figures.cores(splits, origin)


def _scaling(made: Sequence[Scaled], about: About) -> Figure:
    origin = (
        f"from terms measured on machine {about.key}: steps on one thread (passes and update of weights together), the "
        "tree, weights through shared memory in turns, averages; records go as fast as they were gathered; a learner "
        "has a core of its own"
    )
    return figures.scaling_factors(made, origin)


CHARTS = (
    Chart(
        "solver_cores",
        _evidence,
        _cores,
        "The slower side sets the pace: the choice is where the lower of both rings is highest. With more environment "
        "steps a gradient step, actors need more of the cores. [Zhang2021, Fig. 12] asks the same.",
    ),
    Chart(
        "solver_depth",
        _evidence,
        lambda evidence, _: figures.depths(points.depths(evidence), points.CVS, points.STEPS),
        "Right of D* the bound is flat: more batches ahead only grow stale. Where one part takes nearly all of the "
        "time there is little to gain.",
    ),
    Chart(
        "solver_scaling",
        lambda material: points.scaled(material.measurements, material.about.key),
        _scaling,
        "A line that falls like 1 / L gains nothing from more learners. Where a solid line lies below the dashed one, "
        "the printed formula promises more than the step's own times give. [Zhang2022, Figs. 5.14 and 5.15] ask the "
        "same.",
    ),
    Chart(
        "solver_front",
        _evidence,
        lambda evidence, _: figures.fronts(points.fronts(evidence), PLATFORM),
        "Along the dashed line more steps cost more watts or another device; a hollow point is never worth it. Those "
        "whose bars overlap may change places.",
    ),
    Chart(
        "solver_what_if",
        _evidence,
        lambda evidence, _: figures.what_if(points.what_if(evidence), f"{WORKLOAD} on {PLATFORM}"),
        "A change of hatching is a change of the learner's device. From left to right a step works through more "
        "records; upwards another core frees actors or the replay from waiting.",
    ),
    Chart(
        "solver_loss",
        lambda _: mapping_loss.ratios(*mapping_loss.random_tables()),
        lambda ratios, _: figures.losses(ratios, f"{mapping_loss.TABLES:,} random tables"),
        "Lower is better. What a line stands at above 1.5 is the share of tables that take at least half as long again "
        "as they need.",
    ),
)


def here(material: Material) -> tuple[str, str]:
    """Return (the command that asks for the mapping of this machine, what it prints, or why there is no answer)."""
    platform = material.folder / "platform.toml"
    if not platform.is_file():
        return _command(platform, HERE_WORKLOAD), f"{NOT_PROBED}."
    try:
        return _asked(platform, HERE_WORKLOAD, material.results, material.answers)
    except UNANSWERED as error:
        return _command(platform, HERE_WORKLOAD), f"{error}."


def _html(material: Material) -> str:
    pictures, left_out = material.pictures(CHARTS), material.missing(CHARTS)
    return section(material.results, material.about.key, pictures, left_out, material.answers)


def section(
    results: Path, key: str, pictures: str, left_out: Sequence[str], answers: dict[Any, Any] | None = None
) -> str:
    """Return the section as HTML around its figures; ``answers`` has what was asked before."""
    kept = {} if answers is None else answers
    return (
        _answer(results / key / "platform.toml", HERE_WORKLOAD, results, f"the machine of this page, {key}", kept)
        + _answer(PLATFORM, WORKLOAD, results, "the platform of [Zhang2023]", kept)
        + pictures
        + paragraphs(left_out)
        + _loss_table()
    )


def _answer(platform: str | Path, workload: str, results: Path, whose: str, answers: dict[Any, Any]) -> str:
    """Return the answer as the command prints it; else why there is none, and the remedy."""
    if isinstance(platform, Path) and not platform.is_file():
        return paragraph(f"Left out, {workload} on {whose}: {NOT_PROBED}.")
    try:
        command, said = _asked(platform, workload, results, answers)
    except UNANSWERED as error:
        return paragraph(f"Left out, {workload} on {whose}: {error}.")
    return paragraph(f"{workload} on {whose}: {command}") + console(said)


def _asked(platform: str | Path, workload: str, results: Path, answers: dict[Any, Any]) -> tuple[str, str]:
    """Return (command, what it prints), asked once for all sections that show them."""
    command = _command(platform, workload)
    if command not in answers:
        answers[command] = text(recommend_mapping(platform, workload, results=results))
    return command, answers[command]


def _command(platform: str | Path, workload: str) -> str:
    name = f"this --machine {platform.parent.name}" if isinstance(platform, Path) else platform
    return f"python -m dse recommend --platform {name} --workload {workload}"


def _loss_table() -> str:
    rows = []
    for loss in mapping_loss.losses():
        overall = 1 + loss.share * (loss.mean - 1)
        rows.append((loss.variant, f"{loss.share:.1%}", f"{loss.mean:.2f}x", f"{loss.worst:.3f}x", f"{overall:.3f}x"))
    sentence = (
        f"[Zhang2023, Alg. 3] and its readings over {mapping_loss.TABLES:,} random tables of times, each against the "
        "joint optimum of learner and RMM, which by definition is 1 on every table (modeled):"
    )
    return paragraph(sentence) + table(LOSS_HEAD, rows)


SECTIONS = (Section(90, "Which mapping", _html, RECORDS, ("KEY/platform.toml", "quoted/*.toml"), is_modeled=True),)
