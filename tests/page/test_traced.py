"""No number survives its record: of shaken records the figures, tables and sentences of the page say other numbers.

Every time, rate and result in a copy of the results is changed, each record by a factor of its own. A number that stays
the same at its place would be typed by hand; what may stay rests on no record, and is listed with the reason.
"""

import json
import random
import re
import shutil

import pandas as pd
import pytest

pytest.importorskip("seaborn", reason="reports need seaborn")

from dse.records import read_file
from reports import page
from reports.answer import make_answer
from reports.frame import Data
from tests import frames
from tests.committed import COMMITTED
from tests.made import alter

KEY = "8fb834d50a"
TIMES = ("median_seconds", "low_seconds", "high_seconds")
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e-?\d+)?")
OF_NO_RECORD = {
    "fpga": "laws of cycles and resources, and quoted numbers",
    "mapping_": "laws, and times that a paper implies",
    "greedy_loss": "times drawn by a seed",
    "choice": "laws for the platform of a paper",
    "front": "laws for the platform of a paper",
    "depth": "laws for the platform of a paper",
    "core_splits": "laws for the platform of a paper",
    "claims": "arithmetic on quoted numbers; tests/unit/test_claims.py has the values",
    "refuted": "arithmetic on quoted numbers; tests/unit/test_claims.py has the values",
}
"""Beginnings of figures and tables that rest on no record, or partly, each with what they rest on."""
SHAPES = {"trials", "factor", "within", "as_fitted", "printed_regret", "sixteen_regret", "predicted_regret"}
SHAPES |= {"capacity", "batch", "fanout", "threads", "seed", "step", "steps", "best", "predicted", "printed"}
"""Columns that say what was timed, and rank it: the same shape may stay the fastest."""


def shake(results, out, seed):
    """Copy results with every measured number changed."""
    for path in sorted(path for path in results.rglob("*") if path.is_file()):
        target = out / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            target.write_text("".join(_shake_record(one, seed) for one in read_file(path)))
        elif path.name == "curve.csv":
            rows, rng = pd.read_csv(path), random.Random(f"{seed}{path}")
            scores = ["mean_score", "least_score", "largest_score"]
            rows[scores] *= rng.uniform(0.5, 0.9)
            rows.to_csv(target, index=False)
        elif path.suffix == ".json" and "asv" not in path.parts:
            target.write_text(json.dumps(_shake(json.loads(path.read_text()), random.Random(f"{seed}{path.name}"))))
        else:
            shutil.copy(path, target)
    return out


def _shake_record(record, seed):
    rng = random.Random(f"{seed}{record.cell}{record.utc}")
    factor = rng.uniform(1.3, 1.9)
    other = {name: getattr(record, name) and getattr(record, name) * factor for name in TIMES}
    other["samples_seconds"] = tuple(factor * sample for sample in record.samples_seconds)
    return alter(record, **other, metrics=_shake(record.metrics, rng)).to_json() + "\n"


def _shake(value, rng):
    """Change every number that is no count."""
    if isinstance(value, dict):
        results = {name: int(1.5 * value[name]) for name in ("sample_efficiency",) if value.get(name)}
        return {name: _shake(part, rng) for name, part in value.items()} | results
    if isinstance(value, list):
        return [_shake(part, rng) for part in value]
    return value * rng.uniform(1.3, 1.9) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The data of the committed records, and of shaken ones."""
    folder = shake(COMMITTED, tmp_path_factory.mktemp("shaken"), 1)
    return [Data.read(results, KEY) for results in (COMMITTED, folder)]


def test_every_measured_number_of_a_figure_or_table_is_a_records(both):
    committed, shaken = (dict(page.to_frames(data)) for data in both)
    assert {*committed} == {*shaken}
    stayed = {}
    for name in (name for name in committed if not name.startswith(tuple(OF_NO_RECORD))):
        old, new = (rows if "source" not in rows else rows[~rows["source"].astype(str).str.startswith("quoted")]
                    for rows in (committed[name], shaken[name]))  # fmt: skip
        for column in old.select_dtypes("float").columns.difference([*SHAPES]):
            values = {value for value in old[column].dropna() if value not in (0, 1) and value != round(value)}
            same = values & set(new.get(column, ()))
            if len(same) > 0.02 * len(values):
                stayed[name, column] = sorted(same)[:3]
    assert stayed == {}


def test_every_number_that_the_page_says_is_a_records(both):
    sentences = [[make_answer(data).says, *(section.says(data) for section in page.list_sections()
                                                if section.says and "(modeled)" not in section.title)]
                 for data in both]  # fmt: skip
    for old, new in zip(*sentences, strict=True):
        numbers = [number for number in NUMBER.findall(re.sub(r"\b[NKB] = [\d,]+", "", old)) if "." in number]
        assert not numbers or old != new, old


def test_figures_and_tables_have_the_numbers_that_were_kept():
    found, kept = frames.read_frames(), json.loads(frames.FILE.read_text())
    assert frames.list_changes(kept, found) == []
    assert frames.list_changes(kept, {**found, "fanout, ns": [1, 2.0]}) != []
