"""P serial loops, each with an environment and a network of its own, whose weights meet [StoneSachdev, IV-C].

    lock       every k gradient steps a copy adds what its weights moved by to the shared ones, under a mutex
    hogwild    the same without a mutex, so that additions may be lost
    server     every gradient goes to shards, processes that take steps with the shared weights

Each ``x`` of them is the class ``X`` of the module ``x_sync`` in this folder. ``loop`` has what each copy is, and what
the process that was started does, which is copy 0; ``numbers`` is the memory that they have in common.
"""

import importlib
from typing import Any


def sync_class(name: str) -> Any:
    """The class of a name, a ``CopySync``."""
    return getattr(importlib.import_module(f"{__name__}.{name}_sync"), name.capitalize())
