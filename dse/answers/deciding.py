"""Which training runs race, and what the race is told, keeps and says: for ``run``, and ``recommend`` that reads it."""

import contextlib
import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impls.cores import count_allowed
from impls.replay import strategies
from impls.terminal import plural
from impls.training import identity, learners
from impls.training.arrangement import NODES, SEVERAL, UNUSABLE
from impls.training.options import KEY
from impls.training.weights import layout_of

from .. import platforms, race_runs
from ..answer import Row
from ..estimate import Estimate, Evidence
from ..mapping.answer import MappingAnswer
from ..mapping.nodes import OverNodes, plan_nodes
from ..mapping.question import MappingQuestion, answer_question
from ..platforms import checkout
from ..platforms.checkout import evidence_here, find_race, keep_race
from ..race_runs import FILE, ZONE, Decided, Program, decided, rows_of
from ..records import Record, Run
from ..solver.problem import ProblemError
from .emit import why_not_run
from .mapping_answer import input_of_run
from .nodes_answer import words_of_plan

OBJECTIVE = "ratio"  # whose value is what a race measures
OWN = ("arrangement", "actors", "learner_implementation", "learners")  # what contenders differ in
NEAR = 0.7  # of the best predicted rate, from which on two learners race as well
RACED = {
    "environments": (1, 2, 4, 8, 16),
    "presampled": (0, 1, 2, 4),
    "strategy": tuple(name for name in strategies() if name not in UNUSABLE),
}
"""Values with which the best predicted configuration races, where --free names the key."""
FEW = 2  # contenders of one machine that race with a plan over nodes
PROCESS_BYTES = 4e8
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Contender:
    """A configuration that may be best: what it fixes, its words for impls.training, what the run reads, its answer."""

    fix: Mapping[str, Any]
    words: tuple[str, ...]
    settings: str
    processes: int
    answer: MappingAnswer | OverNodes

    @property
    def name(self) -> str:
        """The configuration, in words."""
        if isinstance(self.answer, OverNodes):
            return f"{plural(self.answer.best.nodes, 'node')}, {plural(self.answer.best.actors, 'actor')} on each"
        actors = [plural(self.fix["actors"], "actor")] if "actors" in self.fix else []
        more = [f"{key} {value}" for key, value in self.fix.items() if key not in OWN]
        count = self.fix.get("learners", 1)
        several = [plural(count, "learner")] * (count > 1)
        return ", ".join([self.fix["arrangement"], *actors, self.fix["learner_implementation"], *several, *more])


def contenders(question: MappingQuestion, free: Collection[str] = ()) -> list[Contender]:
    """The best of each arrangement and number of actors, and of each implementation of the learner; cheapest first.

    Two learners race where they are predicted to be nearly as fast as the best.
    Arrangements have at most a process more than there are cores. ``free``: keys of ``RACED``, with each of whose
    values the best predicted one races besides.
    """
    cores, own = count_allowed(), learners.default(question.workload)
    names = [
        own,
        *(name for name in learners.names() if name != own and not learners.unsuited(name, question.workload)),
    ]
    asked = question.fix.keys() & SEVERAL
    counts = sorted({min(1 << power, cores) for power in range(cores.bit_length() + 1)})
    shapes: list[tuple[str, int | None, int]] = [("serial", None, 1)]
    shapes += [("apart", actors, actors + 1) for actors in counts]
    shapes += [("pipelined", actors, actors + 2) for actors in counts]
    found = list[Contender]()
    for arrangement, actors, processes in shapes:
        for name in names if processes <= cores + 1 else ():
            fix = {"arrangement": arrangement, "learner_implementation": name} | ({"actors": actors} if actors else {})
            fix |= {} if asked or not actors else {"learners": 1}
            if contender := _contender(question, fix, processes):
                found.append(contender)
    fastest = sorted(found, key=lambda contender: (-contender.answer.value, names.index(_implementation(contender))))
    fix = {"arrangement": "apart", "learner_implementation": own, "actors": 1, "learners": 2}
    two = None if asked else _contender(question, fix, 3)
    shapes_of = (_shape, _implementation)
    kept = {(key, key(contender)): contender for key in shapes_of for contender in reversed(fastest)}.values()
    more = [_add_value(question, fastest[0], key, value) for key in free for value in RACED.get(key, ()) if fastest]
    if two and fastest and two.answer.value >= NEAR * fastest[0].answer.value:
        more.insert(0, two)
    return [contender for contender in found if contender in kept] + [contender for contender in more if contender]


