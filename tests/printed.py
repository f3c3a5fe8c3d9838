"""What others printed, for tests: as it is, and with other numbers."""

import dataclasses

from tests.committed import RESULTS

QUOTED = RESULTS / "quoted"


def but(found, **numbers):
    """The same with other numbers printed; names with two underscores for a dot."""
    changed = {name.replace("__", "."): number for name, number in numbers.items()}
    assert changed.keys() <= found.numbers.keys()
    return dataclasses.replace(found, numbers=found.numbers | changed)
