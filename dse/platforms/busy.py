"""Look whether other processes run: what is measured under load from them is disturbed.

Both numbers are of the whole machine, in a container too, and so are the cores they are compared with.
"""

import functools
import os
import statistics
import sys
import time
from pathlib import Path

ANYWAY = "--anyway"
"""The option of commands that measure which lets them measure under load."""
EXIT_CODE = 75
"""The exit code of a command that does not measure for load: that of sysexits.h for what may succeed later."""
SHARE = 0.5  # of the cores, that others may keep busy
LOOKS, EVERY_SECONDS = 11, 0.05
PROCESSES = Path("/proc/loadavg")  # three averages, then running/all


@functools.cache
def load() -> float:
    """Return how many processes of others run, as seen first by this process; 0.0 while they leave half the cores.

    It is the load average of the last minute, or what runs at this moment where that is less: the average alone counts
    what a command of ours just left in it, the moment alone what is about to end. Where a system tells no moment, a
    process on each core is taken for ours; where it tells no average, nothing is known and the answer is 0.0.
    """
    cores = os.cpu_count() or 1
    try:
        average = os.getloadavg()[0]
        if average <= SHARE * cores:
            return 0.0
        now = statistics.median(_running() for _ in range(LOOKS)) if PROCESSES.exists() else average - cores
    except (AttributeError, OSError):
        return 0.0
    least = min(average, now)
    return least if least > SHARE * cores else 0.0


def _running() -> int:
    """Return how many processes run at this moment, but for this one."""
    time.sleep(EVERY_SECONDS)
    return int(PROCESSES.read_text(encoding="utf-8").split()[3].partition("/")[0]) - 1


def load_average() -> str:
    """Say what the load of the last minute is, with our own in it, as a clause; "" where the system does not tell."""
    try:
        return f"; load average {os.getloadavg()[0]:.3g} on {os.cpu_count()} cores"
    except (AttributeError, OSError):
        return ""


def refuses(is_anyway: bool) -> bool:
    """Say on standard error that others run, if they do; return whether a command must not measure for that."""
    if not load():
        return False
    said = f"load is {load():.3g} on {os.cpu_count()} cores"
    if is_anyway:
        print(f"{said}: measuring {ANYWAY[2:]}; the records are marked as disturbed", file=sys.stderr, flush=True)
    else:
        print(f"error: {said}: not measuring; wait until others have ended, or add {ANYWAY}", file=sys.stderr)
    return not is_anyway
