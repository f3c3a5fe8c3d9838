"""Experience replay: the layout of a record, the reference buffer on any sum tree, and the compiled, shared replay."""

from . import strategies as _folder  # noqa: F401  # first, or its import would replace the function of that name
from .buffer import Batch, PrioritizedBuffer, importance_weights
from .layout import Layout, LocalStorage
from .memory import ClosedError
from .n_step import NStep, NStepLayout
from .registry import attach, make, strategies
from .replay import Outputs, Replay, ReplayHandle
from .segments import SegmentedReplay

__all__ = [
    "Batch",
    "ClosedError",
    "Layout",
    "LocalStorage",
    "NStep",
    "NStepLayout",
    "Outputs",
    "PrioritizedBuffer",
    "Replay",
    "ReplayHandle",
    "SegmentedReplay",
    "attach",
    "importance_weights",
    "make",
    "strategies",
]
