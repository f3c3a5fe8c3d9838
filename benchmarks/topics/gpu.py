"""How fast is the GPU tree on a CUDA device, and is it right? Check and time it with its rivals, in four stages.

check      compare every kernel variant with the oracle, on the device; nothing is timed
rivals     the tree, torchrl's CUDA tree and torch's cumsum + searchsorted (primitive "gpu"): launched call by
           call, by CuPy's arrays and by torch's tensors, and as a captured graph, where launching costs next to nothing
trees      the variants over K, N and B (primitive "sum_tree")
transfers  batches sent to the device and fetched from it

Times are between CUDA events around calls enqueued one after the other, so launching counts where it takes longer than
the work. Records go to results/<machine>/gpu.jsonl; `python -m reports` draws them. After 7 minutes nothing more is
begun: the same command resumes where it stopped. Nothing is installed: the Python that runs this needs CuPy, and
torch and torchrl if they are to be compared.
"""

import contextlib
import dataclasses
import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import impls
from dse import platforms
from dse.platforms.checkout import is_evidence
from dse.records import Record, RecordError

from ..arguments import add_numbers
from ..cases import ROTATION, Case, Prepared, WrongAnswerError, prepare
from ..clock import LEAST_SAMPLE_SECONDS, Call, Clock
from ..libraries.base import Tree, loading, roles, tree_names
from ..presets import ENDS, ON_DEVICE, UNCHECKED, Block, groups
from ..run import file_of
from ..sweep import Sweep
from ..topic import Topic
from ..worker import maker

CHECK_FILE, ENDED = "gpu-check.json", "every finished cell is kept, the same command continues"
STAGES = ("check", "rivals", "trees", "transfers")
MOST_SECONDS = 7 * 60  # after which nothing more is begun
LEAST_GRAPH_CALLS, MOST_GRAPH_CALLS = 64, 1_024
TENSORS = {"arrays": "torch"}  # among a record's options: whose arrays the tree is given, by default CuPy's
GRAPH = {"launch": "graph"}  # among a record's options: how the calls were launched, which the tree does not know
BATCHES = (32, 256, 1_024, 4_096, 16_384, 65_536)
CAPACITIES = (10_000, 100_000, 1_000_000, 10_000_000)
COMPARED = Block(("cupy",), ("sample", "draw", "update"), CAPACITIES[1:], BATCHES[1:])

DELTA = {"propagate": "delta"}
LANES = ((1, False), (2, True), (8, False), (16, True), (32, False))  # and whether the kernels are fused
LAUNCHED = tuple({"lanes": lanes, "fused": fused} for lanes, fused in LANES)
VARIANTS: tuple[dict[str, Any], ...] = ({}, DELTA, *LAUNCHED, {"aligned": False}, UNCHECKED)
CHECKS = (
    Block(("cupy",), ("draw", "update", "step"), (1, 17, 1_000), (1, 300), (2, 3, 16, 64), options=VARIANTS),
    Block(("cupy",), ("sample", "get", "insert"), (100_000,), (2_048,), (16, 128), options=VARIANTS),
    Block(("cupy",), ("draw", "update"), (1_000_000,), (65_536,), (8, 256), dtypes=("float32", "float64")),
    Block(("cupy",), ("update",), (100_000,), (4_096,), (16,), options=VARIANTS, duplicates=(0.5, 1.0)),
    Block(("cupy",), ("draw",), (100_000,), (4_096,), (16,), distributions=("mostly_zero", "rank1.0")),
)
BY_LANES = tuple(UNCHECKED | {"lanes": lanes} for lanes in (1, 2, 4, 8, 16, 32))
BY_WRITING = tuple(UNCHECKED | way for way in (DELTA, {"fused": True}, {"fused": False}))
TREES = (
    Block(("cupy",), capacities=CAPACITIES, batches=BATCHES, fanouts=(4, 8, 16, 32, 64, 128), options=(UNCHECKED,)),
    Block(("cupy",), capacities=ENDS, batches=BATCHES, fanouts=(16, 64), options=BY_LANES),
    Block(("cupy",), ("update",), capacities=ENDS, batches=BATCHES, options=BY_WRITING),
    Block(("cupy",), capacities=CAPACITIES, batches=BATCHES),
)
RIVALS = (
    dataclasses.replace(COMPARED, options=({}, UNCHECKED, UNCHECKED | GRAPH, UNCHECKED | DELTA, TENSORS)),
    dataclasses.replace(COMPARED, dtypes=("float64",), options=(UNCHECKED,)),
)
TRANSFERS = (Block(ON_DEVICE, ("upload", "download"), (1_000_000,), BATCHES),)


