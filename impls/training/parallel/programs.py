"""What every child process does around its own work: cores, threads, the board, faults that reach the parent."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from ...replay import Replay, ReplayHandle, attach
from .. import learners
from ..errors import ProcessLost, TrainingError
from ..interrupts import SIGNALS
from ..sizes import layout_of
from ..workload import Workload
from .arrangement import Arrangement
from .board import Board, BoardHandle, Stopped
from .handing import Handing


@dataclass(frozen=True)
class Start:
    """All that a child is started with; picklable. ``row`` is its row on the board, ``number`` that among its kind.

    ``epoch`` tells this life of the process from earlier ones, so that it sees other random numbers. ``threads`` are
    those that it may compute by.
    """

    workload: Workload
    arrangement: Arrangement
    seed: int
    epoch: int
    number: int
    row: int
    board: BoardHandle
    replay: ReplayHandle | None
    looks: int
    cores: tuple[int, ...]
    learner: str
    policy: str
    device: str
    handing: Handing
    extra: Any = None  # what a kind of process needs besides
    threads: int = 1

    def attached(self) -> tuple[Board, Replay | None]:
        """The board and the replay, in this process, which is started by then: a pause waits for it."""
        board = Board.attach(self.board, self.looks)
        replay = None if self.replay is None else attach(self.replay, layout_of(self.workload))
        board.arrive(self.row)
        return board, replay


def run(program: Callable[[Start], None], start: Start, faults: connection.Connection) -> None:
    """Run a child's program until the run is over; what goes wrong is sent to the parent as one sentence."""
    for one in SIGNALS:  # which are the parent's to answer
        signal.signal(one, signal.SIG_IGN)
    if start.cores and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):  # cores that were taken away meanwhile
            os.sched_setaffinity(0, start.cores)
    learners.use_threads(start.threads)
    try:
        program(start)
    except Stopped:
        return
    except (TrainingError, MemoryError) as error:
        _send(faults, str(error), isinstance(error, ProcessLost))
    except Exception as error:  # whatever a library raises: the parent says so
        _send(faults, f"{type(error).__name__}: {error} ({_where(error)})")
    else:
        return
    sys.exit(1)


def _where(error: Exception) -> str:
    """The place in the code that raised an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _send(faults: connection.Connection, sentence: str, is_lost: bool = False) -> None:
    with contextlib.suppress(OSError):
        faults.send((sentence, is_lost))
