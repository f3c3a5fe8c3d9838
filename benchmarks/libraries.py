"""Adapters of other libraries: the public classes in a folder's files, and what to say where one cannot be made."""

import contextlib
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any


def adapters(package: str, ending: str, base: type) -> Iterator[tuple[str, Any]]:
    """Yield (x, class) for each public subclass of ``base`` that a file ``x<ending>.py`` of a package defines."""
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if found.name.endswith(ending):
            module = importlib.import_module(f"{package}.{found.name}")
            for name, kind in vars(module).items():
                is_own = isinstance(kind, type) and kind.__module__ == module.__name__ and name[0] != "_"
                if is_own and issubclass(kind, base):
                    yield found.name.removesuffix(ending), kind


@contextlib.contextmanager
def loading(name: str, remedy: str = "; try: make peers") -> Iterator[None]:
    """RuntimeError with one sentence where a library that is used within is not here, or cannot be loaded."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise RuntimeError(f"{name} needs the module {error.name!r}, which is not installed{remedy}") from error
    except (ImportError, OSError) as error:
        raise RuntimeError(f"{name} cannot be loaded: {str(error).splitlines()[0]}") from error
