"""The workloads that records are of: a file of one's own may be gone or changed, so records hold what it stated."""

from collections.abc import Iterable

from impls.training import Workload, identity, load, names
from impls.training.settings import of_stated

from ..records import Measurement


def workloads(records: Iterable[Measurement]) -> dict[tuple[str, str], Workload | None]:
    """By (name, identity) each workload of records that name its identity.

    Where no record holds what its file stated, the one that ships under its name; None where that is another.
    """
    held: dict[tuple[str, str], Workload | None] = {}
    for record in records:
        key = str(record.options.get("workload")), str(record.options.get("identity"))
        if "identity" in record.options and not held.get(key):
            held[key] = of_stated(record.machine.get("workload"))
    shipped = {name: load(name) for name in {name for name, _ in held}.intersection(names())}
    known = {key: workload or shipped.get(key[0]) for key, workload in held.items()}
    return {key: workload if workload and identity(workload) == key[1] else None for key, workload in known.items()}
