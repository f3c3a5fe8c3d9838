"""Sum trees, and the primitives of training systems that are built on them.

  python -m impls.training --help   train a workload with prioritized replay
  python -m dse --help              choose a tree, or a mapping onto a machine

From Python: impls.make("numba", 1_000_000, fanout=16) makes a tree. The trees are:
"""

import argparse
import sys

from . import names, why_not
from .terminal import answering


def main(arguments: list[str] | None = None) -> int:
    """Print what there is, and which trees can be made here; returns the exit code 0."""
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(prog="python -m impls", description=__doc__, formatter_class=raw).parse_args(arguments)
    print((__doc__ or "").rstrip())
    print()
    for name in names():
        print(f"  {name:8}{why_not(name) or 'can be made here'}")
    return 0


if __name__ == "__main__":
    sys.exit(answering(main))
