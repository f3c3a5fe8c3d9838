"""Weights by a file that takes the old file's name in one step, so that a reader sees all of one publication."""

import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....files import make_private
from ...errors import TrainingError
from ...folder import alone
from ..route import Route

_PREFIX = "fanout-weights-"
_OLD_SECONDS = 60.0
_VERSION = 2  # numbers of float32 that a version takes, before the weights


class FileWeights(Route):
    """A file in a folder that the parent removes."""

    def __init__(self, path: Path, folder: Any = None) -> None:
        self._path, self._folder = path, folder

    @classmethod
    def make(cls) -> "FileWeights":
        """Make the folder, in the parent; those that killed parents have left are removed."""
        _remove_abandoned()
        folder, resources = tempfile.TemporaryDirectory(prefix=_PREFIX), ExitStack()
        resources.callback(folder.cleanup)
        resources.enter_context(alone(Path(folder.name)))
        return cls(Path(folder.name) / "weights.npy", resources)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_folder": None}  # which the parent alone removes

    def publish(self, weights: NDArray[np.float32], version: int) -> None:
        """Save weights ``[P]`` under another name, then rename."""
        numbers = np.concatenate((np.array([version], np.int64).view(np.float32), weights))
        fresh = self._path.with_suffix(".new.npy")
        np.save(fresh, numbers)
        fresh.replace(self._path)

    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Read the file, and copy it to ``target [P]`` unless its version is ``known``; returns the version."""
        numbers = np.load(self._path)
        version = int(numbers[:_VERSION].view(np.int64)[0])
        if version != known:
            target[:] = numbers[_VERSION:]
        return version

    def close(self) -> None:
        """Remove the folder, in the parent."""
        if self._folder is not None:
            self._folder.close()


def _remove_abandoned() -> None:
    """Remove old folders of weights whose lock nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, TrainingError):  # another user's, or held by a run
            if time.time() - folder.lstat().st_mtime > _OLD_SECONDS:  # a younger one may not be locked yet
                with alone(make_private(folder)):
                    for name in ("weights.npy", "weights.new.npy", ".lock"):
                        (folder / name).unlink(missing_ok=True)
                    folder.rmdir()  # which it is not if it holds anything else
