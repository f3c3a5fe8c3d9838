"""Files and folders: which there are, and those that one process writes, tried before anything is begun, and locked."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
