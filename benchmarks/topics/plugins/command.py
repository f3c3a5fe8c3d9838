"""How much faster do other libraries run on our trees?

Each host's own replay and ours take turns, sample by sample, in one process of an environment that has the host:
make plugins makes these. The records also have the share of a step that calls of the tree take, hence what a tree that
takes no time would give at most. A host that is not there is a record with the reason. Interrupt it as you like: the
same command resumes where it stopped. Records go to results/<machine>/plugins.jsonl.

With --learning: does prioritized replay by ours learn in Stable-Baselines3 as it should? DQN on its own uniform replay
and on ours, by several seeds, to results/<machine>/plugins-learning.jsonl; each run takes minutes.
"""

import dataclasses
import itertools
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse import learning_runs, stats
from dse.records import Record, RecordError, twins
from impls import training
from impls.terminal import aligned
from impls.training.clock import sample_efficiency

from ...arguments import add_list, add_names, add_numbers, at_least, list_of, listed
from ...libraries.base import OURS, hosts
from ...libraries.sb3 import UNIFORM
from ...timing import Timing
from ...topic import Topic
from ...workers import Bounded, ask_once, refusal
from . import STEP, TASKS, TREE, TWIN, Cell, fanout_of, groups

MODULE = f"{__package__}.worker"
ENVIRONMENTS = (Path(".venv-plugins/hosts/bin/python"), Path(".venv-plugins/rllib/bin/python"))
LIMIT_SECONDS = 600.0  # of a host's task: Python fills a million rows in two minutes
RUN_LIMIT_SECONDS = 3_600.0
SMOKE = {"capacity": 2_000, "batch": 32, "sample": 0.002, "budget": 0.02, "warmup": 20}
KINDS = (UNIFORM, OURS)  # that are trained


