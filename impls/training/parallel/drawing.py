"""The work of a process that draws [Hou2023, 3.1.2]: episodes by the newest weights, as image files or in a window."""

import os
import struct
import sys
import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ..actor import VALIDATION, evaluate
from ..environments import Environment
from ..errors import TrainingError
from ..learner import Learner
from ..settings import IMAGES_SHOWN
from ..workload import Workload
from .testing import Evaluate

WINDOW = "window"


def check(workload: Workload, place: str, is_resumed: bool) -> None:
    """TrainingError where a workload's environment cannot be drawn to a folder, or in a window; nothing is written."""
    if place == WINDOW and sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        raise TrainingError("--show window needs a display, which this session has not; give a folder for images")
    if place != WINDOW and not is_resumed and next(Path(place).glob("episode-*"), None):
        raise TrainingError(f"--show {place}: holds episodes of another run; name another folder, or move them away")
    if place != WINDOW:
        with files.refusing(Path(place), TrainingError, "name another folder"):
            files.try_to_write(Path(place))
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # so that pygame looks for no display
    try:
        with closing(Environment(workload, render_mode="rgb_array")) as environment:
            environment.reset(0)
            environment.draw()
    except TrainingError as error:
        remedy = "leave out --show, or install what draws, such as: pip install 'gymnasium[classic-control]'"
        raise TrainingError(f"--show {place}: {error}; {remedy}") from None


@dataclass(frozen=True)
class Drawing:
    """Draws an episode without exploration: to files ``place``/episode-STEP/000.png and on, or in a window."""

    place: str

    def __call__(self, workload: Workload) -> Evaluate:
        """Return what draws, in the process that does."""
        if hasattr(os, "nice"):
            os.nice(10)  # whoever trains comes first
        environment = _Drawn(workload, self.place)

        def draw(workload: Workload, policy: Learner, seed: int, step: int) -> list[float]:
            environment.folder = Path(self.place) / f"episode-{step}"
            return evaluate(workload, policy, environment, 1, seed, VALIDATION, step)

        return draw


class _Drawn(Environment):
    """An environment whose every step is drawn."""

    folder = Path()

    def __init__(self, workload: Workload, place: str) -> None:
        self._is_window, self._number = place == WINDOW, 0
        super().__init__(workload, render_mode="human" if self._is_window else "rgb_array")

    def reset(self, seed: int) -> NDArray[Any]:
        """Begin an episode, and draw its first image."""
        self._number, first = 0, super().reset(seed)
        self._write()
        return first

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
        """Take a step, and draw it."""
        result = super().step(action)
        self._write()
        return result

    def _write(self) -> None:
        if not self._is_window and self._number < IMAGES_SHOWN:
            with files.refusing(self.folder, TrainingError, "free some room, or name another folder"):
                self.folder.mkdir(parents=True, exist_ok=True)
                files.write_whole(self.folder / f"{self._number:03}.png", encode_png(self.draw()))
        self._number += 1


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Encode an image ``[H, W, 3]`` as PNG: each line follows a 0, for no filter."""
    height, width, _ = image.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = image.reshape(height, -1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 1)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
