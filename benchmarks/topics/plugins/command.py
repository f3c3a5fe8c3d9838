"""How much faster do other libraries run on our trees?

Each host's own replay and ours take turns, sample by sample, in one process of an environment that has the host:
make plugins makes these. The records also have the share of a step that calls of the tree take, hence what a tree that
takes no time would give at most. A host that is not there is a record with the reason. Interrupt it as you like: the
same command resumes where it stopped. Records go to results/<machine>/plugins.jsonl.

With --learning: does prioritized replay by ours learn in Stable-Baselines3 as it should? DQN on its own uniform replay
and on ours, by several seeds, to results/<machine>/plugins-learning.jsonl; each run takes minutes.
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dse import learning_runs, stats
from dse.records import Record, RecordError, twins
from impls import training
from impls.training.clock import sample_efficiency

from ...arguments import add_common, add_list, add_names, add_numbers, at_least, list_of, listed, parser_of
from ...libraries.base import OURS, hosts
from ...libraries.sb3 import UNIFORM
from ...run import Stamp, file_of, latest, show
from ...run import run as run_cells
from ...sentinels import Sentinels
from ...timing import Timing
from ...workers import Bounded, ask_once, refusal
from . import PRIMITIVE, STEP, TASKS, TREE, TWIN, Cell, fanout_of, groups

LEARNING_FILE = "plugins-learning.jsonl"
RUN = "plugin run"
KINDS = (UNIFORM, OURS)
RUN_LIMIT_SECONDS = 3_600.0  # of a run


def run_of(task: str, kind: str, seed: int, steps: int) -> Cell:
    """Return a run of a workload by a seed, on a kind of replay, under the names of a record."""
    own, options = training.load(task), {"task": task, "kind": kind, "seed": seed, "steps": steps}
    return Cell("sb3", STEP, options, own.learner.batch, capacity=own.replay.capacity, fanout=fanout_of(kind))


def learn(options: argparse.Namespace, pythons: Sequence[Path]) -> int:
    """Train what is not there yet; print a line a kind; return the exit code."""
    runs = [
        [run_of(task, kind, seed, options.steps or training.load(task).steps)]
        for task in options.workloads
        for seed in options.seeds
        for kind in KINDS
    ]
    path, stamp = file_of(options, LEARNING_FILE), Stamp.of_this_run(__name__, RUN, pythons)
    measure = functools.partial(_trained, stamp=stamp, pythons=pythons)
    tally = run_cells(runs, path, stamp, measure, options, unit="run")
    rows = learning_summary([record for record in stamp.known(path) if record.cell in tally.keys])
    return show(tally, path, options, {"rows": rows}, [*map(_line, rows), ""])


def _trained(runs: Sequence[Cell], stamp: Stamp, pythons: Sequence[Path]) -> Iterator[Record]:
    """Train each of these in a process of its own, by the first interpreter that has the host."""
    for run in runs:
        answer: dict[str, Any] = {"skipped": f"{hosts()['sb3'].module} is not installed; make plugins installs it"}
        for python in pythons:
            answer = ask_once(python, MODULE, RUN_LIMIT_SECONDS, "train", **run.options)
            if "skipped" not in answer:
                break
        yield _record(run, answer, stamp)


def _record(run: Cell, answer: dict[str, Any], stamp: Stamp) -> Record:
    if refused := refusal(answer):
        return stamp.record(run, refused.status, reason=refused.reason)
    seconds = tuple((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise([(0, 0.0), *answer["points"]]))
    if not seconds:
        return stamp.record(run, "skipped", reason=f"{run.options['steps']:,} steps are too few to evaluate")
    threshold = training.load(run.options["task"]).evaluation.solved
    steps, _, means = zip(*answer["points"], strict=True)
    solved = sample_efficiency(steps, means, threshold)
    return stamp.timed(run, Timing(seconds, 1), {}, {**answer, "solved_at": threshold, "solved_steps": solved})


def learning_summary(found: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a row a workload and kind: seeds, those solved, and of each its steps until then and its best mean."""
    kinds: dict[tuple[str, str], list[Record]] = {}
    for record in latest(found):
        kinds.setdefault((record.options["task"], record.options["kind"]), []).append(record)
    rows = []
    for (task, kind), of_kind in kinds.items():
        trained = [record for record in of_kind if record.median_seconds]
        until = [one.metrics["solved_steps"] for one in trained]
        row = {"workload": task, "kind": kind, "seeds": len(of_kind), "trained": len(trained)}
        row |= {"solved": len(until) - until.count(None), "solved_steps": until}
        row |= {"last_steps": [one.metrics["points"][-1][0] for one in trained]}
        rows.append(row | {"best_means": [max(mean for *_, mean in one.metrics["points"]) for one in trained]})
    return rows