def add_nodes(question: MappingQuestion, raced: Sequence[Contender], cluster: str) -> list[Contender]:
    """The best ``FEW`` predicted contenders of one machine, and the best plan over the nodes of a cluster.

    They are few because nodes count a learner as lost that stands still for as long as many others' turns take.
    ProblemError where no plan is possible.
    """
    plans = plan_nodes(question, answer_question(question.drop_nodes()))
    if plans is None:
        raise ProblemError(
            f"--cluster {cluster}: platform {question.platform.name!r} states no nodes; measure them: python -m dse "
            f"platform probe --cluster {cluster}"
        )
    words = (*words_of_plan(question, plans.best), "--cluster", cluster)
    fix = {"arrangement": NODES, "actor_nodes": plans.best.nodes, "actors": plans.best.actors}
    few = sorted(raced, key=lambda contender: -contender.answer.value)[:FEW]
    return [*few, Contender(fix, words, "", 1, plans)]


def _add_value(question: MappingQuestion, contender: Contender, key: str, value: Any) -> Contender | None:
    """A contender with a value of a key of ``RACED``; None where it has that already, or no run can have it."""
    if key == "strategy":
        settings = json.loads(contender.settings)
        if contender.fix["arrangement"] == "serial" or settings["choice"]["strategy"] == value:
            return None
        settings["choice"][KEY]["strategy"] = settings["choice"]["strategy"] = value
        return dataclasses.replace(contender, fix={**contender.fix, key: value}, settings=json.dumps(settings))
    own = {"environments": question.workload.actors.environments, "presampled": question.workload.replay.presampled}
    return None if value == own[key] else _contender(question, {**contender.fix, key: value}, contender.processes)


def _shape(contender: Contender) -> tuple[str, int]:
    return contender.fix["arrangement"], contender.fix.get("actors", 0)


def _implementation(contender: Contender) -> str:
    return str(contender.fix["learner_implementation"])


def _contender(question: MappingQuestion, fix: Mapping[str, Any], processes: int) -> Contender | None:
    """A configuration with what the question fixes; None where that is another, does not fit, or no run can have it."""
    if any(question.fix.get(key, value) != value for key, value in fix.items()):
        return None
    free = [key for key in question.free if key not in fix]
    asked = dataclasses.replace(question, fix={**question.fix, **fix}, free=free)
    with contextlib.suppress(ProblemError):  # no records, or not enough cores
        answer = answer_question(asked)
        if isinstance(answer, MappingAnswer) and not why_not_run(answer):
            return Contender(fix, ("--mapping", "-"), json.dumps(input_of_run(asked, answer)), processes, answer)
    return None


@dataclass(frozen=True)
class KeptRace:
    """The file that keeps races of a question, and what they must have in common with it."""

    path: Path
    asked: Mapping[str, Any]

    @classmethod
    def of_question(cls, question: MappingQuestion, free: Collection[str] = ()) -> "KeptRace":
        """Return the file of a question's races; ``free``: keys that were free besides."""
        key, fix = platforms.fingerprint()["key"], {key: question.fix[key] for key in sorted(question.fix)}
        asked = {"workload": question.workload.name, "identity": identity(question.workload), "fix": fix}
        asked |= {"exclude": sorted(question.exclude), "free": sorted({*question.free, *free})}
        return cls(question.results / str(key) / FILE, asked)

    @functools.cached_property
    def machine(self) -> Mapping[str, Any]:
        """This machine, with the evidence of a race that is run now: about a second of reading code."""
        return {**platforms.fingerprint(), "evidence": evidence_here(race_runs.__name__)}

    def race(self, limit: float = 0.0) -> Mapping[str, Any] | None:
        """The race that answers, decided or of as many seconds; None where there is none."""
        kept = find_race(self.path, self.asked, limit, self.machine) if self.path.exists() else None
        return None if kept is None else {**kept.metrics["race"], "utc": kept.utc}

    def keep(self, question: MappingQuestion, race: Mapping[str, Any]) -> None:
        """Keep a race as a record, where that can be done."""
        row, workload = race["rows"][0], question.workload
        middle, low, high = row["hz"]
        commit, dirty = platforms.commit(Path(__file__).parent, is_told=False)
        record = Record(
            source="measured", status="ok" if race["ending"] == "decided" else "unstable", primitive="race of runs",
            contestant=row["name"], op="gradient step", capacity=workload.replay.capacity,
            fanout=workload.replay.fanout, batch=workload.learner.batch, options=dict(self.asked), calls_per_sample=1,
            samples_seconds=tuple(1 / rate for rate in row["samples"]), median_seconds=1 / middle,
            low_seconds=1 / high, high_seconds=1 / low, metrics={"race": {"asked": self.asked, **race}},
            run=Run(commit=commit, dirty=dirty, command=platforms.command_line(), machine=dict(self.machine)),
            utc=platforms.now(),
        )  # fmt: skip
        keep_race(self.path, record)


