"""Which groups go together: every combination of one group of each axis, and of mirror images the first.

Two combinations are mirror images where an exchange of equal devices makes one of the other: where their groups are of
the same kinds, and devices of each class do the same, whichever they are.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .equal_devices import Axes, Classes, Words, kind_of, roles
from .problem import PARTS, Option, Part

Integers = NDArray[np.int64]
COMBINED = 1 << 19  # groups at once, before mirror images are left out


def combined(axes: Axes, classes: Classes) -> Integers:
    """Every way to take a group of each axis, mirror images aside: [A, S].

    Of mirror images the one stays whose parts, in the order of ``PARTS``, are on the first devices.
    """
    sizes = [len(groups) for groups in axes]
    if not classes:
        return np.indices(sizes).reshape(len(sizes), -1).astype(np.int64)
    masks = [_masks(groups, classes) for groups in axes] if _whole(axes, classes) else []
    kept = []
    for first in range(0, math.prod(sizes), COMBINED):
        chosen = np.array(np.unravel_index(np.arange(first, min(first + COMBINED, math.prod(sizes))), sizes))
        for c in range(len(classes) if masks else 0):
            used = np.bitwise_or.reduce([mask[c][groups] for mask, groups in zip(masks, chosen, strict=True)])
            chosen = chosen[:, used & (used + 1) == 0]  # its first devices, and none else
        kept.append(chosen)
    return _first_images(axes, classes, np.hstack(kept))


def _first_images(axes: Axes, classes: Classes, chosen: Integers) -> Integers:
    """The first of every set of mirror images."""
    image = label_of(images(axes, classes, chosen, engines=True))
    ranks: dict[Part, Integers] = {}
    for groups, own in zip(axes, chosen, strict=True):
        for options in zip(*(group[0] for group in groups), strict=True):
            ranks[options[0].part] = _ranked([option.where for option in options])[own]
    order = np.lexsort([*(ranks[part] for part in reversed(PARTS)), image])
    _, first = np.unique(image[order], return_index=True)
    return chosen[:, np.sort(order[first])]


def _placed(classes: Classes) -> tuple[dict[str, int], Words]:
    place = {device: c for c, devices in enumerate(classes) for device in devices}
    return place, Words(place)


def _whole(axes: Axes, classes: Classes) -> bool:
    """Whether every group can be moved to the first devices of each class, those in use staying in order."""
    place, words = _placed(classes)
    for groups in axes:
        images: Counter[Any] = Counter()
        for group in groups:
            done = roles(group[0], place, words)
            images[kind_of(group[0], place, words)[0], tuple(done[device] for device in sorted(done))] += 1
        for (_, used), count in images.items():
            size: Counter[int] = Counter(role[0] for role in used)
            if count != math.prod(math.comb(len(classes[c]), n) for c, n in size.items()):
                return False
    return True


def _masks(groups: Sequence[Sequence[tuple[Option, ...]]], classes: Classes) -> list[Integers]:
    """By class: the devices of it that each group is on, as bits."""
    used = [{device for option in group[0] for device, _ in option.where} for group in groups]
    return [
        np.array([sum(1 << d for d, device in enumerate(devices) if device in one) for one in used])
        for devices in classes
    ]


def images(axes: Axes, classes: Classes, chosen: Integers, engines: bool) -> Iterator[Integers]:
    """What mirror images have in common: the kind of each group, and what each device does, in some order."""
    place, words = _placed(classes)
    done = np.zeros((chosen.shape[1], len(place)), dtype=np.int64)
    column = {device: d for d, device in enumerate(place)}
    for groups, own in zip(axes, chosen, strict=True):
        kinds = [kind_of(group[0], place, words, engines) for group in groups]
        yield _ranked(kinds)[own]
        every = [roles(group[0], place, words, engines) for group in groups]
        number = {role: n for n, role in enumerate(sorted({role for one in every for role in one.values()}), 1)}
        table = np.zeros((len(groups), len(place)), dtype=np.int64)
        for g, one in enumerate(every):
            for device, role in one.items():
                table[g, column[device]] = number[role]
        done = done * (len(number) + 1) + table[own]
    first = 0
    for devices in classes:
        yield from np.sort(done[:, first : first + len(devices)], axis=1).T
        first += len(devices)


def _ranked(keys: Sequence[object]) -> Integers:
    """Places of keys in order, from 0 on; the same for equal ones."""
    place = {key: number for number, key in enumerate(sorted(set(keys)))}  # type: ignore[type-var]
    return np.array([place[key] for key in keys])


def label_of(columns: Iterator[NDArray[Any]]) -> Integers:
    """The same number where all columns of numbers from 0 on are the same, from 0 on."""
    label, size = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        # Invariant: label is below size, and the same where all columns so far are the same.
        count = int(column.max()) + 1
        if size * count >= 1 << 62:
            values, label = np.unique(label, return_inverse=True)
            size = len(values)
        label, size = label * count + column, size * count
    result: Integers = np.unique(label, return_inverse=True)[1]
    return result
