"""Train a workload in one thread: act, step, store; every update_interval-th step, learn from a prioritized batch.

  python -m impls.training cartpole_dqn                   a shipped workload, or your own .toml file
  python -m impls.training cartpole_dqn --resume          go on from the run's last checkpoint, on the same curve
  python -m impls.training list                           the shipped workloads, their records and networks
  python -m impls.training keys                           every key of a workload file, with its range and default
  python -m impls.training show cartpole_dqn              a shipped workload's file, to begin your own with
  python -m impls.training init mine                      write mine.toml: the least that trains, every key explained

A run is a folder (--out): curve.csv, episodes.csv, checkpoint.pt, best.pt and summary.json.
"""

import argparse
import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

from ..strict_toml import UnreadableError, content
from ..terminal import answering, count, plural
from .errors import TrainingError
from .reading import KIND, faults_of, load, names, path_of
from .sizes import layout_of, networks
from .template import template
from .workload import ALGORITHMS, MOST, NAME, Workload

INTERRUPTED = 130
RANGES = {
    "fanout": (2, 1 << 20),
    "alpha": (0, 4),
    "steps": (1, MOST),
    "environments": (1, 4096),
    "seed": (0, 1 << 32),
    "threads": (1, 1024),
    "checkpoint_every": (1, MOST),
    "test_episodes": (0, 1_000_000),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 0 done, 2 cannot be done (one sentence says why), 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        if options.workload == "list":
            return _list()
        if options.workload == "keys":
            return _keys()
        if options.workload == "show":
            return _show(options.name)
        if options.workload == "init":
            return _init(options.name, options.algorithm or ALGORITHMS[0])
        if options.algorithm is not None:
            raise TrainingError("--algorithm goes with init; a workload's file says which algorithm is its own")
        if options.name is not None:
            raise TrainingError(f"{options.name!r} is one word too many; a run trains one workload, and show shows one")
        return _train(options)
    except TrainingError as error:
        print("\n".join(f"error: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED


def _train(options: argparse.Namespace) -> int:
    workload = _changed(load(options.workload), options)
    try:
        import torch  # noqa: PLC0415  # heavy, and needed only to train
    except ModuleNotFoundError:
        raise TrainingError(
            "training needs the package torch; install the extra with: pip install '.[train]'"
        ) from None
    from . import learners  # noqa: PLC0415  # what computes
    from .run import Plan, start  # noqa: PLC0415  # with torch

    torch.set_num_threads(options.threads)
    learners.use_threads(options.threads)
    folder = options.out or Path("runs") / workload.name / f"{options.contestant}-seed{options.seed}"
    plan = Plan(folder, options.checkpoint_every, options.test_episodes)
    made: dict[str, Any] = {
        "learner": options.learner,
        "policy": options.policy,
        "device": options.device,
        "compiled": options.compile,
    }
    try:
        run = start(workload, plan, contestant=options.contestant, seed=options.seed, resume=options.resume, **made)
        try:
            summary = run.run()
        finally:
            run.close()
    except KeyboardInterrupt:
        kept = (folder / "checkpoint.pt").exists()
        remedy = "go on from the last checkpoint with --resume" if kept else "no checkpoint was due yet, begin again"
        print(f"\ninterrupted; {remedy}", file=sys.stderr)
        return INTERRUPTED
    except RuntimeError as error:
        if not options.compile or not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        why = str(error).strip().splitlines()[0][:200]
        raise TrainingError(f"torch.compile failed ({why}); install a C++ compiler, or leave out --compile") from error
    if summary:
        print(_summary_text(summary))
        print(f"written to {folder}")
    return 0


def _changed(workload: Workload, options: argparse.Namespace) -> Workload:
    """The workload with the options of the command line. TrainingError if one is out of range."""
    for name, (least, most) in RANGES.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            bound = f"at most {most:,}" if value > most else f"at least {least:,}"
            raise TrainingError(f"--{name.replace('_', '-')} must be {bound}, not {value}")
    changes = {name: getattr(options, name) for name in ("fanout", "alpha") if getattr(options, name) is not None}
    replay, steps = dataclasses.replace(workload.replay, **changes), options.steps or workload.steps
    actors = dataclasses.replace(workload.actors, environments=options.environments or workload.actors.environments)
    starts, interval = workload.learner.learning_starts, workload.learner.update_interval
    if (first := -(-starts // interval) * interval) > steps:
        raise TrainingError(
            f"the first gradient step is after {first:,} environment steps, the run ends after {steps:,}; give more "
            "--steps, or the workload a smaller learning_starts"
        )
    changed = dataclasses.replace(workload, replay=replay, steps=steps, actors=actors)
    if faults := faults_of(changed):
        raise TrainingError(f"{workload.name}: {'; '.join(faults)}")
    return changed


def _summary_text(summary: dict[str, Any]) -> str:
    rates = summary["throughput"]
    tested = summary["test_mean"]
    lines = [
        f"{summary['workload']}, {summary['contestant']} (K={summary['fanout']}), alpha {summary['alpha']:g}, "
        f"seed {summary['seed']}: {plural(summary['steps'], 'step')}, {plural(summary['updates'], 'gradient step')} in "
        f"{summary['seconds']:,.0f} s",
    ]
    if rates:
        lines.append(
            f"  {rates['sampling_hz']:,.0f} steps/s, {rates['update_hz']:,.0f} updates/s, "
            f"{rates['update_frame_hz']:,.0f} records/s, processor {rates['cpu_percent']:.0f} %"
        )
    if tested is not None:
        lines.append(
            f"  best of the evaluations: {summary['validation_best']:z.1f} at step "
            f"{summary['validation_best_step']:,}; tested on {plural(summary['test_episodes'], 'fresh episode')}: "
            f"{tested:z.1f}"
        )
    return "\n".join(lines)


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


def _show(name: str | None) -> int:
    if name is None:
        raise TrainingError(f"name a workload to show, one of {', '.join(names())}")
    try:
        print(content(path_of(name), KIND), end="")
    except UnreadableError as error:
        raise TrainingError(f"{name}: {error}") from None
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
    print(f"written to {path}; train it with: python -m impls.training {shlex.quote(str(path))}")
    return 0


def _keys(of: type = Workload, at: str = "") -> int:
    for field in dataclasses.fields(of):
        if dataclasses.is_dataclass(field.type):
            print(f"\n[{field.name}]  {field.type.__doc__}")
            _keys(field.type, f"{field.name}.")  # type: ignore[arg-type]  # a class, as every field's type is
            continue
        meta = field.metadata
        default = (
            "needed" if field.default is dataclasses.MISSING else meta["otherwise"] or f"default {field.default!r}"
        )
        above = "above " if meta.get("above") else ""
        bounds = f"{above}{meta['low']:,} to {meta['high']:,}, " if "low" in meta else ""
        choices = f"{', '.join(meta['choices'])}; " if meta.get("choices") else ""
        print(f"  {field.name:22}{meta['help']} ({choices}{bounds}{default})")
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m impls.training", description=__doc__, formatter_class=raw)
    parser.add_argument("workload", help=f"{', '.join(names())}; a .toml file; list; keys; show; init")
    parser.add_argument("name", nargs="?", help="with show: the workload; with init: of the file to write")
    parser.add_argument("--algorithm", choices=ALGORITHMS, help="with init: of the learner (default: dqn)")
    parser.add_argument("--contestant", default="numba", metavar="TREE", help="the sum tree (default: %(default)s)")
    parser.add_argument(
        "--learner",
        metavar="NAME",
        help="dense, compiled for dense layers on the cpu, or torch (default: dense if suited)",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help="the implementation that actors act by, as --learner (default: dense if suited)",
    )
    parser.add_argument("--fanout", type=count, metavar="K", help="of the tree (default: the workload's)")
    parser.add_argument(
        "--alpha", type=float, help="exponent of priorities; 0 samples uniformly (default: the workload's)"
    )
    parser.add_argument("--steps", type=count, metavar="S", help="of the environment (default: the workload's)")
    parser.add_argument(
        "--environments", type=count, metavar="E", help="that an actor steps at once (default: the workload's)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides all of a run on one thread (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of the run (default: runs/WORKLOAD/TREE-seedN)")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    parser.add_argument(
        "--checkpoint-every",
        type=count,
        default=10_000,
        metavar="S",
        help="steps; taken at an episode's end (default: %(default)s)",
    )
    parser.add_argument(
        "--test-episodes",
        type=count,
        default=100,
        metavar="E",
        help="of the best weights at the end (default: %(default)s)",
    )
    parser.add_argument(
        "--threads", type=count, default=1, help="of the learner; more than 1 may not repeat bit for bit (default: 1)"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="of the learner (default: %(default)s)"
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks; needs a C++ compiler")
    return parser


if __name__ == "__main__":
    sys.exit(answering(main))
