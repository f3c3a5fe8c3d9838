"""Compiling at first use, one caller at a time, out of reach of signal handlers and forks; and machine code on disk.

Machine code is compiled once a machine, for all checkouts, environments and processes. A file holds one kernel for one
signature. Its name is a hash of all that the machine code depends on: the text of the kernel's module and of the
modules of ``impls`` that it imports from, the signature, the options, the processor, and the versions of numba,
llvmlite, NumPy and Python. So an entry is never out of date, two writers of one file write the same code, and no lock
is needed. A file is written aside and then renamed, and begins with a checksum: what is not whole, as after a crash or
on a full disk, counts as absent. Numba's own cache is not used, because it numbers the signatures of a function without
a lock: of two processes that compile at once, one may leave its code under the other's signature.
"""

import contextlib
import functools
import gc
import hashlib
import importlib
import importlib.util
import inspect
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..files import PART, write_whole
from .turns import Result

MOST_BYTES = 256 << 20
"""Size of the folder above which the entries that nobody has used for longest are removed, to three quarters of it."""
_DAY_SECONDS = 86_400.0  # the time of last use is kept so exactly
_LEFT_SECONDS = 3600.0  # after which a file that was never finished has no writer any more
_DIGEST_BYTES = hashlib.sha256().digest_size
_PACKAGE = Path(__file__).resolve().parent.parent
_IMPORTS = re.compile(r"^ *from (\.*)([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
# Of numba's settings those that change no machine code of a kernel, or do so by another one; private ones are none.
_IDLE_SETTING = re.compile(
    r"^_|CACHE|CUDA|DUMP|COLOR|HIGHLIGHT|THREAD|GDB|HELP|WARN|HTML|TRACE|TIMINGS|COVERAGE|^DEBUG(_|$)"
    r"|ANNOTATE|DEVELOPER|DIAGNOSTICS|INTEL_SVML|MONITORING|PROFIL|STATS"
)


def import_numba() -> Any:
    """Import numba, and not SciPy with it, which takes as long again and is of no use to kernels without np.dot.

    Other kernels of the process load it when they are compiled, as numba always does.
    """
    if {"numba", "scipy"}.isdisjoint(sys.modules):
        sys.modules["scipy"] = None  # type: ignore[assignment]  # an import of it fails
        try:
            arrays = importlib.import_module("numba.np.arraymath")
        finally:
            del sys.modules["scipy"]
        if hasattr(arrays, "_HAVE_BLAS"):  # private: what it found, for np.convolve
            vars(arrays)["_HAVE_BLAS"] = importlib.util.find_spec("scipy") is not None
    return importlib.import_module("numba")


class Compiler:
    """Compiles for one caller at a time, out of reach of signal handlers: numba does not bear to be called by one while
    it compiles, or to be left by its exception."""

    def __init__(self) -> None:
        self.turn = threading.RLock()  # a fork takes it as well: a child cannot end what another thread began
        self._busy = False  # whether the thread that has the turn is compiling
        # Kernels compiled or loaded so far, and those that there will be, as far as that is known.
        self.count, self.total, self._expected = 0, 0, set[Any]()

    def run(self, compile_it: Callable[..., Result], *arguments: Any) -> Result:
        """Call the function with the arguments, on a thread of its own; returns or raises what it does."""
        if threading.current_thread() is not threading.main_thread():  # handlers run on the main thread alone
            return self._alone(compile_it, *arguments)
        results: list[Result] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(self._alone(compile_it, *arguments))
            except BaseException as error:  # whatever it is, the caller gets it
                errors.append(error)

        elsewhere = threading.Thread(target=work)
        elsewhere.start()
        elsewhere.join()
        if errors:
            raise errors[0]
        return results[0]

    def expect(self, trees: Iterable[Any], batch: int) -> None:
        """Note which kernels will be compiled or loaded when these trees are filled and take steps."""
        listed = [tree.step_kernels(batch) for tree in trees if hasattr(tree, "step_kernels")]
        new = set().union(*listed) - self._expected
        self._expected, self.total = self._expected | new, self.count + len(new)

    def hold(self) -> None:
        """Wait until nothing is compiled, before a fork."""
        self.turn.acquire()

    def let_go(self) -> None:
        """Continue after a fork; nothing is released where Ctrl-C cut the fork's wait short."""
        with contextlib.suppress(RuntimeError):
            self.turn.release()

    def _alone(self, compile_it: Callable[..., Result], *arguments: Any) -> Result:
        with self.turn:
            if self._busy:
                raise RuntimeError(
                    "a finalizer calls a tree whose kernel is not compiled while its thread compiles another: "
                    "call each method once before"
                )
            self._busy, collects = True, gc.isenabled()
            gc.disable()  # as nothing that is compiled is garbage yet, which to find out again and again takes a tenth
            try:
                return compile_it(*arguments)
            finally:
                self._busy = False
                if collects:
                    gc.enable()


compiler = Compiler()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=compiler.hold, after_in_parent=compiler.let_go, after_in_child=compiler.let_go)


