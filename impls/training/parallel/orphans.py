"""A child ends with its parent from its first moment on, before it has imported what its program needs.

This module imports nothing heavy. Its ``Watched`` is the first of the arguments that a child unpickles, so its watch
begins before the modules of those that follow are imported.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

_LOOK_SECONDS = 0.2


class Watched:
    """Unpickled in a child, it begins to watch the process that pickled it, which is its parent."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _watch, (os.getpid(),)


def _watch(parent: int) -> None:
    threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    """End this process once another adopts it, whatever it waits for, imports or computes then."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def enter(_: None, program: Callable[..., None], *arguments: Any) -> None:
    """Run a child's program; ``_`` is what ``Watched`` has become."""
    program(*arguments)
