"""Which mapping of a training system onto a machine: questions in words and numbers, answered by ``dse/solver``."""

import dataclasses
from argparse import ArgumentTypeError
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from impls import names as trees
from impls.strict_toml import near, short
from impls.terminal import count
from impls.training import Workload
from impls.training import load as load_workload
from impls.training.reading import faults_of
from impls.training.workload import MOST

from .. import machines
from ..platforms import Platform
from ..platforms.reading import RESULTS
from ..records import RecordError
from ..solver.objectives import EPSILONS, OBJECTIVES, Objective
from ..solver.problem import ProblemError
from ..times import profile
from ..times.parts import Parts
from ..times.profile import PerformanceTable
from .alternatives import Solved, solved
from .answer import MappingAnswer, Shortage, answered
from .build import ARRANGEMENTS, build
from .explain import Explanation, explained

BATCHES = tuple(1 << power for power in range(5, 17))
"""B that are tried where it is free: those within what was measured, or every second one where nothing was."""
NUMBERS = {
    "batch": ("learner", "batch"),
    "update_interval": ("learner", "update_interval"),
    "capacity": ("replay", "capacity"),
    "presampled": ("replay", "presampled"),
    "actor_count": ("actors", "count"),
    "local_storage": ("actors", "local_storage"),
    "sync_interval": ("actors", "sync_interval"),
}
"""Keys of --fix that stand in the workload: (table, key)."""
COUNTS = ("actors", "learner_threads", "fanout", "threads")  # of processes, threads of torch, K and threads of the tree
WHERE = ("sampling", "storage", "learner", "updating")  # a device each
STAYING = (WHERE, ("storage", "learner"))  # parts that keep their devices where another configuration names none
FREE = ("batch", "presampled")
FIX = (*NUMBERS, *COUNTS, *WHERE, "contestant", "arrangement")


def recommend_mapping(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    objective: Objective = "ratio",
    *,
    fix: Mapping[str, Any] | None = None,
    exclude: Collection[str] = (),
    free: Collection[str] = (),
    epsilon: float | None = None,
    results: Path = RESULTS,
    machine: str | None = None,
) -> MappingAnswer | Shortage:
    """The best mapping, or what there is too little of.

    ``fix``: values that are given, keys as in ``FIX``. ``exclude``: devices that may not be used. ``free``: "batch"
    (records trained a second decide; the smallest of ties) and "presampled". ``machine``: the key of the one whose
    platform file and records "this" stands for (default: this machine, or the nearest that has both). PlatformError,
    WorkloadError, RecordError or ProblemError (a ValueError) with one sentence where there is no answer.
    """
    called = str(workload) if isinstance(workload, str | Path) else workload.name
    task = load_workload(workload) if isinstance(workload, str | Path) else workload
    place, whose = located(platform, workload, results, machine)
    wishes = checked(place, fix or {}, exclude, free, objective, epsilon)
    task, note = with_values(task, wishes), ""
    own, other = tables(place, task, results)
    if "batch" in free:
        batch, note = _batch(place, task, own, other, objective, wishes, exclude, free, epsilon)
        task = with_values(task, {"batch": batch})
    given = _answer(place, task, own, other, objective, wishes, exclude, free, epsilon, called)
    told: dict[str, Any] = {"machine": key_of(own, other), "machine_note": whose, "results": str(results)}
    if note and isinstance(given, MappingAnswer):
        told["notes"] = (note, *given.notes)
    return dataclasses.replace(given, **told)


def located(
    platform: str | Path | Platform, workload: str | Path | Workload, results: Path, machine: str | None = None
) -> tuple[Platform, str]:
    """(the platform, the sentence that says so where another machine than this one stands for "this", else "")."""
    if isinstance(platform, Platform):
        return platform, ""
    profiled = workload.name if isinstance(workload, Workload) else str(workload)
    return machines.platform(platform, results, machine, profiled)


def key_of(own: PerformanceTable | None, other: PerformanceTable | None) -> str:
    """Of the machine whose records are read; "" where none are."""
    return next((table.machine_key for table in (own, other) if table), "")


