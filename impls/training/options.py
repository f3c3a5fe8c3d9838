"""The command line of training: its options, their ranges, and what they make of a workload."""

import argparse
import dataclasses
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..terminal import count
from .arrangement import (
    BANK_WEIGHTS,
    BANKED,
    COPIES,
    COPY_SYNCS,
    DYNA,
    NAMES,
    ONLY_COPIES,
    ONLY_DYNA,
    RATIOS,
    SYNCS,
    TRANSPORTS,
    WEIGHTS,
    Arrangement,
)
from .errors import TrainingError
from .learners import SPLIT
from .reading import faults_of, names
from .workload import ALGORITHMS, MOST, TIMED, Workload

RANGES = {
    "fanout": (2, 1 << 20),
    "alpha": (0, 4),
    "steps": (1, MOST),
    "environments": (1, 4096),
    "actors": (1, 4096),
    "batch": (1, 1 << 20),
    "presampled": (0, 65536),
    "learners": (1, 1024),
    "period": (1, 1 << 30),
    "banks": (1, 1024),
    "processes": (1, 1024),
    "shards": (1, 1024),
    "average": (1, 1 << 30),
    "model_workers": (0, 1024),
    "cap": (1, 1 << 30),
    "seconds": (1, 1_000_000_000),
    "seed": (0, 1 << 32),
    "threads": (1, 1024),
    "checkpoint_every": (1, MOST),
    "test_episodes": (0, 1_000_000),
}
_OF_WORKLOAD = {
    "fanout": ("replay", "fanout"),
    "alpha": ("replay", "alpha"),
    "batch": ("learner", "batch"),
    "presampled": ("replay", "presampled"),
    "environments": ("actors", "environments"),
    "actors": ("actors", "count"),
}
_APART = ("learners", "banks", "transport", "weights", "ratio", "period", "weights_of_banks")
_BETWEEN_PROCESSES = ("sync", "strategy", *_APART, *ONLY_COPIES, *ONLY_DYNA)
_NEEDED: tuple[tuple[tuple[str, ...], str, Callable[[Arrangement], bool]], ...] = (
    ((*ONLY_COPIES, *ONLY_DYNA), "--arrangement copies", lambda made: made.name == COPIES),
    (("sync", "strategy"), "--arrangement apart, pipelined or copies", lambda made: made.is_parallel),
    (_APART, "--arrangement apart or pipelined", lambda made: made.is_parallel),
    (("actors", *_APART), "--arrangement apart or pipelined", lambda made: made.name != COPIES),
    (("sync",), "--learners of at least 2", lambda made: made.learners > 1 or made.name == COPIES),
    (("strategy",), "--replay shared", lambda made: made.name != COPIES or made.replay != "local"),
    (("period",), "--sync local", lambda made: made.sync == "local"),
    (("weights_of_banks",), "--banks of at least 2", lambda made: made.banks > 1),
    (("shards", "average"), "--sync server", lambda made: made.sync == "server"),
    (("cap",), "--model-workers of at least 1", lambda made: made.model_workers > 0),
)
"""Options, and what an arrangement must have lest they change nothing."""
_OF_REPLAY = ("contestant", "fanout", "alpha", "presampled", "replay", "strategy", "mapping")
"""Options that change nothing where there is no replay, as for a3c."""
MAPPED = {
    **dict.fromkeys(("arrangement", "actors", "environments", "batch", "presampled", "fanout")),
    **dict.fromkeys(("learners", "learner", "policy")),
    "contestant": "numba",
    "threads": 1,
    "device": "cpu",
    "compile": False,
    "split": False,
}
"""Options that the answer of ``--mapping`` decides, and their values where they are not given."""
_ADAPTING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("actors", "batch", "mapping"), (None,)),
    "arrangement": (None, "apart"),
    "learners": (None, 1),
    "transport": (None, "shared"),
    "contestant": ("numba",),
    "compile": (False,),
}
"""Options that ``--adapt`` decides, and the values that they may have next to it."""
_OF_FOLDER = ("out", "resume", "parent")


