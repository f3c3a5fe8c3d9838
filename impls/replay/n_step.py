"""n-step returns: what actors saw, turned into records that reach n steps ahead [Sutton1988]."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least
from .layout import Arrays, Layout, check_layout
from .values import arrays_of, differing, flags_of, number, rules_of, steps_of

_RESETS = (
    "a step began where an episode had ended, without reward: it is taken for the reset of gymnasium's NEXT_STEP mode "
    "and omitted; say which environments took a step: append(..., stepped=[E] bool)"
)


@dataclass(frozen=True)
class NStepLayout(Layout):
    """A record over k steps with ``discount`` = gamma^k with it.

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
        check_layout(layout)
        if layout.frames > 1:
            raise ValueError(
                f"a record of {layout.frames} stacked frames has its next observation in the row after it, not n steps "
                "later: give the stack as the shape of one observation, with frames=1"
            )
        if not 0 <= number("gamma", gamma) <= 1:
            raise ValueError(f"gamma must be within [0, 1], not {gamma}")
        self._n = integer_at_least("n", n, 1)
        integer_at_least("environments", environments, 1)
        self.layout = NStepLayout(layout.observation, layout.dtype, 1, layout.choices, layout.action_size)
        self._rules, fields = rules_of(layout), layout.fields
        self._discounts = gamma ** np.arange(n + 1)
        # Invariant: the step that an environment took ``age`` of its steps before its last is in row
        # (steps - 1 - age) % n, and its sum of rewards reaches to the last; the last ``open`` steps have yet to become
        # records. The last step led to ``last``, and ended an episode if ``over``. Steps have met if ``meets``.
        self._steps, self._open = np.zeros((2, environments), np.int64)
        self._over, self._meets = np.zeros(environments, np.bool_), np.zeros(1, np.bool_)
        self._sums = np.zeros((n, environments))
        shape, dtype = fields["observation"]
        self._last = np.zeros((environments, *shape), dtype)
        self._starts = {
            name: np.zeros((n, environments, *fields[name][0]), fields[name][1]) for name in ("observation", "action")
        }

    def append(
        self, transitions: Mapping[str, ArrayLike], truncated: ArrayLike = False, stepped: ArrayLike | None = None
    ) -> Arrays:
        """Add a step, ``[E, ...]`` of each field of a transition; returns the records ``[m, ...]`` that are now whole.

        ``truncated [E]`` is True where an episode was cut off without having terminated: its open records end there
        too, and a learner still values what follows. The next observation of a step that ends an episode is that
        episode's last one, not the first after a reset. ``stepped [E]`` is False for environments that took no step,
        as those that gymnasium's vectors reset in the call after an episode's end; their rows are ignored. An
        environment's records come oldest first. ValueError or TypeError for fields, shapes or values that are not the
        layout's, with nothing changed.

        An observation that is not the last step's next one is of another episode, so that records never reach from one
        into the next: those still open end with the last step, as if it had been truncated. That is not asked of steps
        none of which ever met. Without ``stepped``, a step from an ended episode's last observation with neither reward
        nor end is such a reset: it is omitted, with a warning.
        """
        who = np.flatnonzero(flags_of("stepped", True if stepped is None else stepped, self._open.size))
        cut = flags_of("truncated", truncated, self._open.size)[who]
        step = steps_of(transitions, self._rules, (self._open.size,), who)
        ended, is_away = cut | step["terminated"], differing(step["observation"], self._last[who])
        moved = differing(step["observation"], step["next_observation"])
        is_reset = self._over[who] & ~is_away & ~ended & (step["reward"] == 0) & moved
        if stepped is None and is_reset.any():
            warnings.warn(_RESETS, stacklevel=2)
            return self.append(transitions, truncated, ~is_reset)
        has_left = np.zeros(self._open.size, np.bool_)
        self._meets |= (~is_away & (self._open[who] > 0)).any()
        has_left[who] = is_away & self._meets
        left = self.cut(has_left)
        row, ages = self._steps[who] % self._n, np.arange(self._n)[::-1, None]
        for name, values in self._starts.items():
            values[row, who] = step[name]
        self._sums[row, who] = 0.0
        self._steps[who] += 1
        self._sums[(self._steps[who] - 1 - ages) % self._n, who] += self._discounts[ages] * step["reward"]
        self._open[who] += 1
        self._last[who], self._over[who] = step["next_observation"], ended
        records = self._records(who, ended, step["terminated"])
        return {name: np.concatenate((values, records[name])) for name, values in left.items()}

    def cut(self, environments: ArrayLike = True) -> Arrays:
        """Return the open records ``[m, ...]`` of ``environments [E]``, ended as if the last step had been truncated.

        For an environment that is reset outside, and where no more steps will come.
        """
        who = np.flatnonzero(flags_of("environments", environments, self._open.size) & (self._open > 0))
        return self._records(who, np.ones(who.size, np.bool_), np.zeros(who.size, np.bool_))

    def _records(self, who: NDArray[np.int64], ended: NDArray[np.bool_], terminated: NDArray[np.bool_]) -> Arrays:
        """The records of environments ``who [w]`` that are whole with the last step, taken from those open."""
        ages = np.arange(self._n)[::-1]
        is_whole = (ages < self._open[who][:, None]) & (ended[:, None] | (ages == self._n - 1))
        which, at = np.nonzero(is_whole)
        at, them = ages[at], who[which]
        rows = (self._steps[them] - 1 - at) % self._n
        self._open[who] = np.where(ended, 0, np.minimum(self._open[who], self._n - 1))
        result = {name: values[rows, them] for name, values in self._starts.items()}
        result |= {"next_observation": self._last[them], "terminated": terminated[which]}
        result["reward"] = self._sums[rows, them].astype(np.float32)
        result["discount"] = self._discounts[at + 1].astype(np.float32)
        return result

    def _parts(self) -> Arrays:
        counters = {"steps": self._steps, "open": self._open, "over": self._over, "last": self._last}
        return counters | self._starts | {"meets": self._meets, "sums": self._sums, "discounts": self._discounts}

    def state_dict(self) -> dict[str, Any]:
        """The steps that have yet to become records, with their sums of rewards, as copies."""
        return {name: part.copy() for name, part in self._parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the same layout, n, gamma and environments. ValueError for others, with nothing changed."""
        new = arrays_of(state, self._parts())
        if (
            not np.array_equal(new["discounts"], self._discounts)
            or not ((0 <= new["open"]) & (new["open"] < self._n)).all()
        ):
            raise ValueError("the state is of another gamma, or damaged: load that of an NStep made alike")
        for name, part in self._parts().items():
            part[:] = new[name]