def explain_mapping(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    described: Mapping[str, Any],
    objective: Objective = "ratio",
    *,
    fix: Mapping[str, Any] | None = None,
    exclude: Collection[str] = (),
    free: Collection[str] = (),
    epsilon: float | None = None,
    results: Path = RESULTS,
    machine: str | None = None,
) -> Explanation | Shortage:
    """Why a configuration loses, that it ties, or what it lacks.

    ``described``: keys of ``FIX`` that are chosen. Where they name no device, every part stays on the device it has in
    the best mapping if that is possible; what moves is told. ProblemError for a key of the workload's, which would make
    it another question (but "presampled" where that is free), and for one that is in ``fix`` too.
    """
    fix = dict(fix or {})
    for key, value in described.items():
        if key in fix:
            raise ProblemError(f"{key} is fixed for both sides, so it cannot tell one from the other")
        if key in NUMBERS and not (key == "presampled" and key in free):
            raise ProblemError(f"{key} changes the question, for both sides; write --fix {key}={value}")
    more: dict[str, Any] = {"exclude": exclude, "epsilon": epsilon, "results": results, "machine": machine}
    best = recommend_mapping(platform, workload, objective, fix=fix, free=free, **more)
    if isinstance(best, Shortage):
        return best
    if "batch" in free:
        fix["batch"] = best.batch  # rates of other batches are no answers to the same question
    left = [key for key in free if key != "batch" and key not in described]
    fix |= described
    for staying in STAYING if not set(described) & set(WHERE) else ():
        devices = {part.part: part.device for part in best.parts if part.part in staying and part.part not in fix}
        try:
            asked = recommend_mapping(platform, workload, objective, fix={**devices, **fix}, free=left, **more)
        except ProblemError:
            continue  # nothing is as described on those devices, so more parts have to move
        if isinstance(asked, MappingAnswer):
            return explained(dict(described), asked, best)
    asked = recommend_mapping(platform, workload, objective, fix=fix, free=left, **more)
    return explained(dict(described), asked, best)


def checked(
    platform: Platform,
    fix: Mapping[str, Any],
    exclude: Collection[str],
    free: Collection[str],
    objective: str,
    epsilon: float | None,
) -> dict[str, Any]:
    """``fix`` with numbers as such. ProblemError for whatever is outside any sense."""
    devices = [device.name for device in platform.devices]
    if not any(device.kind == "cpu" for device in platform.devices):
        raise ProblemError(f"platform {platform.name!r} has no processor, and environments step on one; add a cpu")
    if objective not in OBJECTIVES:
        raise ProblemError(
            f"the objective is one of {', '.join(OBJECTIVES)}, not {objective!r}{near(objective, OBJECTIVES)}"
        )
    if epsilon is not None and not 0 <= epsilon < 1:
        raise ProblemError(f"epsilon is a share of the best rate, from 0 up to 1, not {epsilon}")
    for name in exclude:
        if name not in devices:
            raise ProblemError(
                f"no device {short(name)} to exclude; there are {', '.join(devices)}{near(name, devices)}"
            )
        if platform.device(name).kind == "cpu":
            raise ProblemError(f"{name} cannot be excluded: environments step on it")
    for name in free:
        if name not in FREE:
            raise ProblemError(f"{short(name)} cannot be free; there are {', '.join(FREE)}{near(name, FREE)}")
        if name in fix:
            raise ProblemError(f"{name} is both fixed and free; leave one of them out")
    return {key: _value(key, value, devices) for key, value in fix.items()}


