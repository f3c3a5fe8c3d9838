"""Values that a question fixes: their names, what they may be, and the workload that has those of its own."""

from argparse import ArgumentTypeError
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from impls import names as trees
from impls.checks import near, short
from impls.terminal import count
from impls.training import Workload, learners
from impls.training.arrangement import SEVERAL, SYNCS
from impls.training.settings import faults_of
from impls.training.workload import MOST

from ..solver.problem import ProblemError
from .options import ARRANGEMENT

NUMBERS = {
    "batch": ("learner", "batch"),
    "update_interval": ("learner", "update_interval"),
    "capacity": ("replay", "capacity"),
    "presampled": ("replay", "presampled"),
    "actor_count": ("actors", "count"),
    "local_storage": ("actors", "local_storage"),
    "sync_interval": ("actors", "sync_interval"),
    "environments": ("actors", "environments"),
}
"""Keys of --fix that stand in the workload: (table, key)."""
COUNTS = ("actors", "learner_threads", "fanout", "threads", *(key for key in SEVERAL if key != "sync"))
"""Keys that are whole numbers: of processes, threads of torch, K, threads of the tree, and how learners combine."""
WHERE = ("sampling", "storage", "learner", "updating")  # a device each
IMPLEMENTATIONS = ("learner_implementation", "policy_implementation")
FREE = ("batch", "presampled", "environments")
FIX = (*NUMBERS, *COUNTS, *WHERE, "contestant", *IMPLEMENTATIONS, "sync", "arrangement")


def with_values(workload: Workload, fix: Mapping[str, Any]) -> Workload:
    """The workload with what is fixed in it. ProblemError for one that no file could state."""
    for key, (table, name) in NUMBERS.items():
        if key in fix:
            part = replace(getattr(workload, table), **{name: fix[key]})
            workload = replace(workload, **{table: part})
    late = replace(workload.learner, learning_starts=MOST)  # no rate depends on when learning starts
    if fix.keys() & NUMBERS.keys() and (faults := faults_of(replace(workload, learner=late))):
        raise ProblemError(f"{workload.name} as asked for: {'; '.join(faults)}")
    return workload


def value_of(key: str, value: Any, devices: Collection[str]) -> Any:
    """The value of a key of ``FIX``, a number where it is one. ProblemError for a value that it cannot have."""
    if key not in FIX:
        raise unknown(f"no key {short(key)} to fix", key, FIX)
    if key in WHERE and value not in devices:
        raise unknown(f"{key}: no device {short(value)}", value, devices)
    if key == "arrangement" and value not in ARRANGEMENT:
        known = ", ".join(ARRANGEMENT)
        raise ProblemError(f"arrangement is one of {known}, not {short(value)}{near(str(value), ARRANGEMENT)}")
    if key == "contestant" and value not in trees():
        raise unknown(f"no tree {short(value)}", value, trees())
    if key in IMPLEMENTATIONS and value not in learners.names():
        raise unknown(f"{key}: no learner {short(value)}", value, learners.names())
    if key == "sync" and value not in SYNCS:
        raise unknown(f"no sync {short(value)}", value, SYNCS)
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


def check_several(fix: Mapping[str, Any]) -> None:
    """ProblemError where values of how learners combine do not go together."""
    learners, sync, banks = (fix.get(key) for key in ("learners", "sync", "banks"))
    if "period" in fix and sync not in (None, "local"):
        raise ProblemError(f"period={fix['period']} is of sync=local, not of {sync}; fix that, or leave out period")
    if banks not in (None, 1, learners):
        raise ProblemError(f"banks={banks} are one for each of as many learners; fix learners={banks} too")
    if more := [f"{key}={fix[key]}" for key in ("sync", "period") if learners == 1 and key in fix]:
        raise ProblemError(f"{more[0]} is of several learners, not of 1; fix learners=2, or leave it out")


def refuse(fix: Mapping[str, Any], keys: Collection[str] = SEVERAL) -> None:
    """ProblemError where one of these keys is fixed, of a question that tries all of it or is about one learner."""
    for key in keys:
        if key in fix:
            raise ProblemError(f"{key} cannot be fixed here: this tries numbers of learners, or has one; leave it out")


def unknown(sentence: str, value: Any, known: Collection[str]) -> ProblemError:
    """The error of a name that is none of those known, with the nearest of them."""
    return ProblemError(f"{sentence}; there are {', '.join(known)}{near(str(value), known)}")