class EventClock:
    """Times calls between CUDA events on the current stream; the host's wait for the last event is not counted."""

    def __init__(self, call: Call, least_sample_seconds: float = LEAST_SAMPLE_SECONDS) -> None:
        import cupy  # noqa: PLC0415  # only where there is a device

        self._cuda, self._call, self._turn = cupy.cuda, call, 0
        self.calls_per_sample = 1
        call(0)
        # Invariant: a sample of every smaller power of two was too short.
        while self.calls_per_sample < 1 << 16 and self.sample() * self.calls_per_sample < least_sample_seconds:
            self.calls_per_sample *= 2

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call."""
        first, count = self._turn, self.calls_per_sample
        begin, end = self._cuda.Event(), self._cuda.Event()
        begin.record()
        for turn in range(first, first + count):
            self._call(turn)
        end.record()
        end.synchronize()
        self._turn += count
        return float(self._cuda.get_elapsed_time(begin, end)) / 1e3 / count


class GraphClock:
    """Times ``calls`` calls captured as one CUDA graph: launched at once, so that launching costs next to nothing."""

    def __init__(self, call: Call, calls: int, least_sample_seconds: float = LEAST_SAMPLE_SECONDS) -> None:
        import cupy  # noqa: PLC0415  # only where there is a device

        self._calls, self._stream = calls, cupy.cuda.Stream(non_blocking=True)
        with self._stream:
            for turn in range(calls):  # the stream keeps the memory they allocate, so that capture allocates none
                call(turn)
            self._stream.synchronize()
            self._stream.begin_capture()
            try:
                for turn in range(calls):
                    call(turn)
            finally:
                graph = self._stream.end_capture()
            self._launches = EventClock(lambda turn: graph.launch(self._stream), least_sample_seconds)
        self.calls_per_sample = calls * self._launches.calls_per_sample

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call."""
        with self._stream:
            return self._launches.sample() / self._calls


def make(name: str, capacity: int, **settings: Any) -> Any:
    """Make a tree of ours, or a library's on the device. RuntimeError with one sentence if it cannot be made here."""
    settings.pop("launch", None)
    arrays = settings.pop("arrays", None)
    tree = maker(name)(name, capacity, **settings)
    return tree if arrays is None else TensorTree(tree)


class TensorTree:
    """A tree whose batches are placed as torch's tensors. RuntimeError where there is no torch for its device."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        with loading("torch", ""):
            import torch  # noqa: PLC0415  # only where tensors are asked for
        if tree.device != "cpu" and not torch.cuda.is_available():
            raise RuntimeError("tensors need a torch that sees the CUDA device")
        self._as_tensor = torch.as_tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def place(self, array: Any) -> Any:
        """The batch ``[B]`` as a tensor on the tree's device."""
        return self._as_tensor(array, device=self._tree.device)


class Gpu(Topic):
    """The stages in their order; after some minutes none begins anything more."""

    example = "--stage check --stage rivals"
    seed_of = "inputs and order"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the stages, and how long they take."""
        parser.add_argument("--stage", choices=STAGES, action="append", help="only this one; repeatable (default: all)")
        minutes = (MOST_SECONDS / 60, "minutes after which nothing more is begun")
        add_numbers(parser, budget=(0.1, "seconds of sampling a cell"), minutes=minutes)

    def __init__(self, options: Namespace) -> None:
        if not options.dry_run and (reason := impls.why_not("cupy")):
            raise RecordError(reason)
        super().__init__(options)
        self._check, self._end = _Check(options), time.monotonic() + 60 * options.minutes

    def parts(self) -> Sequence[Topic]:
        """Return the stages that are asked for."""
        names = self.options.stage or STAGES
        return [self._check if name == "check" else _Stage(self.options, name, self._end) for name in names]

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the devices and the outcome of the check."""
        return {"gpus": platforms.fingerprint()["gpus"], "check": self._check.outcome}, ()


