"""What memory itself costs on this machine: the floor under every tree."""

from collections.abc import Callable


def memory_reads(megabytes: float, reads: int, seed: int = 0) -> dict[str, Callable[[int], object]]:
    """Calls that read ``reads`` random 64-byte lines of a buffer of that size, gathered or chased; each takes the
    number of its turn."""
    # Imported here, for asv imports this module beside older commits' dse, which have no such kernels.
    from dse.platforms import memory  # noqa: PLC0415

    works = memory.memory_reads(int(megabytes * 2**20), reads, seed)
    return {name: lambda turn, call=work.call: call(turn, 1) for name, work in works.items()}
