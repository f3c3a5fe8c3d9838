"""Other libraries' sum trees, made under our contract's names so that they can be timed and checked beside ours.

The registry is the folder: library ``x`` is the one public :class:`~benchmarks.peers.peer.Peer` of ``x_peer.py``.
"""

import importlib
import pkgutil
from pathlib import Path

from .peer import Peer


def names(device: str = "cpu") -> tuple[str, ...]:
    """Return every library with an adapter, installed or not, whose tree lies on this device: "cpu" or "cuda"."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    known = sorted(module.name.removesuffix("_peer") for module in modules if module.name.endswith("_peer"))
    return tuple(name for name in known if adapter(name).device == device)


def adapter(name: str) -> type[Peer]:
    """Return the adapter class of a library."""
    module = importlib.import_module(f"{__name__}.{name}_peer")
    (kind,) = (
        member for member in vars(module).values() if isinstance(member, type) and member.__module__ == module.__name__
    )
    return kind


def make(name: str, capacity: int, *, dtype: str = "float64", fanout: int = 2, threads: int = 1) -> Peer:
    """Make a library's tree. RuntimeError with one sentence if it cannot be made here, ValueError for a dtype, fanout
    or threads that it does not have."""
    kind = adapter(name)
    if dtype not in kind.dtypes or (fanout, threads) != (kind.fanout, 1):
        raise ValueError(f"{name} has {' or '.join(kind.dtypes)} sums, fanout {kind.fanout} and one thread")
    try:
        return kind(capacity, dtype)
    except ModuleNotFoundError as error:
        remedy = "; try: make peers" if kind.device == "cpu" else ""
        raise RuntimeError(f"{name} needs the module {error.name!r}, which is not installed{remedy}") from error
    except (ImportError, OSError) as error:
        raise RuntimeError(f"{name} cannot be loaded: {str(error).splitlines()[0]}") from error
