"""Install the libraries that are timed with ours into the environment that runs this, each on its own.

    python -m benchmarks.install                           every library's trees, buffers and training loops
    python -m benchmarks.install --hosts sb3 tianshou      these, and what tests of our plug-ins in them need

Versions are those of a file of constraints. What cannot be installed or does not load is omitted with one sentence. No
build of torch for GPUs is pulled: it weighs gigabytes, and nothing here would use it.
"""

import argparse
import functools
import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from .arguments import among
from .libraries.base import Buffer, Host, Loop, Role, Tree, roles
from .workers import ROOT, environment, install_into, quietly

CONSTRAINTS = Path(__file__).parent / "libraries" / "constraints.txt"
BUILDS_FOR_GPUS = ("nvidia-", "cuda-")
ROLES = {Host: "a host of our plug-in", Tree: "a tree", Buffer: "a buffer", Loop: "a training loop"}
TESTS = ("hypothesis", "numba", "numpy", "pytest", "pytest-benchmark", "pytest-xdist")  # of the plug-ins


class LeftOutError(Exception):
    """A library is not installed; the message is why."""


def main(arguments: list[str] | None = None) -> int:
    """Install libraries; return 0 if at least one host, or else tree, is there, however much is not."""
    options = _parser().parse_args(arguments)
    wanted = list(ROLES)[:2] if options.hosts else list(ROLES)[1:]
    chosen = list_kinds(options.libraries or (roles(Host) if options.hosts else ()), wanted)
    pip_here = functools.partial(pip, constraints=options.constraints)
    try:
        if any("torch" in kind.needs for kinds in chosen.values() for kind in kinds):
            refuse_gpu_builds("torch", options.constraints)
            pip_here("torch")
        if options.hosts:
            pip_here(*TESTS)
            pip_here("--no-deps", "--editable", str(ROOT))
    except LeftOutError as reason:
        _say(f"left out, and whatever needs it: {reason}")
    present = [kind for kinds in chosen.values() for kind in _install(kinds, pip_here)]
    return 0 if any(issubclass(kind, wanted[0]) for kind in present) else 1


def list_kinds(libraries: Collection[str], wanted: Iterable[type[Role]]) -> dict[str, list[type[Role]]]:
    """Return the classes to be installed of these libraries, or of all: those of the wanted roles, by file."""
    found: dict[str, list[type[Role]]] = {}
    for kind in (kind for role in wanted for kind in roles(role).values() if kind.needs_install):
        file = kind.__module__.rpartition(".")[2]
        if not libraries or file in libraries:
            found.setdefault(file, []).append(kind)
    return found


def _install(kinds: Sequence[type[Role]], pip_here: Callable[..., str]) -> list[type[Role]]:
    """Install a library; say of each of its roles that it can be made here, or why not, and return those that can."""
    needs = sorted({need for kind in kinds for need in kind.needs} - {"torch"})
    alone = sorted({name for kind in kinds for name in (kind.package, *kind.alone)})
    for words in (needs, ["--no-deps", *alone]):
        try:
            pip_here(*words)
        except LeftOutError as reason:  # a role may do without
            _say(f"{', '.join(alone)}: {reason}")
    return [kind for kind in kinds if _is_there(kind)]


def _is_there(kind: type[Role]) -> bool:
    what = f"{kind.name}: {next(what for role, what in ROLES.items() if issubclass(kind, role))}"
    try:
        check_runs(f"from {kind.__module__} import {kind.__name__} as kind; kind.check()")
    except LeftOutError as reason:
        _say(f"{what} is left out, {reason}")
        return False
    _say(what)
    return True


def _say(line: str) -> None:
    print(line, flush=True)


def check_runs(code: str) -> None:
    """Raise LeftOutError with the last line of what code prints on standard error, where it fails."""
    python = Path(sys.executable)
    done = quietly([str(python), "-P", "-c", code], env=environment(python))
    if done.returncode:
        raise LeftOutError((done.stderr.strip() or "it does not load").splitlines()[-1])


def refuse_gpu_builds(requirement: str, constraints: Path) -> None:
    """Raise LeftOutError where pip would install a build for GPUs."""
    dry = ("--dry-run", "--ignore-installed", "--no-deps", "--report", "-")
    report = json.loads(pip(*dry, requirement, constraints=constraints))
    needs = report["install"][0]["metadata"].get("requires_dist", [])
    if any(need.startswith(BUILDS_FOR_GPUS) for need in needs):
        raise LeftOutError(f"pip would fetch a GPU build of {requirement}; put a CPU build of it into this environment")


def pip(*arguments: str, constraints: Path) -> str:
    """Install by a file of constraints what is named; return pip's output. LeftOutError with its first error."""
    if not arguments:
        return ""
    done = install_into(Path(sys.executable), *arguments, "-c", str(constraints))
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise LeftOutError(errors[-1].removeprefix("ERROR: "))
    return done.stdout


def _parser() -> argparse.ArgumentParser:
    known = list_kinds((), ROLES)
    parser = argparse.ArgumentParser("python -m benchmarks.install", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "libraries",
        nargs="*",
        metavar="LIBRARY",
        type=among("library", *known),
        help="libraries to install (default: all)",
    )
    parser.add_argument(
        "--hosts", action="store_true", help="install hosts of our plug-ins, with what the tests of plug-ins need"
    )
    parser.add_argument("--constraints", type=Path, default=CONSTRAINTS, help="versions (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
