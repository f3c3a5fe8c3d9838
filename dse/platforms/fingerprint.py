"""The machine a number was measured on, its software, and the command that measured it."""

import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "numba", "llvmlite", "fanout", "cupy-cuda13x", "torch", "torchrl", "gymnasium")


@functools.cache
def fingerprint() -> Mapping[str, Any]:
    """This machine and its software. ``key`` is a hash of CPU model, cores and caches."""
    identity = {"cpu": _cpu_model(), "cores": os.cpu_count() or 1, "caches": _caches()}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    return {
        "key": key,
        **identity,
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "gpus": _gpus(),
    }


def commit(folder: Path) -> tuple[str | None, bool | None]:
    """(commit, whether tracked files differ from it) of the checkout around a folder; (None, None) outside of one."""
    try:
        head = _git(folder, "rev-parse", "HEAD")
        return head, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return None, None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def now() -> str:
    """UTC time of a record."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def command_line() -> str:
    """The command that runs, as a user would type it, without the paths of this machine."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    return " ".join([name, *(Path(word).name if os.sep in word else word for word in sys.argv[1:])])


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _caches() -> dict[str, int]:
    """Bytes of the data caches one core sees, by level; empty where the system does not tell."""
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if _first_line(index / "type") != "Instruction":
            size = _first_line(index / "size") or ""
            if match := re.fullmatch(r"(\d+)([KM])", size):
                caches[f"L{_first_line(index / 'level')}"] = int(match[1]) * {"K": 1 << 10, "M": 1 << 20}[match[2]]
    return caches


def _gpus() -> list[str]:
    """Name, driver and memory of each GPU, as its driver's own tool tells; empty without one."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in told.splitlines() if line.strip()]


def _first_line(path: Path | str) -> str | None:
    try:
        return Path(path).read_text().strip().split("\n")[0]
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
