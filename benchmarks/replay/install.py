"""Install what whole buffers need beside other libraries' trees, into the environment that runs this.

It comes after ``benchmarks.peers.install``, which installs the libraries themselves and, where that is no build for
GPUs, torch. A buffer whose needs cannot be installed is left out with one sentence.
"""

import sys

from benchmarks.peers.install import LeftOutError, pip
from benchmarks.workers import quietly

from .buffers import kind_of, names


def main() -> int:
    """Install all that is needed; return 0, however many buffers are left out."""
    for name in names():
        if needs := kind_of(name).needs:
            try:
                _install(name, needs)
            except LeftOutError as reason:
                print(f"{name}: not installed, {str(reason).splitlines()[-1]}")
                continue
            print(f"{name}: a buffer")
    return 0


def _install(name: str, needs: tuple[str, ...]) -> None:
    """Install a buffer's needs, and see that it can be made."""
    if quietly([sys.executable, "-c", "import torch"]).returncode:
        raise LeftOutError("torch is not here")
    pip("install", *needs)
    made = quietly([sys.executable, "-c", f"from benchmarks.replay import buffers; buffers.make({name!r}, 100)"])
    if made.returncode:
        raise LeftOutError((made.stderr.strip() or "it does not load").splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
