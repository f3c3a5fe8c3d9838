"""A replay's block of a few slots, small enough to visit its every state, and what may not be seen in it.

The block is a list of integers at fixed offsets, as the kernels' own is; whatever is written is seen at once by all.
Record t (t its ticket) lies in slot t % N, and both halves of its row read 100 * (t + 1) + 10 * row + writer, so that a
mixture of two records shows. A slot's word is 4 * (t + 1) + state.
"""

from collections.abc import Iterator

Block = list[int]

FELL = "a sampler falls off: root and leaves disagree"
TORN = "a torn record was read"
LATE = "a late update landed on a newer record"
INCOMPLETE = "a record that is not complete has a leaf above 0"
STRANGE = "a priority was retrieved that the record did not have meanwhile"
DRIFT = "the root differs from the sum at rest"
LOST = "an insert was lost"
DEADLOCK = "deadlock"
ON_THE_WAY = ("", FELL, TORN, LATE, STRANGE)  # what an action saw itself: it writes the place to WRONG

WRITING, COMPLETE, CUT = 1, 2, 3  # states in a slot's word
DEAD = -1  # the program counter of a process that died

# The block: header words, two locks, a lock for leaves and two roots (a bank each), six slots, then the processes.
WRONG, CAPACITY, BANKS, FRAMES = range(4)
WRITTEN, LOCK, SECOND, ROOT, WORD, LEAF, HALF, PROCESSES = 4, 6, 8, 9, 11, 17, 23, 35
# Words of a process: its place in its program, what it was asked to do, then what it remembers.
PC, WRITER, ROWS, SLOT, WANTED, BANK, SEEN, TICKET, FLIGHT, SUM, CHANGE, ONE, TWO, FRAME, HAD, WIDTH = range(16)


def block(capacity: int, processes: int, *, banks: int = 1, frames: int = 1) -> Block:
    """A full block: record s of writer 0 in slot s, which belongs to bank s % L; every leaf 1."""
    m = [0] * (PROCESSES + processes * WIDTH)
    m[CAPACITY], m[BANKS], m[FRAMES] = capacity, banks, frames
    for bank in range(banks):
        m[WRITTEN + bank] = capacity + bank
    for slot in range(capacity):
        m[WORD + slot], m[LEAF + slot] = 4 * (slot + 1) + COMPLETE, 1
        m[HALF + 2 * slot] = m[HALF + 2 * slot + 1] = 100 * (slot + 1) + 10 * (slot // banks)
        m[ROOT + slot % banks] += 1
    return m


def processes_of(m: Block | tuple[int, ...]) -> range:
    """Offsets of the processes' words."""
    return range(PROCESSES, len(m), WIDTH)


def tickets(m: Block, source: int) -> range:
    """Tickets of the records of ``source``; those of one bank are L apart."""
    first, banks = m[source + TICKET], m[BANKS]
    return range(first, first + banks * m[source + ROWS], banks)


def stale(m: Block, first: int, rows: int) -> list[int]:
    """Slots whose frame stacks reach into the ``rows`` records from ticket ``first`` on."""
    is_cut = m[FRAMES] > 1 and m[BANKS] * rows < m[CAPACITY]
    return [(first + m[BANKS] * rows) % m[CAPACITY]] if is_cut else []


def whole(m: Block, one: int, two: int, frame: int) -> bool:
    """Whether two halves, and the frame before them where rows are stacked, are those of one record."""
    return one == two and (m[FRAMES] == 1 or one // 10 % 10 == 0 or frame == one - 100 * m[BANKS] - 10)


def complete(m: Block, slot: int) -> bool:
    """Whether the slot's row, and the frame that it shares, are whole."""
    before = (slot - m[BANKS]) % m[CAPACITY]
    return whole(m, m[HALF + 2 * slot], m[HALF + 2 * slot + 1], m[HALF + 2 * before])


def leaves_of(m: Block, bank: int) -> int:
    """The true sum of a bank's leaves."""
    return sum(m[LEAF + bank : LEAF + m[CAPACITY] : m[BANKS]])


def in_ring(m: Block, me: int) -> bool:
    """Whether no insert has yet been counted whose record takes the slot of the one that a process has seen."""
    return m[me + SEEN] // 4 - 1 >= m[WRITTEN + m[me + BANK]] - m[CAPACITY]


def priority_of(m: Block, me: int) -> int:
    """The priority of the record that a process has seen in its slot; 0 once it is not there."""
    slot = m[me + SLOT]
    return m[LEAF + slot] if m[WORD + slot] == m[me + SEEN] and in_ring(m, me) else 0


def repair(m: Block, bank: int) -> None:
    """Zero a bank's leaves of records under way and recompute its sums: what follows when its lock's owner has died."""
    for slot in range(bank, m[CAPACITY], m[BANKS]):
        if m[WORD + slot] % 4 != COMPLETE:
            m[LEAF + slot] = 0
    m[ROOT + bank] = leaves_of(m, bank)


def wrongs(m: Block | tuple[int, ...]) -> Iterator[str]:
    """Violations that a sampler may come upon: those of banks that nobody has locked."""
    for slot in range(m[CAPACITY]):
        if m[LEAF + slot] and m[LOCK + slot % m[BANKS]] <= 0 and not complete(m, slot):
            yield INCOMPLETE


def wrongs_at_rest(m: Block) -> Iterator[str]:
    """Violations of a block that nobody works on, once the locks of the dead are repaired."""
    for lock in range(LOCK, LOCK + 3):
        if m[lock] > 0 and m[m[lock]] == DEAD:
            repair(m, 0 if lock == SECOND else lock - LOCK)
    if any(m[ROOT + bank] != leaves_of(m, bank) for bank in range(m[BANKS])):
        yield DRIFT
    inserted = [(ticket, me) for me in processes_of(m) if m[me + TICKET] for ticket in tickets(m, me)]
    if any(_lost(m, slot, inserted) for slot in range(m[CAPACITY])):
        yield LOST


def _lost(m: Block, slot: int, inserted: list[tuple[int, int]]) -> bool:
    """Whether the slot lacks a record, or is not drawable, though no later record and no death explains it."""
    here = [(ticket, me) for ticket, me in inserted if ticket % m[CAPACITY] == slot] or [(slot, 0)]
    newest = max(here)[0]
    for ticket, me in here:
        is_dead = me and m[me] == DEAD
        if ticket < newest or is_dead or m[WORD + slot] % 4 == CUT:
            continue
        row = m[HALF + 2 * slot]
        if row // 100 != ticket + 1 or row % 10 != (m[me + WRITER] if me else 0) or not m[LEAF + slot]:
            return True
    return False
