"""What a run by several processes has done so far, from the rows of its board."""

import resource
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..throughput import seconds_of
from . import board as words
from .board import Board


def behind(board: Board, rows: Iterable[int]) -> dict[str, float]:
    """Gradient steps by which processes' weights or batches were behind: the mean over their turns, and the most."""
    part = board.rows[list(rows)]
    turns = max(1, int(part[:, words.TURNS].sum()))
    return {"mean": float(part[:, words.STALE].sum()) / turns, "most": int(part[:, words.STALEST].max(initial=0))}


def most(board: Board, rows: Iterable[int], word: int) -> int:
    """The largest value of a word of these processes."""
    return int(np.max(board.rows[list(rows), word], initial=0))


def busy(board: Board, rows: Iterable[int]) -> float:
    """Seconds at work for each turn of these processes; 0 before the first."""
    part = board.rows[list(rows)]
    return float(part[:, words.BUSY].sum()) / 1e9 / max(1, int(part[:, words.TURNS].sum()))


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of this process, of its children that have ended, and of those with these numbers."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(seconds_of, pids))


def report(
    board: Board, rows: dict[str, range], seconds: float, restarts: int, cores: list[tuple[int, ...]]
) -> dict[str, Any]:
    """The report of ``ParallelLoop.report``, of a run that began a given number of seconds ago."""
    return common(board, rows, seconds, restarts, cores) | {
        "lead": most(board, rows["actor"], words.LEAD),
        "lag": most(board, rows["learner"], words.LEAD),
        "stale_weights": behind(board, rows["actor"]),
        "stale_batches": behind(board, rows["learner"]),
    }


def common(
    board: Board, rows: dict[str, range], seconds: float, restarts: int, cores: list[tuple[int, ...]]
) -> dict[str, Any]:
    """What the processes of any run have done."""
    names = {f"{kind}-{number}": row for kind, each in rows.items() for number, row in enumerate(each)}
    waited = board.rows[:, words.WAITED] / 1e9 / max(seconds, 1e-9)
    return {
        "steps": board.value(words.STEPS),
        "updates": board.value(words.UPDATES),
        "waited": {name: min(1.0, float(waited[row])) for name, row in names.items()},
        "busy_seconds": {kind: busy(board, each) for kind, each in rows.items() if each},
        "turns": {name: int(board.rows[row, words.TURNS]) for name, row in names.items()},
        "restarts": restarts,
        "cores": {name: list(cores[row]) for name, row in names.items()},
    }
