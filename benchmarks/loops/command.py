"""How fast are whole training loops, ours beside other libraries'?

CartPole-v1 by DQN, as the shipped workload cartpole_dqn has it: the same network, batch, buffer and learning rate, one
gradient step an environment step, on one core. Every loop is in a process of its own and takes blocks of time in turns
with the others. A loop whose library is not installed, that has another network or another ratio of gradient steps is a
record with the reason. Records go to results/<machine>/training-peers.jsonl; each run measures all anew, for only times
of one run are compared.

clean   the 10th percentile of the times of steps in a block: steps that nothing disturbed
median  their median
cpu     CPU time of the process over the steps of a block
"""

import argparse
import functools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from dse import platforms, records
from dse.records import Measurement

from ..arguments import add_common, add_list, add_numbers, add_python, one_of, parser_of
from ..run import Stamp, file_of
from . import cleanrl_trainer, kind_of, names, summary
from .crew import PRIMITIVE, Loop, Member

FILE = "training-peers.jsonl"
ROUNDS, BLOCK_SECONDS, WARM_UP = 15, 1.0, 1_500


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code: 0 done, 1 where loops failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    one_of(options.contestants or (), names())
    if options.cleanrl:
        os.environ[cleanrl_trainer.FILE] = str(options.cleanrl.resolve())
    chosen = [name for name in names() if name in (options.contestants or names())]
    loops = [Loop(name, count) for name in chosen for count in kind_of(name).environments]
    path = file_of(options.results, FILE)
    with records.Writer(path) as writer:
        for record in _measured(loops, options):
            writer.append(record)
    found = summary.of(latest(path))
    print(json.dumps({"file": str(path), **found}) if options.json else "\n".join([*summary.lines(found), str(path)]))
    failed = [f"{row['loop']}, {row['reason']}" for row in found["absent"] if row["status"] == "failed"]
    if failed:
        print(f"error: {len(failed)} failed, such as {failed[0]}", file=sys.stderr)
    return 1 if failed else 0


def latest(path: Path) -> list[Measurement]:
    """Return the records of the latest run in a file: those of the last moment."""
    found = [record for record in records.read_file(path) if record.primitive.startswith(PRIMITIVE)]
    return [record for record in found if record.utc == max(one.utc for one in found)]


def _measured(loops: Sequence[Loop], options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the records of all loops, and of an A/A twin of the first that runs."""
    stamp, rng = Stamp.of_this_run(PRIMITIVE), np.random.default_rng(options.seed)
    with ExitStack() as stack:
        start = functools.partial(Member.start, stack=stack, python=options.python, seed=options.seed)
        members = [Member(loop, stamp) for loop in loops]
        for at, member in enumerate(members, 1):
            _told(options, f"{at} of {len(members)}: {member.loop.label}")
            start(member, warm_up=options.warmup)
            stack.callback(member.end)
        twin = next((Member(member.loop, stamp) for member in members if member.reason is None), None)
        twins = [twin] if twin else []
        for member in twins:
            start(member, warm_up=options.warmup)
            stack.callback(member.end)
        running = [member for member in (*members, *twins) if member.reason is None]
        seconds = options.rounds * options.block * len(running)
        _told(options, f"{options.rounds} rounds of {len(running)} loops, {seconds:.0f} s")
        for _ in range(options.rounds):
            for at in rng.permutation(len(running)):
                running[at].run(options.block)
    utc = platforms.now()
    for member in (*members, *twins):
        yield from member.records(utc, again=member in twins)


def _told(options: argparse.Namespace, sentence: str) -> None:
    if not options.json:
        print(sentence, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("peers --training", __doc__, "--contestants fanout,tianshou")
    add_list(parser, "contestants", str, help=f"of {', '.join(names())} (default: all)")
    add_numbers(
        parser,
        rounds=(ROUNDS, "blocks of each loop"),
        block=(BLOCK_SECONDS, "seconds of a block"),
        warmup=(WARM_UP, "environment steps before the first block, the first 1,000 without gradient steps"),
    )
    add_python(parser)
    cleanrl = "a copy of cleanrl's dqn_jax.py, which is in no current package"
    parser.add_argument("--cleanrl", type=Path, metavar="FILE", help=cleanrl)
    return add_common(parser, seed_of="environments, weights and order")
