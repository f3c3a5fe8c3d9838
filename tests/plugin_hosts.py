"""What the tests of the plug-ins share: a skip where a host is missing, and trees that are off by one leaf."""

import contextlib
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from impls.sumtree import registry
from impls.sumtree.arguments import to_numpy
from impls.sumtree.contract import SumTree, _restore

ROOT = Path(__file__).resolve().parent.parent
FOLDER, EXAMPLES = ROOT / "impls" / "plugins", ROOT / "impls" / "plugins" / "examples"
PLUGINS = tuple(sorted({path.stem for path in FOLDER.glob("*.py")} - {"__init__", "hosts", "priorities"}))
"""The plug-ins: the modules beside ``hosts.py`` and ``priorities.py``, which they share."""


def plugin(name: str) -> ModuleType:
    """Import a plug-in, for example "sb3"; skip the test, or the file that asks at its top, where its host is missing.

    A host in a version that the plug-in does not know is an ImportError as for any user.
    """
    try:
        return importlib.import_module(f"impls.plugins.{name}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in (
            "impls",
            "numba",
        ):  # ours, or what the project's tests need anyway
            raise
        pytest.skip(f"the plug-in {name!r} needs {missing.name}: make plugins installs it", allow_module_level=True)


def program(name: str) -> str:
    """Return the program that trains by a plug-in, for example "sb3"."""
    return (EXAMPLES / f"{name}_dqn.py").read_text(encoding="utf-8")


def chi_square(counts: Any, weights: Any) -> float:
    """How far counts ``[N]`` are from the weights ``[N]`` they are drawn by, in standard deviations of chi-square.

    AssertionError where something of weight 0 was drawn; what is expected at most five times is left out.
    """
    counts, weights = np.asarray(counts), np.asarray(weights, np.float64)
    assert not counts[weights == 0].any()
    expected = weights / weights.sum() * counts.sum()
    often = expected > 5
    freedom = np.count_nonzero(often) - 1
    return float((((counts - expected)[often] ** 2 / expected[often]).sum() - freedom) / np.sqrt(2 * freedom))


@contextlib.contextmanager
def broken() -> Iterator[None]:
    """Within it, every tree that is made draws the leaf to the right of the one it should draw.

    ``with broken():`` round the making of a buffer, and the plug-in's own checks on that buffer must fail. Trees that
    were made before stay right; those made within stay wrong, copies and pickles included. Priorities, sums and
    totals stay right, so that nothing but the leaves that are drawn gives the fault away.
    """
    class_of = registry._class_of
    registry._class_of = lambda name: _wrong(class_of(name))
    try:
        yield
    finally:
        registry._class_of = class_of


@functools.cache
def _wrong(kind: type[SumTree]) -> type[SumTree]:
    """A class like ``kind`` whose trees draw one leaf too far right."""

    class Wrong(kind):  # type: ignore[misc, valid-type]
        def prefix_sum_index(self, *arguments: Any, **options: Any) -> Any:
            return self._right_of(super().prefix_sum_index(*arguments, **options))

        def sample(self, *arguments: Any, **options: Any) -> Any:
            leaves = self._right_of(super().sample(*arguments, **options)[0])
            return leaves, self.get(leaves)

        def sample_distinct(self, *arguments: Any, **options: Any) -> Any:
            leaves = self._right_of(super().sample_distinct(*arguments, **options)[0])
            return leaves, self.get(leaves)

        def _right_of(self, leaves: Any) -> Any:
            return (to_numpy(leaves) + 1) % self.capacity

        def __reduce__(self) -> Any:
            _, (_, *rest) = super().__reduce__()
            return _wrong_again, (kind, *rest)

    Wrong.__name__ = Wrong.__qualname__ = f"Wrong{kind.__name__}"
    return Wrong


def _wrong_again(kind: type[SumTree], *rest: Any) -> SumTree:
    return _restore(_wrong(kind), *rest)


class SkippedDoctests:
    """A plugin for pytest: a plug-in's module is not imported to look for doctests where its host is missing."""

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out the files of plug-ins whose host is missing."""
        path = collection_path.resolve()  # by whatever link it is reached
        if not path.is_relative_to(FOLDER) or path.suffix != ".py":
            return None
        if path.stem not in PLUGINS:
            return None
        try:
            importlib.import_module(f"impls.plugins.{path.stem}")
        except ModuleNotFoundError as missing:
            return None if (missing.name or "").startswith("impls") else True
        return None
