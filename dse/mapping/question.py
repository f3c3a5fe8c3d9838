"""Which mapping of a training system onto a machine: questions in words and numbers, answered by ``dse/solver``."""

import functools
import itertools
import shlex
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from impls import names as trees
from impls.checks import near, short
from impls.terminal import count
from impls.training import Workload, learners
from impls.training import load_timed as load_workload
from impls.training.arrangement import NODES, SEVERAL, SYNCS
from impls.training.settings import faults_of
from impls.training.weights import list_value_layers
from impls.training.workload import MOST

from .. import machines
from ..answer import Note, Row
from ..platforms import Platform
from ..platforms.files import RESULTS
from ..platforms.fingerprint import where
from ..records import benchmark
from ..solver.law import EPSILONS, OBJECTIVES, Objective
from ..solver.problem import ProblemError
from ..solver.solve import Infeasible, Solution, solve
from ..times.cells import PerformanceTable, tables
from ..times.door import Times
from ..times.stated import StatedTimes
from .alternatives import Chosen, choose
from .answer import MappingAnswer, Shortage, build_answer, rate_of
from .build import Built, build
from .options import ARRANGEMENT
from .why_not import Explanation, Knee, explain, knee

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
OF_NODES = ("actor_nodes", "batches_a_call")
COUNTS = ("actors", "learner_threads", "fanout", "threads", *(key for key in SEVERAL if key != "sync"), *OF_NODES)
"""Keys that are whole numbers: of processes, threads of torch, K, threads of the tree, how learners combine, nodes."""
WHERE = ("sampling", "storage", "learner", "updating")  # a device each
IMPLEMENTATIONS = ("learner_implementation", "policy_implementation")
FREE = ("batch", "presampled", "environments", "layers")
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
    known: dict[str, tuple[str, Collection[str]]] = {"contestant": ("no tree", trees()), "sync": ("no sync", SYNCS)}
    known |= {
        "arrangement": ("no arrangement", (*ARRANGEMENT, NODES)),
        **{part: (f"{part}: no device", devices) for part in WHERE},
    }
    known |= {name: (f"{name}: no learner", learners.names()) for name in IMPLEMENTATIONS}
    if key in known:
        lack, names = known[key]
        if value not in names:
            raise unknown(f"{lack} {short(value)}", value, names)
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


BATCHES = tuple(1 << power for power in range(5, 17))
"""B that may be tried where it is free: those within what was measured, or all where nothing was."""
STAYING = (WHERE, ("storage", "learner"))  # parts that keep their devices where another configuration names none


