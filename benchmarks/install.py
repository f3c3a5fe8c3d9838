"""Install the libraries that are timed with ours into the environment that runs this, each on its own.

After their trees comes what their whole buffers and training loops need besides, for which torch must be there. What
cannot be installed is omitted with one sentence. No build of torch for GPUs is pulled: it weighs gigabytes, and
nothing here would use it.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from . import loops
from .peers import adapter, names
from .replay import buffers
from .workers import environment, install_into, quietly

CONSTRAINTS = Path(__file__).parent / "peers" / "constraints.txt"
BUILDS_FOR_GPUS = ("nvidia-", "cuda-")


class LeftOutError(Exception):
    """A library is not installed; the message is why."""


def main() -> int:
    """Install all libraries; return 0 if at least one tree is there, however many are not."""
    present = [_tried(name, f"{adapter(name).package} {adapter(name).version}", _tree) for name in names()]
    for name in (name for name in buffers.names() if buffers.kind_of(name).needs):
        _tried(name, "a buffer", _buffer)
    for name in (name for name in loops.names() if loops.kind_of(name).alone):
        _tried(name, "a training loop", _loop)
    return 0 if any(present) else 1


def _tried(name: str, what: str, install: Callable[[str], None]) -> bool:
    """Install something of a library, and say so, or why not."""
    try:
        install(name)
    except (LeftOutError, ImportError) as reason:
        print(f"{name}: {what} is not installed, {str(reason).splitlines()[-1]}")
        return False
    print(f"{name}: {what}")
    return True


def _tree(name: str) -> None:
    kind = adapter(name)
    for need in kind.needs:
        if need.startswith("torch=="):
            refuse_gpu_builds(need)
    if kind.needs:
        pip(*kind.needs)
    pip("--no-deps", f"{kind.package}=={kind.version}")
    check_runs(f"from {kind.__module__} import {kind.__name__} as kind; kind.after_install()")


def _buffer(name: str) -> None:
    check_runs("import torch")
    pip(*buffers.kind_of(name).needs)
    check_runs(f"from benchmarks.replay import buffers; buffers.make({name!r}, 100)")


def _loop(name: str) -> None:
    check_runs("import torch")
    pip(*loops.kind_of(name).needs)
    pip("--no-deps", *loops.kind_of(name).alone)
    check_runs(f"from benchmarks import loops; loops.make({name!r}).close()")


def check_runs(code: str) -> None:
    """Raise LeftOutError with the last line of what code prints on standard error, where it fails."""
    python = Path(sys.executable)
    done = quietly([str(python), "-P", "-c", code], env=environment(python))
    if done.returncode:
        raise LeftOutError((done.stderr.strip() or "it does not load").splitlines()[-1])


def refuse_gpu_builds(requirement: str, constraints: Path = CONSTRAINTS) -> None:
    """Raise LeftOutError where pip would install a build for GPUs."""
    dry = ("--dry-run", "--ignore-installed", "--no-deps", "--report", "-")
    report = json.loads(pip(*dry, requirement, constraints=constraints))
    needs = report["install"][0]["metadata"].get("requires_dist", [])
    if any(need.startswith(BUILDS_FOR_GPUS) for need in needs):
        raise LeftOutError(f"pip would fetch a GPU build of {requirement}; put a CPU build of it into this environment")


def pip(*arguments: str, constraints: Path = CONSTRAINTS) -> str:
    """Install with the versions of a file of constraints; return pip's output. LeftOutError with its first error."""
    done = install_into(Path(sys.executable), *arguments, "-c", str(constraints))
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise LeftOutError(errors[-1].removeprefix("ERROR: "))
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