class _Check(Topic):
    """Every variant compared with the oracle, which has no cells; the outcome is kept in a file of its own."""

    has_sentinels = False
    outcome: Mapping[str, Any] = {}

    def cells(self) -> list[list[Case]]:
        """Return no cells: nothing is timed."""
        return []

    def open(self, stack: ExitStack) -> None:
        """Check, unless this code was on this machine and device. SystemExit where a variant is wrong, so that nothing
        is timed."""
        path = file_of(self.options, CHECK_FILE)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or it was damaged
            kept = json.loads(path.read_text())
            self.outcome = kept if is_evidence(kept["machine"], self.stamp.machine) and not kept["wrong"] else {}
        if not self.outcome:
            self.outcome = self._compare()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.outcome, indent=1) + "\n")
        count, wrong = self.outcome["checked"], self.outcome["wrong"]
        if wrong:
            print(f"error: {len(wrong)} of {count} cases are wrong, the first: {wrong[0]}; see {path}", file=sys.stderr)
            raise SystemExit(1)
        print(f"check: {count} cases, all right", file=sys.stderr)

    def _compare(self) -> dict[str, Any]:
        cases, wrong = [case for block in CHECKS for case in block.cases()], []
        for case in cases:
            try:
                prepare(case, self.options.seed)
            except (WrongAnswerError, RuntimeError) as error:
                wrong.append({"case": dataclasses.asdict(case), "what": str(error)})
                require_a_live_device()
        origin = {name: getattr(self.stamp, name) for name in ("machine", "commit", "dirty")}
        return {"checked": len(cases), "wrong": wrong, **origin, "utc": platforms.now()}


def require_a_live_device(*_: object) -> None:
    """Raise RecordError if the device no longer answers, as after an illegal access: no later record can be trusted."""
    import cupy  # noqa: PLC0415  # only where there is a device

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RecordError(f"the device no longer answers ({error}); {ENDED}") from error


class _Stage(Sweep):
    """Cells that are timed on the device, begun until a moment; those of the rivals have a primitive of their own."""

    has_sentinels = False
    make, check_device = staticmethod(make), require_a_live_device

    def __init__(self, options: Namespace, name: str, end: float) -> None:
        super().__init__(options)
        self._name, self._end = name, end
        self._libraries = tree_names("cuda") if name == "rivals" else ()
        self.primitive = "gpu" if name == "rivals" else "sum_tree"

    def cells(self) -> list[list[Case]]:
        """Return the cells in groups; of the rivals also each library's, in each of its formats."""
        blocks = [*{"trees": TREES, "rivals": RIVALS, "transfers": TRANSFERS}[self._name]]
        for name in self._libraries:
            kind = roles(Tree)[name]
            theirs = dataclasses.replace(RIVALS[0], contestants=(name,), fanouts=(kind.fanout,), options=({},))
            blocks.append(dataclasses.replace(theirs, dtypes=kind.dtypes))
        return list(groups(case for block in blocks for case in block.cases()))

    def open(self, stack: ExitStack) -> None:
        """Let the libraries compile before the clock runs, on every CPU. Each cell of one that fails states why."""
        for name in self._libraries:
            with contextlib.suppress(ImportError, OSError):
                roles(Tree)[name].after_install()
        self.most_seconds = self._end - time.monotonic()

    def time(self, prepared: Prepared) -> Clock:
        """Return the clock that a case asks for. A graph's calls run through all inputs, as far as it can hold them."""
        if prepared.case.options.get("launch") != GRAPH["launch"]:
            return EventClock(prepared.call)
        return GraphClock(prepared.call, max(LEAST_GRAPH_CALLS, min(MOST_GRAPH_CALLS, ROTATION // prepared.case.batch)))

    def measure(self, cells: Sequence[Case]) -> Iterator[Record]:
        """Yield the records of a group. RecordError where the device fails while it is timed."""
        try:
            yield from super().measure(cells)
        except RuntimeError as error:
            raise RecordError(f"{error}; {ENDED}") from error
