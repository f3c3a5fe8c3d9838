"""Copies that add to the shared weights one at a time, under a robust mutex: no addition is lost."""

from ..parallel import counter
from ..parallel.syncs.mutex import lock, unlock
from .numbers import MET, MUTEX
from .sync import Adding


class Lock(Adding):
    """One of several copies; where no other has added meanwhile its weights are the sum, bit for bit."""

    _known = 0  # how often weights had met when this copy last took them

    def exchange(self) -> None:
        """Wait for the mutex, which is taken over from an owner that died, add, and take the sum."""
        mutex = self.numbers.at(MUTEX)
        self.wait(lambda: bool(lock(mutex)))
        try:
            is_alone = counter.value_of(self.numbers.at(MET)) == self._known
            self._known = self.add(is_alone) + 1
        finally:
            unlock(mutex)