class AtFirstUse:
    """An attribute that is compiled when it is first read: functools.cached_property, but for forks in the middle."""

    def __init__(self, compile_it: Callable[[Any], Callable[..., int]]) -> None:
        self._compile = compile_it

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, tree: Any, owner: type) -> Callable[..., int]:
        kernel = compiler.run(self._compile, tree)
        setattr(tree, self._name, kernel)
        return kernel


# Machine code on disk


def kept_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with these options, for a kernel whose machine code is kept on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        _tell_apart(function)
        kernel = import_numba().njit(**options)(function)
        return kernel if kernel is function else _keep(kernel, function, options)

    return decorate


def kept_cfunc(signature: Any, function: Callable[..., Any], **options: Any) -> Any:
    """``numba.cfunc`` with these options, whose machine code is kept on disk."""
    _tell_apart(function)
    try:
        from numba.core.ccallback import CFunc  # noqa: PLC0415  # private, as all names of numba.core

        compiled = CFunc(function, (signature.args, signature.return_type), {}, options)
    except (ImportError, TypeError):
        _warn_of_numba()
        return import_numba().cfunc(signature, **options)(function)
    _keep(compiled, function, options).compile()
    return compiled


def _tell_apart(function: Callable[..., Any]) -> None:
    """Put what a function made by another depends on into its name, of which numba makes the symbol of machine code.

    The symbol has a number, too, that counts within one process: kernels of one name that two processes compiled may
    have the same, and where both are loaded, who asks for one would be given the other.
    """
    if "<locals>" in function.__qualname__:
        function.__qualname__ += f"_{hashlib.sha256(repr(_parts(function)).encode()).hexdigest()[:16]}"


def _parts(function: Callable[..., Any]) -> tuple[Any, ...]:
    """What machine code depends on besides the text of a function's module."""
    code = function.__code__
    constants = [getattr(each, "co_code", each) for each in code.co_consts]
    held = (cell.cell_contents for cell in function.__closure__ or ())
    # What is compiled is told by its name, for its text is that of a module which this one imports from.
    cells = _dumps(tuple(getattr(each, "__qualname__", each) for each in held))
    return code.co_firstlineno, code.co_code, constants, cells


