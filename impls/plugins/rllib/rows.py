"""Which leaf of the tree holds the priority of which step of which episode."""

from array import array
from collections import deque

import numpy as np
from numpy.typing import NDArray

Leaves = NDArray[np.int64]
Row = tuple[int, int, int]
"""An episode's number, counted from the first ever stored, a step in it, and the leaf."""


class Rows:
    """The rows, time steps of stored episodes, each with a leaf of its own.

    Leaves are given out and taken back in the order of RLlib's buffer, so that both put a row at the same leaf: those
    never used from 0 on, those given back first, the last one back before the others.
    """

    def __init__(self, leaves: int) -> None:
        self._facts = np.zeros((leaves, 3), np.int64)  # of each leaf: its episode, the step, the number of the row
        self._ever = 0  # rows so far, those since dropped among them
        self._free = np.arange(leaves)[::-1].copy()
        self._num_free = leaves  # leaves without a row: _free[:_num_free], the next one to be given out last
        self._dropped = 0  # episodes
        self._leaves: deque[array[int]] = deque()  # of each stored episode, step by step

    def __len__(self) -> int:
        return len(self._free) - self._num_free

    def append(self, episode: int, first: int, length: int) -> Leaves:
        """Add steps ``first`` .. first + length - 1 of a stored episode, or of the next one; their leaves."""
        if episode - self._dropped == len(self._leaves):
            self._leaves.append(array("q"))
        leaves = self._free[self._num_free - length : self._num_free][::-1].copy()
        steps = np.arange(length)
        self._facts[leaves] = np.stack([np.full(length, episode), first + steps, self._ever + steps], axis=1)
        self._leaves[episode - self._dropped].frombytes(leaves.tobytes())
        self._num_free -= length
        self._ever += length
        return leaves

    def drop(self, episodes: int) -> Leaves:
        """Forget the oldest episodes; the leaves of their rows, in the order in which those were added."""
        leaves = self._in_order([self._leaves.popleft() for _ in range(episodes)])
        self._free[self._num_free : self._num_free + leaves.size] = leaves
        self._num_free += leaves.size
        self._dropped += episodes
        return leaves

    def between(self, episode: int, start: int, stop: int) -> Leaves:
        """The leaves of steps ``start`` .. stop - 1 of a stored episode."""
        return np.array(self._leaves[episode - self._dropped][start:stop], np.int64)

    def tails(self, length: int) -> Leaves:
        """The leaves of the last ``length`` steps of every episode."""
        tails = [each[max(len(each) - length, 0) :] for each in self._leaves]
        return np.concatenate([np.zeros(0, np.int64), *map(np.asarray, tails)])

    def of(self, leaves: Leaves) -> list[list[int]]:
        """Place among the stored episodes and step of each leaf's row."""
        facts: list[list[int]] = (self._facts[leaves, :2] - [self._dropped, 0]).tolist()
        return facts

    def listed(self) -> list[Row]:
        """Every row, in the order in which they were added."""
        leaves = self._in_order(list(self._leaves))
        return list(zip(*self._facts[leaves, :2].T.tolist(), leaves.tolist(), strict=True))

    def free(self) -> list[int]:
        """The leaves without a row, the next one to be given out first."""
        leaves: list[int] = self._free[: self._num_free][::-1].tolist()
        return leaves

    def load(self, rows: list[Row], free: list[int], episodes: int, dropped: int) -> None:
        """Take what :meth:`listed` and :meth:`free` told of a buffer with N stored and dropped episodes."""
        self._leaves = deque(array("q") for _ in range(episodes))
        for number, (episode, step, leaf) in enumerate(rows):
            self._facts[leaf] = episode, step, number
            self._leaves[episode - dropped].append(leaf)
        self._ever, self._dropped, self._num_free = len(rows), dropped, len(free)
        self._free[: len(free)] = free[::-1]

    def _in_order(self, parts: list["array[int]"]) -> Leaves:
        """The leaves of all parts by the number of their row."""
        leaves = np.concatenate([np.zeros(0, np.int64), *map(np.asarray, parts)])
        return leaves[np.argsort(self._facts[leaves, 2])]


def binary_nodes(leaves: NDArray[np.float64], combine: np.ufunc, neutral: float) -> list[float]:
    """RLlib's list of a binary tree: the root at 1, the children of i at 2i and 2i + 1, the leaves in its last half."""
    nodes = np.full(2 * leaves.size, neutral)
    nodes[leaves.size :] = leaves
    width = leaves.size // 2
    while width:
        nodes[width : 2 * width] = combine(nodes[2 * width : 4 * width : 2], nodes[2 * width + 1 : 4 * width : 2])
        width //= 2
    listed: list[float] = nodes.tolist()
    return listed
