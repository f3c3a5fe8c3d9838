"""An actor as a process: it claims environment steps, fetches weights, takes a turn, hands its records over."""

import time

from .. import clock, learners
from ..actor import Inserted, actor_of, explore_at, seed_of
from ..errors import TrainingError
from ..learner import Learner
from .board import FREE, Board, Counter, Row
from .children import Start
from .pace import Pace
from .transports import Send

_EPOCHS = 6  # sets these random numbers apart from the other uses of a seed
_FETCHES = 20  # tries, a millisecond apart, to fetch weights that are being published


def act(start: Start) -> None:
    """Act until the run is over, which raises Stopped. TrainingError for a faulty environment."""
    workload, row = start.workload, start.row
    policy = learners.make(workload, start.policy, seed=start.seed)
    actor = actor_of(workload, start.number, seed_of(start.seed, _EPOCHS, start.epoch, start.number))
    try:
        board, replay = start.attached()
        send, weights = start.transport.make_sender(replay, board, row, start.number), Fetched(start, board, policy)
        pace, me, count = Pace.of(workload, start.arrangement), board.lines[row], workload.actors.environments
        while True:
            # Invariant: all that this actor claimed is taken, and all that it took is on the board, so that steps
            # claimed and steps taken are equal while every actor rests here.
            board.check(row)
            begun = claimed(board, pace, count, row) + board.value(Counter.ELSEWHERE)
            began = clock.nanoseconds()
            weights.turn(me)
            at_random = begun < workload.exploration.random_steps
            turn = actor.step(policy, explore_at(workload, begun), at_random)
            if turn.inserted:
                _insert(send, turn.inserted, board)
            if turn.steps < count:  # environments that began an episode anew took no step
                board.add(Counter.CLAIMED_STEPS, turn.steps - count)
            board.add(Counter.STEPS, turn.steps)
            me[Row.BUSY] += clock.nanoseconds() - began
            me[Row.TURNS] += 1
            for episode in turn.episodes:
                board.report(start.number, episode, begun + turn.steps, row)
    finally:
        actor.close()


def _insert(send: Send, inserted: Inserted, board: Board) -> None:
    """Hand records over. TrainingError for TD errors that are no numbers."""
    try:
        send(inserted)
    except ValueError as error:
        steps, updates = board.value(Counter.STEPS), board.value(Counter.UPDATES)
        raise TrainingError(f"after {steps:,} steps and {updates:,} gradient steps: {error}") from None


class Fetched:
    """The weights of a policy, fetched at every T_sync-th turn, from the first turn of this process on."""

    def __init__(self, start: Start, board: Board, policy: Learner) -> None:
        self._board, self._policy, self._fetch = board, policy, board.acting_weights
        # Straight into the memory that the policy computes with; its targets serve for TD errors alone.
        self._weights, self._interval = policy.parameters, start.workload.actors.sync_interval
        self._has_targets = start.workload.replay.initial_priority == "td_error"
        self._turns, self._version = 0, 0

    def turn(self, me: memoryview) -> None:
        """Fetch weights if it is time, and note by how many gradient steps they are behind."""
        if self._turns % self._interval == 0:
            version = self._whole()
            if self._has_targets and version != self._version:
                self._policy.load_weights(self._weights)
            self._version = version if version >= 0 else self._version
        self._turns += 1
        behind = self._board.value(Counter.UPDATES) - self._board.published(self._version)
        if behind > 0:  # a publisher counts its gradient step after it has published
            me[Row.LAG_SUM] += behind
            me[Row.LAG_MAX] = max(me[Row.LAG_MAX], behind)

    def _whole(self) -> int:
        """Fetch until the weights are whole, for a publisher may lose its core in the middle; -1 where it died."""
        for _ in range(_FETCHES):
            version = self._fetch(self._weights, self._version)
            if version >= 0:
                return version
            time.sleep(1e-3)
        return -1


def claimed(board: Board, pace: Pace, count: int, row: int) -> int:
    """Claim ``count`` environment steps once the pace allows; returns the step before them. Stopped at the end."""
    me = board.lines[row]
    while True:
        if row >= board.value(Counter.FIRST_IDLE):
            board.look(Counter.FIRST_IDLE, row + 1, row)
            board.check(row)
            continue
        updates, is_free = board.value(Counter.UPDATES), board.value(Counter.UNPACED)
        is_free = is_free or board.value(Counter.EMPTY)  # who samples waits for a first record
        bound = FREE if is_free else pace.limit(updates)
        limit = min(bound, board.value(Counter.LAST_STEP) + count - 1)
        before = board.claim(Counter.CLAIMED_STEPS, count, limit)
        if before >= 0:
            me[Row.LEAD] = max(me[Row.LEAD], pace.lead(before + count, updates))
            return before
        if board.value(Counter.CLAIMED_STEPS) >= (last := board.value(Counter.LAST_STEP)):
            board.look(Counter.LAST_STEP, last + 1, row)  # all steps allowed so far are taken, or being taken
        else:
            board.look(Counter.UPDATES, updates + 1, row)
        board.check(row)
