"""Install the libraries whose whole training loops are timed beside ours, into the environment that runs this.

It comes after ``benchmarks.peers.install``, which installs torch where that is no build for GPUs. A library that cannot
be installed is left out with one sentence.
"""

import sys

from benchmarks.peers.install import LeftOutError, pip
from benchmarks.workers import quietly

from . import kind_of, names


def main() -> int:
    """Install all libraries; return 0, however many are left out."""
    for name in names():
        if kind_of(name).alone:
            try:
                _install(name)
            except LeftOutError as reason:
                print(f"{name}: its training loop is not installed, {str(reason).splitlines()[-1]}")
                continue
            print(f"{name}: a training loop")
    return 0


def _install(name: str) -> None:
    """Install a library and see that its loop can be made."""
    if quietly([sys.executable, "-c", "import torch"]).returncode:
        raise LeftOutError("torch is not here")
    pip("install", *kind_of(name).needs)
    pip("install", "--no-deps", *kind_of(name).alone)
    code = f"from benchmarks import loops; loops.make({name!r}).close()"
    made = quietly([sys.executable, "-c", code])
    if made.returncode:
        raise LeftOutError((made.stderr.strip() or "it does not load").splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
