"""Equal devices: those whose exchange maps a problem onto itself, so that mirror images need not be looked at.

Devices are **equal** where exchanging their names, wherever they stand as words (``gpu0`` in ``cpu>gpu0``), leaves
watts, hosts, budgets, engines, routes and slowdowns what they are, and gives every group (``space.py``) that has a
mirror image the same choices as this image. A configuration and its mirror image then have the same value, and fit
alike. Where not every group has all mirror images, as with a set of learners of which always the first is sent to, this
holds of those that are there.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .problem import Choice, Hop, Option, Problem

Classes = tuple[tuple[str, ...], ...]
"""Two or more names each, in order."""
Axes = Sequence[Sequence[Sequence[Choice]]]
"""Choices by axis and group."""
SELF = "\0"  # stands for the name of a device that has equal ones


class Words:
    """Finds the names of some devices as words in other names."""

    def __init__(self, names: Iterable[str]) -> None:
        longest = sorted(names, key=len, reverse=True)
        self._find = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest))})(?!\w)")
        self.of = functools.cache(self._of)
        self.without = functools.cache(functools.partial(self._find.sub, SELF))

    def _of(self, text: str) -> frozenset[str]:
        return frozenset(self._find.findall(text))

    def replaced(self, text: str, by: Callable[[str], str]) -> str:
        """The text with each name replaced."""
        return self._find.sub(lambda found: by(found[1]), text)


def equal_devices(problem: Problem, axes: Axes, number: str = "") -> Classes:
    """Classes of equal devices, also where times that rest on evidence ``number`` are scaled."""
    if not all(float(amount).is_integer() for needs in problem.engines.values() for amount in needs.values()):
        return ()  # sums of other numbers depend on the order of engines, so on names
    devices = {device for groups in axes for group in groups for option in group[0] for device, _ in option.where}
    classes: list[list[str]] = []
    for device in sorted(devices):
        for others in classes:
            if _exchangeable(problem, axes, (others[0], device), number):
                others.append(device)
                break
        else:
            classes.append([device])
    classes = [one for one in classes if len(one) > 1]
    apart = _told_apart(axes, classes, number)
    while apart and classes:
        # Invariant: devices of those that were classes before and are not any more differ from each other.
        classes = [one for one in classes if apart.isdisjoint(one)]
        apart = _told_apart(axes, classes, number)
    return tuple(map(tuple, classes))


def _exchangeable(problem: Problem, axes: Axes, pair: tuple[str, str], number: str) -> bool:
    """Whether exchanging two devices leaves all but options what it is, and options that are on one of them alone."""
    one, other = pair
    if problem.watts.get(one) != problem.watts.get(other) or (one in problem.hosts) != (other in problem.hosts):
        return False
    words = Words(pair)
    swap = functools.cache(lambda text: words.replaced(text, {one: other, other: one}.__getitem__))
    hops = {hop.engine for way in problem.ways.values() for hop in way}
    names = {*hops, *problem.engines, *problem.budgets}
    if any(swap(swap(name)) != name for name in names):
        return False
    if _renamed(problem.budgets, swap) != dict(problem.budgets):
        return False
    if {swap(name): _renamed(needs, swap) for name, needs in problem.engines.items()} != problem.engines:
        return False
    if {(*key[:2], swap(key[2])): factor for key, factor in problem.slowdown.items()} != problem.slowdown:
        return False
    ways = {pair: tuple(_hop(hop, number, str) for hop in way) for pair, way in problem.ways.items()}
    mirrored = {
        (swap(source), swap(target)): tuple(_hop(hop, number, swap) for hop in way)
        for (source, target), way in problem.ways.items()
    }
    alone = [[group for group in groups if _only_on(group[0], pair)] for groups in axes]
    return mirrored == ways and _share_places(alone, pair, words) and not _told_apart(alone, [pair], number)


def _share_places(alone: Axes, pair: tuple[str, str], words: Words) -> bool:
    """Whether whatever is on one of two devices alone may be on the other alone."""
    place = dict.fromkeys(pair, 0)
    for groups in alone:
        kinds: dict[str, set[Any]] = {device: set() for device in pair}
        for group in groups:
            kinds[group[0][0].device].add(kind_of(group[0], place, words))
        if kinds[pair[0]] != kinds[pair[1]]:
            return False
    return True


def _hop(hop: Hop, number: str, name: Callable[[str], str]) -> tuple[Any, ...]:
    own = hop.rests_on.number
    return name(hop.engine), hop.alpha_seconds, hop.seconds_per_byte, name(own), own == number


def _renamed(amounts: Mapping[str, float], swap: Callable[[str], str]) -> dict[str, float]:
    return {swap(name): amount for name, amount in amounts.items()}


def _only_on(choice: Choice, pair: tuple[str, str]) -> bool:
    used = {device for option in choice for device, _ in option.where}
    return len(used) == 1 and not used.isdisjoint(pair)


def _told_apart(axes: Axes, classes: Sequence[Sequence[str]], number: str) -> set[str]:
    """Devices of a class that some group tells apart."""
    place = {device: index for index, devices in enumerate(classes) for device in devices}
    if not place:
        return set()
    words = Words(place)
    for groups in axes:
        forms: dict[Any, frozenset[Any]] = {}
        for group in groups:
            apart = set[str]().union(*(_mentioned(choice, words) for choice in group))
            if apart:
                return apart
            key = kind_of(group[0], place, words)
            form = frozenset(_form(choice, place, words, number) for choice in group)
            if any(_uneven(choice, place, words) for choice in group) or forms.setdefault(key, form) != form:
                return {device for option in group[0] for device, _ in option.where if device in place}
    return set()


def _mentioned(choice: Choice, words: Words) -> set[str]:
    """Devices that are named where another is meant: then a choice depends on which of equal devices they are."""
    apart: set[str] = set()
    used = {device for option in choice for device, _ in option.where}
    for option in choice:
        own = {device for device, _ in option.where}
        for device, engine in option.where:
            apart |= words.of(engine) - {device}
        for budget in (*option.needs, *option.ahead):
            apart |= (words.of(budget) - used) if len(words.of(budget)) < 2 else words.of(budget)
        for text in (option.name, option.time.rests_on.number):
            apart |= words.of(text) & (used - own)
    return apart


def roles(choice: Choice, place: Mapping[str, int], words: Words, engines: bool = True) -> dict[str, tuple[Any, ...]]:
    """What each device of a class does in a choice: its class, and by part whether it is sent to, and its engine."""
    done: dict[str, tuple[Any, ...]] = {}
    for part, option in enumerate(choice):
        for also, (device, engine) in enumerate(option.where):
            if device in place:
                role = (part, also > 0, words.without(engine) if engines else "")
                done[device] = (*done.get(device, (place[device],)), role)
    return done


def kind_of(choice: Choice, place: Mapping[str, int], words: Words, engines: bool = True) -> tuple[Any, ...]:
    """What all mirror images of a choice's group have in common."""
    fixed = tuple(
        (part, also > 0, device, engine if engines else "")
        for part, option in enumerate(choice)
        for also, (device, engine) in enumerate(option.where)
        if device not in place
    )
    return fixed, tuple(sorted(roles(choice, place, words, engines).values()))


