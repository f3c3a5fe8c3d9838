"""Checks of arguments that all of ``impls`` shares, and words for their errors, which name the value and its bound."""

import difflib
import re
from collections.abc import Collection
from operator import index
from typing import Any

import numpy as np

_SHORT = 3  # letters of a word, any of which makes another word of it


def integer_at_least(what: str, value: int, least: int) -> int:
    """The value as int. TypeError if it is no integer, ValueError if it is below ``least``."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what} must be an integer, not {value}")
    try:
        integer = index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {value!r}") from None
    if integer < least:
        raise ValueError(f"{what} must be at least {least}, not {integer}")
    return integer


def one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """The value if it is among ``allowed``, else ValueError with the nearest match."""
    for candidate in allowed:
        if value is candidate or (isinstance(value, str) and value == candidate):
            return candidate
    hint = near(str(value), [*map(str, allowed)])
    raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, not {value!r}{hint}")


def near(word: str, known: Collection[str]) -> str:
    """ "; did you mean ...?" where a known word is near, else nothing."""
    return "".join(f"; did you mean {match!r}?" for match in closest(word, known))


def closest(word: str, known: Collection[str]) -> list[str]:
    """The known word that a word may be a misspelling of, or none: digits agree, and in short words the first letter.

    >>> closest("dqm", ["dqn"]), closest("tpu", ["gpu"]), closest("h100", ["h200"]), closest("floot32", ["float32"])
    (['dqn'], [], [], ['float32'])
    >>> closest("NUMBA", ["numpy", "numba"])
    ['numba']
    """
    if same := [one for one in known if one.lower() == word.lower()]:
        return same[:1]
    digits, first = re.findall(r"\d+", word), word[:1] if len(word) <= _SHORT else ""
    others = [one for one in known if re.findall(r"\d+", one) == digits and one.startswith(first)]
    return difflib.get_close_matches(word, others, n=1, cutoff=0.6 if first else 0.7)


def short(word: object) -> str:
    """The word quoted, and cut where it is long."""
    return repr(word if len(str(word)) <= 40 else f"{str(word)[:40]}...")


def explain_missing(implementation: str, module: str) -> str:
    """Say that a tree's implementation needs a module of another package, and how to install that.

    >>> explain_missing("cupy", "cupy")
    "Implementation 'cupy' needs the module 'cupy', which is not installed; install it with: pip install cupy-cuda13x"
    """
    package = "cupy-cuda13x" if module == "cupy" else module
    return (
        f"Implementation {implementation!r} needs the module {module!r}, which is not installed; "
        f"install it with: pip install {package}"
    )
