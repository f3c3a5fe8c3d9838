"""Look whether other processes run: what is measured under load from them is disturbed.

Both numbers are of the whole machine, in a container too, and so are the cores they are compared with.
"""

import functools
import os
import sys
import time
from pathlib import Path

EXIT_CODE = 75
"""The exit code of a command that does not measure for load: that of sysexits.h for what may succeed later."""
LOOKS, EVERY_SECONDS = 11, 0.05
PROCESSES = Path("/proc/loadavg")  # three averages, then running/all


@functools.cache
def load() -> float:
    """Return how many processes of others run, as seen first by this process; 0.0 while they leave half the cores.

    It is the load average of the last minute, or what runs at this moment where that is less: the average alone counts
    what a command of ours just left in it, the moment alone what is about to end. Where a system tells no moment, a
    process on each core is taken for ours.
    """
    cores = os.cpu_count() or 1
    if average() <= cores / 2:
        return 0.0
    now = sorted(_running() for _ in range(LOOKS))[LOOKS // 2] if PROCESSES.exists() else average() - cores
    least = float(min(average(), now))
    return least if least > cores / 2 else 0.0


def described() -> str:
    """Say how many processes of others run; "" while they leave half the cores."""
    return f"load is {load():.3g} on {os.cpu_count()} cores" if load() else ""


def average() -> float:
    """Return the load average of the last minute, with our own processes in it; 0.0 where the system tells none."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def _running() -> int:
    """Return how many processes run at this moment, but for this one."""
    time.sleep(EVERY_SECONDS)
    return int(PROCESSES.read_text(encoding="utf-8").split()[3].partition("/")[0]) - 1


def refuses(is_anyway: bool) -> bool:
    """Say on standard error that others run, if they do; return whether a command must not measure for that."""
    if not load():
        return False
    how = "not measuring; wait until others have ended, or add --anyway"
    if is_anyway:
        how = "measuring all the same; the records are marked as disturbed"
    said = f"{described()}: {how}"
    print(said if is_anyway else f"error: {said}", file=sys.stderr, flush=True)
    return not is_anyway
