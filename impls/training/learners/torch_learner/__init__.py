"""The reference: any network on any device, its gradients by torch's automatic differentiation."""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...environments import INSTALL
from ...workload import Workload

if TYPE_CHECKING:
    from .base import TorchLearner


def unsuited(workload: Workload, device: str) -> str | None:
    """None, or why torch cannot learn there."""
    if find_spec("torch") is None:
        return f"the learner torch needs the package torch, which is not installed; {INSTALL}"
    if device == "cuda":
        import torch  # noqa: PLC0415  # heavy

        if not torch.cuda.is_available():
            return "there is no CUDA device here; leave out --device"
    return None


def make(workload: Workload, **options: Any) -> "TorchLearner":
    """A fresh learner of the workload's algorithm; see :class:`~.base.TorchLearner` for the options."""
    return kind_of(workload)(workload, **options)


def kind_of(workload: Workload) -> "type[TorchLearner]":
    """The class of the workload's algorithm, with torch loaded."""
    is_fresh = "torch" not in sys.modules
    from . import losses  # noqa: PLC0415  # with torch

    if is_fresh:
        use_threads(_wanted)
    kind: type[TorchLearner] = getattr(losses, workload.family.upper())
    return kind


_wanted = 0  # threads; 0: torch's own choice


def use_threads(count: int) -> None:
    """Let torch compute by N threads in this process, now or once it is loaded; 0 leaves it as it is."""
    global _wanted  # noqa: PLW0603  # as torch has it
    _wanted = count
    if count and (torch := sys.modules.get("torch")):
        torch.set_num_threads(count)


def threads() -> int:
    """Threads by which torch computes, or would if it were loaded."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch else max(_wanted, 1)
