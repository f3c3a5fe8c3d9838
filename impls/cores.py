"""Which processors and how much memory this process may use, as its affinity and its control groups have it.

A container, a batch system or ``taskset`` leaves a process some of a machine's hardware threads, which ``os.cpu_count``
does not know. What is said of a whole machine (its key, its load) counts them all; what is chosen or run, these.
"""

import contextlib
import math
import os
from pathlib import Path

ROOT = Path("/")  # where a system describes itself, as Linux does


def allowed_cpus() -> tuple[int, ...]:
    """List the hardware threads that this thread may run on, by their numbers."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def count_allowed() -> int:
    """Count the hardware threads that can be kept busy: a quota of 2.5 of them is enough for two."""
    return int(max(1, min(len(allowed_cpus()), _quota())))


def count_cores() -> int:
    """Count the cores of those hardware threads: threads of one core list the same siblings; no number is as unique."""
    folder = ROOT / "sys/devices/system/cpu"
    siblings = {read_text(folder / f"cpu{cpu}/topology/thread_siblings_list") or f"{cpu}" for cpu in allowed_cpus()}
    return min(len(siblings), count_allowed())


def _quota() -> float:
    """Read how many processors the process's control groups pay for; infinity where none has a quota."""
    least = math.inf
    for line in read_text(ROOT / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = ROOT / "sys/fs/cgroup" / controllers  # of the second version, which names no controllers, the folder
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):  # a container may see its own group as the top alone
            quota, period = [*read_text(folder / "cpu.max").split(), "", ""][:2]
            if not quota:
                quota, period = (read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            if quota.isdigit() and period.isdigit():  # not "max", -1 or nothing
                least = min(least, int(quota) / int(period))
            if folder == top:
                break
    return least


def read_text(path: Path | str) -> str:
    """Read a file in which the system describes itself, without space around it; empty where there is none."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def free_bytes() -> float:
    """Bytes that this process may still take: of the machine, or of its control group where that has fewer."""
    free = float("inf")
    with contextlib.suppress(OSError, KeyError):  # where nobody says, nothing is refused
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024.0 * int(lines["MemAvailable"].split()[0])
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())  # "max" where there is none
        inactive = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
        free = min(free, limit - int((group / "memory.current").read_text()) + int(inactive))
    return free
