"""Programs to be found wrong: orders beside those of Algorithm 3 of [Zhang2021], and strategies with one fault."""

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from tests.oracles import atomic_steps as do
from tests.oracles import small_block as at
from tests.oracles.atomic_steps import Action, Program
from tests.oracles.replay_programs import (
    CHECKED,
    COPY,
    GLOBAL,
    ONE_LOCK,
    STRATEGIES,
    Case,
    Strategy,
    moved,
    replaced,
    with_roles,
    without,
)
from tests.oracles.small_block import DEADLOCK, DRIFT, FELL, INCOMPLETE, LATE, LOST, STRANGE, TORN, Block

LAZY, RWLOCK, BANKED = (STRATEGIES[name] for name in ("two_lock_lazy", "rwlock", "banked"))


class Entry(NamedTuple):
    """A line of Algorithm 3's table: a case, and the violations that it shows."""

    case: Case
    wrong: frozenset[str] = frozenset()


def _delta(program: Program) -> Program:
    return replaced(program, (do.sum_leaves, do.add_change))


def _late(program: Program) -> Program:
    """The update with the global lock acquired once the leaves' lock is released."""
    return moved(program, do.acquire, "sums")


def _inside(program: Program) -> Program:
    """The update with the global lock acquired inside the leaves' lock."""
    return moved(program, do.acquire, "second unlock")


def _entry(strategy: Strategy, roles: str, *wrong: str) -> Entry:
    return Entry(with_roles(strategy, tuple(roles.split(", "))), frozenset(wrong))


def _updates(edit: Callable[[Program], Program], roles: str, *wrong: str) -> Entry:
    return _entry(LAZY._replace(update=edit(LAZY.update)), roles, *wrong)


def _mixed(first: Entry, second: Entry, *wrong: str) -> Entry:
    """The first process of one case beside the others of another."""
    programs = (first.case.programs[0], *second.case.programs[1:])
    return Entry(first.case._replace(programs=programs), frozenset(wrong))


TWO, BESIDE = "update 0, update 1", "update 0, sample 0"
UNLOCKED = STRATEGIES["none"]
VERSIONED = CHECKED._replace(insert=moved(without(CHECKED.insert, do.odd, do.free), do.even, "commit"))
ALGORITHM_3 = {
    "no lock, two updates": _entry(UNLOCKED, TWO, DRIFT),
    "leaves' lock only, two updates": _updates(lambda p: without(p, do.acquire), TWO, DRIFT),
    "as printed, two updates": _entry(LAZY, TWO),
    "as printed, two updates by differences": _entry(LAZY.edited(_delta), TWO),
    "as printed, update beside sample": _entry(LAZY, BESIDE),
    "as printed, update beside sample and retrieval": _entry(LAZY, "update 0, sample 0, retrieve 0"),
    "as printed, insert beside retrieval": _entry(LAZY, "insert 1, retrieve 0", STRANGE),
    "words looked at, insert beside retrieval": _entry(CHECKED, "insert 1, retrieve 0"),
    "global lock acquired late, two updates": _updates(_late, TWO),
    "global lock acquired late, update beside sample": _updates(_late, BESIDE, FELL),
    "global lock acquired late, two updates beside sample": _updates(_late, f"{TWO}, sample 0", FELL),
    "one global then leaves, one leaves then global": _mixed(_entry(LAZY, TWO), _updates(_inside, TWO), DEADLOCK),
    "sample without the global lock": _entry(
        LAZY._replace(sample=without(LAZY.sample, do.acquire, do.release)), BESIDE, FELL
    ),
    "insert without the zero": _entry(
        LAZY._replace(insert=without(LAZY.insert, do.zero)), "insert 1, sample 0", INCOMPLETE, TORN
    ),
    "insert that raises before it writes": _entry(
        LAZY._replace(insert=(*without(LAZY.insert, do.first_half, do.second_half), *COPY)),
        "insert 1, sample 0",
        INCOMPLETE,
        TORN,
    ),
    "as printed, insert beside sample that reads": _entry(LAZY, "insert 1, sample 0", TORN),
    "as printed, insert beside late update": _entry(LAZY, "insert 1, update 0", LATE, INCOMPLETE),
    "as printed, insert, late update, a reader that rechecks": _entry(
        LAZY._replace(sample=CHECKED.sample), "insert 1, update 0, sample 0", LATE, INCOMPLETE, TORN
    ),
    "version raised after the write, update and reader check it": _entry(
        VERSIONED, "insert 1, update 0, sample 0", LATE, INCOMPLETE, TORN
    ),
    "words odd before the zero and even after the write": _entry(CHECKED, "insert 1, update 0, sample 0"),
}


def acquire_other(m: Block, me: int) -> str | None:
    """Acquire the other bank's lock."""
    m[me + at.BANK] ^= 1
    answer = do.acquire(m, me)
    m[me + at.BANK] ^= 1
    return answer


def release_other(m: Block, me: int) -> None:
    m[me + at.BANK] ^= 1
    do.release(m, me)
    m[me + at.BANK] ^= 1


def acquire_without_recovery(m: Block, me: int) -> str | None:
    """Wait for a lock's owner even when it is dead."""
    return do.WAIT if m[at.LOCK] else do.acquire(m, me)


def acquire_without_repair(m: Block, me: int) -> str | None:
    """Take a dead owner's lock as if nothing were under way."""
    if m[at.LOCK] and m[m[at.LOCK]] == at.DEAD:
        m[at.LOCK] = 0
    return do.acquire(m, me)


