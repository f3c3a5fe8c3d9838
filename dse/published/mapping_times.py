"""Give the times of Table V's problems: the platform of [Zhang2023] as any question sees it, and its printed learners.

Fixed as there: K = 2, one thread of a processor for the replay management, D = 50. Actors have a core: the published
objective leaves them out. A learner on the CPU takes as many of the other cores as it likes.

Letters: B batch, K fanout, D batches sampled ahead; C (CPU), G (GPU) and F (FPGA) in names of mappings.
"""

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path

from impls.fpga.learner import ledger
from impls.training import Workload, load

from ..estimate import Estimate, Evidence
from ..mapping.options import Place
from ..mapping.question import MappingQuestion
from ..platforms import load as load_platform
from ..solver.problem import Option, Problem
from .learner_points import published
from .quoted import Quoted

TABLE = "seed3_mapping.table_v"
PLATFORM = "u200"
PLACE = Place("pipelined")  # actors, replay and learners, all at the same time
FIXED = {"arrangement": "pipelined", "fanout": 2, "threads": 1, "actors": 1}
TAKEN = 2  # cores, by actors and the replay
DEVICES = {"C": "cpu", "G": "gpu", "F": "fpga"}
LETTERS = {device: letter for letter, device in DEVICES.items()}


def asked(quoted: Quoted) -> list[tuple[str, int]]:
    """List (workload, batch) of every configuration, as quoted."""
    names = (name.removeprefix(f"{TABLE}.").split(".") for name in quoted.numbers if name.startswith(f"{TABLE}."))
    return list(dict.fromkeys((workload, int(batch)) for workload, batch, _ in names))


def pins(quoted: Quoted, name: str, batch: int) -> dict[str, Estimate]:
    """Return a learner's time by device, where it need not be modeled from the device alone.

    Quoted, where Table VII prints a rate: a mapping that is s times slower than the optimal one takes s / rate. That is
    its learner's time where it waits for the learner, as the text says of these; not where both share a GPU. CartPole's
    learner on the FPGA is at other batches the design that its rate implies, by the cycle law of [Zhang2023].
    """
    is_cartpole = name == "cartpole_ddpg"
    where = f"{'seed3' if is_cartpole else 'seed3_learner'}.table_vii.{name.partition('_')[0]}"
    if quoted[f"{where}.batch"] != batch:
        if not is_cartpole:
            return {}
        seconds = ledger(published(quoted), batch).seconds
        return {"fpga": Estimate(seconds, seconds, seconds, Evidence("the design that Table VII implies", "modeled"))}
    rate = quoted[f"{where}.watts"] * quoted[f"{where}.gps_per_watt"]
    times = {}
    for mapping, behind in sorted(quoted.table(f"{TABLE}.{name}.{batch}").items()):
        learner, rmm, _ = mapping.split("-")
        if (learner, rmm) != ("G", "G"):
            seconds = behind / rate
            evidence = Evidence(f"{mapping} in Tables V and VII", "quoted")
            times[DEVICES[learner]] = Estimate(seconds, seconds, seconds, evidence)
    return times


@functools.lru_cache(maxsize=32)
def _built(results: Path, name: str, batch: int) -> tuple[Problem, Workload]:
    platform, fix = load_platform(PLATFORM, results), {**FIXED, "batch": batch}
    question = MappingQuestion(platform, load(name), fix=fix, results=results)
    problem = question.built().problems[PLACE]
    left = problem.budgets["cpu.cores"] - TAKEN
    fitting = (one for one in problem.options["learner"] if one.needs.get("cpu.cores", 0.0) <= left)
    return problem.having("learner", *fitting), question.workload


def problem_of(
    quoted: Quoted, results: Path, name: str, batch: int, pinned_too: bool = True
) -> tuple[Problem, Workload]:
    """Pose a problem with pinned times for modeled ones: a device's fastest learner takes it, others in proportion.

    Without ``pinned_too`` every time stays as modeled.
    """
    problem, workload = _built(results, name, batch)
    for device, pinned in pins(quoted, name, batch).items() if pinned_too else ():
        factor = pinned.value / learner_times(problem)[LETTERS[device]].value
        options = problem.options["learner"]
        problem = problem.having(
            "learner", *(slower(one, factor, pinned) if one.device == device else one for one in options)
        )
    return problem, workload


def slower(option: Option, factor: float, pinned: Estimate | None = None) -> Option:
    """Multiply an option's time by a factor; with ``pinned``, take the source of that time."""
    time = option.time.scaled(factor)
    if pinned:
        time = Estimate(time.value, time.value, time.value, pinned.rests_on)
    return dataclasses.replace(option, time=time)


def learner_times(problem: Problem) -> dict[str, Estimate]:
    """Give the time of each device's fastest learner, by letter."""
    return _fastest((option.device, option.time) for option in problem.options["learner"])


def rmm_times(problem: Problem) -> dict[str, Estimate]:
    """Give the time of each device's fastest sum tree, which samples and updates there, by letter."""
    alone = (pair for pair in problem.trees if pair[0].device == pair[1].device)
    return _fastest((sampling.device, sampling.time + updating.time) for sampling, updating in alone)


def _fastest(times: Iterable[tuple[str, Estimate]]) -> dict[str, Estimate]:
    return {LETTERS[device]: time for device, time in sorted(times, key=lambda pair: -pair[1].value)}
