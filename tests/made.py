"""Records made up for tests, of flat fields: each goes to the record or to its run."""

import dataclasses
from typing import Any

from dse.records import Record, Run

_OF_RUN = {field.name for field in dataclasses.fields(Run)}


def make_record(**fields: Any) -> Record:
    """Make a record of its own fields and those of its run."""
    own = fields.keys() - _OF_RUN
    run = Run(**{name: fields[name] for name in fields.keys() & _OF_RUN})
    return Record(**{"run": run, **{name: fields[name] for name in own}})


def alter(record: Record, **fields: Any) -> Record:
    """Return the record with other fields, its own or those of its run."""
    run = dataclasses.replace(record.run, **{name: fields[name] for name in fields.keys() & _OF_RUN})
    return dataclasses.replace(record, **{"run": run, **{name: fields[name] for name in fields.keys() - _OF_RUN}})


def make_timed(seconds: float, **fields: Any) -> Record:
    """Make a record of a time: the median of eleven samples, its interval 2 % to either side; fields override."""
    usual = {
        "source": "measured",
        "status": "ok",
        "median_seconds": seconds,
        "low_seconds": 0.98 * seconds,
        "high_seconds": 1.02 * seconds,
        "samples_seconds": tuple(seconds * (1 + 0.005 * step) for step in range(-5, 6)),
        "commit": "0123456789abcdef",
        "utc": "2026-01-02T03:04:05+00:00",
    }
    return make_record(**(usual | fields))
