"""Judge single claims of the documents by made-up records, for tests."""

from reports.claims.judge import Data, find, judge
from reports.claims.rows import read_rows
from tests.printed import QUOTED, but

ROWS = {row.id: row for row in read_rows(QUOTED)}


def judge_one(name, records, found, **numbers):
    """The judgment of a claim of the documents by the records of one machine, with other numbers printed."""
    printed = but(found, **numbers)
    own = {}
    for record in records:
        own.setdefault(record.primitive, []).append(record)
    row = ROWS[name]
    return judge(row, find(row, [Data(own, printed)], printed), printed)
