"""Transports of a run: records from actors to who samples, ``x`` in ``x_transport``; weights back, in ``x_weights``."""

import importlib
from typing import cast

from ...errors import TrainingError
from ...workload import Workload
from ..arrangement import Arrangement
from ..handing import Handing
from ..route import Route
from .file_weights import FileWeights


def make(workload: Workload, arrangement: Arrangement) -> Handing:
    """Make the transport of records that an arrangement names; the parent does, before it starts any child."""
    name = arrangement.transport
    module = importlib.import_module(f"{__name__}.{name}_transport")
    return cast(Handing, getattr(module, name.capitalize()).make(workload, arrangement))


def route(arrangement: Arrangement, weights: int) -> Route | None:
    """Make the transport of ``weights`` P numbers that an arrangement names; None is the board's own vector.

    TrainingError without torch, where it is asked for.
    """
    if arrangement.weights == "torch":
        try:
            from .torch_weights import TorchWeights  # noqa: PLC0415  # with torch
        except ModuleNotFoundError as error:
            raise TrainingError(f"weights by torch need the module {error.name!r}; choose shared or file") from None
        return TorchWeights(weights)
    return FileWeights.make() if arrangement.weights == "file" else None
