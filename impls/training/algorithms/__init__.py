"""Algorithms that are more than the gradient steps of a learner: each is a file of this folder, by its name."""

import importlib
from importlib.util import find_spec
from typing import Any

from ..workload import Workload


def hook(workload: Workload, name: str, default: Any = None) -> Any:
    """An optional function or class of the file of a workload's algorithm; the default where there is none."""
    module = f"{__name__}.{workload.algorithm}"
    return getattr(importlib.import_module(module), name, default) if find_spec(module) else default
