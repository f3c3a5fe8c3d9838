"""The processes in which training loops stay alive, and the records of the blocks that they have run."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dse.records import Measurement, Status

from ..run import Stamp
from ..timing import Timing
from ..workers import Bounded, WorkerError
from . import WORKLOAD, identity, kind_of, workload

MODULE = "benchmarks.loops.worker"
PRIMITIVE = "loop_peer"
OPS = ("clean", "median", "cpu")  # seconds of an environment step with its gradient step, by these clocks
RATIO_WITHIN = 0.01  # of one gradient step an environment step


@dataclass(frozen=True)
class Loop:
    """A training loop and its number of environments, with the names of a record's fields; ``op`` is a clock."""

    contestant: str
    environments: int
    op: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.contestant + (f", {self.environments} environments" if self.environments > 1 else "")

    @property
    def capacity(self) -> int:
        """Records of its replay buffer."""
        return workload().replay.capacity

    @property
    def batch(self) -> int:
        """Records of a gradient step."""
        return workload().learner.batch

    @property
    def fanout(self) -> int:
        """Children of a node of its sum tree."""
        return kind_of(self.contestant).fanout

    @property
    def options(self) -> dict[str, Any]:
        """Further fields of its records."""
        replay = kind_of(self.contestant).replay
        return {"workload": WORKLOAD, "identity": identity(), "environments": self.environments, "replay": replay}


@dataclass(eq=False)
class Member:
    """A loop in a process of its own; ``reason`` says why it has no time, once it has none."""

    loop: Loop
    stamp: Stamp
    worker: Bounded | None = None
    status: Status = "ok"
    reason: str | None = None
    affinity: list[int] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)

    def start(self, stack: ExitStack, python: Path, seed: int, warm_up: int) -> None:
        """Start its process, there make the loop, and let it take so many environment steps."""
        kind = kind_of(self.loop.contestant)
        own = Path(sys.executable) if kind.is_ours else python
        if not own.exists():
            self.status, self.reason = "skipped", f"{own}: no such interpreter; install the libraries first: make peers"
            return
        self.worker = stack.enter_context(Bounded(own, module=MODULE))
        name, count = self.loop.contestant, self.loop.environments
        answer = self._ask("prepare", name=name, environments=count, seed=seed, warm_up=warm_up)
        if self.reason is None:
            self.affinity = answer["affinity"]
            self.stamp = dataclasses.replace(self.stamp, machine={**self.stamp.machine, "packages": answer["packages"]})
            self._notes = [*kind.limits, *filter(None, [answer["remark"]])]

    def run(self, seconds: float) -> None:
        """Let the loop run for a block, unless it has failed."""
        if self.reason is None and "steps" in (answer := self._ask("block", seconds=seconds)):
            self.blocks.append(answer)

    def end(self) -> None:
        """End what the process has started, and the process."""
        if self.worker:
            if self.reason is None:
                self._ask("close")
            self.worker.close()

    def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        assert self.worker is not None
        try:
            answer = self.worker.ask(what, **arguments)
        except WorkerError as error:
            answer = {"failed": str(error)}
        for status in ("skipped", "failed"):
            if status in answer:
                self.status, self.reason = status, answer[status]  # type: ignore[assignment]
        return answer

    def records(self, utc: str, again: bool = False) -> Iterator[Measurement]:
        """Yield a record for each clock; all of a run have the same ``utc``."""
        steps, updates = (sum(block[name] for block in self.blocks) for name in ("steps", "updates"))
        if self.reason is None and abs(updates / steps - 1) > RATIO_WITHIN:
            self.status = "failed"
            self.reason = f"{updates / steps:.3f} gradient steps an environment step, not 1 within {RATIO_WITHIN:g}"
        named = {"utc": utc, **({"primitive": f"{PRIMITIVE}_again"} if again else {})}
        for op in OPS:
            cell = dataclasses.replace(self.loop, op=op)
            if self.reason is not None:
                yield self.stamp.record(cell, self.status, reason=self.reason, **named)
                continue
            where = {"affinity": self.affinity, "steps": steps, "gradient_steps": updates}
            timing = Timing(tuple(block[op] for block in self.blocks), steps // len(self.blocks))
            yield self.stamp.timed(cell, timing, where, reason="; ".join(self._notes) or None, **named)