def _line(row: dict[str, Any]) -> str:
    ends = zip(row["solved_steps"], row["last_steps"], strict=True)
    steps = (
        learning_runs.write_over_seeds([learning_runs.Value(at or end, not at) for at, end in ends], ",.0f") or "none"
    )
    best = ", ".join(f"{mean:.0f}" for mean in row["best_means"]) or "none"
    lost = f"; {row['seeds'] - row['trained']} without a time" if row["trained"] < row["seeds"] else ""
    solved = f"{row['solved']} of {row['seeds']} solved, steps {steps}"
    return f"{row['workload']}, {row['kind']}: {solved}; best means {best}{lost}"


FILE = "plugins.jsonl"
MODULE = f"{__package__}.worker"
ENVIRONMENTS = (Path(".venv-plugins/hosts/bin/python"), Path(".venv-plugins/rllib/bin/python"))
LIMIT_SECONDS = 600.0  # of a host's task: Python fills a million rows in two minutes
SMOKE = {"capacity": 2_000, "batch": 32, "sample": 0.002, "budget": 0.02, "warmup": 20}


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code: 0 done, 1 where cells failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    pythons = [python for python in options.python if python.exists()]
    if not pythons and not options.dry_run:
        named = ", ".join(map(str, options.python))
        raise RecordError(f"there is no interpreter {named}; install the libraries first: make plugins")
    if options.learning:
        return learn(options, pythons)
    if options.smoke:
        vars(options).update(SMOKE)
    path, asked = file_of(options, FILE), {name: getattr(options, name) for name in SMOKE}
    stamp = Stamp.of_this_run(__name__, PRIMITIVE, pythons, asked)
    cells = list(groups(options.hosts, options.tasks, options.capacity, options.batch))
    where = _where(() if options.dry_run else pythons, options.hosts)
    measure = functools.partial(_measured, stamp=stamp, options=options, where=where)
    sentinels = Sentinels() if options.sentinels and not options.smoke else None
    tally = run_cells(cells, path, stamp, measure, options, unit="cell", sentinels=sentinels)
    found = summary(latest(stamp.known(path)))
    return show(tally, path, options, found, [*lines(found), ""])


def _where(pythons: Sequence[Path], names: Sequence[str]) -> dict[str, Path]:
    """Return the first interpreter that has each host. WorkerError for one that cannot be asked."""
    found: dict[str, Path] = {}
    for python in pythons:
        with Bounded(python, module=MODULE) as worker:
            found = dict.fromkeys(worker.ask("has", names=list(names))["names"], python) | found
    return found


def _measured(
    cells: Sequence[Cell], stamp: Stamp, options: argparse.Namespace, where: dict[str, Path]
) -> Iterator[Record]:
    """Yield the records of a host's task, all measured anew in one process, and that of the A/A twin."""
    name, task, capacity, batch = cells[0].contestant, cells[0].options["task"], cells[0].capacity, cells[0].batch
    host = hosts()[name]
    if name not in where:
        reason = f"{host.module} is not installed in any of these environments; make plugins installs it"
        yield from (stamp.record(cell, "skipped", reason=reason) for cell in cells)
        return
    how = {"sample_seconds": options.sample, "budget_seconds": options.budget, "spare_steps": options.warmup}
    asked: dict[str, Any] = {"name": name, "task": task, "kinds": host.kinds, "capacity": capacity, "batch": batch}
    answer = ask_once(where[name], MODULE, LIMIT_SECONDS, "measure", **asked, seed=options.seed, **how)
    if "failed" in answer:
        yield from (stamp.record(cell, "failed", reason=answer["failed"]) for cell in cells)
        return
    stamp = dataclasses.replace(stamp, machine={**stamp.machine, "packages": answer["packages"]})
    place, notes = {"affinity": answer["affinity"]}, "; ".join(host.limits) or None
    for cell in cells:
        kind = cell.options["kind"]
        if kind in answer["absent"]:
            status, reason = answer["absent"][kind]
            yield stamp.record(cell, status, reason=reason)
            continue
        timed = answer["timed"][kind]
        samples = timed["samples"] if cell.op == STEP else timed["tree"]
        if samples:
            yield stamp.timed(cell, Timing(tuple(samples), timed["calls"]), place, reason=notes)
    if TWIN in answer["timed"]:
        twin, first = answer["timed"][TWIN], next(kind for kind in host.kinds if kind in answer["timed"])
        options_of, timing = {"task": task, "kind": first}, Timing(tuple(twin["samples"]), twin["calls"])
        cell = dataclasses.replace(cells[0], options=options_of, fanout=fanout_of(first), op=STEP)
        yield stamp.timed(cell, timing, place, primitive=f"{PRIMITIVE}_again")


