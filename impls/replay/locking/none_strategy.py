"""No lock at all: the most that any strategy could reach, and wrong as soon as two callers meet."""

from typing import ClassVar

from ..replay import Replay
from .global_strategy import NO_LOCK, kernels_of


class NoneReplay(Replay):
    """Callers that meet tear records, and lose records, sums and counts; one at a time gets right answers.

    What they lost stays lost: ``len`` may be above the capacity, and records that nobody finished are never sampled.
    """

    valid = False
    kernels: ClassVar = kernels_of(*NO_LOCK)
