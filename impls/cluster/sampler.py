"""Batches drawn from the shards of a replay as from one K-ary tree, whose root is the sampler's table of their totals.

The sampler keeps the total t_s of each shard, as of its last answer. A value v in [0, 1) falls on a shard s by the
prefix sums of t_s / t, with t their sum, and what is left of it within the shard's part is the uniform by which the
shard searches its own tree. So record i is drawn with the probability

    Q(i) = (t_s / t) (p_i / T_s),

T_s being the shard's total when it drew, which its answer says. With P(i) = p_i / T, T the sum of all T_s, importance
weights are P(i) / Q(i) (1 / (N P(i)))^beta, which divided by their largest are in proportion to

    (T_s / t_s) p_i^-beta.

So totals that are out of date add variance, and no bias: the expectation of a gradient is that of one tree's, for any
beta [as Eq. 5.4 of Zhang2022 for banks of one memory].
"""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least, short
from ..replay import Batch, Layout
from ..replay.batches import Plan, check_beta, check_pairs, not_finite, reals, tickets_of
from .calls import Calls, ClusterError, EmptyError, LostError, Reply, Request

MOST_SHARDS = 1 << 11
_MOST_RUNS = 1 << 12
_MOST_TICKETS = 1 << 40
"""A sequence number is ((run << 40) + ticket) * shards + shard: 12 bits of runs, 40 of tickets, 11 of shards."""
_IDLE = 0.02  # of the patience, after which a shard that gave no records is asked for its total
_GONE = 0.2  # the same for a shard that did not answer
_NAP_SECONDS = 0.01  # between looks for the first shard that answers
_MOST_ASKED = 16  # shards that are asked for their totals at once
_BELOW_ONE = 1.0 - 2.0**-53
_REPLY_BYTES = 90_000  # what Ray sends within an answer; more goes by its object store, 7 times slower


@dataclass(eq=False)
class _Call:
    """The ``number``-th request, to a shard's process ``run``: how many updates, and records out of which total."""

    number: int
    shard: int
    reference: Any
    run: int
    updates: int
    count: int = 0
    total: float = 0.0


@dataclass
class _Drawing:
    """Requests for the records of one or several batches, drawn by ``shares [S]`` of a total.

    The total is that of the largest shard, ``largest``, times ``shards_like_it``: it may be beyond float64. ``moment``
    is when the sampler's user asked for them.
    """

    calls: list[_Call]
    shares: NDArray[np.float64]
    largest: float
    shards_like_it: float
    moment: int


class _Answer(NamedTuple):
    """The records that a shard's process ``run`` drew, and the total of all that could be drawn from, but for a factor.

    The factor is that of all answers to one request for batches.
    """

    call: _Call
    drawn: bytes
    run: int
    total: float


@dataclass
class _Shard:
    """The sampler's knowledge of a shard.

    ``runs`` numbers its processes in the order in which they were first heard of; ``run`` is the newest of them. It
    ``is_gone`` until it answers, and ``is_given_up`` once it was waited for in vain.
    ``unanswered`` are updates that it was not waited for any longer; ``heard`` is the newest that was answered.
    """

    is_gone: bool = True
    is_given_up: bool = False
    run: int = 0
    runs: dict[int, int] = field(default_factory=dict)
    records: int = 0
    written: int = 0
    asked: float = -np.inf
    heard: int = -1
    tickets: list[NDArray[np.int64]] = field(default_factory=list)
    errors: list[NDArray[np.float64]] = field(default_factory=list)
    waiting: int = 0
    probe: _Call | None = None
    unanswered: list[_Call] = field(default_factory=list)


