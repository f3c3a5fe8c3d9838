"""Judge single claims of the documents by made-up records, with what others printed as it is or of other numbers."""

import dataclasses

from reports.claims.judge import Data, find, judge
from reports.claims.rows import read_rows
from tests.committed import RESULTS

QUOTED = RESULTS / "quoted"
ROWS = {row.id: row for row in read_rows(QUOTED)}


def judge_one(name, records, found, **numbers):
    """The judgment of a claim of the documents by the records of one machine, with other numbers printed."""
    changed = {name.replace("__", "."): number for name, number in numbers.items()}  # names have no dots here
    assert changed.keys() <= found.numbers.keys()
    printed = dataclasses.replace(found, numbers=found.numbers | changed)
    own = {}
    for record in records:
        own.setdefault(record.primitive, []).append(record)
    row = ROWS[name]
    return judge(row, find(row, [Data(own, printed)], printed), printed)
