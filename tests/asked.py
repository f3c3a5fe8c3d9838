"""Made-up files of questions: answered from hand-written records, and measured as if times were what a test says."""

import dataclasses

from dse.questions import Asked
from dse.times.tree_times import Table
from dse.validation import asking, runs
from tests.unit.test_recommend import records, write

COMMIT, LATER = "c0ffee00" * 5, "2040-01-01T00:00:00+00:00"


def few(machine=None):
    """Records of one implementation and K = 16 or 64, which a benchmark can measure in a moment."""
    kept = [one for one in records(threads=(1,)) if one.contestant == "numba" and one.fanout in (16, 64)]
    return [dataclasses.replace(one, machine=one.machine | (machine or {})) for one in kept]


def asked(folder, count=8, found=None, number=1, **changes):
    """A file of questions about trees, written as the command writes it; ``changes`` of its fields."""
    found = list(records() if found is None else found)
    write(folder, found)
    seed = asking.Seed(COMMIT, number)
    path = folder / Table(found).machine_key / f"questions-{seed.stem}.json"
    made = asking.ask(found, path, seed, (count, 0))
    dataclasses.replace(made, head=made.head | changes).create()
    return path


def measure(path, factor=lambda question, candidate: 1.0, utc=LATER):
    """Fill a table as if every candidate had taken so many times what was told; none where the factor is None."""
    made = Asked.read(path)
    for at, rows in enumerate(made.answered("trees")):
        for which, row in enumerate(rows):
            times = factor(at, which)
            row.update({"status": "ok" if times else "skipped", "utc": utc, "commit": "abc"})
            row.update({"measured": times * row["told"]} if times else {"failure": "made up"})
    made.save()


def run(path):
    """The run of a file."""
    return runs.read(path)
