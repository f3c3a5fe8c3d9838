"""Which device takes which part of training: answers of the solver, by models of what nobody timed."""

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

import dse
from dse.answer import Answer
from dse.answers.printer import say
from dse.mapping.processes import ExecutionMode
from dse.mapping.question import MappingQuestion, ask, with_values
from dse.platforms import PlatformError
from dse.platforms import load as load_platform
from dse.records import RecordError
from dse.solver.problem import Part, Problem
from dse.solver.solve import Search
from dse.times.several import factors, single_seconds
from dse.times.whole import what_of
from dse.tuning.learners import LearnerScaling, learner_scaling
from impls.fpga.learner import ledger
from impls.training import WorkloadError, load
from reports.claims import models, quoted
from reports.claims.printed import list_printed, place_storage

from ..figure import BATCH, Figure, Section, Table
from ..frame import Data

QUESTIONS = (("this", "cartpole_dqn"), ("u200", "hopper_ddpg"))
"""The machine of the page, and the platform of [Zhang2023]; for each of them a workload."""
UNANSWERED = (PlatformError, RecordError, WorkloadError, ValueError)
LEARNERS, HORIZONS = (1, 2, 4, 8), (5, 25)
SCALED = ("hopper_ddpg", "pong_dqn")  # shown first, where they were profiled
NAMES = {"sampling": "tree", "storage": "records", "bound_hz": "most_steps/s", "value": "about"}
RATE = "gradient steps/s"
ENDS = ("value", "low", "high", "unit", "source")
MODE = "pipelined"
DEVICES = {"C": "cpu", "G": "gpu", "F": "fpga"}
"""Letters of a mapping in [Zhang2023]: learner, tree and storage."""


@cache
def _answer(
    question: Callable[..., Answer], results: Path, machine: str, more: tuple[tuple[str, Any], ...]
) -> list[Any]:
    """Ask a question of each machine; leave out a machine that was not probed or has no profile."""
    found = []
    for platform, workload in QUESTIONS:
        key = {"machine": machine} if platform == "this" else {}
        with contextlib.suppress(*UNANSWERED):
            answer = question(platform, workload, results=results, **key, **dict(more))
            found.append(({"platform": key.get("machine", platform), "workload": workload}, answer))
    return [(asked, answer) for asked, answer in found if answer.choice]


def tabulate(data: Data, question: Callable[..., Answer], columns: str, **more: Any) -> pd.DataFrame:
    """Return a row for each row of the answers that has the first of these columns, the choice first; times in us."""
    names, rows = columns.split(), []
    for asked, answer in _answer(question, data.results, data.machine, tuple(more.items())):
        every = [row.to_dict() for row in (answer.choice, *answer.rows, *answer.others)]
        rows += [{**row, **asked} for row in every if names[0] in row]
    frame = pd.DataFrame(rows, columns=["platform", "workload", *names, *ENDS])
    scale = frame["unit"].map({"s": 1e6}).fillna(1.0)
    frame[[*ENDS[:3]]] = frame[[*ENDS[:3]]].mul(scale, axis=0)
    return frame.replace({"unit": {"s": "us"}}).rename(columns=NAMES)


def list_choices(data: Data) -> pd.DataFrame:
    """List what to run where, a column a platform, with the command that asks it."""
    rows = tabulate(data, dse.recommend_mapping, "arrangement actors learner sampling storage")
    rows = rows.drop_duplicates(["platform", "workload"])  # the choice is the first row
    where = rows["platform"].replace(data.machine, f"this --machine {data.machine}")
    rows = rows.assign(command="python -m dse recommend --platform " + where + " --workload " + rows["workload"])
    table = rows.drop(columns="unit").rename(columns={"about": RATE}).set_index("platform")
    return table.T.reset_index(names="platform")


def say_choices(data: Data) -> str:
    """Say what to run where, as the command says."""
    answers = _answer(dse.recommend_mapping, data.results, data.machine, ())
    return " ".join(say(answer.choice.says, answer.choice.values) for _, answer in answers)


def list_splits(data: Data) -> pd.DataFrame:
    """List the cores for actors and for learners, for one and for 16 environment steps a gradient step."""
    split = partial(tabulate, data, dse.platform_split, "actors learners idle bottleneck", reserved=1)
    return pd.concat([split(update_interval=interval).assign(update_interval=interval) for interval in (1, 16)])


def list_losses(data: Data) -> pd.DataFrame:
    """List how often [Zhang2023, Alg. 3] and its readings miss the best mapping of random times, and by how much."""
    first, second = 10 ** np.random.default_rng(models.SEED).uniform(0.0, 2.0, (2, models.TABLES, 3))
    rows = []
    for name, ratios in models.lose_time(first, second).items():
        missed = ratios[ratios > 1 + 1e-9]
        rows.append((name, 100 * missed.size / ratios.size, missed.mean(), missed.max()))
    head = ["algorithm", "tables where it is not the best (%)", "slower there (mean ratio)", "slower (worst ratio)"]
    return pd.DataFrame(rows, columns=head)


