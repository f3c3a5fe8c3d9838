"""Which processors and how much memory this process may use, as its affinity and its control groups have it.

A container, a batch system or ``taskset`` leaves a process some of a machine's hardware threads, which ``os.cpu_count``
does not know. What is said of a whole machine (its key, its load) counts them all; what is chosen or run, these.
"""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")  # where a system describes itself, as Linux does
_MARGIN = 0.97  # of the memory that is free, which one block may take


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
    for folder in _list_groups("cpu"):
        quota, period = [*read_text(folder / "cpu.max").split(), "", ""][:2]
        if not quota:
            quota, period = (read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit():  # not "max", -1 or nothing
            least = min(least, int(quota) / int(period))
    return least


def _list_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the process's control groups of both versions, from its own to the topmost one in sight."""
    mounts = (line.split() for line in read_text(ROOT / "proc/self/mountinfo").splitlines())
    shown = {point: group for _, _, _, group, point, *_ in mounts}  # a container may see its own group as the top
    for line in read_text(ROOT / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = Path("sys/fs/cgroup", controllers)  # of the second version, which names no controllers, the folder
        group = top / path.removeprefix(shown.get(f"/{top}", "")).lstrip("/")
        for folder in (group, *group.parents):
            yield ROOT / folder
            if folder == top:
                break


def read_text(path: Path | str) -> str:
    """Read a file in which the system describes itself, without space around it; empty where there is none."""
    try:
        return Path(path).read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""


def memory_limit() -> float:
    """Return the bytes of memory that this process can ever take: the machine's, or those of its control groups."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else math.inf
    return min([pages, *(limit for _, limit in _memory_limits())])


def free_bytes() -> float:
    """Return the bytes that this process may still take: the least that the machine and its control groups have left.

    What others in a group use is taken, but for files in memory that the system would drop. Infinity where the system
    does not say, so that nothing is refused.
    """
    told = re.search(r"^MemAvailable: *(\d+) kB", read_text(ROOT / "proc/meminfo"), re.MULTILINE)
    least = 1024.0 * int(told[1]) if told else math.inf
    for folder, limit in _memory_limits():
        used = read_text(folder / "memory.current") or read_text(folder / "memory.usage_in_bytes")
        stat = dict(line.split() for line in read_text(folder / "memory.stat").splitlines())
        dropped = stat.get("total_inactive_file", stat.get("inactive_file", 0))  # with those of the groups below
        least = min(least, max(0, limit - int(used or 0) + int(dropped)))
    return least


def check_free(nbytes: int) -> None:
    """MemoryError for more bytes than the machine has free."""
    free = free_bytes()
    if nbytes > _MARGIN * free:
        raise MemoryError(f"{nbytes / 1e9:,.1f} GB are needed and {free / 1e9:,.1f} GB are free: lower the capacity")


def _memory_limits() -> Iterator[tuple[Path, int]]:
    """Yield (folder, bytes) of each limit of memory of the process's control groups."""
    for folder in _list_groups("memory"):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            if (limit := read_text(folder / name)).isdigit():  # "max" where there is none
                yield folder, int(limit)
