"""Train a workload: act, step, store; every update_interval-th step, learn from a prioritized batch.

  python -m impls.training train cartpole_dqn       a shipped workload, or your own .toml file; one process
  python -m impls.training train cartpole_dqn --arrangement apart --actors 1     actors in processes of their own
  python -m impls.training train cartpole_dqn --adapt     actors and batch are searched while it trains
  python -m impls.training train cartpole_dqn --arrangement copies --processes 2     serial loops whose weights meet
  python -m impls.training train cartpole_dqn --arrangement nodes     actors on the nodes of a Ray cluster
  python -m impls.training train cartpole_dqn --mapping answer.json     what dse recommend --json wrote
  python -m impls.training train cartpole_dqn --resume    continue from the run's last checkpoint, on the same curve;
                                                          with more --steps also once it is done
  python -m impls.training train --help                   the options of a run
  python -m impls.training list                           the shipped workloads, their records and networks
  python -m impls.training keys                           every key of a workload file, with its range and default
  python -m impls.training show cartpole_dqn              a shipped workload's file, to begin your own with
  python -m impls.training init mine                      write mine.toml: the least that trains, every key explained

A run is a folder (--out): curve.csv, episodes.csv, checkpoint.pt, best.pt and summary.json.
"""

import argparse
import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from ..checks import near
from ..terminal import answering, plural
from .arrangement import NODES
from .environments import warn_of_code
from .errors import TrainingError
from .folder import check
from .interrupts import Interrupted, end_with, terminable
from .options import COMMANDS, parser, set_up_answer, setup_of
from .settings import load, names, path_of, template, text_of
from .weights import layout_of, networks
from .workload import NAME, Workload


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 0 done, 2 cannot be done (one sentence says why), 130 interrupted."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] not in (*COMMANDS, "-h", "--help"):
        print(_why_no_command(words), file=sys.stderr)
        return 2
    parser = _parser()
    options = parser.parse_args(words)
    try:
        match options.command:
            case "train":
                with terminable():
                    return _train(options)
            case "list":
                return _list()
            case "show":
                return _show(options.name)
            case "init" | "keys":
                return _init(getattr(options, "name", None), options.algorithm)
        parser.print_help()
        return 0
    except TrainingError as error:
        print("\n".join(f"error: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        told = error if isinstance(error, Interrupted) else Interrupted()
        print(f"\n{told}", file=sys.stderr)
        return told.exit_code


def _why_no_command(words: list[str]) -> str:
    """The error of words that begin with no command, as those before commands had names did."""
    remedy = near(words[0], COMMANDS) or "; see --help"
    if words[0] in names() or words[0].endswith(".toml"):
        remedy = f"; to train it: {shlex.join(['python', '-m', 'impls.training', 'train', *words])}"
    return f"error: {words[0]!r} is none of the commands {', '.join(COMMANDS)}{remedy}"


def _train(options: argparse.Namespace) -> int:
    if options.algorithm is not None:
        raise TrainingError("--algorithm goes with init; a workload's file says which algorithm is its own")
    workload, is_answered = load(options.workload), options.mapping is not None and not options.adapt
    setup = set_up_answer(options.mapping, workload, options) if is_answered else setup_of(workload, options)
    workload, arrangement = setup.workload, setup.arrangement
    if options.parent is None:  # which has said so
        warn_of_code(workload)
    kind = "adapt" if options.adapt else arrangement.name if arrangement.is_parallel else setup.contestant
    folder = options.out or Path("runs") / workload.name / f"{kind}-seed{options.seed}"
    _check_places(workload, options, folder)  # before seconds pass with what follows
    if options.parent is not None:
        end_with(options.parent)
    from . import learners  # noqa: PLC0415  # what computes
    from .run import Plan, start  # noqa: PLC0415

    learners.use_threads(arrangement.threads)
    own = "checkpoint_every", "test_episodes", "seconds", "test_process"
    plan = Plan(folder, **{name: getattr(options, name) for name in own})
    made: dict[str, Any] = {"learner": setup.learner, "policy": setup.policy, "device": setup.device}
    try:
        if options.adapt:
            from .adaptation import adapted  # noqa: PLC0415

            workload, search = adapted(setup, options, folder)
            plan = dataclasses.replace(plan, adaptation=search)
        made |= {"compiled": setup.compiled, "contestant": setup.contestant, "arrangement": arrangement}
        made |= {"cluster": options.cluster} if arrangement.name == NODES else {}
        run = start(workload, plan, seed=options.seed, resume=options.resume, **made)
        try:
            summary = run.run(show=options.show)
        finally:
            run.close()
    except KeyboardInterrupt as error:
        told = error if isinstance(error, Interrupted) else Interrupted()
        if not told.saved:
            kept = (folder / "checkpoint.pt").exists()
            saved = "continue from the last checkpoint: --resume" if kept else "no checkpoint was due yet, begin again"
            told = Interrupted(told.number, saved)
        raise told from None
    except RuntimeError as error:
        if not options.compile or not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        why = str(error).strip().splitlines()[0][:200]
        raise TrainingError(f"torch.compile failed ({why}); install a C++ compiler, or leave out --compile") from error
    if summary and options.json:
        print(json.dumps(summary))
    elif summary:
        print(_summary_text(summary))
        print(f"written to {folder}")
    return 0


def _check_places(workload: Workload, options: argparse.Namespace, folder: Path) -> None:
    """TrainingError unless the run can write to its folder, and draw where it is to."""
    check(folder, options.resume, workload.steps)
    if options.show is not None:
        from .parallel import drawing  # noqa: PLC0415  # shared memory, which not every system has

        drawing.check(workload, options.show, options.resume)


def _summary_text(summary: dict[str, Any]) -> str:
    rates = summary["throughput"]
    tested = summary["test_mean"]
    name, fanout, alpha = (summary[key] for key in ("contestant", "fanout", "alpha"))
    by = f"{name} (K={fanout}), alpha {alpha:g}" if name else summary["algorithm"]
    lines = [
        f"{summary['workload']}, {by}, "
        f"seed {summary['seed']}: {plural(summary['steps'], 'step')}, {plural(summary['updates'], 'gradient step')} in "
        f"{summary['seconds']:,.0f} s",
    ]
    if rates:
        lines.append(
            f"  {rates['sampling_hz']:,.0f} steps/s, {rates['update_hz']:,.0f} updates/s, "
            f"{rates['update_frame_hz']:,.0f} records/s, processor {rates['cpu_percent']:.0f} %"
        )
    if settled := summary.get("settled"):
        taken = plural(settled["updates"], "gradient step")
        lines.append(f"  once it had started: {settled['update_hz']:,.0f} updates/s over {taken}")
    processes = summary.get("processes") or {}
    if "rollouts" in processes:
        lines.append(f"  the model made {plural(processes['rollouts'], 'record')}" + _calibration_text(processes))
    elif processes:
        lines.append(_processes_text(summary, processes))
    if found := summary.get("adaptation"):
        pair = f"{plural(found['actors'], 'actor')}, B = {found['batch']:,}"
        lines.append(f"  adapted: {pair}; the same without a search: {found['command']}")
    if tested is not None:
        lines.append(
            f"  best of the evaluations: {summary['validation_best']:z.1f} at step "
            f"{summary['validation_best_step']:,}; tested on {plural(summary['test_episodes'], 'fresh episode')}: "
            f"{tested:z.1f}"
        )
    return "\n".join(lines)


def _calibration_text(processes: dict[str, Any]) -> str:
    if "within_deviations" not in processes:
        return ""
    near, far = processes["within_deviations"]
    return f"; new changes were within 1 deviation in {near:.0%} (68% expected), within 2 in {far:.0%} (95%)"


def _processes_text(summary: dict[str, Any], processes: dict[str, Any]) -> str:
    on = ", ".join(f"{name} on {_cores_text(cores)}" for name, cores in processes["cores"].items())
    ratio = "no gradient step" if summary["ratio"] is None else f"{summary['ratio']:.3f} steps a gradient step"
    if (nodes := processes.get("nodes")) is not None:
        on = ", ".join(f"{plural(node['steps'], 'step')} on {node['node']}" for node in nodes)
    begun = f"  {summary['arrangement']['name']}: {on}\n  {ratio}; "
    if (met := processes.get("copies")) is not None:
        return begun + (
            ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in met.items()) or "no counts"
        )
    return (
        f"{begun}lead at most {plural(processes['lead'], 'step')}, lag "
        f"{processes['lag']:,}; weights {processes['stale_weights']['mean']:.1f} gradient steps old (at most "
        f"{processes['stale_weights']['most']:,}), batches {processes['stale_batches']['mean']:.1f}; "
        f"{plural(processes['restarts'], 'restart')} of actors"
    )


def _cores_text(cores: list[int]) -> str:
    return f"core{'s' * (len(cores) != 1)} {', '.join(map(str, cores))}" if cores else "any core"


def _list() -> int:
    for name in names():
        workload = load(name)
        parts = ", ".join(
            f"{part} {size.macs:,} MACs {size.parameters:,} parameters" for part, size in networks(workload).items()
        )
        layout = layout_of(workload)
        print(f"{name}: {workload.environment}, {workload.algorithm}, {layout.record_bytes:,} bytes a record; {parts}")
        print(f"    {workload.note}")
    return 0


def _show(name: str) -> int:
    print(text_of(path_of(name)), end="")
    return 0


def _init(name: str | None, algorithm: str) -> int:
    """Print a workload to begin with, or write it to a file of its name where there is none yet."""
    if name is None:
        print(template(algorithm=algorithm), end="")
        return 0
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if not NAME.fullmatch(path.stem):
        raise TrainingError(f"a workload's name is of at most 64 letters, digits, _ and -, not {path.stem!r}")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template(path.stem, algorithm))
    except FileExistsError:
        raise TrainingError(f"{path}: is there already; give another name, or train it as it is") from None
    except OSError as error:
        raise TrainingError(f"{path}: cannot be written ({error.strerror}); give another name") from None
    print(f"written to {path}; train it with: python -m impls.training train {shlex.quote(str(path))}")
    return 0


def _parser() -> argparse.ArgumentParser:
    return parser(__doc__)


if __name__ == "__main__":
    sys.exit(answering(main))
