"""The implementations under test: every name in the registry with its defaults, and options worth a run of their own.

The GPU tree is tested by its kernels' text run on the host, whether or not there is a device.
"""

import functools
import inspect
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import impls
from impls import SumTree
from impls.sumtree.cuda import emulation
from tests.skips import is_expected

CAPACITIES = (1, 2, 3, 1000)  # beside K-1 .. K*K+1, which depend on K

ALWAYS: dict[str, dict[str, Any]] = {"cupy": {"emulate": True, "raise_errors": "now"}}
_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "python": [{"propagate": "delta"}],
    "numpy": [{"propagate": "delta"}, {"padding": "full"}, {"aligned": False}],
    "numba": [
        {"propagate": "delta"},
        {"layout": "plain"},
        {"layout": "plain", "propagate": "delta"},
        {"aligned": False},
        {"threads": 2},
        {"threads": 2, "layout": "plain", "propagate": "delta", "aligned": False},
    ],
    "cupy": [
        {"propagate": "delta"},
        {"lanes": 1, "fused": False},
        {"lanes": 32, "fused": False},
        {"lanes": 16, "fused": True, "aligned": False},
        {"lanes": 2, "fused": False, "propagate": "delta"},
    ],
    "fpga": [
        {"leaf_bits": 40, "fraction_bits": 20, "micro": "scan", "banks": 1, "banking": "contiguous"},
        {"rounding": "up"},
    ],
}


def make(name: str, capacity: int, **settings: Any) -> SumTree:
    """An implementation with its defaults, where it is tested."""
    return impls.make(name, capacity, **(ALWAYS.get(name, {}) | settings))


def _why_not(name: str) -> str | None:
    return emulation.why_not() if "emulate" in ALWAYS.get(name, {}) else impls.why_not(name)


def _case(name: str, options: dict[str, Any]) -> Any:
    reason = _why_not(name)
    label = "-".join([name, *(f"{key}={value}" for key, value in options.items())])
    marks = [pytest.mark.skip(reason=reason)] if reason else []
    return pytest.param(name, ALWAYS.get(name, {}) | options, id=label, marks=marks)


def variants_of(name: str) -> list[dict[str, Any]]:
    """The options with which an implementation is tested, its defaults first."""
    return [ALWAYS.get(name, {}) | options for options in [{}, *_OPTIONS.get(name, [])]]


NAMES = [name for name in impls.names() if _why_not(name) is None]
VARIANTS = [_case(name, options) for name in impls.names() for options in [{}, *_OPTIONS.get(name, [])]]
DEFAULTS = [_case(name, {}) for name in impls.names()]
every_implementation = pytest.mark.parametrize(("name", "options"), DEFAULTS)


def every_variant(test: Callable[..., None]) -> Callable[..., None]:
    """A test of ``name`` and ``options``, a case a name: it goes over all options.

    An expected skip leaves out its own options alone; where all are skipped, or for another reason, the case is.
    """

    @functools.wraps(test)
    def run(name: str, **more: Any) -> None:
        skips, variants = [], list(variants_of(name))
        for options in variants:
            try:
                test(name=name, options=options, **more)
            except pytest.skip.Exception as skip:
                skips.append(skip)
                if len(skips) == len(variants) or not is_expected(str(skip)):
                    raise
            except BaseException as error:
                error.add_note(f"with the options {options}")
                raise

    parameters = inspect.signature(test).parameters.values()
    own = [parameter for parameter in parameters if parameter.name != "options"]
    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # which pytest reads
    cases = [pytest.param(case.values[0], id=case.id, marks=case.marks) for case in DEFAULTS]
    return pytest.mark.parametrize("name", cases)(run)


def capacities(fanout: int) -> list[int]:
    """Where levels fill up and begin: around K and K*K."""
    around = [fanout - 1, fanout, fanout + 1, fanout**2 - 1, fanout**2, fanout**2 + 1]
    return sorted({*CAPACITIES, *around})


def requires(tree: SumTree, *priorities: float) -> None:
    """Skip a test whose priorities the tree's leaf format does not hold."""
    for priority in priorities:
        if priority > tree.largest_priority or tree.rounded(priority) != tree.dtype.type(priority):
            pytest.skip(f"a leaf of {tree!r} does not hold {priority:g}")


def contents(tree: SumTree) -> bytes:
    """Every bit the tree holds: the arrays and lists among its attributes, but for what an update scribbles on."""
    return b"".join(_bits(value) for name, value in sorted(vars(tree).items()) if name != "_scratch")


def _bits(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (list, tuple)):
        return b"".join(map(_bits, value))
    if isinstance(value, (int, float)):
        return struct.pack("d", value)
    return b""
