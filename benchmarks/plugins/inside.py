"""The time that calls of some classes' methods take inside a longer call."""

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

_TRIES = 20_000


class Inside:
    """Within it, ``seconds`` counts the time inside these methods; calls from one to another count once.

    What the counting itself takes is subtracted, as an empty method has it.
    """

    def __init__(self, methods: Iterable[tuple[type, Sequence[str]]]) -> None:
        self._methods = [(kind, name) for kind, names in methods for name in names]
        self._spent, self._calls, self._is_inside = 0.0, 0, False
        self._originals: list[tuple[type, str, Any, bool]] = []

    def __enter__(self) -> Self:
        for kind, name in self._methods:
            is_own = name in vars(kind)
            self._originals.append((kind, name, getattr(kind, name), is_own))
            setattr(kind, name, self._counted(getattr(kind, name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for owner, name, method, is_own in reversed(self._originals):
            if is_own:
                setattr(owner, name, method)
            else:
                delattr(owner, name)
        self._originals = []

    @property
    def seconds(self) -> float:
        """The time inside so far."""
        return max(0.0, self._spent - self._calls * _cost()[0])

    @property
    def overhead_seconds(self) -> float:
        """What the counting has added to the time of whoever called."""
        return self._calls * _cost()[1]

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter

        def counted(*arguments: Any, **options: Any) -> Any:
            if self._is_inside:
                return method(*arguments, **options)
            self._is_inside, begin = True, clock()
            try:
                return method(*arguments, **options)
            finally:
                self._spent += clock() - begin
                self._calls += 1
                self._is_inside = False

        return counted


class _Empty:
    def call(self) -> None:
        return


@functools.cache
def _cost() -> tuple[float, float]:
    """Seconds that a counted call of an empty method seems to take, and that it takes: the least of five tries."""
    inner, outer = [], []
    for _ in range(5):
        with Inside([(_Empty, ["call"])]) as inside:
            empty, begin = _Empty(), time.perf_counter()
            for _ in range(_TRIES):
                empty.call()
            outer.append((time.perf_counter() - begin) / _TRIES)
        inner.append(inside._spent / _TRIES)
    return min(inner), min(outer)
