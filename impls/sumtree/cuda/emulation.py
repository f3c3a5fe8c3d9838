"""Run the kernels' own text on this processor: ``emulator.cpp`` says how. Its speed means nothing."""

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...files import cache_folder, opened, warn_once, write_whole
from . import program
from .program import Constants, Launch

_HERE = Path(__file__).parent
_FLAGS = ("-O2", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-fPIC", "-shared", "-pthread", f"-I{_HERE}")


def why_not() -> str | None:
    """None if there is a compiler, else one sentence saying what to install."""
    if _compiler() is None:
        return (
            "emulate=True compiles the kernels for this processor and found no g++; install one (Debian: apt install "
            "g++) or name a compiler in CXX."
        )
    return None


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++"))


class HostDevice:
    """NumPy arrays, and kernels compiled by g++. RuntimeError where there is no g++."""

    name = "cpu"
    arrays: Any = np

    def load(self, constants: Constants) -> dict[str, Launch]:
        """The kernels by name, compiled once and kept on disk."""
        return load_text(program.kernel_text(), constants)

    def address(self, array: Any) -> int:
        """Address of the array's first byte."""
        return int(array.ctypes.data)

    def enter(self) -> None:
        """Any thread may launch."""

    def current_stream(self) -> int:
        """The number of the only stream."""
        return 0

    def follow(self, stream: int) -> None:
        """A launch returns when it is done."""

    def synchronize(self) -> None:
        """A launch returns when it is done."""

    def shared_words(self, count: int) -> NDArray[np.int64]:
        """Memory of the host, which emulated kernels reach as well."""
        return np.zeros(count, np.int64)


@functools.cache
def load_text(text: str, constants: Constants) -> dict[str, Launch]:
    """The kernels of a text by name. RuntimeError where there is no g++, and from a kernel whose threads get stuck."""
    # The emulator is loaded first, for all: the kernels' library finds its functions so.
    _runtime()
    names = program.kernel_names(text)
    source = "\n".join(['#include "emulator.h"', text, *(f"EMULATE({name})" for name in names)])
    library = _loaded(source, constants.flags())
    return {name: _launcher(name, library[f"launch_{name}"]) for name in names}


@functools.cache
def _runtime() -> ctypes.CDLL:
    """The emulator itself, with its functions visible to the kernels' libraries."""
    return _loaded((_HERE / "emulator.cpp").read_text(), ["-std=c++17"], ctypes.RTLD_GLOBAL)


def _launcher(name: str, function: Any) -> Launch:
    function.restype = ctypes.c_char_p

    def launch(blocks: int, threads: int, stream: int, parameters: int) -> None:
        problem = function(ctypes.c_void_p(parameters), ctypes.c_uint(blocks), ctypes.c_uint(threads))
        if problem:
            raise RuntimeError(f"kernel {name}: {problem.decode()}")

    return launch


def _loaded(source: str, flags: Sequence[str], mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """The library made from a source text, compiled unless one is kept. RuntimeError where that fails."""
    compiler = _compiler()
    if compiler is None:
        raise RuntimeError(why_not())
    command = [compiler, *_FLAGS, *flags]
    content = "\n".join([source, (_HERE / "emulator.h").read_text(), _version(compiler), *command])
    name = f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.so"
    with contextlib.suppress(OSError):  # it is not there, not whole, not ours, or may not be run there
        with opened(cache_folder("emulator") / name) as file:
            return ctypes.CDLL(file.name, mode)
    with tempfile.TemporaryDirectory() as scratch:
        text, made = Path(scratch, "kernels.cpp"), Path(scratch, "kernels.so")
        text.write_text(source)
        done = subprocess.run([*command, "-o", made, text], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{compiler} cannot compile the kernels: {done.stderr[-2000:]}")
        try:
            write_whole(cache_folder("emulator") / name, made.read_bytes())
        except OSError as error:
            warn_once(f"compiled code cannot be kept on disk ({error.strerror}), so each process compiles it")
        return ctypes.CDLL(str(made), mode)


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
