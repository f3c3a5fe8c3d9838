"""Parameters of tests: a few are brief and all are thorough; the others are marked slow, for `make test-all`."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow(*values: Any, **how: Any) -> Any:
    """Return the parameters of a test that `make test` leaves to `make test-all`; ``how`` is pytest.param's."""
    return pytest.param(*values, marks=pytest.mark.slow, **how)


def matrix(*axes: Iterable[Any], brief: Callable[..., bool]) -> list[Any]:
    """Return every combination of the axes, of a single one its values; those for which ``brief`` says no are slow."""
    return [pytest.param(*one) if brief(*one) else slow(*one) for one in itertools.product(*axes)]
