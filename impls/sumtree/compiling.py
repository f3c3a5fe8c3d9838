"""Compiling at first use, one caller at a time, out of reach of signal handlers and forks."""

import contextlib
import gc
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from .turns import Result


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