class Sampler:
    """Draws batches from shards, ``ahead`` requests of ``batches_a_call`` batches each before they are asked for.

    ``patience``: seconds that a shard is waited for, once, before batches are drawn from the others. ``most_shards``:
    shards that one request is sent to; of more, some are chosen with probabilities in proportion to their totals.
    One thread may use it.
    """

    def __init__(
        self,
        calls: Calls,
        layout: Layout,
        *,
        batches_a_call: int = 8,
        ahead: int = 2,
        patience: float = 5.0,
        most_shards: int = 16,
    ) -> None:
        if calls.count > MOST_SHARDS:
            raise ValueError(f"a replay has at most {MOST_SHARDS:,} shards, not {calls.count:,}")
        if not 0 < patience < np.inf:
            raise ValueError(f"patience must be a number of seconds above 0, not {patience}")
        from .weighing import weigh  # noqa: PLC0415  # with the compiler

        self._weigh = weigh
        self.layout, self.patience = layout, patience
        self._calls = calls
        self._batches_a_call = integer_at_least("batches_a_call", batches_a_call, 1)
        self._most_ahead = integer_at_least("ahead", ahead, 0)
        self._most_shards = integer_at_least("most_shards", most_shards, 1)
        self._plan = Plan(layout, by_total=True)
        self._shards = [_Shard() for _ in range(calls.count)]
        self._totals = np.zeros(calls.count)
        self._largest = 0.0
        self._batch = 0
        self._ahead: deque[_Drawing] = deque()
        self._ready: deque[dict[str, NDArray[Any]]] = deque()
        # Moments of the user, such as gradient steps: the present one, and when the last batch was asked for.
        self.moment, self.drawn_at = 0, 0
        self._rng = np.random.default_rng()
        self._updates: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._counts = dict.fromkeys(("sent", "applied", "overwritten", "late", "drawn_again", "shards_lost"), 0)
        self._requests, self._called, self._skews, self._most_skew = 0, 0, 0.0, 0.0

    def __len__(self) -> int:
        """Number of records that may be sampled, as of the shards' last answers."""
        return sum(shard.records for shard in self._shards)

    def sample(
        self, batch: int, beta: float, rng: np.random.Generator | None = None, *, distinct: bool = False
    ) -> Batch:
        """B = ``batch`` records sampled in proportion to their priorities, one in each of B equal intervals.

        ``rng`` draws the requests that are sent during this call, which are for later batches. A batch is never short:
        records that a lost shard owes are drawn again from the others. RuntimeError when there are no records,
        ClusterError where no shard answers, ValueError for ``distinct``.
        """
        if distinct:
            raise ValueError("distinct records cannot be sampled over shards; leave distinct out, or use one replay")
        check_beta(beta)
        if not (rng is None or isinstance(rng, np.random.Generator)):
            raise TypeError(f"rng must be a generator such as np.random.default_rng(0), not {short(rng)}")
        batch = integer_at_least("batch", batch, 1)
        if batch != self._batch:
            self._forget_batches()
            self._batch = batch
        if not self._ready:
            self._receive_batches(self._rng if rng is None else rng)
        parts = self._ready.popleft()
        weights = np.empty(batch, np.float32)
        self._weigh(parts.pop("ratio"), parts.pop("priority"), float(beta), weights)
        sequence = parts.pop("sequence")
        return Batch(parts, weights, sequence)

    def update_priorities(self, sequence: NDArray[np.int64], errors: ArrayLike) -> None:
        """Set the priorities of sampled records ``sequence [B]`` from their new |TD errors| ``[B]``.

        They go with the next request to each shard; :meth:`stats` counts what became of them. ValueError for errors
        that are no priorities, TypeError for numbers that are no integers, with nothing sent.
        """
        tickets, sizes = tickets_of(sequence), reals(errors)
        check_pairs(tickets, sizes)
        if not np.isfinite(sizes).all():
            raise not_finite(sizes)
        self._counts["sent"] += sizes.size
        self._updates.append((tickets.copy(), sizes.copy()))

    def flush(self) -> None:
        """Send the updates that wait, and wait until every shard has answered or was given up.

        Batches that were drawn ahead are dropped.
        """
        self._forget_batches()
        self._hand_out_updates()
        for place in range(len(self._shards)):
            self._probe(place)
        deadline = time.monotonic() + self.patience
        for shard in self._shards:
            if shard.probe is not None and not shard.is_given_up:
                probe, shard.probe = shard.probe, None
                self._receive(probe, deadline)
        self._take_answers()

    def list_shards(self) -> list[tuple[bool, int]]:
        """Return of each shard whether it is gone (began or was lost, and has not answered since), and its records."""
        return [(shard.is_gone, shard.records) for shard in self._shards]

    def give_up(self, place: int) -> None:
        """Draw no more from a shard until it answers a request that is sent from now on."""
        self._lose(_Call(self._called - 1, place, None, self._shards[place].run, 0))

    def stats(self) -> dict[str, float]:
        """Return counts of records, shards, updates and requests so far.

        ``records``, ``written``, ``total`` and ``largest`` are of all shards, as of their last answers; ``shards`` and
        how many of them are ``shards_gone`` at this moment; how often one was lost; ``drawn_again`` records in place of
        those that lost shards owed. The updates ``sent`` are ``applied + overwritten + late + waiting``; ``late`` ones
        were for a process that has ended, or was lost when they were to be sent. ``requests`` for batches took
        ``calls``; ``skew`` is the mean over requests of the total variation between totals drawn by and the newest,
        and ``most_skew`` the largest.
        """
        gone = sum(shard.is_gone for shard in self._shards)
        waiting = self._counts["sent"] - sum(self._counts[name] for name in ("applied", "overwritten", "late"))
        return {
            "records": len(self),
            "written": sum(shard.written for shard in self._shards),
            "total": float(self._totals.sum()),
            "largest": self._largest,
            "shards": len(self._shards),
            "shards_gone": gone,
            **self._counts,
            "waiting": waiting,
            "requests": self._requests,
            "calls": self._called,
            "skew": self._skews / max(1, self._requests),
            "most_skew": self._most_skew,
        }

    # Batches

    def _receive_batches(self, rng: np.random.Generator) -> None:
        """Put the batches of the oldest request into ``_ready``, and send as many requests as are to be under way."""
        self.look_after_shards()
        count = self._batch * self._batches_that_fit()
        while len(self._ahead) <= self._most_ahead:
            self._ahead.append(self._begin(count, rng) or self._begin_anew(count, rng))
        drawing = self._ahead.popleft()
        parts, self.drawn_at = self._joined(self._collect(drawing, rng)), drawing.moment
        self._requests += 1
        self._note_skew(drawing)
        # Values lie in order: of as many neighbors as there are batches, each batch gets one, and any of them alike.
        places = np.arange(parts["ratio"].size).reshape(self._batch, -1)
        if places.shape[1] > 1:
            places = rng.permuted(places, axis=1)
        for mine in places.T:
            self._ready.append({name: part[mine] for name, part in parts.items()})

    def _batches_that_fit(self) -> int:
        """Batches a request, so that an answer stays below what Ray sends at once."""
        largest = self._totals.max(initial=0.0)
        share = max(1.0 / self._most_shards, 1.0 / (self._totals / largest).sum()) if largest > 0.0 else 1.0
        most = _REPLY_BYTES / (share * self._plan.dtype(self._batch).itemsize)
        return max(1, min(self._batches_a_call, int(most)))

    def _begin(self, count: int, rng: np.random.Generator) -> _Drawing | None:
        """Ask for ``count`` records; None while no shard is known to have any."""
        largest = float(self._totals.max(initial=0.0))
        if not largest > 0.0:
            return None
        bounds = np.cumsum(self._totals / largest)
        shards_like_it = float(bounds[-1])
        shares, bounds = self._totals / largest / shards_like_it, bounds / shards_like_it
        if np.count_nonzero(self._totals) > self._most_shards:
            # Systematic: each of ``most_shards`` picks has an equal part of the total, and gives equally many records,
            # but for a remainder that goes to any of them alike.
            picks = (np.arange(self._most_shards) + rng.random()) / self._most_shards
            counts = count // picks.size + (rng.permutation(picks.size) < count % picks.size)
            owners = np.repeat(np.searchsorted(bounds, np.minimum(picks, _BELOW_ONE), side="right"), counts)
            inside = np.concatenate([(np.arange(size) + rng.random(size)) / size for size in counts if size])
        else:
            values = np.minimum((np.arange(count) + rng.random(count)) / count, _BELOW_ONE)
            owners = np.searchsorted(bounds, values, side="right")
            starts = np.concatenate(([0.0], bounds[:-1]))[owners]
            inside = (values - starts) / (bounds[owners] - starts)
        inside = np.clip(inside, 0.0, _BELOW_ONE)
        calls = [self._ask(int(place), inside[owners == place]) for place in np.unique(owners)]
        return _Drawing(calls, shares, largest, shards_like_it, self.moment)

    def _begin_anew(self, count: int, rng: np.random.Generator) -> _Drawing:
        """Ask all shards for their totals, and for ``count`` records as soon as one has any.

        RuntimeError where none has, ClusterError where none answers within the patience.
        """
        deadline = time.monotonic() + self.patience
        self.flush()
        drawing = self._begin(count, rng)
        while drawing is None and any(shard.is_gone for shard in self._shards) and time.monotonic() < deadline:
            time.sleep(min(_NAP_SECONDS, self.patience / 10))
            self.look_after_shards()
            drawing = self._begin(count, rng)
        gone = sum(shard.is_gone for shard in self._shards)
        if drawing is None and gone:
            others = "" if gone == len(self._shards) else ", and the others have no record"
            raise ClusterError(
                f"{gone} of {len(self._shards)} shards did not answer within {self.patience:g} s{others}: "
                "`ray status` shows which nodes live; a larger patience waits longer"
            )
        if drawing is None:
            raise EmptyError("there is nothing to sample: no shard has a record")
        return drawing

    def _collect(self, drawing: _Drawing, rng: np.random.Generator) -> list[_Answer]:
        """All records asked for, and in place of those that lost shards owe others."""
        got, largest = list[_Answer](), drawing.largest
        while True:
            # Invariant: ``got`` has all records asked for but those of ``drawing``.
            deadline, missing, empty, answers = time.monotonic() + self.patience, 0, 0.0, []
            waiting = deque(drawing.calls)
            try:
                while waiting:
                    call = waiting.popleft()
                    reply = self._receive(call, deadline)
                    if reply is not None and reply.drawn is not None:
                        answers.append((call, reply.drawn, reply.run))
                    else:
                        missing, empty = missing + call.count, empty + float(drawing.shares[call.shard])
            finally:  # where a shard refused what it was asked, or Ctrl-C came between, the other answers still count
                for call in waiting:
                    self._set_aside(call)
            total = drawing.largest / largest * drawing.shards_like_it * (1.0 - empty)
            got += [_Answer(*answer, total) for answer in answers]
            if not missing:
                return got
            self._counts["drawn_again"] += missing
            drawing = self._begin(missing, rng) or self._begin_anew(missing, rng)

    def _joined(self, got: list[_Answer]) -> dict[str, NDArray[Any]]:
        """The records of several answers ``[n, ...]``: ratio P(i) / Q(i) but for a factor, priority, sequence, rows."""
        every: dict[str, list[Any]] = {}
        for call, bytes_of_records, process, total in got:
            drawn: Any = np.frombuffer(bytes_of_records, self._plan.dtype(call.count))[0]
            run = self._shards[call.shard].runs[process]
            every.setdefault("ratio", []).append(drawn["total"] / call.total * total)
            every.setdefault("priority", []).append(drawn["priority"])
            tickets = (drawn["sequence"] + run * _MOST_TICKETS) * len(self._shards) + call.shard
            every.setdefault("sequence", []).append(tickets)
            for name in self._plan.names:
                every.setdefault(name, []).append(drawn[name])
        return {name: np.concatenate(parts) for name, parts in every.items()}

    def _note_skew(self, drawing: _Drawing) -> None:
        largest = self._totals.max()
        if largest > 0.0:
            newest = self._totals / largest
            skew = 0.5 * float(np.abs(newest / newest.sum() - drawing.shares).sum())
            self._skews, self._most_skew = self._skews + skew, max(self._most_skew, skew)

    def _forget_batches(self) -> None:
        """Drop batches drawn ahead; the updates that went with their requests are still counted as answers come."""
        for drawing in self._ahead:
            for call in drawing.calls:
                self._set_aside(call)
        self._ahead.clear()
        self._ready.clear()

    # Shards

    def _ask(self, place: int, uniforms: NDArray[np.float64] | None = None) -> _Call:
        """Send a shard what waits for it, and ask for records by ``uniforms [n]``."""
        shard = self._shards[place]
        tickets = np.concatenate(shard.tickets) if shard.waiting else None
        errors = np.concatenate(shard.errors) if shard.waiting else None
        request = Request(shard.run, tickets, errors, uniforms, self._largest)
        call = _Call(self._called, place, self._calls.ask(place, request), shard.run, shard.waiting)
        if uniforms is not None:
            call.count, call.total = uniforms.size, float(self._totals[place])
        shard.tickets, shard.errors, shard.waiting = [], [], 0
        shard.asked = time.monotonic()
        self._called += 1
        return call

    def _probe(self, place: int) -> None:
        """Ask a shard for its total alone; where it was given up and asked not long ago, leave it at that."""
        shard = self._shards[place]
        if shard.probe is not None:
            if shard.is_given_up and time.monotonic() - shard.asked < self.patience:
                return
            self._set_aside(shard.probe)
        shard.probe = self._ask(place)

    def _set_aside(self, call: _Call) -> None:
        """Wait no more for an answer, but count what it says of updates, if it ever comes."""
        if call.updates:
            self._shards[call.shard].unanswered.append(call)

    def _receive(self, call: _Call, deadline: float) -> Reply | None:
        """Return the answer to a request, or None where there is none by the deadline, or none for now.

        A lost shard is waited for once: its other requests are looked at, and not waited for.
        """
        shard = self._shards[call.shard]
        is_given_up = shard.is_given_up or shard.run != call.run
        try:
            reply = self._calls.answer(call.reference, 0.0 if is_given_up else max(0.0, deadline - time.monotonic()))
        except (LostError, TimeoutError) as error:
            if shard.run == call.run:  # else another process has followed the one that this request was sent to
                self._lose(call)
            if isinstance(error, LostError):
                self._counts["late"] += call.updates
            else:
                self._set_aside(call)
            return None
        except Exception:  # the shard refused what it was asked, and will not answer again
            self._counts["late"] += call.updates
            raise
        except BaseException:  # such as Ctrl-C
            self._set_aside(call)
            raise
        self._note(call, reply)
        return reply

    def _note(self, call: _Call, reply: Reply) -> None:
        """Take over what a shard says of itself; of an answer older than others its counts alone."""
        shard = self._shards[call.shard]
        self._counts["applied"] += reply.applied
        self._counts["overwritten"] += reply.overwritten
        self._counts["late"] += reply.expired
        self._largest = max(self._largest, reply.largest)
        shard.runs.setdefault(reply.run, len(shard.runs) % _MOST_RUNS)
        if call.number > shard.heard:
            if reply.run != shard.run:
                shard.run = reply.run
                self._drop_updates(shard)
            shard.is_gone, shard.is_given_up, shard.heard = False, False, call.number
            self._totals[call.shard], shard.records, shard.written = reply.total, reply.records, reply.written

    def _lose(self, call: _Call) -> None:
        """Draw no more from a shard until it answers a later request than this."""
        shard = self._shards[call.shard]
        self._counts["shards_lost"] += not shard.is_gone
        shard.is_gone, shard.is_given_up, shard.heard = True, True, max(shard.heard, call.number)
        self._totals[call.shard], shard.records = 0.0, 0
        self._drop_updates(shard)

    def _drop_updates(self, shard: _Shard) -> None:
        self._counts["late"] += shard.waiting
        shard.tickets, shard.errors, shard.waiting = [], [], 0

    def _hand_out_updates(self) -> None:
        """Put the updates so far with the shards that they are for; those for an earlier process are late."""
        if not self._updates:
            return
        tickets, sizes = (np.concatenate(parts) for parts in zip(*self._updates, strict=True))
        self._updates.clear()
        owners, numbers = tickets % len(self._shards), tickets // len(self._shards)
        for place, shard in enumerate(self._shards):
            mine = np.flatnonzero(owners == place)
            current = mine[numbers[mine] // _MOST_TICKETS == shard.runs.get(shard.run, -1)]
            count = 0 if shard.is_gone else current.size
            self._counts["late"] += mine.size - count
            if count:
                shard.tickets.append(numbers[current] % _MOST_TICKETS)
                shard.errors.append(sizes[current])
                shard.waiting += count

    def _take_answers(self) -> None:
        """Take the answers to requests that are not waited for."""
        now = time.monotonic()
        for shard in self._shards:
            pending = [*shard.unanswered, *([shard.probe] if shard.probe else [])]
            ready = set(self._calls.list_ready([call.reference for call in pending])) if pending else ()
            for call in [call for call in pending if call.reference in ready]:
                if call is shard.probe:
                    shard.probe = None
                else:
                    shard.unanswered.remove(call)
                self._receive(call, now)

    def look_after_shards(self) -> None:
        """Take answers that came late, and ask shards that were not asked lately for their totals."""
        self._take_answers()
        self._hand_out_updates()
        now = time.monotonic()
        asked = sum(shard.probe is not None and now - shard.asked < self.patience for shard in self._shards)
        idle = self.patience * _IDLE * max(1.0, len(self._shards) / _MOST_ASKED)
        for place in sorted(range(len(self._shards)), key=lambda place: self._shards[place].asked):
            shard = self._shards[place]
            due = self.patience if shard.probe else self.patience * _GONE if shard.is_gone else idle
            if now - shard.asked > due and asked < _MOST_ASKED:
                self._probe(place)
                asked += 1