def _value(key: str, value: Any, devices: Collection[str]) -> Any:
    if key not in FIX:
        raise ProblemError(f"no key {short(key)} to fix; there are {', '.join(FIX)}{near(key, FIX)}")
    if key in WHERE and value not in devices:
        raise ProblemError(
            f"{key}: no device {short(value)}; there are {', '.join(devices)}{near(str(value), devices)}"
        )
    if key == "arrangement" and value not in ARRANGEMENTS:
        known = ", ".join(ARRANGEMENTS)
        raise ProblemError(f"arrangement is one of {known}, not {short(value)}{near(str(value), ARRANGEMENTS)}")
    if key == "contestant" and value not in trees():
        raise ProblemError(f"no tree {short(value)}; there are {', '.join(trees())}{near(str(value), trees())}")
    if key not in (*NUMBERS, *COUNTS):
        return value
    least = 0 if key == "presampled" else 2 if key == "fanout" else 1
    try:
        number = count(str(value))
    except ArgumentTypeError as error:
        raise ProblemError(f"{key}: {error}") from None
    if number < least:
        raise ProblemError(
            f"{key} must be a whole number of at least {least}, not {short(value)}; write it like 1000, 1e3 or 1k"
        )
    return number


def with_values(workload: Workload, wishes: Mapping[str, Any]) -> Workload:
    """The workload with what is fixed in it. ProblemError for one that no file could state."""
    for key, (table, name) in NUMBERS.items():
        if key in wishes:
            part = dataclasses.replace(getattr(workload, table), **{name: wishes[key]})
            workload = dataclasses.replace(workload, **{table: part})
    late = dataclasses.replace(workload.learner, learning_starts=MOST)  # no rate depends on when learning starts
    if wishes.keys() & NUMBERS.keys() and (faults := faults_of(dataclasses.replace(workload, learner=late))):
        raise ProblemError(f"{workload.name} as asked for: {'; '.join(faults)}")
    return workload


def tables(
    platform: Platform, workload: Workload, results: Path
) -> tuple[PerformanceTable | None, PerformanceTable | None]:
    """(records of this very machine, a profile made elsewhere). RecordError where a probed machine has no records."""
    if platform.machine_key:
        return profile.read(results, platform.machine_key, workload), None
    folders = [path for path in sorted(results.glob("*")) if any(path.glob("profile-*.jsonl"))]
    for folder in folders:
        try:
            table = profile.read(folder, folder.name, workload)
        except RecordError:
            continue
        if table.rows:
            return None, table
    return None, None


def _batch(
    platform: Platform,
    workload: Workload,
    own: PerformanceTable | None,
    other: PerformanceTable | None,
    objective: Objective,
    wishes: Mapping[str, Any],
    exclude: Collection[str],
    free: Collection[str],
    epsilon: float | None,
) -> tuple[int, str]:
    """(B with which the most records are trained, what was tried): the smallest of those within epsilon of the most.

    ProblemError where none can be asked; the first one tried where none fits.
    """
    measured = {batch for _, batch in own.alone("learner step")} if own else set()
    trained, tried, error = dict[int, float](), list[int](), ProblemError("")
    within = [one for one in BATCHES if measured and min(measured) <= one <= max(measured)]
    for batch in within or BATCHES[::2]:
        try:
            parts = Parts(platform, with_values(workload, {"batch": batch}), own, other, wishes)
            found = solved(build(parts, frozenset(free), frozenset(exclude)).problems, objective, epsilon, False)
        except ProblemError as fault:
            error = fault
            continue
        tried.append(batch)
        if isinstance(found, Solved):
            trained[batch] = found.best * batch
    if not tried:
        raise error
    least = max(trained.values(), default=0.0) * (1 - (EPSILONS[objective] if epsilon is None else epsilon))
    batch = min((one for one, rate in trained.items() if rate >= least), default=tried[0])
    note = f"batches of {', '.join(f'{one:,}' for one in tried)} were tried"
    if batch == tried[-1]:
        ends = "where what was measured ends" if within else "the largest"
        note += f"; this is {ends}, and a larger one may train more records"
    return batch, note


def _answer(
    platform: Platform,
    workload: Workload,
    own: PerformanceTable | None,
    other: PerformanceTable | None,
    objective: Objective,
    wishes: Mapping[str, Any],
    exclude: Collection[str],
    free: Collection[str],
    epsilon: float | None,
    called: str,
) -> MappingAnswer | Shortage:
    parts = Parts(platform, workload, own, other, wishes, called)
    return answered(build(parts, frozenset(free), frozenset(exclude)), objective, epsilon)