def pin_learners(printed: quoted.Quoted, name: str, batch: int) -> dict[str, float]:
    """Return seconds of a gradient step by device, where Tables V and VII imply them at this batch.

    A mapping that is s times slower than the fastest takes s / rate. That is its learner's time where it waits for the
    learner, as the text says of these; not where both share a GPU. CartPole's learner on the FPGA is at other batches
    the design that its rate implies, by the cycle law of [Zhang2023].
    """
    is_cartpole = name == "cartpole_ddpg"
    where = f"{'seed3' if is_cartpole else 'seed3_learner'}.table_vii.{name.partition('_')[0]}"
    if printed[f"{where}.batch"] != batch:
        return {"fpga": ledger(models.build_published(printed), batch).seconds} if is_cartpole else {}
    rate = printed[f"{where}.watts"] * printed[f"{where}.gps_per_watt"]
    mappings = sorted(list_printed(printed)[name, batch].items())
    return {DEVICES[mapping[0]]: behind / rate for mapping, behind in mappings if mapping[:3] != "G-G"}


def pose_problem(printed: quoted.Quoted, results: Path, name: str, batch: int) -> Problem:
    """Pose a row of Table V as a problem, with pinned times for modeled ones.

    A device's fastest learner takes the pinned time, others in proportion; two cores are the actor's and the replay's.
    """
    fix = {"arrangement": MODE, "fanout": 2, "threads": 1, "actors": 1, "learner_implementation": "torch"}
    question = MappingQuestion(load_platform("u200", results), load(name), fix=fix | {"batch": batch}, results=results)
    problem = question.built().problems[ExecutionMode(MODE)]
    left = problem.budgets["cpu.cores"] - 2
    options = [option for option in problem.options["learner"] if option.needs.get("cpu.cores", 0.0) <= left]
    for device, seconds in pin_learners(printed, name, batch).items():
        fastest = min(option.seconds for option in options if option.device == device)
        options = [replace(option, time=option.time.scaled(seconds / fastest)) if option.device == device else option
                   for option in options]  # fmt: skip
    return problem.having("learner", *options)


def rate_mappings(problem: Problem) -> dict[tuple[str, ...], float]:
    """Find the most gradient steps/s of each mapping, by letters of learner, sampling, updating and storage."""
    parts: tuple[Part, ...] = ("learner", "sampling", "updating", "storage")
    letters, found = {device: letter for letter, device in DEVICES.items()}, dict[tuple[str, ...], float]()
    for placement in Search({"": problem}, "training").placements:
        key = tuple(letters[placement.where[part][0][0]] for part in parts)
        found[key] = max(found.get(key, 0.0), placement.best)
    return found


@cache
def _list_paces(results: Path) -> pd.DataFrame:
    """Rate every learner-tree pair of every row of Table V, with its storage where it is best: [Zhang2023, Fig. 13].

    A rate rests on print where its learner's time is pinned, and where both share a GPU by the law's ``SHARED``.
    """
    printed, rows = quoted.read(results / "quoted"), []
    for (name, batch), mappings in list_printed(printed).items():
        problem, best = pose_problem(printed, results, name, batch), defaultdict[tuple[str, ...], float](float)
        best.update(rate_mappings(problem))
        known = {"workload": name, "batch": batch, "source": "modeled"}
        known["published"] = next(mapping for mapping, behind in mappings.items() if behind == 1)
        known["limit_hz"] = 1 / min(option.seconds for option in problem.options["learner"])
        pinned = pin_learners(printed, name, batch)
        rates = {(learner, tree): max(best[learner, tree, tree, storage] for storage in DEVICES)
                 for learner, tree in itertools.product(DEVICES, repeat=2)}  # fmt: skip
        for (learner, tree), hz in rates.items():
            storage = place_storage(learner, tree, with_values(load(name), {"batch": batch}))
            pair = f"{learner}-{tree}"
            printed_pace = next((pace for mapping, pace in mappings.items() if mapping[:3] == pair), None)
            behind = {"behind": max(rates.values()) / hz if hz else None, "behind, printed": printed_pace}
            behind["rests on print"] = "yes" if DEVICES[learner] in pinned or pair == "G-G" else "no"
            rows.append({**known, "pair": pair, "hz": hz or None, "storage by Alg. 3": storage, **behind})
    return pd.DataFrame(rows)


def list_pairs(data: Data) -> pd.DataFrame:
    """List the rate of each learner-tree pair by workload and batch, and of its learner alone.

    And how many times slower than the best pair it is, next to the number of [Zhang2023, Table V] where it has one; and
    whether the rate rests on such numbers.
    """
    names = {"hz": RATE, "limit_hz": "learner alone", "behind": "slower than the best (x)"}
    return _list_paces(data.quotes).rename(columns={**names, "behind, printed": "the same, printed (x)"})


