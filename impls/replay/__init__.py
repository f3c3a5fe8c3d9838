"""Experience replay on any sum tree: the layout of a record, and the prioritized buffer."""

from .buffer import Batch, PrioritizedBuffer, importance_weights
from .layout import Layout, LocalStorage

__all__ = ["Batch", "Layout", "LocalStorage", "PrioritizedBuffer", "importance_weights"]
