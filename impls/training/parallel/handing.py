"""How actors hand records over: an object that the parent makes, pickled into every child.

Its kinds are in ``transports/``. Every wait of a sender has a limit, after which it looks whether the run continues.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ...replay import Replay
from .. import clock
from ..actor import Inserted
from ..errors import TrainingError
from ..workload import Workload
from . import board as words
from .arrangement import Arrangement
from .board import Board

Send = Callable[[Inserted], None]
LIMIT_SECONDS = 0.02  # of one wait, after which a sender looks whether the run continues
_ARRIVAL_SECONDS = 20.0


class Handing(ABC):
    """A transport of records, picklable while a child is started; one process receives, the one that samples.

    ``is_polled`` is whether ``receive`` may have anything to do. ``after_kill`` is empty, or says why an actor that was
    killed while it handed records over cannot begin anew.
    """

    is_polled = True
    after_kill = ""

    @classmethod
    def make(cls, workload: Workload, arrangement: Arrangement) -> "Handing":
        """The transport of a run."""
        return cls()

    @abstractmethod
    def sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """What actor ``number`` hands its records over by; called once, in its process.

        ``row`` is the process's on the board, where its waits are counted. What it returns raises Stopped when the run
        ends before the records are handed off.
        """

    @abstractmethod
    def receive(self, replay: Replay) -> int:
        """Insert what has come, in the process that samples, without waiting; returns how many rows."""

    def is_settled(self, replay: Replay) -> bool:
        """Receive; say whether nothing that was handed off before is still under way."""
        self.receive(replay)
        return True

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """Let go of what the system keeps for it; in the parent, after the children have ended."""


def wait_until(is_done: Callable[[], bool], board: Board, row: int) -> None:
    """Try again and again, in a pause too, for who receives does so until all rest; Stopped when the run ends.

    ``is_done`` tries for 20 ms at most.
    """
    began = clock.nanoseconds()
    while not is_done():
        board.go_on()
    board.rows[row, words.WAITED] += clock.nanoseconds() - began


def settle(handing: Handing, replay: Replay, board: Board, rows: range) -> bool:
    """In a pause, receive until the actors of these rows rest and nothing is under way; Stopped when the run ends.

    Returns whether that is so in a pause: who receives may rest only then.
    TrainingError if something does not arrive in 20 s.
    """
    end = math.inf
    while board.value(words.PAUSE) & 1:
        rests = all(board.rests(row) for row in rows)
        if handing.is_settled(replay) and rests:
            return True
        end = min(end, clock.seconds() + _ARRIVAL_SECONDS) if rests else math.inf
        if clock.seconds() > end:
            raise TrainingError(f"records that actors handed off do not arrive in {_ARRIVAL_SECONDS:.0f} s")
        board.go_on()
        time.sleep(1e-3)
    return False
