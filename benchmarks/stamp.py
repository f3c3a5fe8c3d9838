"""What every record of a run has in common, and how a case becomes a record."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from dse import platforms
from dse.records import Measurement, Status

from .cases import Case
from .timing import Timing


@dataclass(frozen=True)
class Stamp:
    """Commit, command and kind of a run's records."""

    commit: str | None
    dirty: bool | None
    command: str
    primitive: str = "sum_tree"
    machine: dict[str, Any] = field(default_factory=lambda: dict(platforms.fingerprint()))

    @classmethod
    def of_this_run(cls, primitive: str = "sum_tree") -> Self:
        """The checkout's commit and the command line."""
        return cls(*platforms.commit(Path(__file__).parent), platforms.command_line(), primitive)

    def record(self, case: Case, status: Status, **fields: Any) -> Measurement:
        """A record of a case, measured unless ``fields`` say otherwise."""
        named = {
            "source": "measured",
            "primitive": self.primitive,
            "contestant": case.contestant,
            "op": case.op,
            "capacity": case.capacity,
            "batch": case.batch,
            "fanout": case.fanout,
            "threads": case.threads,
            "dtype": case.dtype,
            "options": dict(case.options),
            "distribution": case.workload,
            "machine": self.machine,
            "commit": self.commit,
            "dirty": self.dirty,
            "utc": platforms.now(),
            "command": self.command,
        }
        return Measurement(status=status, **(named | fields))

    def timed(self, case: Case, timing: Timing, **fields: Any) -> Measurement:
        """A record of a case that was timed."""
        interval = timing.interval
        return self.record(
            case,
            "unstable" if timing.is_unstable else "ok",
            samples_seconds=timing.samples,
            calls_per_sample=timing.calls_per_sample,
            median_seconds=interval.median,
            low_seconds=interval.low,
            high_seconds=interval.high,
            **fields,
        )
