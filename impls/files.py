"""Files and folders: which there are, those that one process writes, tried first and locked, and the user's cache.

The cache folder holds what is compiled or raced once a machine, for all checkouts, environments and processes.
"""

import functools
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

PART = ".part-"
"""What names of files begin with that are not written whole yet."""


def list_files(folder: Path, pattern: str) -> list[Path]:
    """List what fits a pattern below a folder, in order, but what is hidden: a Mac leaves ``._x`` next to each x.

    Links to folders are followed. What several paths lead to is listed once, by the path without a link if there is
    one. ``**`` may only begin a pattern.
    """
    tops = _list_folders(folder) if pattern.startswith("**/") else [folder]
    found = (path for top in tops for path in top.glob(pattern.removeprefix("**/")))
    shown = (one for one in found if not any(part.startswith(".") for part in one.relative_to(folder).parts))
    kept, top = dict[str, Path](), os.path.realpath(folder)
    for path in shown:
        real = os.path.realpath(path)
        if real not in kept or real == f"{top}{os.sep}{path.relative_to(folder)}":
            kept[real] = path
    return sorted(kept.values())


def _list_folders(folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield a folder and all those below it, where links lead as well, but none from within itself."""
    if (real := os.path.realpath(folder)) not in above:
        yield folder
        with suppress(OSError):  # there is none, or it may not be read
            for one in folder.iterdir():
                if one.is_dir():
                    yield from _list_folders(one, (*above, real))


def expand_home(path: str) -> Path:
    """Return the absolute path of what a user names, ``~`` being the home folder. FileNotFoundError without one."""
    expanded = os.path.expanduser(path)  # noqa: PTH111  # Path's raises another error
    if path.startswith("~") and not os.path.isabs(expanded):  # noqa: PTH117
        raise FileNotFoundError(0, "there is no home folder")
    return Path(expanded).absolute()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, aside first, so that no reader sees a part of it. OSError where that fails."""
    descriptor, scratch = tempfile.mkstemp(prefix=PART, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(scratch).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(scratch).unlink()
        raise


@contextmanager
def refusing(path: Path, kind: type[Exception], remedy: str) -> Iterator[None]:
    """Turn what keeps a file from being written into a ``kind`` of exception, a sentence that ends in the remedy."""
    try:
        yield
    except BlockingIOError:
        raise kind(f"{path}: another command is writing it; wait for its end, or {remedy}") from None
    except OSError as error:
        raise kind(f"{path}: cannot be written ({error.strerror or error}); {remedy}") from None


def try_to_write(folder: Path) -> None:
    """OSError unless a file can be made in the folder; it stays as it is, and is not made where it is not there."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    if folder not in made and not folder.is_dir():
        raise NotADirectoryError(0, "it is a file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    finally:
        for one in made:
            with suppress(OSError):  # another process has begun there meanwhile
                one.rmdir()


def lock(file: Any, waiting: str = "") -> None:
    """Lock an open file, or the descriptor of one, until it is closed or its process ends, however that ends.

    BlockingIOError if another process has it, unless there is a sentence to say before ``waiting`` for it; OSError
    where files cannot be locked. Readers are not kept out.
    """
    with suppress(ModuleNotFoundError):  # without such locks, no other process is kept out
        import fcntl  # noqa: PLC0415  # not on every system

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not waiting:
                raise
            print(waiting, file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)


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
        with suppress(FileExistsError):
            folder.mkdir(_OWNER_ONLY)
    found = folder.lstat()  # of a link itself, which anybody may have left among the temporary files
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(0, "it is no folder")
    _check_private(found, f": remove {folder}")
    return folder


@contextmanager
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
