"""Put hosts, and what the plug-ins' tests need, into the environment that runs this, each host on its own.

    python -m benchmarks.plugins.install hosts|rllib

A host that cannot be installed is omitted with one sentence. No build of torch for GPUs is pulled.
"""

import importlib.metadata
import sys
from pathlib import Path

from benchmarks.install import LeftOutError, check_runs, pip, refuse_gpu_builds
from benchmarks.peers.torchrl_peer import Torchrl
from benchmarks.workers import ROOT

from .host import hosts

TESTS = ("hypothesis", "numba", "numpy", "pytest", "pytest-benchmark", "pytest-xdist")
TORCH = "torch==2.13.0"
LIBRARIES: dict[str, dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "hosts": {
        "sb3": (("gymnasium[classic-control,box2d,mujoco]", "stable-baselines3", "sb3-contrib"), ()),
        "tianshou": (("tianshou",), ()),
        "torchrl": (
            ("cloudpickle", "hoptorch", "importlib_metadata", "ninja", "orjson", "packaging", "pyvers", "setuptools"),
            ("tensordict", "torchrl"),
        ),
    },
    "rllib": {"rllib": (("gymnasium", "ray[rllib]"), ())},
}
"""By environment and host: distributions, and those that are installed without what they say they need."""


def main(arguments: list[str] | None = None) -> int:
    """Install an environment's hosts; return 0 if at least one is there."""
    (name,) = sys.argv[1:] if arguments is None else arguments
    versions = Path(__file__).with_name(f"{name}.txt")
    try:
        _told(f"{name}: torch, numba and the tests' own needs")
        refuse_gpu_builds(TORCH, versions)
        pip(*TESTS, TORCH, constraints=versions)
        pip("--no-deps", "--editable", str(ROOT), constraints=versions)
    except LeftOutError as reason:
        _told(f"error: no plug-in can be tested, {reason}")
        return 1
    present = [host for host in LIBRARIES[name] if _installed(host, *LIBRARIES[name][host], versions)]
    return 0 if present else 1


def _installed(host: str, needs: tuple[str, ...], alone: tuple[str, ...], versions: Path) -> bool:
    """Install a host, and say so, or why not."""
    _told(f"{host}: installing {', '.join([*alone, *needs][:3])} ..")
    try:
        pip(*needs, constraints=versions)
        if alone:
            pip("--no-deps", *alone, constraints=versions)
        check_runs(f"import impls.plugins.{hosts()[host].plugin}")
    except LeftOutError as reason:
        _told(f"{host}: left out, {reason}")
        return False
    _told(f"{host}: {hosts()[host].package} {importlib.metadata.version(hosts()[host].package)}")
    if host == "torchrl":
        _compile()
    return True


def _compile() -> None:
    """Compile torchrl's own trees where its binary does not load; ours need none, so a failure costs a comparison."""
    try:
        Torchrl.after_install()
    except Exception as error:  # whatever a compiler raises
        _told(f"torchrl: its own trees do not load and are not compared, {str(error).splitlines()[0][:120]}")


def _told(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