@dataclass(frozen=True)
class Setting:
    """What a run trains, by which processes and implementations."""

    workload: Workload
    arrangement: Arrangement
    contestant: str
    learner: str | None
    policy: str | None
    device: str = "cpu"
    compiled: bool = False


def setting_of(workload: Workload, options: argparse.Namespace) -> Setting:
    """The setting that options ask for. TrainingError for one out of range, or options that do not go together."""
    if options.adapt:
        _check_adapting(workload, options)
        options = with_pair(options)
    learner = _learner(options)
    changed = with_options(workload, options)
    name = options.arrangement or (COPIES if workload.algorithm == DYNA else "serial")
    arrangement = arrangement_of(changed, options, name=name, threads=options.threads)
    if learner == SPLIT and arrangement.name == COPIES:
        raise TrainingError("--split is for one learner, not for copies; leave it out, or choose apart")
    by = options.contestant, learner, options.policy
    return Setting(changed, arrangement, *by, options.device, options.compile)


def _learner(options: argparse.Namespace) -> str | None:
    if named := next((name for name in ("learner", "policy") if getattr(options, name) == SPLIT), None):
        raise TrainingError(f"--{named} {SPLIT} is no implementation; leave it out, or give --split for torch's in two")
    if options.split and options.learner is not None:
        raise TrainingError(f"--split and --learner {options.learner} both choose the learner; leave one of them out")
    return SPLIT if options.split else options.learner


def _check_adapting(workload: Workload, options: argparse.Namespace) -> None:
    if workload.algorithm not in TIMED:
        raise TrainingError(
            f"--adapt changes actors apart from a learner and the batch of a replay, by which {workload.algorithm} is "
            f"not trained; leave it out, or train one of {', '.join(TIMED)}"
        )
    for name, allowed in _ADAPTING.items():
        if (value := getattr(options, name)) not in allowed:
            raise TrainingError(
                f"--{name}{'' if value is True else f' {value}'} does not go with --adapt, which searches actors and "
                "batch, apart from one learner, with the shared transport and the tree numba; leave one of the two out"
            )


def with_pair(options: argparse.Namespace, actors: int | None = None, batch: int | None = None) -> argparse.Namespace:
    """The options of a run that has these actors apart, and this batch, without a search."""
    pair = {"adapt": False, "arrangement": "apart", "actors": actors, "batch": batch}
    return argparse.Namespace(**vars(options) | pair)


