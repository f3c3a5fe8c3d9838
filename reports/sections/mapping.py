"""The page's section about mappings: whole answers, the solver's figures, and the published algorithm's loss."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from dse.cli.mapping_text import text
from dse.mapping.question import recommend_mapping
from dse.platforms import PlatformError
from dse.published import mapping_loss
from dse.records import RecordError
from dse.tuning.core_split import allocate

from ..chart import Chart, Material, Section
from ..markup import paragraph, paragraphs, safe, table
from ..tidy import About
from . import mapping_figures as figures
from . import mapping_points as points
from .mapping_points import PLATFORM, WORKLOAD, Evidence, Scaled

HERE_WORKLOAD = "cartpole_dqn"
PROFILE = f"python -m benchmarks profile --workload {HERE_WORKLOAD}"
PROBE = "python -m dse platform probe"
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


def _html(material: Material) -> str:
    return section(material.results, material.about.key, material.pictures(CHARTS), material.missing(CHARTS))


def section(results: Path, key: str, pictures: str, left_out: Sequence[str]) -> str:
    """Return the section as HTML around its figures."""
    return (
        _answer(results / key / "platform.toml", HERE_WORKLOAD, results, f"the machine of this page, {key}")
        + _answer(PLATFORM, WORKLOAD, results, "the platform of [Zhang2023]")
        + pictures
        + paragraphs(left_out)
        + _loss_table()
    )


def _answer(platform: str | Path, workload: str, results: Path, whose: str) -> str:
    """Return the answer as the command prints it; else why there is none, and the remedy."""
    asked = f"{workload} on {whose}"
    if isinstance(platform, Path) and not platform.is_file():
        return paragraph(f"Left out, {asked}: it was not probed; on it: {PROBE}, then {PROFILE}.")
    try:
        recommendation = recommend_mapping(platform, workload, results=results)
    except (PlatformError, RecordError, ValueError) as error:
        return paragraph(f"Left out, {asked}: {error}.")
    name = f"this --machine {platform.parent.name}" if isinstance(platform, Path) else platform
    command = f"python -m dse recommend --platform {name} --workload {workload}"
    return paragraph(f"{asked}: {command}") + f"<pre>{safe(text(recommendation))}</pre>\n"


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


SECTIONS = (Section(90, "Which mapping", _html, RECORDS, ("KEY/platform.toml", "quoted/*.toml")),)
