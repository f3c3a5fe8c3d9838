"""Schedules of the interleaving model, played on the real kernels.

Each process of a case is a thread with a view of its own. Its kernel stops at every point until it is granted, so that
the steps happen in the schedule's order and no other.
"""

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from impls.replay import Batch, Layout, Replay, make
from impls.replay.block import ACTOR, ARRIVED, GRANTED, MODE, Bank
from impls.replay.steps import FREE, SCRIPTED
from tests.oracles.atomic_steps import POINTS, Program
from tests.oracles.interleavings import Move, Schedule
from tests.oracles.replay_programs import Case
from tests.oracles.small_block import DRIFT, FELL, INCOMPLETE, TORN

LAYOUT = Layout((4,), "float64", choices=2)  # an observation lies in the first half of its row, the next in the second
PATIENCE_SECONDS = 20.0  # how long a kernel may take to its next point
PLACES = POINTS | {"zero": POINTS["leaves"], "raise": POINTS["leaves"]}  # where the kernels do what the model names so


class Played(NamedTuple):
    """What a schedule did: the result of each role, the violations seen, the moves that no kernel came to."""

    results: list[Any]
    wrong: set[str]
    skipped: list[Move]


class Actor:
    """A thread that plays one role on a replay, stopped at every point of its kernels."""

    def __init__(self, replay: Replay, number: int, role: str, program: Program, patience: float) -> None:
        (bank,) = replay._banks
        self._patience = patience
        self.result: Any = None
        self._replay = type(replay)(replay.settings, bank.memory)
        self._replay._banks[0].view[ACTOR] = number
        self._replay._await_records = _find_nothing  # type: ignore[method-assign]  # the model's sampler waits for none
        self._arrived = bank.memory.view(8 * (ARRIVED + number), (1,), np.int64)
        self._granted = bank.memory.view(8 * (GRANTED + number), (1,), np.int64)
        self._points = {PLACES[step.name] for step in program if step.name in PLACES}
        self._thread = threading.Thread(target=self._play, args=(number, role), daemon=True)
        self._thread.start()
        self._wait()

    def _play(self, number: int, role: str) -> None:
        verb, amount, *_ = role.split()
        try:
            if verb == "insert":
                self._replay.insert(records(10.0 * (number + 1), int(amount)))
            elif verb == "update":
                self.result = self._replay.update_priorities(np.array([int(amount)]), np.array([2.0]))
            elif verb == "retrieve":
                self.result = self._replay.retrieve_priorities(np.array([int(amount)]))
            else:
                uniform = (1e-6, 1 - 1e-6)[int(amount)]
                self.result = self._replay.sample(1, 0.4, uniforms=np.array([uniform]))
                if verb == "learn":
                    self._replay.update_priorities(self.result.sequence, np.array([2.0]))
        except Exception as error:  # the test looks at it among the results
            self.result = error

    def go(self, point: int) -> bool:
        """Run from this point to the next one, or into a lock; False, with nothing done, if the kernel is elsewhere."""
        here = int(self._arrived[0])
        # Invariant: points that the model's program does not have are passed by.
        while here and here not in self._points:
            here = self._grant()
        if here != point:
            return False
        self._grant()
        return True

    def join(self) -> Any:
        """The role's result, once it has ended. TimeoutError if it does not."""
        self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError("a kernel does not end")
        return self.result

    def _grant(self) -> int:
        """Let the kernel go on; the point at which it arrives next."""
        self._arrived[0] = 0  # so that the next arrival is seen, and this one no more
        self._granted[0] = 1
        return self._wait()

    def _wait(self) -> int:
        """The point at which the kernel has arrived; 0 if it has ended, or waits for a lock until patience ends."""
        end = time.monotonic() + self._patience
        while not self._arrived[0] and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(1e-5)
        return int(self._arrived[0])


def _find_nothing() -> None:
    raise RuntimeError("there is nothing to sample")


def records(value: float, count: int) -> dict[str, Any]:
    """Records that have ``value``, ``value`` + 1, .. in both halves."""
    values = value + np.arange(count)
    halves = np.repeat(values[:, None], 4, axis=1)
    plain = {"action": np.zeros(count, np.uint8), "terminated": np.zeros(count, np.bool_)}
    return {"observation": halves, "next_observation": halves, "reward": values, **plain}


def playable(schedule: Schedule) -> bool:
    """Whether the kernels have points wherever the schedule goes from one process to another."""
    return all(name in PLACES or before[0] == number for before, (number, name) in pairwise(schedule))


def play(strategy: str, case: Case, schedule: Schedule, *, patience: float = PATIENCE_SECONDS) -> Played:
    """Play a case's schedule on a full replay of two slots; then let every kernel run to its end.

    A kernel that has not come to its next point after ``patience`` seconds waits for a lock; its moves are skipped.
    """
    with make(2, LAYOUT, alpha=1.0, epsilon=1e-3, strategy=strategy, fanout=4, trial=True) as replay:
        replay.insert(records(1.0, 2))
        (bank,) = replay._banks
        words = bank.memory.view(0, (GRANTED,), np.int64)
        words[MODE] = SCRIPTED
        try:
            parts = enumerate(zip(case.roles, case.programs, strict=True))
            actors = [Actor(replay, number, *part, patience) for number, part in parts]
            moves = [move for move in schedule if move[1] in PLACES]
            skipped = [(number, name) for number, name in moves if not actors[number].go(PLACES[name])]
            wrong = set(_wrongs(bank, searched=moves[-1][1] == "descend" and moves[-1] not in skipped))
        finally:
            words[MODE] = FREE
        results = [actor.join() for actor in actors]
        if replay.check():
            wrong.add(DRIFT)
        if any(_torn(result.rows).any() for result in results if isinstance(result, Batch)):
            wrong.add(TORN)
    return Played(results, wrong, skipped)


def _wrongs(bank: Bank, searched: bool) -> Iterator[str]:
    """What a bank shows where a schedule ends: a search while sums disagree, a torn row's leaf above 0."""
    if searched and bank.parts[3][0] != bank.leaves.sum(dtype=np.float64):
        yield FELL
    if (_torn(bank.rows) & (bank.leaves > 0)).any():
        yield INCOMPLETE


def _torn(rows: Any) -> NDArray[np.bool_]:
    """Which of the rows ``[n]`` have halves that differ."""
    differs: NDArray[np.bool_] = (rows["observation"] != rows["next_observation"]).any(axis=1)
    return differs
