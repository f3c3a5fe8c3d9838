"""The pace of actors and learners: how far each may go before the other has to follow.

Let u be the update interval and s the step from which on gradient steps are taken. The serial loop takes gradient step
n (from 1) right after environment step ``due(n) = u ((s - 1) // u + n)``. In parallel, learners never take it earlier,
and actors (A of them, with E environments each) never begin a turn that would end more than u + E A environment steps
beyond ``due(n)``, where n is the first gradient step not yet taken. So environment steps lead those of the serial loop,
which takes none between ``due(n)`` and gradient step n, by at most u + E A: an update interval, in which actors act
while learners learn, and one hand-over.
"""

from dataclasses import dataclass

from ..arrangement import Arrangement
from ..workload import Workload
from .board import FREE


@dataclass(frozen=True)
class Pace:
    """The bounds of a workload in an arrangement."""

    interval: int
    base: int
    slack: int
    is_free: bool
    starts: int

    @classmethod
    def of(cls, workload: Workload, arrangement: Arrangement) -> "Pace":
        """The pace of a workload in an arrangement."""
        interval, starts = workload.learner.update_interval, workload.learner.learning_starts
        hand_over = workload.actors.count * workload.actors.environments
        base = (starts - 1) // interval * interval
        return cls(interval, base, interval + hand_over, arrangement.ratio == "free", starts)

    def due(self, update: int) -> int:
        """The environment step after which gradient step ``update`` (from 1) is due."""
        return self.starts if self.is_free else self.base + self.interval * update

    def limit(self, updates: int) -> int:
        """The environment step that actors may go to when a given number of gradient steps have been taken."""
        return FREE if self.is_free else self.due(updates + 1) + self.slack

    def updates_at(self, step: int) -> int:
        """Gradient steps due by an environment step."""
        return max(0, (step - self.base) // self.interval)

    def lead(self, steps: int, updates: int) -> int:
        """Environment steps beyond the one after which the next gradient step is due; at most ``slack`` where kept."""
        return steps - self.base - self.interval * (updates + 1)