@dataclass(frozen=True)
class MappingQuestion:
    """What to run where, of a workload on a platform; checked as it is made.

    ``fix``: values that are given, keys as in ``FIX``; as numbers once it is made, and those of the workload in it.
    ``exclude``: devices that may not be used. ``free``: "batch" (the knee of records trained per second), "presampled",
    "environments" (of those that were timed), "layers" (of a value network, each on a device).
    ``workload_argument``: the workload's name or file, for commands. ``machine_note``: the note that says so where
    another machine than this one stands for "this". ``times``: a user's own times, which are looked up first.
    ProblemError for whatever is outside any sense.
    """

    platform: Platform
    workload: Workload
    objective: Objective = "ratio"
    fix: Mapping[str, Any] = field(default_factory=dict)
    exclude: Collection[str] = ()
    free: Collection[str] = ()
    epsilon: float | None = None
    results: Path = RESULTS
    workload_argument: str = ""
    machine_note: Note | None = None
    times: StatedTimes | None = None

    def __post_init__(self) -> None:
        for key in ("exclude", "free"):
            if isinstance(named := getattr(self, key), str):
                object.__setattr__(self, key, (named,))
        devices = [device.name for device in self.platform.devices]
        _check(self, devices)
        fix = {key: value_of(key, value, devices) for key, value in self.fix.items()}
        check_several(fix)
        if (lost := [key for key in OF_NODES if key in fix]) and fix.get("arrangement") != NODES:
            raise ProblemError(f"{lost[0]}={fix[lost[0]]} is of training over nodes; fix arrangement={NODES} too")
        if fix.get("arrangement") == NODES and not self.platform.network:
            raise ProblemError(
                f"arrangement={NODES}: platform {self.platform.name!r} states no nodes; add [[node]] and [network] to "
                "its file, or measure those of a cluster: python -m dse platform probe --cluster auto"
            )
        object.__setattr__(self, "fix", fix)
        object.__setattr__(self, "workload", with_values(self.workload, fix))

    @functools.cached_property
    def tables(self) -> tuple[PerformanceTable | None, PerformanceTable | None]:
        """(records of this very machine, a profile made elsewhere). RecordError where a probed machine has none."""
        return tables(self.platform, self.workload, self.results, self.workload_argument)

    def drop_nodes(self) -> "MappingQuestion":
        """The question about one machine: without nodes, which have actors of their own."""
        if self.fix.get("arrangement") != NODES:
            return self
        of_nodes = ("arrangement", "actors", *OF_NODES)
        return replace(self, fix={key: self.fix[key] for key in self.fix if key not in of_nodes})

    @property
    def machine(self) -> str:
        """Key of the machine whose records are read; "" where none are."""
        return next((table.machine_key for table in self.tables if table), "")

    @property
    def profile_notes(self) -> tuple[Note, ...]:
        """Notes on a profile that is incomplete, or was disturbed; none about what another machine has."""
        table, word = self.tables[0], shlex.quote(self.workload_argument or self.workload.name)
        return tuple(table.notes(where(self.machine) + benchmark(f"profile --workload {word}")) if table else ())

    def parts(self, workload: Workload | None = None) -> Times:
        """What each part takes, of another shape of the workload if one is given."""
        own = self.times and self.times.at(self.workload.learner.batch)
        return Times(self.platform, workload or self.workload, *self.tables, self.fix, self.workload_argument, own)

    def built(self, workload: Workload | None = None) -> Built:
        """The problem of each place."""
        return build(self.parts(workload), frozenset(self.free), frozenset(self.exclude))


class Asked(TypedDict, total=False):
    """Keywords of a question, as ``ask`` takes them."""

    fix: Mapping[str, Any] | None
    exclude: Collection[str]
    free: Collection[str]
    epsilon: float | None
    results: str | Path
    machine: str | None
    times: str | Path | StatedTimes | None


def ask(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    objective: Objective = "ratio",
    **asked: Unpack[Asked],
) -> MappingQuestion:
    """The question, with names or files for platform, workload and times; raises as ``find_mapping``."""
    given: dict[str, Any] = {"results": RESULTS, "machine": None, "times": None, **asked}
    machine, times, results = given.pop("machine"), given["times"], Path(given["results"])
    argument = workload.name if isinstance(workload, Workload) else str(workload)
    if not isinstance(platform, Platform):
        platform, given["machine_note"] = machines.platform(platform, results, machine, argument)
    if not isinstance(workload, Workload):
        workload = load_workload(workload)
    given |= {"fix": given.get("fix") or {}, "results": results, "workload_argument": argument}
    given["times"] = StatedTimes.read(times) if isinstance(times, str | Path) else times
    return MappingQuestion(platform, workload, objective, **given)


def find_mapping(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    objective: Objective = "ratio",
    **asked: Unpack[Asked],
) -> MappingAnswer | Shortage:
    """The best mapping, or what there is too little of.

    Keywords as in ``MappingQuestion``; ``times`` may be a file. ``machine``: the key of the one whose platform file and
    records "this" stands for (default: this machine, or the nearest that has both). PlatformError, WorkloadError,
    RecordError or ProblemError (a ValueError) with one sentence where there is no answer.
    """
    return answer_question(ask(platform, workload, objective, **asked))


def predict_loop(question: MappingQuestion, fix: Mapping[str, Any]) -> tuple[Built, Chosen] | None:
    """Choose a mapping as ``answer_question`` does, with more that is fixed; None where nothing fits or is so.

    Every command that says how fast a loop is asks here, so that one loop has one rate.
    """
    try:
        built = replace(question, fix={**question.fix, **fix}).built()
        made = choose(built.problems, question.objective, question.epsilon)
    except ProblemError:
        return None
    return None if isinstance(made, Infeasible) else (built, made)