@contextlib.contextmanager
def race_of(
    question: MappingQuestion,
    raced: Sequence[Contender],
    command: Callable[[Contender, Path], list[str]],
    folder: Path,
    seconds: float,
    free: Collection[str] = (),
) -> Iterator[tuple[Contender, Program, Mapping[str, Any]]]:
    """Race contenders, keep the race, and yield the winner, its program, which trains on, and what the race told."""
    if len(raced) < 2:
        raise ValueError(f"a race needs at least 2 candidates, not {len(raced)}; leave out some --fix, or --decide 0")
    kept, place = KeptRace.of_question(question, free), folder.with_name(f"{folder.name}.race")
    bytes_of = question.workload.replay.capacity * layout_of(question.workload).record_bytes
    programs = [
        Program(
            contender.name, command(contender, place / str(number) / "run"), contender.settings, place / str(number),
            contender.answer.value, bytes_of + PROCESS_BYTES * contender.processes,
        )
        for number, contender in enumerate(raced)
    ]  # fmt: skip

    def progress(spent: float, left: int) -> None:
        print(f"\rracing {left} of {plural(len(raced), 'candidate')}, {spent:.0f} s", end="", file=sys.stderr)

    shown = progress if sys.stderr.isatty() else lambda spent, left: None
    with decided(programs, seconds, shown, lambda winner: settle(winner, folder)) as decision:
        race = _write_race(decision, raced, seconds)
        if race["ending"] in ("decided", "out of time"):
            kept.keep(question, race)
        yield next(contender for contender in raced if contender.name == decision.winner.name), decision.winner, race


def _write_race(decision: Decided, raced: Sequence[Contender], limit: float) -> dict[str, Any]:
    result = decision.result
    rows = rows_of(result) if result else []
    for row in rows:
        contender = next(contender for contender in raced if contender.name == row["name"])
        found = contender.answer
        row |= {"fix": dict(contender.fix), "predicted": [found.value, found.low, found.high]}
    rows.sort(key=lambda row: row["name"] != decision.winner.name)
    ending = decision.reason or (result.ending if result else "")
    seconds = result.seconds if result else 0.0
    load = checkout.read_load()
    return {"limit": limit, "zone": ZONE, "ending": ending, "seconds": seconds, "load": load, "rows": rows}


def raced_rows(race: Mapping[str, Any] | None) -> Iterator[Row]:
    """Yield the configurations of a race as rows, predicted rates next to measured rates; nothing without a race."""
    for row in race["rows"] if race else ():
        ends = dict(zip(("value", "low", "high"), row["hz"] or (), strict=False))
        number = Estimate(**ends, rests_on=Evidence("race", "measured")) if ends else None
        predicted, ratio = row["predicted"], row["ratio"]
        more = dict(zip(("predicted_hz", "predicted_low_hz", "predicted_high_hz"), predicted, strict=True))
        more |= {"status": row["reason"] or row["status"], "pace": 1 / ratio[0] if ratio[0] else None}
        yield Row({"configuration": row["name"]}, number, "gradient steps/s", more)


def follow(program: Program, folder: Path, show: bool) -> int:
    """Wait for a program that trains on, show what it writes where that is wished, and return its exit code."""
    assert program.process is not None  # it has raced
    with (program.folder / "output").open() as output:
        code = None
        while code is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = program.process.wait(LOOK_SECONDS)
            if (written := output.read()) and show:
                print(written.replace(str(program.folder / "run"), str(folder)), end="", flush=True)
    return code


def settle(program: Program, folder: Path) -> None:
    """Give a program that stands still the folder that was asked for, and leave a link where it writes."""
    own = program.folder / "run"
    folder.parent.mkdir(parents=True, exist_ok=True)
    if own.exists():
        own.rename(folder)
    else:  # it has only just been started
        folder.mkdir(exist_ok=True)
    own.symlink_to(folder.resolve(), target_is_directory=True)
