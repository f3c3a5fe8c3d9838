"""Sum trees, and the primitives of training systems that are built on them.

  python -m impls warm              compile what trees, replay and learners need, once a machine: a minute
  python -m impls.training --help   train a workload with prioritized replay
  python -m dse --help              choose a tree, or a mapping onto a machine

From Python: impls.make("numba", 1_000_000, fanout=16) makes a tree. The trees are:
"""

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np

from . import make, names, why_not
from .exits import is_foreseen
from .terminal import answering

_FORMS = ((16, "float32"), (16, "float64"), (8, "float32"), (32, "float32"), (64, "float32"))


def main(arguments: list[str] | None = None) -> int:
    """Print what there is, and which trees can be made here, or warm the cache; returns the exit code."""
    if _parser().parse_args(arguments).command:
        return _warm()
    print((__doc__ or "").rstrip())
    print()
    for name in names():
        print(f"  {name:8}{why_not(name) or 'can be made here'}")
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m impls", description=__doc__, formatter_class=raw)
    parser.add_argument("command", nargs="?", choices=["warm"], help="compile kernels, once a machine")
    return parser


def _warm() -> int:
    """Compile what a first use would wait for, and tell on stderr what is compiled; returns the exit code."""
    began = time.monotonic()
    try:
        for what in _compile_all():
            print(f"{time.monotonic() - began:4.0f} s: {what}", file=sys.stderr, flush=True)
    except RuntimeError as error:
        if not is_foreseen(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _compile_all() -> Iterator[str]:
    """Say what is compiled next, and compile it."""
    from . import replay, training  # noqa: PLC0415  # not light
    from .training import learners  # noqa: PLC0415

    for fanout, dtype in _FORMS:
        yield f"the numba tree, K={fanout}, {dtype}"
        tree, where = make("numba", 10_000, fanout=fanout, dtype=dtype), np.arange(2)
        tree.update(where, np.ones(2))
        tree.sample(np.zeros(2))
        tree.get(where)
    yield "the replay"
    replay.make(1_000, replay.Layout((4,), "float32", choices=2), alpha=0.6, epsilon=1e-3)
    for workload in map(training.load, training.names()):
        if not learners.unsuited(learners.PREFERRED, workload):
            yield f"the learner of {workload.name}"
            learners.prepare(workload, learners.PREFERRED)
    yield "all is compiled"


if __name__ == "__main__":
    sys.exit(answering(main))