def answer_question(question: MappingQuestion) -> MappingAnswer | Shortage:
    """The best mapping, or what there is too little of."""
    if "environments" in question.free:
        return _of_environments(question)
    if "batch" not in question.free:
        return _answer(question, question.workload)
    result, own = _knee(question), question.workload.learner.batch
    keeps = result.batch is None and (result.largest is None or _records(question, own) > 0)
    batch = own if keeps else result.batch or result.largest or own
    unit = "joule" if question.objective == "per_watt" else "second"
    notes = result.notes(batch, unit, bool(measured_batches(question))) if result.largest else ()
    return _answer(question, with_values(question.workload, {"batch": batch}), notes)


def check_front(question: MappingQuestion) -> None:
    """ProblemError where a question has no front of rate, watts and bytes over links."""
    if question.objective == "per_watt":
        others = ", ".join(name for name in OBJECTIVES if name != question.objective)
        raise ProblemError(f"objective per_watt is a rate by watts, which a front keeps apart; take one of {others}")
    for key in question.free:
        if key not in ("presampled", "layers"):
            raise ProblemError(f"{key} cannot be free in a front, which is of one workload; write --fix {key}=NUMBER")


def _answer(question: MappingQuestion, workload: Workload, notes: Iterable[Note] = ()) -> MappingAnswer | Shortage:
    """The best mapping of the workload in this shape."""
    answer = build_answer(question.built(workload), question.objective, question.epsilon)
    whose = {name: getattr(question, name) for name in ("machine", "machine_note", "profile_notes")}
    answer = replace(answer, **whose, results=str(question.results))
    if isinstance(answer, Shortage):
        return answer
    unused = question.times.unused(question.platform, question.exclude) if question.times else ()
    tried = () if "environments" in question.fix else _environments(question)
    others = [count for count in tried if count != workload.actors.environments]
    is_changed = workload is not question.workload or question.fix.keys() & NUMBERS.keys() - {"environments"}
    return replace(
        answer,
        asked_notes=(*notes, *unused),
        by_environments=tuple(rate for count in others if (rate := _rate(question, workload, count))),
        workload_argument="" if is_changed else question.workload_argument,
    )


def _environments(question: MappingQuestion) -> tuple[int, ...]:
    """The numbers of environments at once that actors were timed with, and the workload's own."""
    table, own = question.tables[0], question.workload.actors.environments
    policies = question.parts().actors.policies if table else ()
    timed = (table.environments("actor step", name) for name in policies if table)
    return tuple(sorted({own, *itertools.chain(*timed)}))


def _rate(question: MappingQuestion, workload: Workload, environments: int) -> Row | None:
    """The best rate with a given number of environments an actor; None where nothing fits, or no file could say so."""
    try:
        built = question.built(with_values(workload, {"environments": environments}))
    except ProblemError:
        return None
    return rate_of(built, question.objective, question.epsilon, ("environments",))


def _of_environments(question: MappingQuestion) -> MappingAnswer | Shortage:
    """The best mapping with as many environments as give most; the fewest of those that give nearly as much."""
    given = EPSILONS[question.objective] if question.epsilon is None else question.epsilon
    tried = {count: _rate(question, question.workload, count) for count in _environments(question)}
    rates = {count: rate.number["value"] for count, rate in tried.items() if rate}
    least = max(rates.values(), default=0.0) * (1 - given)
    own = question.workload.actors.environments
    chosen = next((count for count, rate in rates.items() if rate >= least), own)
    fixed = with_values(question.workload, {"environments": chosen})
    return answer_question(
        replace(question, workload=fixed, free=[key for key in question.free if key != "environments"])
    )


