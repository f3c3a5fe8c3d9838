"""The page's section about mappings: whole answers, the solver's figures, and what the published algorithm loses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from dse.cli.mapping_text import text
from dse.mapping.question import recommend_mapping
from dse.platforms import PlatformError
from dse.published import mapping_loss, quoted
from dse.records import Measurement, RecordError
from dse.tuning.core_split import allocate

from . import choice_figures, mapping_section, scaling_points, solver_figures, solver_points
from .markup import paragraph, safe, table
from .solver_figures import Split
from .solver_points import PLATFORM, WORKLOAD

FIGURES = "solver_"  # what the names of this section's figures begin with
HERE_WORKLOAD = "cartpole_dqn"
PROFILE = f"python -m benchmarks profile --workload {HERE_WORKLOAD}"
PROBE = "python -m dse platform probe"
LOSS_HEAD = ("variant", "tables that are not optimal", "step / optimum: mean of those", "worst", "mean of all tables")


@dataclass(frozen=True)
class Asked:
    """What the figures are drawn from: a machine's records, its key, and the folder of all results."""

    found: Sequence[Measurement]
    key: str
    results: Path


@dataclass(frozen=True)
class SolverChart:
    """A figure that the solver computes, and how to read it. ``draw`` raises RecordError where an input is missing."""

    name: str
    draw: Callable[[Asked], Figure]
    reading: str


def _cores(asked: Asked) -> Figure:
    held = solver_points.platform_cores(solver_points.evidence(asked.results))
    splits = [
        Split(
            f"{held.workload}, update_interval = {u}",
            held.f_a,
            held.f_l,
            u,
            allocate(held.f_a, held.f_l, u, held.total, solver_points.RESERVED, within=solver_points.WITHIN),
        )
        for u in solver_points.INTERVALS
    ]
    origin = f"{held.total} cores of {PLATFORM}, {solver_points.RESERVED} reserved to replay. {held.told}."
    return solver_figures.cores(splits, origin)


def _depths(asked: Asked) -> Figure:
    return solver_figures.depths(solver_points.depths(solver_points.evidence(asked.results)), solver_points.CVS)


def _scaling(asked: Asked) -> Figure:
    made = scaling_points.scaled(asked.found, asked.key)
    told = (
        f"from terms measured on machine {asked.key}: steps on one thread (passes and update of weights together), the "
        "tree, weights through shared memory in turns, averages; records go as fast as they were gathered; a learner "
        "has a core of its own"
    )
    return solver_figures.scaling_factors(made, told)


def _what_if(asked: Asked) -> Figure:
    return choice_figures.what_if(
        solver_points.what_if(solver_points.evidence(asked.results)), f"{WORKLOAD} on {PLATFORM}"
    )


def _losses(asked: Asked) -> Figure:
    drawn = mapping_loss.random_tables()
    return choice_figures.losses(mapping_loss.ratios(*drawn), f"{mapping_loss.TABLES:,} random tables")


def _throughput(asked: Asked) -> Figure:
    return mapping_section.throughput(quoted.read(asked.results / "quoted"), asked.results)


CHARTS = (
    SolverChart(
        "solver_cores",
        _cores,
        "The slower side sets the pace: the choice is where the lower of both rings is highest. With more environment "
        "steps a gradient step, actors need more of the cores. Figure 12 of seed 0 asks the same.",
    ),
    SolverChart(
        "solver_depth",
        _depths,
        "Right of D* the bound is flat: more batches ahead only grow stale. Where one part takes nearly all of the "
        "time there is little to gain.",
    ),
    SolverChart(
        "solver_scaling",
        _scaling,
        "A line that falls like 1 / L gains nothing from more learners. Where a solid line lies below the dashed one, "
        "the printed formula promises more than the step's own times give. Figures 5.14 and 5.15 of seed 4 ask the "
        "same.",
    ),
    SolverChart(
        "solver_front",
        lambda asked: choice_figures.fronts(solver_points.fronts(solver_points.evidence(asked.results)), PLATFORM),
        "Along the dashed line more steps cost more watts or another device; a hollow point is never worth it. Those "
        "whose bars overlap may change places.",
    ),
    SolverChart(
        "solver_what_if",
        _what_if,
        "A change of hatching is a change of the learner's device. From left to right a step works through more "
        "records; upwards another core frees actors or the replay from waiting.",
    ),
    SolverChart(
        "solver_loss",
        _losses,
        "Lower is better. What a line stands at above 1.5 is the share of tables that take at least half as long again "
        "as they need.",
    ),
    SolverChart(
        mapping_section.FIGURE,
        _throughput,
        "The highest line of a panel is the mapping to choose for its batch. The nearer it is to the dotted line, the "
        "better everything hides behind the learner. Seed 3's Figure 13 asks the same.",
    ),
)


def section(results: Path, key: str, pictures: str, left_out: Sequence[str]) -> str:
    """The section as HTML around its figures."""
    return (
        _answer(results / key / "platform.toml", HERE_WORKLOAD, results, f"the machine of this page, {key}")
        + _answer(PLATFORM, WORKLOAD, results, "the seeds' platform")
        + pictures
        + "".join(map(paragraph, left_out))
        + _loss_table()
    )


def _answer(platform: str | Path, workload: str, results: Path, told: str) -> str:
    """As the command prints it; else why there is none, and what it wants."""
    asked = f"{workload} on {told}"
    if isinstance(platform, Path) and not platform.is_file():
        return paragraph(f"Left out, {asked}: it was not probed; on it: {PROBE}, then {PROFILE}.")
    try:
        given = recommend_mapping(platform, workload, results=results)
    except (PlatformError, RecordError, ValueError) as error:
        return paragraph(f"Left out, {asked}: {error}.")
    name = f"this --machine {platform.parent.name}" if isinstance(platform, Path) else platform
    command = f"python -m dse recommend --platform {name} --workload {workload}"
    return paragraph(f"{asked}: {command}") + f"<pre>{safe(text(given))}</pre>\n"


def _loss_table() -> str:
    losses = mapping_loss.losses()
    rows = [
        (
            one.variant,
            f"{one.share:.1%}",
            f"{one.mean:.2f}x",
            f"{one.worst:.3f}x",
            f"{1 + one.share * (one.mean - 1):.3f}x",
        )
        for one in losses
    ]
    told = (
        f"Seed 3's Algorithm 3 and its readings over {mapping_loss.TABLES:,} random tables of times, each against the "
        "joint optimum of learner and RMM, which by definition is 1 on every table (modeled):"
    )
    return paragraph(told) + table(LOSS_HEAD, rows)
