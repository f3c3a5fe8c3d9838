"""Each locking strategy's operations as programs of atomic steps, and the small cases to explore."""

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from tests.oracles import atomic_steps as do
from tests.oracles import small_block as at
from tests.oracles.atomic_steps import Action, Program, Step

SUMS = (Step("sums", (do.sum_leaves,)), Step("write sums", (do.write_sum,)))
COPY = (Step("first half", (do.first_half,)), Step("second half", (do.second_half,)))
SAMPLE = (
    Step("search", (do.acquire,)),
    Step("descend", (do.descend,)),
    Step("searched", (do.release,)),
    Step("read first half", (do.read_one,), "end"),
    Step("read second half", (do.read_two,)),
    Step("recheck", (do.unchanged,), "search"),
    Step("accept", (do.accept,)),
)
WHOLE_SAMPLE = (
    Step("search", (do.acquire,)),
    Step("descend", (do.descend,)),
    Step("read first half", (do.read_one,), "searched"),
    Step("read second half", (do.read_two,)),
    Step("searched", (do.release, do.accept)),
)
UPDATE = (
    Step("update", (do.acquire, do.unchanged), "updated"),
    Step("leaves", (do.set_leaf,)),
    *SUMS,
    Step("updated", (do.release,)),
)
RETRIEVE = (
    Step("retrieve", (do.acquire,)),
    Step("look", (do.in_ring, do.unchanged, do.watch), "retrieved"),
    Step("read leaf", (do.read_leaf,)),
    Step("retrieved", (do.release,)),
)
RETRIEVE_LEAF = (
    Step("second lock", (do.acquire_second,)),
    RETRIEVE[1]._replace(otherwise="second unlock"),
    RETRIEVE[2],
    Step("second unlock", (do.release_second,)),
)
INSERT = (
    Step("reserve", (do.acquire, do.free, do.take, do.count, do.enter)),
    Step("odd", (do.odd, do.cut)),
    Step("zero", (do.zero, do.zero_cut)),
    *SUMS,
    Step("reserved", (do.release,)),
    *COPY,
    Step("commit", (do.acquire,)),
    Step("even", (do.even,)),
    Step("raise", (do.raise_leaves,)),
    SUMS[0],
    Step("write sums", (do.write_sum, do.leave)),
    Step("committed", (do.release,)),
)
WHOLE_INSERT = tuple(step for step in INSERT if step.name not in ("reserved", "commit"))


def two_locks(program: Program) -> Program:
    """The program with every write of leaves under a second lock, inside the first."""
    lock, unlock = Step("second lock", (do.acquire_second,)), Step("second unlock", (do.release_second,))
    leaves = {"zero", "raise", "leaves"}
    return tuple(chain.from_iterable((lock, step, unlock) if step.name in leaves else (step,) for step in program))


def without(program: Program, *actions: Action) -> Program:
    """The program with these actions left out wherever they stand; a step left empty goes, its successor for it."""
    left = [step._replace(actions=tuple(a for a in step.actions if a not in actions)) for step in program]
    heirs, heir = {}, "end"
    for step in reversed(left):
        heir = heirs[step.name] = step.name if step.actions else heir
    return tuple(step._replace(otherwise=heirs.get(step.otherwise, "end")) for step in left if step.actions)


def replaced(program: Program, *pairs: tuple[Action, Action]) -> Program:
    """The program with another action in an action's place, for each pair of them."""
    new = dict(pairs)
    return tuple(step._replace(actions=tuple(new.get(a, a) for a in step.actions)) for step in program)


def moved(program: Program, action: Action, before: str) -> Program:
    """The program with an action's first occurrence made a step of its own, before the first step named ``before``."""
    place, step = next((place, step) for place, step in enumerate(program) if action in step.actions)
    alone = Step(step.name if step.actions == (action,) else action.__name__, (action,), step.otherwise)
    left = step._replace(actions=tuple(a for a in step.actions if a is not action))
    rest = (*program[:place], *([left] if left.actions else []), *program[place + 1 :])
    to = next(place for place, step in enumerate(rest) if step.name == before)
    return (*rest[:to], alone, *rest[to:])


def joined(*parts: Program) -> Program:
    """One program of several, with the places of steps for their names wherever one refuses."""
    steps: list[Step] = []
    for part in parts:
        places = {"end": sum(map(len, parts))}
        for place, step in enumerate(part, len(steps)):
            places.setdefault(step.name, place)
        steps += (step._replace(otherwise=places[step.otherwise]) for step in part)
    return tuple(steps)


class Strategy(NamedTuple):
    """The programs of its operations."""

    insert: Program
    sample: Program
    update: Program
    retrieve: Program = RETRIEVE
    banks: int = 1
    skips: str = "-"  # a word in the titles of cases that it is not made for

    def cases(self) -> list[str]:
        """Titles of the cases that it is made for."""
        return [title for title in CASES if self.skips not in title]

    def edited(self, edit: Callable[[Program], Program]) -> "Strategy":
        """The strategy with all of its programs edited."""
        programs = ("insert", "sample", "update", "retrieve")
        return self._replace(**{name: edit(getattr(self, name)) for name in programs})