def _keep(kernel: Any, function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    if not hasattr(kernel, "_cache"):
        _warn_of_numba()
        return kernel
    with contextlib.suppress(OSError):  # the text of its module is not at hand
        kernel._cache = KernelCache(function, type(kernel).__name__, options)
    return kernel


def _warn_of_numba() -> None:
    files.warn_once(
        f"Fanout's cache does not know numba {import_numba().__version__}, so each process compiles its kernels"
    )


class KernelCache:
    """What numba asks, before it compiles a kernel, for the machine code, and gives it afterwards."""

    cache_path = None  # which numba's statistics tell

    def __init__(self, function: Callable[..., Any], kind: str, options: Mapping[str, Any]) -> None:
        self._name = re.sub(r"\W", "", function.__name__)
        # Invariant: the text is that which was imported, so it is read at once and not when the kernel is compiled.
        self._function = function
        self._text = text_of(file_of(function))
        self._options = kind, sorted((name, _in_order(value)) for name, value in options.items())

    def load_overload(self, signature: Any, target: Any) -> Any:
        """What was compiled for a signature, or None, which makes numba compile it."""
        compiler.count += 1
        with self._told_not_raised("read"):
            from numba.core import runtime  # noqa: PLC0415  # private
            from numba.core.compiler import CompileResult  # noqa: PLC0415  # private

            # All that machine code needs: ``refresh`` imports what numba compiles with as well, SciPy too, in 0.3 s.
            runtime.rtsys.initialize(target)
            key = self._key(signature, target.codegen())
            if (payload := _read(self._path(key), key)) is not None:
                return CompileResult._rebuild(target, *pickle.loads(payload))
        progress.begin()
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep what was compiled for a signature."""
        progress.end()
        with self._told_not_raised("kept"):
            if compiled.lifted or compiled.library.has_dynamic_globals:  # addresses of this process
                return
            key = self._key(signature, compiled.target_context.codegen())
            _write(self._path(key), key, _dumps(compiled._reduce()))

    def enable(self) -> None:
        """Do nothing: it is always on."""

    disable = flush = enable

    def _path(self, key: bytes) -> Path:
        return files.cache_folder("kernels") / f"{self._name}-{hashlib.sha256(key).hexdigest()[:40]}"

    def _key(self, signature: Any, codegen: Any) -> bytes:
        """All that the machine code depends on."""
        arguments = signature if isinstance(signature, tuple) else (signature.return_type, *signature.args)
        names = self._function.__qualname__, *_parts(self._function), *map(_described, arguments)
        return repr((_machine(), _settings(), codegen.magic_tuple(), self._text, self._options, names)).encode()

    @contextlib.contextmanager
    def _told_not_raised(self, done: str) -> Iterator[None]:
        """Say why an entry cannot be used, whatever is wrong: without one a kernel is compiled, in every process."""
        try:
            yield
        except Exception as error:
            why = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
            files.warn_once(f"compiled code cannot be {done} on disk ({why}), so each process compiles it")


def _dumps(value: Any) -> bytes:
    from numba.core.serialize import dumps  # noqa: PLC0415  # private

    return bytes(dumps(value))


def _described(kind: Any) -> str:
    """A type by its name, and with the names of fields, which numba leaves out of a named tuple's."""
    parts = ", ".join(map(_described, kind.types)) if isinstance(kind, import_numba().types.BaseTuple) else ""
    return f"{kind!r} {getattr(kind, 'fields', '')} ({parts})"


def _in_order(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else value


@functools.cache
def _machine() -> tuple[Any, ...]:
    """The processor, which kernels may ask for by themselves, and the versions; of Python what its bytecode tells."""
    import llvmlite  # noqa: PLC0415  # with the compiler
    from llvmlite import binding  # noqa: PLC0415

    python = sys.implementation.cache_tag, getattr(sys, "abiflags", "")
    return (
        import_numba().__version__,
        llvmlite.__version__,
        np.__version__,
        *python,
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    )


def _settings() -> list[tuple[str, str]]:
    """Numba's settings that may change machine code, such as NUMBA_OPT and NUMBA_BOUNDSCHECK."""
    values = sorted(vars(import_numba().config).items())
    return [(name, repr(value)) for name, value in values if name.isupper() and not _IDLE_SETTING.search(name)]


# The text that a kernel is compiled from


def file_of(function: Callable[..., Any]) -> Path:
    """The file of a function's text."""
    return Path(inspect.getfile(function)).resolve()


@functools.cache
def text_of(path: Path) -> str:
    """A hash of a module's text and of all modules of ``impls`` that it imports from. OSError without the text."""
    found, left = {path}, [path]
    while left:
        new = set(_module(left.pop())[1]) - found
        found |= new
        left += new
    return hashlib.sha256(b"".join(sorted(_module(each)[0] for each in found))).hexdigest()


@functools.cache
def _module(path: Path) -> tuple[bytes, tuple[Path, ...]]:
    """(hash of a module's text, files of the modules of ``impls`` that it imports from)."""
    text, files = path.read_bytes(), []
    for dots, name, names in _IMPORTS.findall(text.decode()):
        if not dots and name.partition(".")[0] != _PACKAGE.name:
            continue
        base = (path.parents[len(dots) - 1] if dots else _PACKAGE.parent).joinpath(*name.split("."))
        if (module := base.with_name(f"{base.name}.py")).is_file():
            files.append(module)
            continue
        for one in re.findall(r"\w+", re.sub("#.*", "", names)):
            places = base / f"{one}.py", base / one / "__init__.py", base / "__init__.py"
            files += [place for place in places if place.is_file()][:1]
    return hashlib.sha256(text).digest(), tuple(files)


# Files


def _read(path: Path, key: bytes) -> bytes | None:
    """What was kept under a key, or None where it is not there or not whole; nothing that others may have written."""
    try:
        with files.opened(path) as file:
            content, used = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        files.warn_once(f"{path.parent} holds compiled code that is not run, but replaced ({error.strerror})")
        return None
    if time.time() - used > _DAY_SECONDS:
        with contextlib.suppress(OSError):  # a folder that cannot be written
            os.utime(path)
    payload = content[_DIGEST_BYTES:]
    return payload if content[:_DIGEST_BYTES] == hashlib.sha256(key + payload).digest() else None


def _write(path: Path, key: bytes, payload: bytes) -> None:
    """Keep what belongs to a key, whole or not at all."""
    write_whole(path, hashlib.sha256(key + payload).digest() + payload)
    _trim(path.parent)


def _trim(folder: Path) -> None:
    """Remove what killed writers left, and the entries that nobody has used for longest where there are too many bytes.

    A process that uses one has its code in memory.
    """
    entries, now = [], time.time()
    with os.scandir(folder) as listed:
        everything = list(listed)
    for entry in everything:
        with contextlib.suppress(FileNotFoundError):  # another process removes the same
            found = entry.stat()
            if not entry.name.startswith(PART):
                entries.append((found.st_mtime, found.st_size, entry.path))
            elif now - found.st_mtime > _LEFT_SECONDS:
                Path(entry.path).unlink()
    total = sum(size for _, size, _ in entries)
    least = total - MOST_BYTES * 3 // 4 if total > MOST_BYTES else 0
    for _, size, path in sorted(entries):
        if least <= 0:
            break
        Path(path).unlink(missing_ok=True)
        least -= size


class Progress:
    """Tells the user on stderr that kernels are compiled: by a line that is rewritten on a terminal, and removed once
    they are; elsewhere by a line every few seconds of compiling."""

    SENTENCE = "compiling kernels for this processor, once a machine"
    EVERY_SECONDS = 5.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seconds, self._told = clock, 0.0, 0.0
        self._began = clock()

    def begin(self) -> None:
        """Note that a kernel is not on disk."""
        self._began = self._clock()
        if sys.stderr is None or files.is_worker():
            return
        count, total = compiler.count, compiler.total
        line = f"{self.SENTENCE}: kernel {count}{f' of {total}' * (count <= total)}, {self._seconds:.0f} s"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif self._seconds - self._told >= self.EVERY_SECONDS:
            self._told = self._seconds
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Note that it has been compiled."""
        self._seconds += self._clock() - self._began
        if sys.stderr is not None and sys.stderr.isatty() and not files.is_worker():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


progress = Progress()