def command_of(options: argparse.Namespace) -> str:
    """The command that begins a run by these options, in the folder that it has by default."""
    usual = vars(parser(None).parse_args([options.workload])) | {name: getattr(options, name) for name in _OF_FOLDER}
    words = ["python", "-m", "impls.training", options.workload]
    for name, value in vars(options).items():
        if value != usual[name]:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def every_of(text: str) -> int:
    """Gradient steps k of a text; 0 for the word episode."""
    if text != "episode" and count(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1, or the word episode, not 0")
    return 0 if text == "episode" else count(text)


def arrangement_of(workload: Workload, options: argparse.Namespace, **decided: Any) -> Arrangement:
    """The arrangement of what is decided and of the options given, which go first; banks bring their strategy, Dyna-Q
    brings a model worker and the replay that it shares.

    TrainingError for an option that would change nothing, or for what this workload cannot be trained by.
    """
    given = {key: getattr(options, key) for key in _BETWEEN_PROCESSES if getattr(options, key) is not None}
    if given.get("banks", 1) > 1:
        given.setdefault("strategy", BANKED)
    if (workload.algorithm, decided.get("name")) == (DYNA, COPIES) and given.setdefault("model_workers", 1):
        given.setdefault("replay", "shared")
    made = Arrangement(**decided | given)
    if workload.algorithm != DYNA and (idle := next((key for key in ONLY_DYNA if key in given), None)):
        option = idle.replace("_", "-")
        raise TrainingError(f"--{option} changes nothing for {workload.algorithm}; leave it out, or train {DYNA}")
    for keys, needed, has_it in _NEEDED:
        if not has_it(made) and (idle := next((key for key in keys if getattr(options, key) is not None), None)):
            option = idle.replace("_", "-")
            raise TrainingError(f"--{option} changes nothing without {needed}; leave it out, or choose that")
    made.check(workload)
    return made


def with_options(workload: Workload, options: argparse.Namespace) -> Workload:
    """The workload with the options of the command line. TrainingError if one is out of range, or changes nothing."""
    idle = (key for key in _OF_REPLAY if getattr(options, key) not in (None, MAPPED.get(key)))
    if workload.algorithm == "a3c" and (option := next(idle, None)):
        raise TrainingError(f"--{option} is about a replay, which a3c does not have; leave it out")
    check_ranges({name: getattr(options, name) for name in RANGES})
    values = {where: getattr(options, name) for name, where in _OF_WORKLOAD.items()}
    values = {where: one for where, one in values.items() if one is not None}
    if options.batch is not None:
        values["learner", "learning_starts"] = start_of(workload, values)
    return with_values(workload, values, options.steps)


def start_of(workload: Workload, values: Mapping[tuple[str, str], Any]) -> int:
    """The environment steps before the first gradient step: the workload's, or those that fill a batch and storages."""
    batch, *each = (
        values.get((table, key), getattr(getattr(workload, table), key))
        for table, key in (
            ("learner", "batch"),
            *(("actors", key) for key in ("count", "environments", "local_storage")),
        )
    )
    return int(max(workload.learner.learning_starts, batch, math.prod(each)))


def check_ranges(values: Mapping[str, Any]) -> None:
    """TrainingError for the value of an option, by its name, that is out of its range; None is in any."""
    for name, value in values.items():
        least, most = RANGES[name]
        if value is not None and not least <= value <= most:
            bound = f"at most {most:,}" if value > most else f"at least {least:,}"
            raise TrainingError(f"--{name.replace('_', '-')} must be {bound}, not {value}")


def with_values(workload: Workload, values: dict[tuple[str, str], Any], steps: int | None = None) -> Workload:
    """The workload with other values, by (table, key). TrainingError for one that cannot be trained."""
    for (table, key), value in values.items():
        part = dataclasses.replace(getattr(workload, table), **{key: value})
        workload = dataclasses.replace(workload, **{table: part})
    changed = dataclasses.replace(workload, steps=steps or workload.steps)
    if faults := faults_of(changed):
        raise TrainingError(f"{workload.name}: {'; '.join(faults)}")
    starts, interval = workload.learner.learning_starts, workload.learner.update_interval
    if (first := -(-starts // interval) * interval) > changed.steps:
        raise TrainingError(
            f"the first gradient step is after {first:,} environment steps, the run ends after {changed.steps:,}; give "
            "more --steps, or the workload a smaller learning_starts"
        )
    return changed


def parser(about: str | None) -> argparse.ArgumentParser:
    """The parser of the command, with ``about`` as its description."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(prog="python -m impls.training", description=about, formatter_class=raw)
    made.add_argument("workload", help=f"{', '.join(names())}; a .toml file; list; keys; show; init")
    made.add_argument("name", nargs="?", help="with show: the workload; with init: of the file to write")
    made.add_argument("--algorithm", choices=ALGORITHMS, help="with init: of the learner (default: dqn)")
    _add_what_computes(made.add_argument)
    _add_processes(made.add_argument_group("several processes").add_argument)
    _add_folder(made.add_argument_group("how long, and what is kept").add_argument)
    return made


def _add_what_computes(add: Any) -> None:
    suited = "dense, compiled for dense layers on the cpu, or torch (default: dense if suited)"
    add("--contestant", default="numba", metavar="TREE", help="the sum tree (default: %(default)s)")
    add("--learner", metavar="NAME", help=suited)
    by = "the implementation that actors act by, as --learner (default: dense if suited)"
    add("--policy", metavar="NAME", help=by)
    add("--fanout", type=count, metavar="K", help="of the tree (default: the workload's)")
    add("--alpha", type=float, help="exponent of priorities; 0 samples uniformly (default: the workload's)")
    add("--environments", type=count, metavar="E", help="that an actor steps at once (default: the workload's)")
    add("--actors", type=count, metavar="A", help="that step environments (default: the workload's)")
    add("--batch", type=count, metavar="B", help="records of a gradient step (default: the workload's)")
    add("--presampled", type=count, metavar="D", help="batches sampled ahead (default: the workload's)")
    add("--seed", type=int, default=0, help="decides all of a run on one thread (default: %(default)s)")
    add("--threads", type=count, default=1, help="of each learner; more than 1 may not repeat bit for bit (default: 1)")
    add("--split", action="store_true", help="torch's actor and critic, a process each")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="of the learner (default: %(default)s)")
    add("--compile", action="store_true", help="torch.compile the networks; needs a C++ compiler")


def _add_processes(add: Any) -> None:
    def named(flag: str, choices: tuple[str, ...], what: str) -> None:
        add(flag, metavar="NAME", help=f"{what}: {', '.join(choices)} (default: {choices[0]})")

    modes = "serial does everything in one process; apart has actors of their own; pipelined samples ahead in one more"
    add(
        "--arrangement",
        metavar="NAME",
        help=f"of processes: {', '.join(NAMES)} (default: serial, of {DYNA} copies); {modes}",
    )
    mapping = "run what dse recommend --json wrote; - reads it from the standard input"
    add("--mapping", metavar="FILE", help=mapping)
    adapt = "search actors and a batch by measured rates first, then train by the pair found, apart"
    add("--adapt", action="store_true", help=adapt)
    add("--learners", type=count, metavar="L", help="that share the gradient steps (default: 1)")
    syncs = f"how learners combine: {', '.join(SYNCS)} (default: {SYNCS[0]}); how copies' weights meet: "
    add("--sync", metavar="NAME", help=f"{syncs}{', '.join(COPY_SYNCS)} (default: {COPY_SYNCS[0]})")
    add("--period", type=count, metavar="H", help="gradient steps between averages of --sync local (default: 10)")
    add("--banks", type=count, metavar="L", help="of the replay, one for each learner to sample from (default: 1)")
    named("--weights-of-banks", BANK_WEIGHTS, "importance weights of records from a bank")
    add("--strategy", metavar="NAME", help="of locking the shared replay (default: two_lock_checked)")
    named("--transport", TRANSPORTS, "of records from actors to the replay")
    named("--weights", WEIGHTS, "transport of weights from learners to actors")
    named("--ratio", RATIOS, "of environment steps to gradient steps")
    add("--processes", type=count, metavar="P", help="copies, each a serial loop of its own (default: 1)")
    every = "gradient steps of a copy between meetings, or with a server episode (default: 1)"
    add("--every", type=every_of, metavar="K", help=every)
    add("--replay", metavar="NAME", help="of copies: local, shared or cached:n, n records at once (default: local)")
    add("--shards", type=count, metavar="S", help="processes of --sync server (default: 1)")
    add("--average", type=count, metavar="N", help="gradients that a step of a shard is the mean of (default: 1)")
    add("--model-workers", type=count, metavar="W", help=f"of {DYNA}, that learn from a model of it (default: 1)")
    add("--cap", type=count, metavar="C", help=f"of {DYNA}: most simulated updates for each real one (default: 1)")
    add("--test-process", action="store_true", help="evaluate in a process of its own, while training continues")


def _add_folder(add: Any) -> None:
    add("--steps", type=count, metavar="S", help="of the environment (default: the workload's)")
    add("--seconds", type=count, metavar="S", help="end so long after the first step")
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="of the run (default: runs/WORKLOAD/TREE-seedN, or ARRANGEMENT-seedN)",
    )
    add(
        "--resume",
        action="store_true",
        help="continue from the folder's checkpoint; with more --steps also of a run that is done",
    )
    add("--parent", type=int, metavar="PID", help="of the process that starts this one: save and end when that ends")
    every = "steps; taken at an episode's end (default: %(default)s)"
    add("--checkpoint-every", type=count, default=10_000, metavar="S", help=every)
    tests = "of the best weights at the end (default: %(default)s)"
    add("--test-episodes", type=count, default=100, metavar="E", help=tests)
