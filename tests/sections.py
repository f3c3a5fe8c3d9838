"""Made-up records of one machine for tests of the page's sections, and the data that sections are made of."""

from pathlib import Path

from reports.frame import Data
from tests.made import make_record

KEY = "0123456789"


def time_cell(
    primitive, contestant, op, us, *, batch=1, code="a", status="ok", spread=0.0, threads=1, metrics=None, **options
):
    """Make a record of ``us`` microseconds a call, whose samples lie ``spread`` (a share) around it."""
    samples = tuple(1e-6 * us * (1 + spread * at / 10) for at in range(-10, 11))
    return make_record(
        commit=code, dirty=False, command=f"run {code}", machine={"key": KEY, "cores": 2},
        source="measured", status=status, primitive=primitive, contestant=contestant, op=op,
        capacity=1_000_000, batch=batch, threads=threads, options=options, metrics=metrics or {},
        samples_seconds=samples, calls_per_sample=1, median_seconds=1e-6 * us,
        low_seconds=samples[0], high_seconds=samples[-1], utc=f"2026-11-2{len(code)}T10:00:00+00:00",
    )  # fmt: skip


def data_of(*records, results="there is none"):
    """Make the data of a page about the machine of the records."""
    return Data(Path(results), KEY, records)
