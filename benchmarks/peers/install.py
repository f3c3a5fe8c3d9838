"""Install the libraries that are timed beside ours into the environment that runs this, each on its own.

A library that cannot be installed is left out with one sentence. No build of torch for GPUs is pulled: it weighs
gigabytes, and nothing here would use it.
"""

import json
import sys
from pathlib import Path

from benchmarks.workers import quietly

from . import adapter, names
from .peer import Peer

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
BUILDS_FOR_GPUS = ("nvidia-", "cuda-")


class LeftOutError(Exception):
    """A library is not installed; the message is why."""


def main() -> int:
    """Install all libraries; return 0 if at least one is there, however many are not."""
    present = []
    for name in names():
        try:
            _install(adapter(name))
        except (LeftOutError, ImportError) as reason:
            print(f"{name}: not installed, {str(reason).splitlines()[-1]}")
            continue
        present.append(name)
        print(f"{name}: {adapter(name).package} {adapter(name).version}")
    return 0 if present else 1


def _install(kind: type[Peer]) -> None:
    for need in kind.needs:
        if need.startswith("torch=="):
            refuse_gpu_builds(need)
    if kind.needs:
        pip("install", *kind.needs)
    pip("install", "--no-deps", f"{kind.package}=={kind.version}")
    finish = f"from {kind.__module__} import {kind.__name__} as kind; kind.after_install()"
    done = quietly([sys.executable, "-c", finish])
    if done.returncode:
        raise LeftOutError((done.stderr.strip() or "it does not load").splitlines()[-1])


def refuse_gpu_builds(requirement: str, constraints: Path = CONSTRAINTS) -> None:
    """Raise LeftOutError where pip would install a build for GPUs."""
    dry = ("--dry-run", "--ignore-installed", "--no-deps", "--report", "-")
    report = json.loads(pip("install", *dry, requirement, constraints=constraints))
    needs = report["install"][0]["metadata"].get("requires_dist", [])
    if any(need.startswith(BUILDS_FOR_GPUS) for need in needs):
        raise LeftOutError(f"pip would fetch a GPU build of {requirement}; put a CPU build of it into this environment")


def pip(*arguments: str, constraints: Path = CONSTRAINTS) -> str:
    """Run pip with the versions of a file of constraints; return its output. LeftOutError with its first error."""
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    done = quietly([*command, "-c", str(constraints)])
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise LeftOutError(errors[-1].removeprefix("ERROR: "))
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
