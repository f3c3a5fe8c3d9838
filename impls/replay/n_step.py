"""n-step returns: what actors saw, turned into records that reach n steps ahead [Sutton1988]."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least
from .layout import Arrays, Layout
from .values import array_of, check_names, checks_of, number


@dataclass(frozen=True)
class NStepLayout(Layout):
    """A record over k steps with ``discount`` = gamma^k beside it.

    k is n, or fewer at an episode's end. A learner's target is reward + discount * value(next_observation), without the
    second term where ``terminated``.
    """

    @property
    def fields(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each part of a record."""
        return super().fields | {"discount": ((), np.dtype(np.float32))}


class NStep:
    """Turns transitions of ``environments`` E, one step of each at a time, into records of :attr:`layout`.

    ``layout`` is that of a transition, ``n`` >= 1, ``gamma`` in [0, 1]; ValueError or TypeError for others, or for
    stacks of frames.
    """

    def __init__(self, layout: Layout, n: int, gamma: float, *, environments: int = 1) -> None:
        if not isinstance(layout, Layout):
            raise TypeError(f"layout must be a Layout, not {type(layout).__name__}")
        if layout.frames > 1:
            raise ValueError(
                f"a record of {layout.frames} stacked frames has its next observation in the row after it, not n steps "
                "later: give the stack as the shape of one observation, with frames=1"
            )
        if not 0 <= number("gamma", gamma) <= 1:
            raise ValueError(f"gamma must be within [0, 1], not {gamma}")
        self._n, self._environments = integer_at_least("n", n, 1), integer_at_least("environments", environments, 1)
        self.layout = NStepLayout(layout.observation, layout.dtype, 1, layout.choices, layout.action_size)
        self._fields, self._checks = layout.fields, checks_of(layout)
        self._discounts = gamma ** np.arange(n + 1)
        # Invariant: the step taken ``age`` steps before the last is in row (steps - 1 - age) % n, and its sum of
        # rewards reaches to the last; the last ``open`` steps of an environment have yet to become records.
        self._steps = 0
        self._open = np.zeros(environments, np.int64)
        self._sums = np.zeros((n, environments))
        self._starts = {
            name: np.zeros((n, environments, *self._fields[name][0]), self._fields[name][1])
            for name in ("observation", "action")
        }

    def append(self, transitions: Mapping[str, ArrayLike], truncated: ArrayLike = False) -> Arrays:
        """Add a step, ``[E, ...]`` of each field of a transition; returns the records ``[m, ...]`` that are now whole.

        ``truncated [E]`` is True where an episode was cut off without having terminated: its open records end there
        too, and a learner still values what follows. The next observation of a step that ends an episode is that
        episode's last one, not the first after a reset. An environment's records come oldest first. ValueError or
        TypeError for fields, shapes or values that are not the layout's, with nothing changed.
        """
        check_names("transitions", transitions, self._fields.keys())
        step = {name: self._checked(name, transitions[name]) for name in self._fields}
        cut = np.asarray(truncated)
        if cut.dtype != np.bool_ or cut.shape not in ((), (self._environments,)):
            raise ValueError(f"truncated must be {[self._environments]} bool, not {list(cut.shape)} {cut.dtype}")
        ended = cut | step["terminated"]
        row, ages = self._steps % self._n, np.arange(self._n)[::-1]
        for name, values in self._starts.items():
            values[row] = step[name]
        self._sums[row] = 0.0
        self._steps += 1
        rows = (self._steps - 1 - ages) % self._n
        self._sums[rows] += self._discounts[ages][:, None] * step["reward"]
        self._open += 1
        is_whole = (ages < self._open[:, None]) & (ended[:, None] | (ages == self._n - 1))
        self._open = np.where(ended, 0, np.minimum(self._open, self._n - 1))
        who, which = np.nonzero(is_whole)
        result = {name: values[rows[which], who] for name, values in self._starts.items()}
        result |= {name: step[name][who] for name in ("next_observation", "terminated")}
        result["reward"] = self._sums[rows[which], who].astype(np.float32)
        result["discount"] = self._discounts[ages[which] + 1].astype(np.float32)
        return result

    def _checked(self, name: str, values: ArrayLike) -> NDArray[Any]:
        shape, dtype = self._fields[name]
        array = array_of(name, values)
        if array.shape != (self._environments, *shape):
            raise ValueError(f"{name} must be {[self._environments, *shape]}, not {list(array.shape)}")
        if name in self._checks:
            self._checks[name](array)
        return array.astype(dtype, copy=False)
