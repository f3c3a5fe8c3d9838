"""Experience replay: the layout of a record, the reference buffer on any sum tree, and the compiled, shared replay."""

from .batches import Outputs
from .block import ClosedError
from .blocks import ReplayHandle
from .buffer import Batch, PrioritizedBuffer, SegmentedReplay, importance_weights
from .layout import Layout
from .local_storages import LocalStorage
from .n_step import NStep, NStepLayout
from .registry import attach, make, strategies
from .replay import Replay

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
