"""Made-up files of questions: answered from hand-written records, and measured as if times were what a test says."""

import dataclasses
import json

from dse.records import Writer
from dse.times.tree_times import Table
from dse.validation import asking, runs
from tests.test_recommend import records, write

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
    path = folder / Table(found).machine_key / f"{seed.stem}.json"
    asking.write(asking.ask(found, folder, seed, (count, 0)) | changes, path)
    return path


def step(question, configuration):
    """The names of a cell, as in a record, by op."""
    shape = {name: question[name] for name in ("capacity", "batch", "dtype", "distribution")}
    chosen = configuration | {"options": dict(configuration["options"])}
    return [shape | chosen | {"op": op} for op in ("draw", "update")]


def measure(path, factor=lambda question, candidate: 1.0, utc=LATER, commit="abc"):
    """Records as if every candidate had taken so many times what was answered; none where the factor is None."""
    example = next(records())
    with Writer(path.with_suffix(".jsonl")) as writer:
        for at, one in enumerate(json.loads(path.read_text())["trees"]):
            for which, candidate in enumerate(one["candidates"]):
                times = factor(at, which)
                call = times and times * candidate["seconds"] / (1 + one["question"]["updates_per_sample"])
                told = dict.fromkeys(("median_seconds", "low_seconds", "high_seconds"), call)
                told |= {"primitive": "question", "utc": utc, "commit": commit, "status": "ok" if times else "skipped"}
                for cell in step(one["question"], candidate["configuration"]):
                    writer.append(dataclasses.replace(example, **cell, **told))


def run(path):
    """The run of a file."""
    return runs.read(path)
