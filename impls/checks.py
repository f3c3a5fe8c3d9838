"""Checks of arguments that all of ``impls`` shares: the value, or an error that names it and its bound."""

import difflib
from operator import index
from typing import Any

import numpy as np


def integer_at_least(what: str, value: int, least: int) -> int:
    """The value as int. TypeError if it is no integer, ValueError if it is below ``least``."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what} must be an integer, not {value}")
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {value!r}") from None
    if number < least:
        raise ValueError(f"{what} must be at least {least}, not {number}")
    return number


def one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """The value if it is among ``allowed``, else ValueError with the nearest match."""
    for candidate in allowed:
        if value is candidate or (isinstance(value, str) and value == candidate):
            return candidate
    near = difflib.get_close_matches(str(value), [str(a) for a in allowed], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, not {value!r}{hint}")
