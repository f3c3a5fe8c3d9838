"""The steps that the replay's strategies are made of: what one process does at once to the block.

An action takes the block and the process, which is known by the offset of its words. ``POINTS`` numbers the steps that
begin at a yield point of the kernels.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.oracles import small_block as at
from tests.oracles.small_block import Block

Action = Callable[[Block, int], str | None]
WAIT, REFUSE = "wait", "refuse"  # an action's answers: the step cannot be taken yet; go where the step says


class Step(NamedTuple):
    """Actions that run together, and the name or place of the step to follow (or "end") where one of them refuses."""

    name: str
    actions: tuple[Action, ...]
    otherwise: str | int = "end"


Program = tuple[Step, ...]

POINTS_OF = {
    "insert": "reserve, odd, zero, reserved, first half, second half, commit, even, raise, committed",
    "sample": "search, descend, searched, read first half, read second half, recheck",
    "update": "update, leaves, sums, updated",
    "two locks": "second lock, second unlock",
    "retrieval": "retrieve, look, read leaf, retrieved",
}
POINTS = {name: number for number, name in enumerate(", ".join(POINTS_OF.values()).split(", "), 1)}


# Locks. A lock's word is 0, its owner, or minus the number of its readers.


def acquire(m: Block, me: int) -> str | None:
    return _acquire(m, me, at.LOCK + m[me + at.BANK])


def acquire_second(m: Block, me: int) -> str | None:
    return _acquire(m, me, at.SECOND)


def _acquire(m: Block, me: int, lock: int) -> str | None:
    owner = m[lock]
    if owner and (owner < 0 or m[owner] != at.DEAD):
        return WAIT
    m[lock] = me
    if owner:
        at.repair(m, 0 if lock == at.SECOND else lock - at.LOCK)
        if m[at.SECOND] == owner:
            m[at.SECOND] = 0
    return None


def acquire_shared(m: Block, me: int) -> str | None:
    if m[at.LOCK] > 0:
        return WAIT
    m[at.LOCK] -= 1
    return None


def release(m: Block, me: int) -> None:
    if m[at.LOCK + m[me + at.BANK]] == me:
        m[at.LOCK + m[me + at.BANK]] = 0


def release_second(m: Block, me: int) -> None:
    m[at.SECOND] = 0


def release_shared(m: Block, me: int) -> None:
    m[at.LOCK] += 1


def free(m: Block, me: int) -> str | None:
    """Wait for inserts under way on the slots to come, and on those to cut; strike out those whose process died."""
    for other in under_way(m, me):
        if m[other] != at.DEAD:
            return WAIT
        m[other + at.FLIGHT] = 0
    return None


def under_way(m: Block, me: int) -> list[int]:
    """Processes that insert on a slot that ``me`` is about to be given or to cut."""
    first, rows, banks = m[at.WRITTEN + m[me + at.BANK]], m[me + at.ROWS], m[at.BANKS]
    coming = range(first, first + banks * rows, banks)
    wanted = {ticket % m[at.CAPACITY] for ticket in coming}.union(at.stale(m, first, rows))
    others = [other for other in at.processes_of(m) if m[other + at.FLIGHT]]
    return [other for other in others if any(t % m[at.CAPACITY] in wanted for t in at.tickets(m, other))]


def take(m: Block, me: int) -> None:
    m[me + at.TICKET] = m[at.WRITTEN + m[me + at.BANK]]


def count(m: Block, me: int) -> None:
    m[at.WRITTEN + m[me + at.BANK]] = m[me + at.TICKET] + m[at.BANKS] * m[me + at.ROWS]


def enter(m: Block, me: int) -> None:
    m[me + at.FLIGHT] = 1


def leave(m: Block, me: int) -> None:
    m[me + at.FLIGHT] = 0


def odd(m: Block, me: int) -> None:
    _state(m, me, at.WRITING)


def even(m: Block, me: int) -> None:
    _state(m, me, at.COMPLETE)


def _stale(m: Block, me: int) -> list[int]:
    """Slots that are cut: those behind all that is written at once."""
    return at.stale(m, m[me + at.TICKET], m[me + at.ROWS])


def _state(m: Block, me: int, state: int) -> None:
    for ticket in at.tickets(m, me):
        m[at.WORD + ticket % m[at.CAPACITY]] = 4 * (ticket + 1) + state


def cut(m: Block, me: int) -> None:
    for slot in _stale(m, me):
        m[at.WORD + slot] |= at.CUT


def zero(m: Block, me: int) -> None:
    for ticket in at.tickets(m, me):
        _set(m, me, ticket % m[at.CAPACITY], 0)


def zero_cut(m: Block, me: int) -> None:
    for slot in _stale(m, me):
        _set(m, me, slot, 0)


def raise_leaves(m: Block, me: int) -> None:
    for ticket in at.tickets(m, me):
        _set(m, me, ticket % m[at.CAPACITY], 2)


def _set(m: Block, me: int, slot: int, leaf: int) -> None:
    m[me + at.CHANGE] += leaf - m[at.LEAF + slot]
    m[at.LEAF + slot] = leaf


def first_half(m: Block, me: int) -> None:
    _copy(m, me, 0)


def second_half(m: Block, me: int) -> None:
    _copy(m, me, 1)


def _copy(m: Block, me: int, half: int) -> None:
    writer, first = m[me + at.WRITER], m[me + at.TICKET]
    # Writer 0 goes on with the block's episode, where no other record has come between.
    goes_on = not writer and first < m[at.CAPACITY] + m[at.BANKS]
    for ticket in at.tickets(m, me):
        row = (ticket if goes_on else ticket - first) // m[at.BANKS]
        m[at.HALF + 2 * (ticket % m[at.CAPACITY]) + half] = 100 * (ticket + 1) + 10 * row + writer


# Inner levels are one node: recomputed from the leaves, or changed by a difference.


def sum_leaves(m: Block, me: int) -> None:
    m[me + at.SUM] = at.leaves_of(m, m[me + at.BANK])
    m[me + at.CHANGE] = 0


def add_change(m: Block, me: int) -> None:
    m[me + at.SUM] = m[at.ROOT] + m[me + at.CHANGE]
    m[me + at.CHANGE] = 0


def write_sum(m: Block, me: int) -> None:
    m[at.ROOT + m[me + at.BANK]] = m[me + at.SUM]


def descend(m: Block, me: int) -> None:
    bank, capacity = m[me + at.BANK], m[at.CAPACITY]
    if m[at.ROOT + bank] != at.leaves_of(m, bank):
        m[at.WRONG] = at.ON_THE_WAY.index(at.FELL)
    drawable = [slot for slot in range(bank, capacity, m[at.BANKS]) if m[at.LEAF + slot]]
    m[me + at.SLOT] = m[me + at.WANTED] if m[me + at.WANTED] in drawable else drawable[0] if drawable else -1
    m[me + at.SEEN] = m[at.WORD + m[me + at.SLOT]] if drawable else 0


def read_one(m: Block, me: int) -> str | None:
    slot = m[me + at.SLOT]
    if slot < 0:
        return REFUSE
    m[me + at.ONE], m[me + at.FRAME] = m[at.HALF + 2 * slot], m[at.HALF + 2 * ((slot - m[at.BANKS]) % m[at.CAPACITY])]
    return None


def read_two(m: Block, me: int) -> None:
    m[me + at.TWO] = m[at.HALF + 2 * m[me + at.SLOT] + 1]


def unchanged(m: Block, me: int) -> str | None:
    return None if m[at.WORD + m[me + at.SLOT]] == m[me + at.SEEN] else REFUSE


def accept(m: Block, me: int) -> None:
    if not at.whole(m, m[me + at.ONE], m[me + at.TWO], m[me + at.FRAME]):
        m[at.WRONG] = at.ON_THE_WAY.index(at.TORN)


def set_leaf(m: Block, me: int) -> None:
    slot = m[me + at.SLOT]
    if m[at.WORD + slot] != m[me + at.SEEN]:
        m[at.WRONG] = at.ON_THE_WAY.index(at.LATE)
    _set(m, me, slot, 3)


def in_ring(m: Block, me: int) -> str | None:
    """Refuse a record that an insert has counted itself over."""
    return None if at.in_ring(m, me) else REFUSE


def watch(m: Block, me: int) -> None:
    """Begin to note which priorities the record has."""
    m[me + at.HAD] = 1 << at.priority_of(m, me)


def read_leaf(m: Block, me: int) -> None:
    """Answer with the leaf, which must be a priority that the record has had since :func:`watch`."""
    m[me + at.ONE], had, m[me + at.HAD] = m[at.LEAF + m[me + at.SLOT]], m[me + at.HAD], 0
    if not had >> m[me + at.ONE] & 1:
        m[at.WRONG] = at.ON_THE_WAY.index(at.STRANGE)