def free_but_cuts(m: Block, me: int) -> str | None:
    """Wait for the slots to come, but not for those to cut."""
    frames, m[at.FRAMES] = m[at.FRAMES], 1
    answer = do.free(m, me)
    m[at.FRAMES] = frames
    return answer


def free_for_ever(m: Block, me: int) -> str | None:
    """Wait for inserts under way of dead processes as well."""
    return do.WAIT if do.under_way(m, me) else None


class Fault(NamedTuple):
    """A strategy with one fault, the case of CASES that shows it, and the violation that it is known by."""

    strategy: Strategy
    case: str
    wrong: str


def _fault(strategy: Strategy, part: str, edit: Callable[[Program], Program], case: str, wrong: str) -> Fault:
    return Fault(strategy._replace(**{part: edit(getattr(strategy, part))}), case, wrong)


def _lacks(*actions: Action) -> Callable[[Program], Program]:
    return lambda program: without(program, *actions)


def _moves(action: Action, before: str) -> Callable[[Program], Program]:
    return lambda program: moved(program, action, before)


def _swaps(*pairs: tuple[Action, Action]) -> Callable[[Program], Program]:
    return lambda program: replaced(program, *pairs)


def _unlocked(program: Program, *names: str) -> Program:
    """The program without the global lock in these steps."""
    steps = (without((step,), do.acquire, do.release) if step.name in names else (step,) for step in program)
    return tuple(chain.from_iterable(steps))


READ, LATELY, ASKED = "insert and sample", "insert, late update and sample", "insert, late update and retrieval"
LAP, CUTS = "two inserts a lap apart, and a sample", "insert that cuts a stack, late update and sample"
TWICE, SEARCHED, DIES = "two updates", "two updates and a sample", "learner that dies"
INSERTS, UNDER_WAY = "two inserts and a sample", "insert that cuts a stack under way"
GLOBAL_LOCK, LEAVES_LOCK = _lacks(do.acquire, do.release), _lacks(do.acquire_second, do.release_second)
READERS = _swaps((do.acquire, RWLOCK.sample[0].actions[0]), (do.release, do.release_shared))
OTHER_BANK = _swaps((do.acquire, acquire_other), (do.release, release_other))
FAULTS = {
    "words not made odd": _fault(CHECKED, "insert", _lacks(do.odd), READ, TORN),
    "words odd only while rows are copied": _fault(CHECKED, "insert", _moves(do.odd, "second half"), READ, TORN),
    "leaf not zeroed": _fault(CHECKED, "insert", _lacks(do.zero), READ, INCOMPLETE),
    "leaf raised before its half": _fault(CHECKED, "insert", _moves(do.raise_leaves, "second half"), READ, INCOMPLETE),
    "reader without a recheck": _fault(CHECKED, "sample", _lacks(do.unchanged), READ, TORN),
    "recheck before the second half": _fault(CHECKED, "sample", _moves(do.unchanged, "read second half"), READ, TORN),
    "late update not refused": _fault(CHECKED, "update", _lacks(do.unchanged), LATELY, LATE),
    "word looked at before the lock": _fault(CHECKED, "update", _moves(do.unchanged, "update"), LATELY, LATE),
    "retrieval without the leaves' lock": _fault(CHECKED, "retrieve", LEAVES_LOCK, ASKED, STRANGE),
    "retrieval that does not look at the count": _fault(CHECKED, "retrieve", _lacks(do.in_ring), ASKED, STRANGE),
    "sums left out": _fault(CHECKED, "update", _lacks(do.sum_leaves, do.write_sum), TWICE, DRIFT),
    "sums after the release": _fault(GLOBAL, "update", _moves(do.release, "sums"), TWICE, DRIFT),
    "search without the lock": _fault(CHECKED, "sample", GLOBAL_LOCK, SEARCHED, FELL),
    "update without the lock": _fault(CHECKED, "update", GLOBAL_LOCK, SEARCHED, FELL),
    "commit without the lock": _fault(CHECKED, "insert", lambda p: _unlocked(p, "commit", "committed"), READ, FELL),
    "second lock not released": _fault(CHECKED, "update", _lacks(do.release_second), TWICE, DEADLOCK),
    "locks acquired in two orders": _fault(CHECKED, "update", _inside, LATELY, DEADLOCK),
    "ticket taken before the lock": _fault(
        GLOBAL, "insert", _moves(do.take, "reserve"), "two inserts and a sample", LOST
    ),
    "inserts a lap apart at once": _fault(CHECKED, "insert", _lacks(do.free), LAP, LOST),
    "out of the table too early": _fault(ONE_LOCK, "insert", _moves(do.leave, "commit"), LAP, INCOMPLETE),
    "words of cut stacks left": _fault(CHECKED, "insert", _lacks(do.cut), CUTS, TORN),
    "leaves of cut stacks left": _fault(CHECKED, "insert", _lacks(do.zero_cut), CUTS, INCOMPLETE),
    "stacks cut under way": _fault(CHECKED, "insert", _swaps((do.free, free_but_cuts)), UNDER_WAY, INCOMPLETE),
    "lock that is not robust": Fault(GLOBAL.edited(_swaps((do.acquire, acquire_without_recovery))), DIES, DEADLOCK),
    "lock of the dead without repair": Fault(GLOBAL.edited(_swaps((do.acquire, acquire_without_repair))), DIES, FELL),
    "inserts of the dead waited for": _fault(
        GLOBAL, "insert", _swaps((do.free, free_for_ever)), "insert that dies", DEADLOCK
    ),
    "update under the readers' lock": _fault(RWLOCK, "update", READERS, TWICE, DRIFT),
    "the other bank's lock": _fault(BANKED, "insert", OTHER_BANK, READ, FELL),
}