def summary(found: Sequence[Record]) -> dict[str, Any]:
    """Return the summary as JSON takes it: a row for each host, task and kind, and what has no time.

    A share is that of the tree's calls in a step, and ``most`` the speedup of the step without them.
    """
    cells = {
        (record.contestant, record.options["task"], record.options["kind"], record.op): record
        for record in found
        if record.primitive == PRIMITIVE
    }
    rows = []
    for (host, task, kind, op), record in cells.items():
        if op == STEP and record.samples_seconds:
            first = cells.get((host, task, hosts()[host].kinds[0], STEP))
            tree = cells.get((host, task, kind, TREE))
            has_times = bool(first and first.samples_seconds and first is not record)
            share = stats.speedup(tree, record) if tree and tree.samples_seconds else None
            rows.append(
                {
                    "host": host,
                    "task": task,
                    "kind": kind,
                    "seconds": [record.seconds, record.low_seconds, record.high_seconds],
                    "is_unstable": record.status == "unstable",
                    "times": stats.speedup(first, record) if first and has_times else None,
                    "share": share,
                    "most": 1 / (1 - share[0]) if share and share[0] < 1 else None,
                }
            )
    absent = [
        {"host": host, "task": task, "kind": kind, "status": record.status, "reason": record.reason}
        for (host, task, kind, op), record in cells.items()
        if op == STEP and not record.samples_seconds
    ]
    return {"rows": rows, "absent": absent, "noise_floor": stats.noise_floor(twins(found, PRIMITIVE))}


def lines(found: dict[str, Any]) -> list[str]:
    """Return the summary as a table, with what has no time beneath."""
    text = [f"{'host':10}{'task':15}{'kind':18}{'step (us)':>12}{'speedup':>24}{'tree':>8}{'without it':>12}"]
    for row in found["rows"]:
        times = "{:.2f} [{:.2f}, {:.2f}]".format(*row["times"]) if row["times"] else ""
        share = f"{row['share'][0]:.0%}" if row["share"] else ""
        most = f"{row['most']:.2f}" if row["most"] else ""
        step = f"{1e6 * row['seconds'][0]:,.1f}{'*' if row['is_unstable'] else ' '}"
        text.append(f"{row['host']:10}{row['task']:15}{row['kind']:18}{step:>12}{times:>24}{share:>8}{most:>12}")
    text += [f"not timed, {one['host']}, {one['task']}, {one['kind']}: {one['reason']}" for one in found["absent"]]
    floor = f"a step timed twice differs by up to {found['noise_floor']:.1%}" if found["rows"] else "nothing was timed"
    return [*text, f"{floor}; * unstable, its interval is wide; without it: most that a tree could gain"]


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("plugins", __doc__, "--hosts sb3,tianshou", f"tasks:\n{listed(TASKS)}\n")
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
    parser.add_argument("--smoke", action="store_true", help="sizes and seconds so small that the times say nothing")
    parser.add_argument("--no-sentinels", dest="sentinels", action="store_false", help="do not tell disturbances")
    parser.add_argument("--learning", action="store_true", help="train in place of timing")
    trained = "what --learning trains, such as lunarlander_dqn (default: cartpole_dqn)"
    add_list(parser, "workloads", str, default=("cartpole_dqn",), help=trained)
    add_list(parser, "seeds", at_least(0, "seed"), default=(0, 1, 2, 3, 4), help="of --learning (default: 0,1,2,3,4)")
    steps = "environment steps of a run of --learning (default: those of its workload)"
    parser.add_argument("--steps", type=at_least(1, "steps"), help=steps)
    return add_common(parser, seed_of="rows, priorities, weights and order")
