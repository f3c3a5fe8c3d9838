"""A space at other times: what is kept with a problem, so that asking what wins at a factor takes a millisecond."""

from dataclasses import replace

import numpy as np

from .equal_devices import Words, equal_devices
from .objectives import Objective
from .problem import Problem
from .settings import relinked
from .space import Space, groups_of, space_of, with_groups


def scalable(problem: Problem, objective: Objective, number: str) -> Space:
    """A space that has the best at any factor on the times of evidence ``number``, see ``rescaled``.

    Made once for a problem and kept with it. A choice is dropped only for one whose times rest on the same evidence.
    """
    kept = vars(problem).setdefault("_scalable", {})
    if objective not in kept:
        axes = [groups_of(problem, choices, by_evidence=True) for choices in problem.axes]
        kept[objective] = axes, {(): equal_devices(problem, axes)}, {}
    axes, classes_of, spaces = kept[objective]
    words = Words([device for devices in classes_of[()] for device in devices])
    key = number if classes_of[()] and words.of(number) else ()
    if key not in classes_of:
        classes_of[key] = equal_devices(problem, axes, number)
    classes = classes_of[key]
    if classes not in spaces:
        spaces[classes] = space_of(problem, objective, axes, classes)
    space: Space = spaces[classes]
    return space


def rescaled(space: Space, number: str, factor: float) -> Space:
    """The same where times that rest on evidence ``number`` take ``factor`` times as long."""
    nodes, at = [], space.at
    for one in space.nodes:
        columns = list(one.columns)
        for c, column in enumerate(columns):
            rests = np.array([choice[c].time.rests_on.number == number for choice in one.choices])
            if rests.any():
                seconds = np.where(rests, column.seconds[: rests.size] * factor, column.seconds[: rests.size])
                columns[c] = column._replace(seconds=with_groups(seconds, one.start))
        nodes.append(replace(one, columns=tuple(columns)))
    if any(hop.rests_on.number == number for way in space.problem.ways.values() for hop in way):
        at = relinked(at, space.problem, space.objective, space.axes, {number: factor})
    return replace(space, nodes=tuple(nodes), at=at)


def reranked(space: Space) -> Space:
    """The same with options in the order of ``option_key`` at the times that they are rescaled to."""
    nodes = []
    for one in space.nodes:
        columns = []
        for column in one.columns:
            pairs = np.stack([column.seconds, column.tail])[:, : len(one.choices)]
            rank = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1).astype(np.float64)
            columns.append(column._replace(rank=with_groups(rank, one.start)))
        nodes.append(replace(one, columns=tuple(columns)))
    return replace(space, nodes=tuple(nodes))
