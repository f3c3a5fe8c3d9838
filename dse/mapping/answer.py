"""The answer to a mapping question: what to run where, how fast, how sure, what is next, and what it all rests on.

Letters: E environments an actor steps at once.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..answer import Note, Row
from ..estimate import Estimate, Evidence, Interval, interval_of
from ..platforms.files import HERE
from ..records import how_to_measure
from ..solver.deciding import timed_of
from ..solver.law import LOOP_BOUND, TOO_HIGH, Objective, slowdowns, sum_needs, transfers
from ..solver.problem import LOOP, PARTS, TREE, Part, Problem
from ..solver.queues import run_configuration
from ..solver.solve import Candidate, Infeasible, Search, solve
from ..times.door import Times
from ..times.whole import REFERENCE, what_of
from .alternatives import Chosen, JointUncertainty, choose, source_of
from .build import Built
from .options import implementation_of
from .processes import ExecutionMode, is_here, processes_of, strategy_of

BY: tuple[Part, ...] = ("learner", "actors")
"""The parts that have implementations: gradient steps, and the policy that actors act by."""
ALONE = {"learners": 1, "sync": "", "period": 0, "banks": 1}
"""How learners combine where the details of the learner do not say."""
LAYERS = "layers"
"""The detail of a learner whose layers lie on several devices: a device for each."""
CLOSE = 0.005  # a rate that changes by less is sure enough


@dataclass(frozen=True)
class MappingAnswer:
    """The mapping that was chosen for a question, as the rows and notes of an answer; times are of a gradient step.

    ``epsilon``: as it was asked for. ``machine``: whose records were read, if any; ``machine_note`` says so where
    another machine stands for "this", ``profile_notes`` that the profile is incomplete, or was disturbed; ``results``:
    the folder of those records. ``workload_argument``: the workload's name or file, where the question
    changes no value in it. ``by_environments``: what other numbers of environments would give. ``asked_notes``: on the
    question.
    """

    built: Built
    made: Chosen
    epsilon: float | None = None
    machine: str = ""
    machine_note: Note | None = None
    profile_notes: tuple[Note, ...] = ()
    results: str = ""
    workload_argument: str = ""
    by_environments: tuple[Row, ...] = ()
    asked_notes: tuple[Note, ...] = ()

    @property
    def chosen(self) -> Candidate:
        """The configuration, with its execution mode."""
        return self.made.answer

    @property
    def objective(self) -> Objective:
        """Return the objective that the value is of."""
        return self.made.found.objective

    @property
    def arrangement(self) -> str:
        """The arrangement of the execution mode."""
        return str(self.chosen.mode.arrangement)

    @property
    def workload(self) -> str:
        """Return the name of the workload."""
        return self.built.parts.workload.name

    @property
    def value(self) -> float:
        """The value by the objective."""
        return self.chosen.value

    @property
    def low(self) -> float:
        """The low end of the value."""
        return self.made.doubt.ends(self.chosen)[0]

    @property
    def high(self) -> float:
        """The high end of the value."""
        return self.made.doubt.ends(self.chosen)[1]

    @property
    def interval(self) -> Interval:
        """The meaning of low and high: "95 %" or, where anything that the value rests on was not timed, "factor"."""
        return interval_of([source_of(self.chosen)])

    @property
    def hz(self) -> float:
        """Return the rate, in gradient steps/s."""
        return self.chosen.outcome.hz

    @property
    def question(self) -> dict[str, Any]:
        """Return the question as plain values."""
        parts, found = self.built.parts, self.made.found
        return {
            "platform": parts.platform.name,
            "workload": parts.workload.name,
            "batch": parts.batch,
            "update_interval": parts.workload.learner.update_interval,
            "objective": found.objective,
            "epsilon": found.epsilon,
            "machine": self.machine,
            "results": self.results,
        }

    def details(self, part: Part) -> Mapping[str, Any]:
        """Return the details of the option that was chosen for a part."""
        return self.chosen.configuration.of(part).details

    @functools.cached_property
    def choice(self) -> Row:
        """The row of the mapping: its devices, and its rate, as sure as the least sure of the parts.

        ``distance``: the share by which the value is below ``bound``, that of every part on its fastest option, without
        sharing, transfers or budgets. ``watts``: the limits of all devices in use, each whole. ``runs_here``: whether
        impls.training has a program for the arrangement; several processes share a replay by a locking ``strategy``.
        """
        one, found, parts = self.chosen, self.made.found, self.built.parts
        outcome, used = one.outcome, sum_needs(one.problem, one.configuration)
        is_machine = self.machine and parts.platform.name in (HERE, self.machine)
        options = [option for problem in self.built.problems.values() for option in problem.options["learner"]]
        combined = {key: self.details("learner").get(key, usual) for key, usual in ALONE.items()}
        more = {
            "depth": one.configuration.depth,
            "environments": parts.environments,
            **combined,
            "strategy": strategy_of(self.arrangement, combined["banks"]) if self.processes else "",
            "devices": outcome.devices,
            "watts": outcome.watts,
            "hz": outcome.hz,
            "actor_hz": outcome.actor_hz,
            "learner_hz": max(1 / option.seconds for option in options),
            "bound": found.bound,
            "distance": 1 - one.value / found.bound,
            "configurations": found.configurations,
            "runs_here": self.arrangement == "serial" or bool(self.processes),
            "cores": used[f"{parts.cpu.name}.cores"],
            "cores_there": float(parts.cores),
            "where": self.group_by_device(),
            "workload": parts.workload.name,
            "batch": parts.batch,
            "platform": f"machine {self.machine}" if is_machine else parts.platform.name,
            "bottleneck": self.bottleneck.to_dict(),
        }
        label = {"arrangement": self.arrangement, **{row.label["part"]: row.label["device"] for row in self.parts}}
        return self.made.doubt.row(one, label, "train", more, [row.number["source"] for row in self.parts])

    def group_by_device(self) -> dict[str, list[str]]:
        """Return what each device does, the learner's first; sampling and updating are the tree where both are one's.

        Learners and actor processes are counted.
        """
        chosen, learners = self.chosen.configuration, self.details("learner").get("learners", 1)
        names = {"learner": "learner" if learners == 1 else f"{learners} learners"}
        is_one = chosen.sampling.device == chosen.updating.device
        names |= {"sampling": "tree"} if is_one else {"sampling": "sampling", "updating": "updating"}
        processes = self.details("actors").get("processes", 1)
        names |= {"storage": "records", "actors": "actor" if processes == 1 else f"{processes} actors"}
        grouped: dict[str, list[str]] = {}
        for part, what in names.items():
            devices = dict.fromkeys(device for device, _ in chosen.where[part])
            grouped.setdefault(" and ".join(devices), []).append(what)
        return grouped

    @functools.cached_property
    def front(self) -> tuple[list["MappingAnswer"], list[str]]:
        """(best trades of value, watts and bytes over links, this answer if it is one; devices of unknown watts)."""
        found, unknown = Search(self.built.problems, self.objective).front()
        own, answers = self.chosen.trade(not unknown), list[MappingAnswer]()
        for candidate in found:
            is_own = candidate.trade(not unknown) == own
            answers.append(self if is_own else replace(self, made=replace(self.made, answer=candidate)))
        return answers, unknown

    @functools.cached_property
    def bottleneck(self) -> Note:
        """The engine that is always busy, and the parts that keep it so."""
        outcome, chosen, is_alone = self.chosen.outcome, self.chosen.configuration, self.objective == "training"
        engine = outcome.training_bottleneck if is_alone else outcome.bottleneck
        if engine == LOOP_BOUND:
            return Note("bound_by_batches", {"engine": engine, "depth": chosen.depth})
        options = [chosen.of(part) for part in (LOOP if is_alone else PARTS)]
        on = [option for option in options if engine in {name for _, name in option.where}]
        device = next((device for option in on for device, name in option.where if name == engine), "")
        named: dict[str, Any] = {"engine": engine, "device": device, "parts": [option.part for option in on]}
        if len(on) == 1:
            return Note("bound_by_part", named | {"devices": [device for device, _ in on[0].where]})
        return Note("bound_by_parts" if on else "bound_by_engine", named)

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """All tables: parts, transfers, shares of a step, processes, what was tried, and simulated runs."""
        tried = [
            Row({"tried_for": part, "on": device}, more={"options": count})
            for (part, device), count in self.built.count_options().items()
        ]
        runs = run_configuration(self.chosen.problem, self.chosen.configuration, self.objective != "training")
        simulated = [
            Row({"simulated_with_deviation": run.cv}, more={"rate_hz": run.hz, "low_hz": run.low, "high_hz": run.high})
            for run in runs
        ]
        return (*self.parts, *self.transfers, *self.shares, *self.processes, *tried, *simulated)

    @functools.cached_property
    def parts(self) -> tuple[Row, ...]:
        """Rows of parts, each with its device and its time.

        ``charged_seconds``: what its engine is charged, and each of ``also``, other than its own time where a serial
        loop was timed whole.
        """
        slowdown, rows = slowdowns(self.chosen.problem, self.chosen.configuration.where), list[Row]()
        for option in self.chosen.configuration.options:
            slower, evidence = slowdown[option.part], option.time.rests_on
            time = option.time.scaled(slower / self._beyond)
            if evidence.alone:  # the whole was timed, and this share of it was not
                source, factor = evidence.alone
                time = Estimate.within(time.value, max(time.factor, factor), replace(evidence, source=source))
            more: dict[str, Any] = {
                "implementation": option.name,
                "details": dict(option.details),
                "engine": option.engine,
                "charged_seconds": option.seconds * slower,
                "also": [f"{device} {engine}" for device, engine in option.also],
            }
            rows.append(Row({"part": option.part, "device": option.device}, time, "s", more))
        return tuple(rows)

    @functools.cached_property
    def transfers(self) -> tuple[Row, ...]:
        """Rows of transfers, one for each link; ``waits``: whether a batch waits for the transfer."""
        sent = transfers(self.chosen.problem, self.chosen.configuration.where)
        return tuple(
            Row(
                {"sent": f"{flow.source} to {flow.target}", "by": hop.engine},
                more={"seconds": hop.seconds(flow), "bytes": flow.nbytes, "waits": flow.waits},
            )
            for flow, hop in sent
        )

    @functools.cached_property
    def processes(self) -> tuple[Row, ...]:
        """The processes of several that run it here, which share a replay, and their cores."""
        parts = self.built.parts
        used = {device for option in self.chosen.configuration.options for device, _ in option.where}
        if self.arrangement == "serial" or used != {parts.cpu.name} or not is_here(parts):
            return ()
        counts = self.details("actors").get("processes", 1), self.details("learner").get("learners", 1)
        return tuple(processes_of(parts, self.arrangement, *counts))

    @functools.cached_property
    def shares(self) -> tuple[Row, ...]:
        """The step of a serial loop, the shares of which add up to it; none where parts run at the same time.

        The tree and the storage are the replay's. "the rest" is what actors take beyond policy and environment (local
        storage, weights fetched), and what the whole loop took beyond its parts as each was timed alone, or less.
        """
        spent = [(what, taken) for what, taken in self._spent() if taken] if self.arrangement == "serial" else []
        whole = sum(taken for _, taken in spent)
        return tuple(Row({"of_a_step": what}, more={"seconds": each, "share": each / whole}) for what, each in spent)

    @property
    def _beyond(self) -> float:
        """The slowdown that each part of a serial loop is charged for, over its time alone; 1 where it is not known."""
        return self.built.ratios.get(self.chosen.mode, 1.0) if self.arrangement == "serial" else 1.0

    def _spent(self) -> Iterator[tuple[str, float]]:
        charged = {row.label["part"]: row.more["charged_seconds"] for row in self.parts}
        part = {name: taken / self._beyond for name, taken in charged.items()}
        acting = dict(self._acting(part["actors"]))
        yield "learner", part["learner"]
        yield from acting.items()
        yield "tree", sum(part[name] for name in TREE)
        yield "storage", part["storage"]
        yield "transfers", sum(row.more["seconds"] for row in self.transfers)
        yield "the rest", sum(charged.values()) - sum(part.values()) + part["actors"] - sum(acting.values())

    def _acting(self, whole: float) -> Iterator[tuple[str, float]]:
        """Policy and environment, as far as both were timed alone; where they were not, "acting" as one."""
        parts = self.built.parts
        count, steps = parts.environments, parts.workload.learner.update_interval
        policy = what_of("inference act", implementation_of(self.details("actors")))
        tried = ((policy, count), (what_of("env step", environments=count), 1))
        timed = [time for what, size in tried if parts.table and (time := parts.table.time(what, size))]
        if parts.stated("actors", parts.cpu) or len(timed) < len(tried):
            yield "acting", whole
            return
        spent = [steps / count * time.value for time in timed]
        fits = min(1.0, whole / sum(spent))  # timed alone, both may take a little more than in an actor
        yield from zip(("policy", "environment"), (fits * each for each in spent), strict=True)

    @functools.cached_property
    def others(self) -> tuple[Row, ...]:
        """Rows of alternatives: tied mappings, the next best, then other implementations and numbers."""
        rows = list(map(self.made.other, self.made.ties))
        if self.made.best_other_mapping and (other := self.made.other(self.made.best_other_mapping)) not in rows:
            rows.append(replace(other, says="next_best", more={**other.more, "is_tied": False}))
        return (*rows, *self.by_implementation(), *self.by_learners(), *self.by_environments)

    def by_implementation(self) -> list[Row]:
        """Return the rate of each implementation of learner and policy, the fastest first; none without a choice.

        Of the one by which the choice learns and acts, it is that rate.
        """
        options = (
            option for problem in self.built.problems.values() for part in BY for option in problem.options[part]
        )
        names = sorted({implementation_of(option.details) for option in options})
        own, rates = {implementation_of(self.details(part)) for part in BY}, list[Row]()
        for name in names if len(names) > 1 else ():
            if own == {name}:
                rates.append(self.made.doubt.row(self.chosen, {"implementation": name}))
            elif rate := rate_of(self.built, self.objective, self.epsilon, ("implementation",), name):
                rates.append(rate)
        return sorted(rates, key=lambda rate: -float(rate.number["value"])) if len(rates) > 1 else []

    def by_learners(self) -> Iterator[Row]:
        """Yield the rate of each other number of learners, where several were tried."""
        groups: dict[int, dict[ExecutionMode, Problem]] = {}
        for mode, problem in self.built.problems.items():
            count = problem.options["learner"][0].details.get("learners", 1)
            groups.setdefault(count, {})[mode] = problem
        groups.pop(self.details("learner").get("learners", 1), None)
        for _, problems in sorted(groups.items()):
            built = replace(self.built, problems=problems)
            if rate := rate_of(built, self.objective, self.epsilon, ("learners", "sync")):
                yield rate

    @functools.cached_property
    def decides(self) -> tuple[Row, ...]:
        """Rows of times at an end of their interval; those first at which another mapping is better."""
        return tuple(self.made.decides(self.built.problems))

    @functools.cached_property
    def sources(self) -> tuple[Evidence, ...]:
        """All that the value rests on."""
        ids = dict.fromkeys(timed.rests_on.id for timed in timed_of(self.chosen))
        return tuple(self.built.rests_on(evidence_id, self.chosen.configuration) for evidence_id in ids)

    @functools.cached_property
    def measure_next(self) -> Evidence | None:
        """The evidence whose interval moves the decision most, or else the predicted rate."""
        for row in self.decides:
            is_moved = row.says or abs(math.log(row.more["value"] / self.chosen.value)) > CLOSE
            if is_moved and row.more["evidence"] in self.built.evidence:
                return self.built.rests_on(row.more["evidence"], self.chosen.configuration)
        return None

    @functools.cached_property
    def decide(self) -> Evidence | None:
        """The evidence to measure to tell the choice from tied mappings, or from the next best."""
        evidence = self.made.decide
        return evidence and self.built.rests_on(evidence.id, self.chosen.configuration)

    @functools.cached_property
    def notes(self) -> tuple[Note, ...]:
        """Notes on what the rate counts and leaves out; warnings where the answer is to another question."""
        return (*self.asked_notes, *_profile_notes(self.built.parts), *self._notes())

    def _notes(self) -> Iterator[Note]:
        parts, one, chosen = self.built.parts, self.chosen, self.chosen.configuration
        quoted = one.problem.slowdown.keys() & parts.quoted_slowdowns.keys()
        for part, factor in slowdowns(one.problem, chosen.where).items():
            device, is_other = chosen.of(part).device, implementation_of(self.details(part)) != REFERENCE
            values = {"part": part, "device": device, "factor": factor, "timed_with": REFERENCE}
            if factor != 1:
                trees = {(part, other, device) for other in TREE if chosen.of(other).device == device}
                kind = "slowdown_quoted" if trees & quoted else "slowdown_of_other" if is_other else "slowdown"
                yield Note(kind, values)
        if one.mode.in_turns and chosen.depth:
            yield Note("depth_gains_nothing", {"depth": chosen.depth})
        if not one.mode.in_turns and chosen.depth == 0:
            yield Note("nothing_overlaps")
        if not one.mode.in_turns:
            yield Note("rate_is_bound", {"too_high": {f"D = {ahead}": share for ahead, share in TOO_HIGH.items()}})
        if self._beyond != 1:
            yield Note("whole_loop", {"ratio": self._beyond})
        is_every_actor = self.details("actors").get("processes") == parts.workload.actors.count
        if is_every_actor and one.outcome.bottleneck == chosen.actors.engine != chosen.learner.engine:
            yield Note("actors_have_processes", {"actors": parts.workload.actors.count})
        if chosen.sampling.device != chosen.updating.device:
            yield Note("tree_is_parted", level="warning")
        if parts.environments > 1:
            yield Note("several_environments", {"environments": parts.environments}, "warning")
        if self.objective == "per_watt":
            yield Note("watts_are_limits")
        yield from self.built.notes(chosen)

    def describe_layers(self) -> Iterator[Note]:
        """Yield which layers lie where, or that the learner is whole; nothing where no split was tried."""
        problem, chosen = self.chosen.problem, self.chosen.configuration.learner
        every = [option for other in self.built.problems.values() for option in other.options["learner"]]
        splits = [option for option in every if LAYERS in option.details]
        if not splits:
            return
        alone = [option for option in problem.options["learner"] if LAYERS not in option.details and not option.also]
        is_split = LAYERS in chosen.details
        split = chosen if is_split else min(splits, key=lambda option: option.seconds)
        whole = min(alone, key=lambda option: option.seconds) if is_split else chosen
        there = [device for device, _ in split.where]  # of equal devices those that it has, whichever it was stated for
        names = [next(at for at in there if at in problem.class_of(name)) for name in split.details[LAYERS]]
        values = {"layers": names, "split_seconds": split.seconds, "whole_seconds": whole.seconds}
        yield Note("layers_are_split" if is_split else "layers_are_whole", values | {"device": whole.device}, "first")


def _profile_notes(parts: Times) -> Iterator[Note]:
    """Yield whether the records are of another shape of the workload, or lack its profile."""
    table = parts.table
    if table is None:
        yield Note("no_records", {"platform": parts.platform.name})
    elif table.differs:
        yield Note("profile_differs", {"workload": table.workload, "differs": table.differs}, "warning")
    if table and not table.rows:
        command = how_to_measure(f"profile --workload {parts.workload_word}")
        yield Note("no_profile", {"workload": parts.workload.name, "how": command}, "warning")


def rate_of(
    built: Built, objective: Objective, epsilon: float | None, label: Sequence[str], by: str = ""
) -> Row | None:
    """Return the best rate of a problem, with learner and policy ``by`` an implementation; None where nothing fits.

    ``label``: which of its implementation, learners, sync and environments tell it from others.
    """
    problems = {mode: own for mode, problem in built.problems.items() if (own := _by(problem, by))}
    found = solve(problems, objective, epsilon) if problems else None
    if found is None or isinstance(found, Infeasible):
        return None
    known = {**ALONE, **found.choice.learner.details, "environments": built.parts.environments}
    known["implementation"] = by
    return JointUncertainty(objective, found.epsilon).row(found.answer, {name: known[name] for name in label})


def _by(problem: Problem, name: str) -> Problem | None:
    """The problem with the options of an implementation; None where a part has none."""
    for part in BY if name else ():
        options = [one for one in problem.options[part] if implementation_of(one.details) == name]
        if not options:
            return None
        problem = problem.having(part, *options)
    return problem


@dataclass(frozen=True)
class Shortage:
    """Why nothing fits: each entry of ``repairs`` would be enough, budgets as (have, need) by name."""

    platform: str
    workload: str
    repairs: tuple[Mapping[str, tuple[float, float]], ...]
    no_links: tuple[tuple[str, str], ...]
    machine: str = ""
    machine_note: Note | None = None
    profile_notes: tuple[Note, ...] = ()
    results: str = ""


def build_answer(built: Built, objective: Objective, epsilon: float | None = None) -> MappingAnswer | Shortage:
    """The best mapping with its alternatives and how sure it is, or what lacks for any to fit.

    What is statistically tied with the best counts as equally good (``alternatives.py``); with an epsilon just that.
    """
    made = choose(built.problems, objective, epsilon)
    return _shortage(built, made) if isinstance(made, Infeasible) else MappingAnswer(built, made, epsilon)


def _shortage(built: Built, result: Infeasible) -> Shortage:
    repairs = [missing.budgets for missing in result.repairs if missing.budgets]
    links = {way for missing in result.repairs for way in missing.ways}
    unique: dict[tuple[str, ...], Mapping[str, tuple[float, float]]] = {}
    for repair in sorted(repairs, key=lambda repair: (len(repair), _excess(repair))):
        if not any(set(names) <= set(repair) for names in unique):  # of the same budgets, the least that would do
            unique[tuple(repair)] = repair
    return Shortage(built.parts.platform.name, built.parts.workload.name, tuple(unique.values()), tuple(sorted(links)))


def lacking(shortage: Shortage) -> list[str]:
    """List what would be enough, a line each: budgets, bytes in GB or MB, then links that are not there."""
    budgets = [" and ".join(_amounts(name, *pair) for name, pair in one.items()) for one in shortage.repairs]
    return [*budgets, *(f"no chain of links from {source} to {target}" for source, target in shortage.no_links)]


def split_unit(budget: str) -> tuple[str, bool]:
    """Return the name of a budget without its unit, and whether that is bytes."""
    name, unit, _ = budget.partition("_bytes")
    return name, unit != ""


def _amounts(budget: str, have: float, need: float) -> str:
    name, is_bytes = split_unit(budget)
    if not is_bytes:
        return f"{name}: have {have:,.5g}, need {need:,.5g}"
    unit, size = ("GB", 1e9) if need >= 1e9 else ("MB", 1e6)
    return f"{name}: have {have / size:,.4g} {unit}, need {need / size:,.4g} {unit}"


def _excess(repair: Mapping[str, tuple[float, float]]) -> float:
    return max(need / have if have else math.inf for have, need in repair.values())