GLOBAL = Strategy(WHOLE_INSERT, WHOLE_SAMPLE, UPDATE)
ONE_LOCK = Strategy(INSERT, SAMPLE, UPDATE)
CHECKED = ONE_LOCK.edited(two_locks)._replace(retrieve=RETRIEVE_LEAF)
SHARED = (do.acquire, do.acquire_shared), (do.release, do.release_shared)
STRATEGIES = {
    "none": ONE_LOCK._replace(sample=without(SAMPLE, do.unchanged)).edited(
        lambda program: without(program, do.acquire, do.release)
    ),
    "global": GLOBAL,
    "rwlock": GLOBAL._replace(
        sample=replaced(WHOLE_SAMPLE, *SHARED), retrieve=replaced(RETRIEVE, *SHARED), skips="dies"
    ),
    "two_lock_lazy": CHECKED.edited(lambda program: without(program, do.unchanged, do.in_ring)),
    "two_lock_checked": CHECKED,
    "banked": ONE_LOCK._replace(banks=2),
}
RIGHT = tuple(name for name in STRATEGIES if name not in ("none", "two_lock_lazy"))


class Case(NamedTuple):
    """Processes, a program each, on a block; those in ``mortal`` may die before any of their steps."""

    start: tuple[int, ...]
    programs: tuple[Program, ...]
    mortal: frozenset[int] = frozenset()
    roles: tuple[str, ...] = ()  # what the processes play
    readers: tuple[int, ...] = ()  # offsets of the words of those that retrieve a priority


# What the processes do: "insert n" rows as an episode of their own, "continue" with n rows of the block's episode,
# "sample s" of slot s where it is drawable, "update s" of the record that lay there at first (so it may come late),
# "learn s", which samples and then updates what it drew, "retrieve s", the priority
# of the record that lay there at first. "dies" makes the process mortal.
CASES = {
    "two updates": ("update 0", "update 1"),
    "two updates of one record, and a sample": ("update 0", "update 0", "sample 0"),
    "two updates and a sample": ("update 0", "update 1", "sample 0"),
    "two updates and a retrieval": ("update 0", "update 1", "retrieve 0"),
    "insert, late update and retrieval": ("insert 1", "update 0", "retrieve 0"),
    "two learners": ("learn 0", "learn 0"),
    "insert and sample": ("insert 1", "sample 0"),
    "insert, late update and sample": ("insert 1", "update 0", "sample 0"),
    "insert of two rows, late update and sample": ("insert 2", "update 1", "sample 1"),
    "insert and two learners": ("insert 1", "learn 0", "learn 1"),
    "two inserts and a sample": ("insert 1", "insert 1", "sample 1"),
    "two inserts a lap apart, and a sample": ("insert 2", "insert 1", "sample 0"),
    "insert that cuts a stack, late update and sample": ("insert 1", "update 1", "sample 1"),
    "insert that cuts a stack under way": ("continue 1", "insert 2", "sample 0"),
    "insert that dies": ("insert 1 dies", "insert 2", "sample 0"),
    "learner that dies": ("learn 0 dies", "update 1", "sample 0"),
    "insert that dies beside an insert": ("insert 2 dies", "insert 1", "learn 0"),
}


def case(strategy: Strategy, name: str) -> Case:
    """A case of CASES, with the programs of a strategy."""
    return with_roles(strategy, CASES[name], stacked="stack" in name)


def with_roles(strategy: Strategy, roles: tuple[str, ...], *, stacked: bool = False) -> Case:
    """Processes that play ``roles`` on a full block of two slots, or of three with frame stacks of two.

    A second bank is as large; one more process updates a priority in it.
    """
    banks, number_of = strategy.banks, len(roles) + strategy.banks - 1
    m = at.block(banks * (2 + stacked), number_of, banks=banks, frames=1 + stacked)
    programs, readers = [], []
    for number, (verb, amount, *_) in enumerate(role.split() for role in (*roles, "update 0")[:number_of]):
        me, n, bank = at.PROCESSES + number * at.WIDTH, int(amount), int(number == len(roles))
        m[me + at.BANK] = bank
        if verb in ("insert", "continue"):
            m[me + at.ROWS], m[me + at.WRITER] = n, number + 1 if verb == "insert" else 0
            programs.append(joined(strategy.insert))
        else:
            slot = m[me + at.WANTED] = m[me + at.SLOT] = banks * n + bank
            m[me + at.SEEN] = m[at.WORD + slot] if verb in ("update", "retrieve") else 0
            sample, update = strategy.sample, strategy.update
            parts = {"sample": [sample], "update": [update], "learn": [sample, update], "retrieve": [strategy.retrieve]}
            programs.append(joined(*parts[verb]))
            readers += [me] if verb == "retrieve" else []
    mortal = frozenset(number for number, role in enumerate(roles) if role.endswith("dies"))
    return Case(tuple(m), tuple(programs), mortal, roles, tuple(readers))