def explain_choice(question: MappingQuestion, described: Mapping[str, Any]) -> Explanation | Shortage:
    """Explain why a configuration loses, that it ties, or what it lacks.

    ``described``: keys of ``FIX`` that are chosen. Where they name no device, every part stays on the device it has in
    the best mapping if that is possible; what moves is told. ProblemError for a key of the workload's, which would make
    it another question (but "presampled" and "environments" where they are free), and for one that is in ``fix`` too.
    """
    for key, value in described.items():
        if key in question.fix:
            raise ProblemError(f"{key} is fixed for both sides, so it cannot tell one from the other")
        if key in NUMBERS and not (key != "batch" and key in question.free):
            raise ProblemError(f"{key} changes the question, for both sides; write --fix {key}={value}")
    best = answer_question(question)
    if isinstance(best, Shortage):
        return best
    # Rates of other batches are no answers to the same question.
    batch = {"batch": best.built.parts.batch} if "batch" in question.free else {}
    fix = {**question.fix, **batch, **described}
    free = [key for key in question.free if key not in fix]
    for staying in STAYING if not set(described) & set(WHERE) else ():
        devices = {part: best.choice.label[part] for part in staying if part not in fix}
        try:
            asked = answer_question(replace(question, fix={**devices, **fix}, free=free, epsilon=0.0))
        except ProblemError:
            continue  # nothing is as described on those devices, so more parts have to move
        if isinstance(asked, MappingAnswer):
            return explain(dict(described), asked, best)
    return explain(dict(described), answer_question(replace(question, fix=fix, free=free, epsilon=0.0)), best)


def _check(question: MappingQuestion, devices: Collection[str]) -> None:
    """ProblemError for whatever is outside any sense, but for what is fixed."""
    platform, objective, epsilon = question.platform, question.objective, question.epsilon
    if not any(device.kind == "cpu" for device in platform.devices):
        raise ProblemError(f"platform {platform.name!r} has no processor, and environments step on one; add a cpu")
    if objective not in OBJECTIVES:
        raise unknown(f"no objective {short(objective)}", objective, OBJECTIVES)
    batch, capacity = question.workload.learner.batch, question.workload.replay.capacity
    if batch > capacity:
        raise ProblemError(
            f"a batch of {batch:,} is more than the {capacity:,} records that the replay holds; lower it"
        )
    if question.results != RESULTS and not question.results.is_dir():
        raise ProblemError(
            f"no folder {question.results} to read records from; name one that is there, or leave it out"
        )
    if epsilon is not None and not 0 <= epsilon < 1:
        raise ProblemError(f"epsilon is a share of the best rate, from 0 up to 1, not {epsilon}")
    for name in question.exclude:
        if name not in devices:
            raise unknown(f"no device {short(name)} to exclude", name, devices)
        if platform.device(name).kind == "cpu":
            raise ProblemError(f"{name} cannot be excluded: environments step on it")
    for name in question.free:
        if name not in FREE:
            raise unknown(f"{short(name)} cannot be free", name, FREE)
        if name in question.fix:
            raise ProblemError(f"{name} is both fixed and free; leave one of them out")
    if "layers" in question.free and not list_value_layers(question.workload):
        raise ProblemError(
            f"layers of {question.workload.name} cannot be free: those of a value network alone are mapped, and "
            f"{question.workload.algorithm} trains a policy too; take a workload of dqn, or leave layers out"
        )


def measured_batches(question: MappingQuestion) -> list[int]:
    """Those of ``BATCHES`` that lie within what this very machine's gradient steps were measured at."""
    own, _ = question.tables
    sizes = {batch for _, batch in own.alone("learner step")} if own else set()
    return [batch for batch in BATCHES if sizes and min(sizes) <= batch <= max(sizes)]


def _knee(question: MappingQuestion) -> Knee:
    """The knee of records trained, over the batches that the workload allows. ProblemError where it allows none."""
    allowed, error = list[int](), ProblemError("")
    for batch in measured_batches(question) or BATCHES:
        try:
            with_values(question.workload, {"batch": batch})
            allowed.append(batch)
        except ProblemError as fault:
            error = fault
    if not allowed:
        raise error
    return knee(allowed, functools.partial(_records, question))


def _records(question: MappingQuestion, batch: int) -> float:
    """Records trained per second, or a joule, at B; 0 where that fits nothing."""
    try:
        problems = question.built(with_values(question.workload, {"batch": batch})).problems
    except ProblemError:
        return 0.0
    result = solve(problems, question.objective, question.epsilon)
    return result.best * batch if isinstance(result, Solution) else 0.0