class Plugins(Topic):
    """The kinds of replay of a host that take turns at a task; with ``--learning`` runs in their place."""

    primitive = "plugin"
    example = "--hosts sb3,tianshou"
    epilog = f"tasks:\n{listed(TASKS)}\n"
    seed_of = "rows, priorities, weights and order"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the hosts and tasks, how long each is timed, and what is trained."""
        add_names(parser, "hosts", "host", hosts())
        add_names(parser, "tasks", "task", TASKS, "listed below")
        paths = "interpreters that have the hosts; of several, the first that has a host runs it"
        parser.add_argument("--python", type=list_of(Path), default=ENVIRONMENTS, metavar="PATH,..", help=paths)
        add_numbers(
            parser,
            capacity=(1_000_000, "rows N of the buffer that is timed alone"),
            batch=(256, "rows B of its sample"),
            sample=(0.05, "seconds of a sample"),
            budget=(3.0, "seconds of sampling a cell, 11 samples at least"),
            warmup=(500, "steps of a training loop that learns, before it is timed"),
        )
        smoke = "sizes and seconds so small that the times say nothing"
        parser.add_argument("--smoke", action="store_true", help=smoke)
        parser.add_argument("--no-sentinels", dest="sentinels", action="store_false", help="do not tell disturbances")
        parser.add_argument("--learning", action="store_true", help="train in place of timing")
        trained = "what --learning trains, such as lunarlander_dqn (default: cartpole_dqn)"
        add_list(parser, "workloads", str, default=("cartpole_dqn",), help=trained)
        seeds = "of --learning (default: 0,1,2,3,4)"
        add_list(parser, "seeds", at_least(0, "seed"), default=(0, 1, 2, 3, 4), help=seeds)
        steps = "environment steps of a run of --learning (default: those of its workload)"
        parser.add_argument("--steps", type=at_least(1, "steps"), help=steps)

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self.libraries = [python for python in options.python if python.exists()]
        if not self.libraries and not options.dry_run:
            named = ", ".join(map(str, options.python))
            raise RecordError(f"there is no interpreter {named}; install the libraries first: make plugins")
        vars(options).update(SMOKE if options.smoke else {})
        self.asked = {name: getattr(options, name) for name in SMOKE}
        self.has_sentinels = options.sentinels and not options.smoke
        self._where: dict[str, Path] = {}

    @property
    def file(self) -> str:
        """Name of the file of records."""
        return "plugins-learning.jsonl" if self.options.learning else "plugins.jsonl"

    def parts(self) -> Sequence[Topic]:
        """Return the runs where these are asked for."""
        return [_Learning(self.options)] if self.options.learning else [self]

    def cells(self) -> list[list[Cell]]:
        """Return the kinds of each host and task."""
        return list(groups(self.options.hosts, self.options.tasks, self.options.capacity, self.options.batch))

    def open(self, stack: ExitStack) -> None:
        """Find the first interpreter that has each host. WorkerError for one that cannot be asked."""
        for python in self.libraries:
            with Bounded(python, module=MODULE) as worker:
                here = worker.ask("has", names=list(self.options.hosts))["names"]
            self._where = dict.fromkeys(here, python) | self._where

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of a host's task, all measured in one process, and that of the A/A twin."""
        shape, options = cells[0], self.options
        name, task = shape.contestant, shape.options["task"]
        host, python = hosts()[name], self._where.get(name)
        absent = f"{host.module} is not installed in any of these environments; make plugins installs it"
        asked: dict[str, Any] = {"name": name, "task": task, "kinds": host.kinds, "seed": options.seed}
        asked |= {"capacity": shape.capacity, "batch": shape.batch, "spare_steps": options.warmup}
        asked |= {"sample_seconds": options.sample, "budget_seconds": options.budget}
        answer = ask_once(python, MODULE, LIMIT_SECONDS, "measure", **asked) if python else {"skipped": absent}
        if refused := refusal(answer):
            yield from (self.stamp.record(cell, refused.status, reason=refused.reason) for cell in cells)
            return
        stamp, timed = self.stamp.for_packages(answer["packages"]), answer["timed"]
        place, notes = {"affinity": answer["affinity"]}, "; ".join(host.limits) or None
        for cell in cells:
            kind = cell.options["kind"]
            if kind in answer["absent"]:
                status, reason = answer["absent"][kind]
                yield stamp.record(cell, status, reason=reason)
            elif samples := timed[kind]["samples" if cell.op == STEP else "tree"]:
                yield stamp.timed(cell, Timing(tuple(samples), timed[kind]["calls"]), place, reason=notes)
        if twin := timed.get(TWIN):
            first = next(kind for kind in host.kinds if kind in timed)
            again = {"options": {"task": task, "kind": first}, "fanout": fanout_of(first), "op": STEP}
            timing = Timing(tuple(twin["samples"]), twin["calls"])
            yield stamp.timed(dataclasses.replace(shape, **again), timing, place, primitive=f"{self.primitive}_again")

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the steps with their trees, or what was learned."""
        if self.options.learning:
            return self.parts()[0].summarize(found)
        asked = {self.key(cell) for group in self.cells() for cell in group}
        summary = summarize([one for one in found if one.cell in asked or one.primitive != self.primitive])
        return summary, [*_write(summary), ""]


def summarize(found: Sequence[Record]) -> dict[str, Any]:
    """Return the summary as JSON takes it: a row for each host, task and kind, and what has no time.

    A share is that of the tree's calls in a step, and ``most`` the speedup of the step without them.
    """
    own = [record for record in found if record.primitive == Plugins.primitive]
    cells = {(cell.contestant, cell.options["task"], cell.options["kind"], cell.op): cell for cell in own}
    rows, absent = [], []
    for (host, task, kind, op), record in cells.items():
        named = {"host": host, "task": task, "kind": kind}
        if op == STEP and not record.samples_seconds:
            absent.append({**named, "status": record.status, "reason": record.reason})
        elif op == STEP:
            first = cells.get((host, task, hosts()[host].kinds[0], STEP), record)
            tree = cells.get((host, task, kind, TREE))
            share = stats.speedup(tree, record) if tree and tree.samples_seconds else None
            row = {"seconds": [record.seconds, record.low_seconds, record.high_seconds]}
            row |= {"is_unstable": record.status == "unstable", "share": share, **named}
            is_other = first is not record and first.samples_seconds
            row |= {"times": stats.speedup(first, record) if is_other else None}
            rows.append(row | {"most": 1 / (1 - share[0]) if share and share[0] < 1 else None})
    return {"rows": rows, "absent": absent, "noise_floor": stats.noise_floor(twins(found, Plugins.primitive))}


def _write(found: dict[str, Any]) -> Iterator[str]:
    """Write the summary as a table, with what has no time beneath."""
    table = [("host", "task", "kind", "step (us)", "speedup", "tree", "without it")]
    for row in found["rows"]:
        step = f"{1e6 * row['seconds'][0]:,.1f}{'*' * row['is_unstable']}"
        times = "{:.2f} [{:.2f}, {:.2f}]".format(*row["times"]) if row["times"] else ""
        share, most = f"{row['share'][0]:.0%}" if row["share"] else "", f"{row['most']:.2f}" if row["most"] else ""
        table.append((row["host"], row["task"], row["kind"], step, times, share, most))
    yield from aligned(table)
    yield from (f"not timed, {row['host']}, {row['task']}, {row['kind']}: {row['reason']}" for row in found["absent"])
    floor = f"a step timed twice differs by up to {found['noise_floor']:.1%}" if found["rows"] else "nothing was timed"
    yield f"{floor}; * unstable, its interval is wide; without it: most that a tree could gain"


class _Learning(Topic):
    """Runs of a workload by a seed, on Stable-Baselines3's own replay and on ours."""

    primitive, unit, has_sentinels = "plugin run", "run", False

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self.libraries = [python for python in options.python if python.exists()]

    def cells(self) -> list[list[Cell]]:
        """Return the runs, each a group."""
        asked = itertools.product(self.options.workloads, self.options.seeds, KINDS)
        return [[self._cell(*run)] for run in asked]

    def _cell(self, task: str, seed: int, kind: str) -> Cell:
        own = training.load(task)
        options = {"task": task, "kind": kind, "seed": seed, "steps": self.options.steps or own.steps}
        return Cell("sb3", STEP, options, own.learner.batch, capacity=own.replay.capacity, fanout=fanout_of(kind))

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Train each of these in a process of its own, by the first interpreter that has the host."""
        for run in cells:
            answer: dict[str, Any] = {"skipped": f"{hosts()['sb3'].module} is not installed; make plugins installs it"}
            for python in self.libraries:
                if "skipped" in answer:
                    answer = ask_once(python, MODULE, RUN_LIMIT_SECONDS, "train", **run.options)
            points = answer.get("points", ())
            seconds = tuple((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise([(0, 0.0), *points]))
            if refused := refusal(answer):
                yield self.stamp.record(run, refused.status, reason=refused.reason)
            elif not seconds:
                reason = f"{run.options['steps']:,} steps are too few to evaluate"
                yield self.stamp.record(run, "skipped", reason=reason)
            else:
                solved = training.load(run.options["task"]).evaluation.solved
                steps, _, means = zip(*points, strict=True)
                until = {"solved_at": solved, "solved_steps": sample_efficiency(steps, means, solved)}
                yield self.stamp.timed(run, Timing(seconds, 1), {}, answer | until)

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return a row a workload and kind: seeds, those solved, and of each its steps until then and its best mean."""
        asked = {self.key(cell) for (cell,) in self.cells()}
        kinds: dict[tuple[str, str], list[Record]] = {}
        for record in found:
            if record.cell in asked:
                kinds.setdefault((record.options["task"], record.options["kind"]), []).append(record)
        rows = []
        for (task, kind), runs in kinds.items():
            trained = [record.metrics for record in runs if record.median_seconds]
            until = [run["solved_steps"] for run in trained]
            row = {"workload": task, "kind": kind, "seeds": len(runs), "trained": len(trained)}
            row |= {"solved": len(until) - until.count(None), "solved_steps": until}
            row |= {"last_steps": [run["points"][-1][0] for run in trained]}
            rows.append(row | {"best_means": [max(mean for *_, mean in run["points"]) for run in trained]})
        return {"rows": rows}, [*map(_write_kind, rows), ""]


def _write_kind(row: dict[str, Any]) -> str:
    ends = zip(row["solved_steps"], row["last_steps"], strict=True)
    values = [learning_runs.Value(at or end, not at) for at, end in ends]
    steps = learning_runs.write_over_seeds(values, ",.0f") or "none"
    best = ", ".join(f"{mean:.0f}" for mean in row["best_means"]) or "none"
    lost = f"; {row['seeds'] - row['trained']} without a time" if row["trained"] < row["seeds"] else ""
    solved = f"{row['solved']} of {row['seeds']} solved, steps {steps}"
    return f"{row['workload']}, {row['kind']}: {solved}; best means {best}{lost}"