def _own_needs(choice: Choice, words: Words) -> dict[str, list[Any]]:
    """What a choice takes of budgets, by the device of a class that they name, "" where they name none."""
    own: dict[str, list[Any]] = {}
    for part, option in enumerate(choice):
        for ahead, needs in enumerate((option.needs, option.ahead)):
            for budget, amount in sorted(needs.items()):
                if amount:
                    device = next(iter(words.of(budget)), "")
                    own.setdefault(device, []).append((part, ahead, words.without(budget), amount))
    return own


def _form(choice: Choice, place: Mapping[str, int], words: Words, number: str) -> tuple[Any, ...]:
    """What a choice and its mirror images have in common."""
    done, own = roles(choice, place, words), _own_needs(choice, words)
    taken = tuple(sorted((done[device], tuple(needs)) for device, needs in own.items() if device))
    return tuple(_time(option, words, number) for option in choice), taken, tuple(own.get("", ()))


def _time(option: Option, words: Words, number: str) -> tuple[Any, ...]:
    time, evidence = option.time, option.time.rests_on
    names = words.without(option.name), words.without(evidence.number), evidence.source, evidence.number == number
    return time.value, time.low, time.high, *names


def _uneven(choice: Choice, place: Mapping[str, int], words: Words) -> bool:
    """Whether two devices do the same in a choice, and it takes more of one of them."""
    done, own = roles(choice, place, words), _own_needs(choice, words)
    taken = {role: own.get(device, []) for device, role in done.items()}
    return any(taken[role] != own.get(device, []) for device, role in done.items())
