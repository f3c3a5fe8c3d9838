"""Several jobs at once, each in a process that is forked off and so has all that was read and imported before."""

import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

Job = Callable[[], Any]
_JOBS: list[Job] = []  # of the pool that is open; a forked process has them, so that none has to be pickled


def done(jobs: Sequence[Job], processes: int) -> Iterator[tuple[int, Job]]:
    """Yield (place of a job, a call that returns what it made or raises what it raised), as one after the other ends.

    With one process, or on a system other than Linux, whose libraries may not survive a fork, the job runs when that
    is called. What a job makes must pickle.
    """
    workers = min(processes, len(jobs)) if sys.platform == "linux" else 1
    if workers < 2:
        yield from enumerate(jobs)
        return
    _JOBS[:] = jobs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: those of BLAS are at rest
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _leave_interrupts) as pool:
            places = {pool.submit(_run, place): place for place in range(len(jobs))}
            try:
                for future in as_completed(places):
                    yield places[future], future.result
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _leave_interrupts() -> None:
    """Let the first process alone answer to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(place: int) -> Any:
    return _JOBS[place]()
