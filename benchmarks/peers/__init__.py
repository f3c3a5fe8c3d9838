"""Other libraries' sum trees, made under our contract's names so that they can be timed and checked with ours.

The registry is the folder: library ``x`` is the one public :class:`~benchmarks.peers.peer.Peer` of ``x_peer.py``.
"""

from functools import cache

from ..libraries import adapters, loading
from .peer import Peer


@cache
def _kinds() -> dict[str, type[Peer]]:
    return dict(adapters(__name__, "_peer", Peer))


def names(device: str = "cpu") -> tuple[str, ...]:
    """Return every library with an adapter, installed or not, whose tree lies on this device: "cpu" or "cuda"."""
    return tuple(sorted(name for name, kind in _kinds().items() if kind.device == device))


def adapter(name: str) -> type[Peer]:
    """Return the adapter class of a library."""
    return _kinds()[name]


def make(name: str, capacity: int, *, dtype: str = "float64", fanout: int = 2, threads: int = 1) -> Peer:
    """Make a library's tree. RuntimeError with one sentence if it cannot be made here, ValueError for a dtype, fanout
    or threads that it does not have."""
    kind = adapter(name)
    if dtype not in kind.dtypes or (fanout, threads) != (kind.fanout, 1):
        raise ValueError(f"{name} has {' or '.join(kind.dtypes)} sums, fanout {kind.fanout} and one thread")
    with loading(name, "; try: make peers" if kind.device == "cpu" else ""):
        return kind(capacity, dtype)
