"""One hand-over at a time, in one process: records by each transport into a replay, weights by each route."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from impls import replay as replays
from impls.training import load
from impls.training.actor import Inserted
from impls.training.parallel.arrangement import Arrangement
from impls.training.weights import spans

from ..clock import CallClock, Clock
from ..replay.rows import LAYOUT, made
from .cells import ADDED, Cell

CAPACITY = 100_000
LEAST_SECONDS = 0.002
_ROW = 0


class HandOverClock:
    """Times hand-overs one by one: the sender's part ("send"), or until the receiver has inserted it ("hand over")."""

    def __init__(self, send: Callable[[], object], receive: Callable[[], int], rows: int, is_whole: bool) -> None:
        self._send, self._receive, self._rows, self._is_whole = send, receive, rows, is_whole
        self.calls_per_sample = 1
        for _ in range(3):
            seconds = self.sample()
        self.calls_per_sample = max(1, round(LEAST_SECONDS / max(seconds, 1e-7)))

    def sample(self) -> float:
        """Take one more sample; return the seconds of a hand-over."""
        total = 0.0
        for _ in range(self.calls_per_sample):
            began = time.perf_counter()
            self._send()
            sent = time.perf_counter()
            left = self._rows
            # Invariant: ``left`` rows of the hand-over are not in the replay yet.
            while left > 0:
                left -= self._receive()
            total += (time.perf_counter() if self._is_whole else sent) - began
        return total / self.calls_per_sample


def clock_of(cell: Cell, stack: ExitStack) -> Clock:
    """Make the clock of a cell; what it opens is closed with the stack."""
    return _weights_clock(cell, stack) if cell.op.endswith("weights") else _records_clock(cell, stack)


def _records_clock(cell: Cell, stack: ExitStack) -> Clock:
    from impls.training.parallel import transports  # noqa: PLC0415  # numba
    from impls.training.parallel.board import Board  # noqa: PLC0415

    replay = stack.enter_context(replays.make(CAPACITY, LAYOUT, alpha=0.6, epsilon=1e-3, shared=True))
    handing = transports.make(load("hopper_td3"), Arrangement(transport=cell.contestant))
    stack.callback(handing.close)
    send = handing.sender(replay, Board(1, 1, 1), _ROW, 0)
    inserted = Inserted(made(np.arange(cell.batch)), None, np.ones(cell.batch, np.bool_))

    def receive() -> int:
        return cell.batch if cell.contestant == "shared" else handing.receive(replay)

    return HandOverClock(lambda: send(inserted), receive, cell.batch, cell.op == "hand over")


def _weights_clock(cell: Cell, stack: ExitStack) -> Clock:
    from impls.training.parallel import transports  # noqa: PLC0415  # numba
    from impls.training.parallel.board import Board  # noqa: PLC0415

    part = spans(load("hopper_td3"))["policy"]
    weights: Any = np.random.default_rng(0).standard_normal(part.stop - part.start).astype(np.float32)
    if cell.op == ADDED:
        return _tensor_clock(weights, cell.contestant == "torch")
    target = np.empty_like(weights)
    route = transports.route(Arrangement(weights=cell.contestant), len(weights))
    if route is None:
        board = Board(1, 1, len(weights))
        board.publish(weights)
        publish, fetch = (lambda turn: board.publish(weights)), (lambda turn: board.fetch(target, -2))
    else:
        stack.callback(route.close)
        route.publish(weights, 0)
        publish, fetch = (lambda turn: route.publish(weights, turn)), (lambda turn: route.fetch(target, -2))
    return CallClock(publish if cell.op.startswith("publish") else fetch, LEAST_SECONDS)


def _tensor_clock(weights: Any, is_shared: bool) -> CallClock:
    import torch  # noqa: PLC0415  # heavy

    tensor = torch.from_numpy(weights)
    if is_shared:
        tensor.share_memory_()
    return CallClock(lambda turn: tensor.add_(1.0), LEAST_SECONDS)
