"""Every interleaving of small cases of the replay; ``python -m tests.oracles.interleavings`` prints each strategy's."""

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from tests.oracles.atomic_steps import REFUSE, WAIT
from tests.oracles.faulty_programs import ALGORITHM_3, FAULTS
from tests.oracles.replay_programs import CASES, STRATEGIES, Case, case
from tests.oracles.small_block import (
    DEAD,
    DEADLOCK,
    HAD,
    ON_THE_WAY,
    ONE,
    PROCESSES,
    WIDTH,
    WRONG,
    priority_of,
    wrongs,
    wrongs_at_rest,
)

State = tuple[int, ...]
Move = tuple[int, str]  # a process's number and the name of the step that it takes
Schedule = tuple[Move, ...]


class Found(NamedTuple):
    """The number of states, and the shortest schedule to each violation."""

    states: int
    wrong: dict[str, Schedule]


@cache
def explore(case: Case) -> Found:
    """Visit every state that some interleaving reaches, breadth first."""
    came: dict[State, tuple[State, Move] | None] = {case.start: None}
    wrong: dict[str, Schedule] = {}
    queue = deque([case.start])
    # Invariant: states are queued by their distance from the start, so the first schedule to a violation is a shortest.
    while queue:
        state = queue.popleft()
        moves = list(_moves(case, state))
        for violation in () if moves else _at_the_end(case, state):
            wrong.setdefault(violation, _schedule(came, state))
        for move, following, seen in (*moves, *_deaths(case, state)):
            if seen and seen not in wrong:
                wrong[seen] = (*_schedule(came, state), move)
            if following not in came:
                came[following] = state, move
                queue.append(following)
                for violation in set(wrongs(following)) - wrong.keys():
                    wrong[violation] = _schedule(came, following)
    return Found(len(came), wrong)


def _moves(case: Case, state: State) -> Iterator[tuple[Move, State, str]]:
    """Each step that can be taken: the move, the state after it, and the violation on the way or nothing."""
    for number, program in enumerate(case.programs):
        me = PROCESSES + number * WIDTH
        if state[me] in (DEAD, len(program)):
            continue
        step, m = program[state[me]], list(state)
        m[me] += 1
        answer = next(filter(None, (action(m, me) for action in step.actions)), None)
        if answer == WAIT:
            continue
        if answer == REFUSE:
            m[me] = step.otherwise
        for reader in case.readers:
            m[reader + HAD] |= 1 << priority_of(m, reader) if m[reader + HAD] else 0
        violation, m[WRONG] = ON_THE_WAY[m[WRONG]], 0
        yield (number, step.name), tuple(m), violation


def _deaths(case: Case, state: State) -> Iterator[tuple[Move, State, str]]:
    for number in case.mortal:
        me = PROCESSES + number * WIDTH
        if state[me] not in (DEAD, len(case.programs[number])):
            yield (number, "dies"), (*state[:me], DEAD, *state[me + 1 :]), ""


def _at_the_end(case: Case, state: State) -> Iterator[str]:
    """Violations of a state from which no step can be taken."""
    places = zip(state[PROCESSES::WIDTH], case.programs, strict=True)
    if all(at in (DEAD, len(program)) for at, program in places):
        yield from wrongs_at_rest(list(state))
    else:
        yield DEADLOCK


def _schedule(came: dict[State, tuple[State, Move] | None], state: State) -> Schedule:
    moves = []
    while step := came[state]:
        state, move = step
        moves.append(move)
    return tuple(reversed(moves))


def follow(case: Case, schedule: Schedule) -> Iterator[set[str]]:
    """Violations after each move of a schedule. KeyError for a move that cannot be made."""
    state = case.start
    for move in schedule:
        possible = {move: after for move, *after in (*_moves(case, state), *_deaths(case, state))}
        state, violation = possible[move]
        ended = not any(_moves(case, state))
        yield {violation, *wrongs(state), *(_at_the_end(case, state) if ended else ())} - {""}


def wander(case: Case, rng: np.random.Generator) -> tuple[Schedule, dict[int, int]]:
    """A random schedule, from the start until no step can be taken or a sampler would draw again.

    With it, what each process that retrieves a priority has read, by its number.
    """
    state, schedule = case.start, []
    while moves := list(_moves(case, state)):
        move, state, _ = moves[rng.integers(len(moves))]
        if move[1] == "search" and move in schedule:
            break
        schedule.append(move)
    return tuple(schedule), {(reader - PROCESSES) // WIDTH: state[reader + ONE] for reader in case.readers}


def written(schedule: Schedule) -> str:
    """The schedule in words, consecutive steps of a process together.

    >>> written(((0, "reserve"), (0, "odd"), (1, "search")))
    'A: reserve, odd | B: search'
    """
    parts: list[str] = []
    for at, (number, name) in enumerate(schedule):
        if at and schedule[at - 1][0] == number:
            parts[-1] += f", {name}"
        else:
            parts.append(f"{chr(ord('A') + number)}: {name}")
    return " | ".join(parts)


def _print(title: str, case: Case) -> int:
    """Print one case's line and its violations; return how many states it has."""
    found = explore(case)
    print(f"  {title:<82} {found.states:>6} states  {'wrong' if found.wrong else 'right'}")
    for violation, schedule in sorted(found.wrong.items(), key=lambda item: len(item[1])):
        print(f"    {violation}, after {len(schedule)}: {written(schedule)}")
    return found.states


def main() -> None:
    """Print every case of every strategy, of Algorithm 3's table, and of the injected faults."""
    print("Processes are A, B, C in the order named; every schedule is a shortest one.")
    states = 0
    for name, strategy in STRATEGIES.items():
        print(f"\n{name}")
        states += sum(
            _print(f"{title} ({', '.join(CASES[title])})", case(strategy, title)) for title in strategy.cases()
        )
    print("\nAlgorithm 3 of [Zhang2021]")
    states += sum(_print(title, entry.case) for title, entry in ALGORITHM_3.items())
    print("\nInjected faults")
    states += sum(
        _print(f"{title} ({fault.case})", case(fault.strategy, fault.case)) for title, fault in FAULTS.items()
    )
    print(f"\n{states} states in all")


if __name__ == "__main__":
    main()
