"""No lock at all: the most that any strategy could reach, and wrong as soon as two callers meet."""

from typing import ClassVar

from ..replay import Replay
from .global_strategy import NO_LOCK, kernels_of


class NoneReplay(Replay):
    """Callers that meet tear records and lose sums; only one caller at a time gets right answers."""

    valid = False
    kernels: ClassVar = kernels_of(*NO_LOCK)
