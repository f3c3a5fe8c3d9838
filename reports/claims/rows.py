"""Read claims: rows of ``results/quoted/claims/*.toml``, a file a document, each with its rule.

The reader refuses a rule that cannot fail, and a rule without the numbers that it needs.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from dse.records import RecordError
from impls.files import list_files

from .quoted import Quoted

Rule = Literal["within", "at_least", "at_most", "above", "below", "linear", "sublinear", "not_run"]
Bound = float | Mapping[str, float]
Joined = Literal["every", "any", "readings"]
ONE_SIDED, SHAPES = ("at_least", "at_most", "above", "below"), ("linear", "sublinear")
WIDEST = 10  # the most times that the upper end of a range may be the lower end
MOST_TOLERANCE = 0.6  # a wider one would let pass numbers that lie apart by a factor of four


@dataclass(frozen=True)
class Row:
    """A claim of a document, in its own words (``text``), and how it is judged.

    ``compute`` names a function of this package, ``module.name``, which returns our values from records or from models;
    ``given`` are its arguments. ``printed`` is the number that the document states, or names the quoted number or the
    quoted table (``least``, ``most``). ``bound`` is what values are compared with, where that is not what is printed; 1
    where nothing is. ``tolerance`` is relative, ``digits`` absolute. A value has parts, for each method or point;
    ``joined`` says whether every part must hold, any of them, or whether parts are readings of what is not printed,
    which must agree. ``chosen``: a parameter that is not printed was chosen so that numbers agree. ``refutes_only``:
    that our values agree proves nothing. ``measure`` is the command after ``python -m benchmarks`` that makes the
    records, ``takes`` what else would test the claim. ``note`` is what to know of values.
    """

    id: str
    paper: str
    place: str
    text: str
    rule: Rule
    compute: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    printed: str | Bound | None = None
    bound: Bound | None = None
    tolerance: float = 0.0
    digits: float = 0.0
    joined: Joined = "every"
    chosen: bool = False
    refutes_only: bool = False
    unit: str = "x"
    measure: str = ""
    takes: str = ""
    note: str = ""

    def find_printed(self, quoted: Quoted) -> Bound | None:
        """Return the number that the document states, or the table with its ``least`` and ``most``."""
        if isinstance(self.printed, str):
            return quoted.table(self.printed) or quoted[self.printed]
        return self.printed

    def find_bounds(self, quoted: Quoted, printed: float | None = None) -> tuple[float, float]:
        """Return the least and the most value that the claim allows; ``printed`` replaces the number of the row."""
        number = self.bound if self.bound is not None else self.find_printed(quoted) if printed is None else printed
        if isinstance(number, Mapping):
            if self.rule == "within":
                return number["least"], number["most"]
            number = number["least" if self.rule in ("at_least", "above") else "most"]
        number = 1.0 if number is None else number
        slack = abs(number) * self.tolerance + self.digits
        least = -math.inf if self.rule in ("at_most", "below") else number - slack
        most = math.inf if self.rule in ("at_least", "above") else number + slack
        return least, most


def read_rows(folder: Path) -> list[Row]:
    """Read all claims below a folder of quoted numbers, by document and order. RecordError for a row that is wrong."""
    rows: list[Row] = []
    for path in list_files(folder / "claims", "*.toml"):
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
            for table in tables["claim"]:
                rows.append(Row(**{**table, "id": f"{path.stem}.{table['id']}", "paper": tables["paper"]}))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise RecordError(f"{path}: cannot be read as claims ({error})") from None
    for row in rows:
        if fault := find_fault(row):
            raise RecordError(f"claim {row.id}: {fault}")
    names = [row.id for row in rows]
    if twice := {name for name in names if names.count(name) > 1}:
        raise RecordError(f"claims with the same id: {', '.join(sorted(twice))}")
    return sorted(rows, key=lambda row: row.paper)


def find_fault(row: Row) -> str:
    """Return why a row is no test of its claim, "" where it is one."""
    for name in ("id", "paper", "place", "text", "compute", "unit", "measure", "takes", "note"):
        if not isinstance(getattr(row, name), str):
            return f"{name} must be text"
    for value, known in ((row.rule, get_args(Rule)), (row.joined, get_args(Joined))):
        if value not in known:
            return f"{value!r} is none of {', '.join(known)}"
    if row.rule == "not_run":
        return "" if row.takes else "a claim that nothing runs must say what it takes to run it"
    if not row.compute:
        return "a rule needs a value: name a function as compute"
    number = row.printed if row.bound is None else row.bound
    if isinstance(number, Mapping) and number["most"] > WIDEST * number["least"]:
        return f"a range that spans a factor of more than {WIDEST} lets nearly any number pass"
    if row.rule == "within" and not isinstance(number, Mapping | str) and not (row.tolerance or row.digits):
        return "a number needs a tolerance or digits: no computed value equals it exactly"
    if row.tolerance > MOST_TOLERANCE:
        return f"a tolerance of {row.tolerance:g} lets nearly any number pass; at most {MOST_TOLERANCE:g}"
    if row.rule in ONE_SIDED and row.unit in LIMITS and isinstance(number, float | int):
        low, high = LIMITS[row.unit]
        if not low < number < high:
            return f"every value in {row.unit} lies between {low:g} and {high:g}, so this rule cannot fail"
    return ""


LIMITS = {"x": (0.0, math.inf), "share": (0.0, 1.0)}
"""Units whose values have limits by their meaning."""
