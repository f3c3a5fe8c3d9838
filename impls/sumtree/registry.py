"""The registry is the folder: implementation ``x`` is the one public sum-tree class of ``impls/sumtree/x_tree.py``."""

import contextlib
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from ..checks import closest, explain_missing
from .contract import SumTree, defaults_of

_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent
_MEMBERS = frozenset(name for name in vars(SumTree) if not name.startswith("_"))


def names() -> tuple[str, ...]:
    """Every implementation in the checkout, sorted, whether or not what it needs is installed."""
    modules = pkgutil.iter_modules([str(_FOLDER)])
    return tuple(sorted(module.name.removesuffix("_tree") for module in modules if module.name.endswith("_tree")))


def why_not(name: str) -> str | None:
    """None if the implementation can be made here with default options, else one sentence saying why not."""
    try:
        with _needing(name):
            return _class_of(name).unavailable()
    except NotAvailableError as reason:
        return str(reason)


def make(
    name: str,
    capacity: int,
    *,
    fanout: int = 16,
    dtype: DTypeLike = "float32",
    threads: int = 1,
    validate: bool = True,
    minimum: bool = False,
    **options: Any,
) -> SumTree:
    """A sum tree of ``capacity`` leaves, all of priority 0.

    ``minimum`` asks for a :meth:`~SumTree.min` that reads no leaf. ``options`` are the implementation's own, named in
    its class's docstring. Raises RuntimeError (not available here,
    with :func:`why_not`'s sentence), ValueError (capacity < 1, fanout < 2, unknown dtype or option), TypeError.

    >>> make("numpy", 1000, fanout=32)
    NumpyTree(capacity=1000, fanout=32, dtype='float32')
    """
    kind = _class_of(name)
    known = defaults_of(kind)
    for option in options:
        if option not in known:
            hint = " K is the fanout: write fanout=." if option.upper() == "K" else _near(option, known)
            raise ValueError(f"{name!r} has no option {option!r}; it has {', '.join(known)}.{hint}")
    with _needing(name):
        return kind(
            capacity, fanout=fanout, dtype=dtype, threads=threads, validate=validate, minimum=minimum, **options
        )


@functools.cache
def traits(name: str) -> type[SumTree]:
    """The implementation's class, to read its traits from; no tree is made.

    For a name that is not in the checkout, or whose module needs another that is not installed: a stand-in with the
    contract's defaults, whose bytes are unknown.
    """
    try:
        return _class_of(name)
    except NotAvailableError:
        return type(name, (SumTree,), {"nbytes_of": classmethod(lambda *shape: None)})


def options_of(name: str) -> list[str]:
    """The options that are the implementation's own; none where :func:`traits` has a stand-in."""
    return [option for option in defaults_of(traits(name)) if option not in defaults_of(SumTree)]


class NotAvailableError(RuntimeError):
    """The implementation cannot be made on this machine; the message is why_not's sentence."""


def _class_of(name: str) -> type[SumTree]:
    """The implementation's class. An ImportError of our own code is a bug and is raised as it is."""
    if name not in names():
        known = ", ".join(names())
        raise NotAvailableError(f"There is no implementation {name!r}; there are {known}.{_near(name, names())}")
    with _needing(name):
        module = importlib.import_module(f"{_PACKAGE}.{name}_tree")
    kinds: list[Any] = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value)
        and not key.startswith("_")
        and value.__module__ == module.__name__
        and _MEMBERS <= set(dir(value))
    ]
    if len(kinds) != 1:
        raise ImportError(f"{module.__name__} must define exactly one public sum tree, not {len(kinds)}")
    kind: type[SumTree] = kinds[0]
    return kind


@contextlib.contextmanager
def _needing(name: str) -> Iterator[None]:
    """Turn the lack of a third party's module into :class:`NotAvailableError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not missing or missing.partition(".")[0] == _PACKAGE.partition(".")[0]:
            raise
        raise NotAvailableError(explain_missing(name, missing)) from error


def _near(word: str, known: Iterable[str]) -> str:
    return "".join(f" Did you mean {match!r}?" for match in closest(str(word), [*known]))
