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