def list_fastest(data: Data) -> pd.DataFrame:
    """List the fastest rate with the learner on each device over B, and the rate of the published mapping."""
    rows = _list_paces(data.quotes).dropna(subset="hz")
    learners = rows["pair"].str[0].map({"C": "learner on CPU", "G": "learner on GPU", "F": "learner on FPGA"})
    fastest = rows.groupby(["workload", "batch", learners.rename("learner")], as_index=False)["hz"].max()
    published = rows[rows["pair"] == rows["published"].str[:3]].assign(learner="published mapping")
    return pd.concat([fastest, published])


def list_scaling(data: Data) -> pd.DataFrame:
    """List the speed-up for each learner over L: exact, as printed, and measured; at the smallest and largest batch."""
    platform, rows = data.results / data.machine / "platform.toml", []
    profiled = {str(run.options.get("workload")) for run in data.own if run.contestant == "learner"}
    for workload in sorted(profiled, key=lambda name: (name not in SCALED, name))[:2]:
        with contextlib.suppress(*UNANSWERED):
            question = ask(platform, workload, results=data.results)
            table, own = question.tables[0], question.workload.learner.batch
            by = question.parts().learners.implementation
            timed = {batch for _, batch in table.alone(what_of("learner step", by), 1)} if table else set()
            for batch in sorted({own, max(timed, default=own)}):
                fixed = replace(question, fix={"batch": batch, "learner_implementation": by})
                answer, panel = learner_scaling(fixed), f"{workload}, B = {batch:,}, learners {by}"
                rows += [{"panel": panel, **row} for row in _list_factors(answer)]
    frame = pd.DataFrame(rows, columns=["panel", "learners", "line", "factor", "factor_low", "factor_high"])
    return frame.assign(panel=pd.Categorical(frame["panel"], frame["panel"].unique()))


def _list_factors(answer: LearnerScaling) -> Iterator[dict[str, Any]]:
    for point in factors(answer.terms, LEARNERS, HORIZONS):
        name = f"averages every {point.horizon} steps" if point.horizon else "gathered gradients"
        yield {"learners": point.learners, "line": name, "factor": point.exact}
        yield {"learners": point.learners, "line": f"{name}, as printed", "factor": point.printed}
    for (learners, horizon), seconds in answer.ran.items():
        if horizon is None:
            single = single_seconds(answer.terms) / learners
            ends = {"factor_low": single / max(seconds), "factor_high": single / min(seconds)}
            yield {
                "learners": learners,
                "line": "gathered gradients, measured",
                "factor": single / median(seconds),
                **ends,
            }


SECTIONS = (
    Section(
        "Which device for what? (modeled)",
        "Times that nobody measured come from laws, which the section \"Is it right?\" tests.",
        says=say_choices,
        figures=(
            Figure(
                "mapping_throughput", "How fast is training with the learner on each device?", "batch", "hz",
                make=list_fastest, hue="learner", panels=("workload",), own_axes=True, labels=(BATCH, RATE),
                reading="On the platform of [Zhang2023], tree and records where they are best, actors left out; the "
                "published mapping is that of Table V. Learners at Table VII's B, and CartPole's on an FPGA, take what "
                "Tables V and VII imply. Compare [Zhang2023, Fig. 13].",
            ),
            Figure(
                "solver_scaling", "How well do learners scale?", "learners", "factor", make=list_scaling, hue="line",
                panels=("panel",), labels=("learners L", "speed-up / L"), log=(True, False),
                reading="A line that falls as 1 / L gains nothing. As printed: the formulas of [Zhang2022, Eqs. 5.3 "
                "and 5.6]; the others are from the terms of a step measured on this machine.",
                command="python -m benchmarks profile --workload hopper_ddpg",
            ),
        ),
        tables=(
            Table("choices", "What to run where", list_choices, is_open=True),
            Table("choice_parts", "The time of each part", partial(
                tabulate, question=dse.recommend_mapping, columns="part device implementation")),
            Table("front", "Mappings that no other mapping beats in rate, watts and bytes", partial(
                tabulate, question=dse.list_front, columns="is_answer arrangement learner tree storage watts bytes")),
            Table("depth", "Batches to sample ahead", partial(
                tabulate, question=dse.platform_depth, columns="depth cv bound_hz")),
            Table("core_splits", "Cores for actors and for learners", list_splits),
            Table("mapping_pairs", "Every pair of devices for learner and tree", list_pairs, note="Rates that rest on "
                  "print have a learner's time from Tables V and VII, or a shared GPU's factor from Table V: printed "
                  "ratios of such pairs come back by construction."),
            Table("greedy_loss", "What the algorithm of [Zhang2023] loses on random times", list_losses),
        ),
    ),
)  # fmt: skip
