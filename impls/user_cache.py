"""The user's cache folder: what is compiled or raced once a machine, for all checkouts, environments and processes."""

import contextlib
import functools
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .writing import expand_home

_OWNER_ONLY = 0o700


def cache_folder(name: str) -> Path:
    """A folder that nobody but the user can write to, made if need be.

    It is ``name`` in the folder FANOUT_CACHE_DIR, else in ``fanout`` below NUMBA_CACHE_DIR, an absolute XDG_CACHE_HOME
    or ``~/.cache``; where that cannot be had, which a line on stderr says, it is among the temporary files. OSError
    where neither can.
    """
    folder = os.path.join(_base(), name)  # noqa: PTH118  # as it is named, perhaps with a ~
    try:
        return make_private(expand_home(folder))
    except OSError as error:
        user = os.getuid() if hasattr(os, "getuid") else ""
        instead = make_private(Path(tempfile.gettempdir()) / f"fanout-{user}-{name}")
        warn_once(
            f"{folder} cannot be Fanout's cache ({error.strerror}), so {instead} is; mend it, or set FANOUT_CACHE_DIR"
        )
        return instead


def _base() -> str:
    own, numba, cache = (os.environ.get(name, "") for name in ("FANOUT_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"))
    above = cache if os.path.isabs(cache) else "~/.cache"  # as its specification has it  # noqa: PTH117
    return own or f"{numba or above}/fanout"


def make_private(folder: Path) -> Path:
    """The folder, made if it is not there. OSError, saying why, where it is not the user's alone to write to.

    What is read there is run, so that whoever can write to it could run code as the user.
    """
    if not os.path.lexists(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(_OWNER_ONLY)
    found = folder.lstat()  # of a link itself, which anybody may have left among the temporary files
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(0, "it is no folder")
    _check_private(found, f": remove {folder}")
    return folder


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file of the cache, open, whose content is run: OSError, saying why, unless it is the user's alone to write to.

    Others may have left it while they could write to the folder; a named pipe of theirs is not waited for.
    """
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | careful)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no file")
        _check_private(found)
        yield file


def _check_private(found: os.stat_result, remedy: str = "") -> None:
    """PermissionError, saying why, where somebody else owns what was found, or can write to it."""
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(0, f"it belongs to user {found.st_uid}")
    if os.name == "posix" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(0, f"others can write to it{remedy}")


@functools.cache
def warn_once(sentence: str) -> None:
    """Print a warning on stderr, once a process, and in no worker of another process."""
    if sys.stderr is not None and not is_worker():
        print(f"warning: {sentence}", file=sys.stderr, flush=True)


def is_worker() -> bool:
    """Whether multiprocessing started this process, which leaves it to its parent to tell the user anything."""
    from multiprocessing import process  # noqa: PLC0415  # seldom asked, and not light

    return process.parent_process() is not None
