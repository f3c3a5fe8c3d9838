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

import argparse
import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import impls
from dse import platforms
from dse.platforms.evidence import answers
from dse.records import RecordError

from ..arguments import add_common, add_numbers, parser_of
from ..cases import ROTATION, Case, Prepared, WrongAnswerError, prepare
from ..clock import LEAST_SAMPLE_SECONDS, Call, Clock
from ..libraries.base import Tree, loading, roles, tree_names
from ..presets import ENDS, ON_DEVICE, UNCHECKED, Block, groups
from ..run import Stamp, Tally, exit_code, file_of, show
from ..sweep import SweepMethod, sweep
from ..worker import maker

FILE, CHECK_FILE = "gpu.jsonl", "gpu-check.json"
STAGES = ("check", "rivals", "trees", "transfers")
MOST_SECONDS = 7 * 60  # after which nothing more is begun
LEAST_GRAPH_CALLS, MOST_GRAPH_CALLS = 64, 1_024
TENSORS = {"arrays": "torch"}  # among a record's options: whose arrays the tree is given, by default CuPy's
GRAPH = {"launch": "graph"}  # among a record's options: how the calls were launched, which the tree does not know
BATCHES = (32, 256, 1_024, 4_096, 16_384, 65_536)
CAPACITIES = (10_000, 100_000, 1_000_000, 10_000_000)
COMPARED = Block(("cupy",), ("sample", "draw", "update"), CAPACITIES[1:], BATCHES[1:])

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"propagate": "delta"},
    {"lanes": 1, "fused": False},
    {"lanes": 2, "fused": True},
    {"lanes": 8, "fused": False},
    {"lanes": 16, "fused": True},
    {"lanes": 32, "fused": False},
    {"aligned": False},
    UNCHECKED,
)
CHECKS = (
    Block(("cupy",), ("draw", "update", "step"), (1, 17, 1_000), (1, 300), (2, 3, 16, 64), options=VARIANTS),
    Block(("cupy",), ("sample", "get", "insert"), (100_000,), (2_048,), (16, 128), options=VARIANTS),
    Block(("cupy",), ("draw", "update"), (1_000_000,), (65_536,), (8, 256), dtypes=("float32", "float64")),
    Block(("cupy",), ("update",), (100_000,), (4_096,), (16,), options=VARIANTS, duplicates=(0.5, 1.0)),
    Block(("cupy",), ("draw",), (100_000,), (4_096,), (16,), distributions=("mostly_zero", "rank1.0")),
)
TREES = (
    Block(("cupy",), capacities=CAPACITIES, batches=BATCHES, fanouts=(4, 8, 16, 32, 64, 128), options=(UNCHECKED,)),
    Block(
        ("cupy",),
        capacities=ENDS,
        batches=BATCHES,
        fanouts=(16, 64),
        options=tuple(UNCHECKED | {"lanes": lanes} for lanes in (1, 2, 4, 8, 16, 32)),
    ),
    Block(
        ("cupy",),
        ("update",),
        capacities=ENDS,
        batches=BATCHES,
        options=(UNCHECKED | {"propagate": "delta"}, UNCHECKED | {"fused": True}, UNCHECKED | {"fused": False}),
    ),
    Block(("cupy",), capacities=CAPACITIES, batches=BATCHES),
)
RIVALS = (
    dataclasses.replace(
        COMPARED, options=({}, UNCHECKED, UNCHECKED | GRAPH, UNCHECKED | {"propagate": "delta"}, TENSORS)
    ),
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


def clock(prepared: Prepared) -> Clock:
    """Return the clock that a case asks for. A graph's calls run through all inputs, as far as it can hold them."""
    if prepared.case.options.get("launch") != GRAPH["launch"]:
        return EventClock(prepared.call)
    calls = max(LEAST_GRAPH_CALLS, min(MOST_GRAPH_CALLS, ROTATION // prepared.case.batch))
    return GraphClock(prepared.call, calls)


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


def require_a_live_device() -> None:
    """Raise RecordError if the device no longer answers, as after an illegal access: no later record can be trusted."""
    import cupy  # noqa: PLC0415  # only where there is a device

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RecordError(
            f"the device no longer answers ({error}); every finished cell is kept, the same command continues"
        ) from error


def main(arguments: list[str] | None = None) -> int:
    """Run the stages; return the exit code: 0 done, 1 a check or cell failed. RecordError where there is no device."""
    options = _parser().parse_args(arguments)
    path = file_of(options, FILE)
    if options.dry_run:
        timed = [stage for stage in options.stage or STAGES if stage != "check"]
        return show(sum((_timed(stage, path, options) for stage in timed), Tally(0)), path, options)
    if reason := impls.why_not("cupy"):
        raise RecordError(reason)
    report: dict[str, Any] = {"gpus": platforms.fingerprint()["gpus"], "file": str(path)}
    wrong: list[Any] = []
    failed, begun = 0, time.monotonic()
    for stage in options.stage or STAGES:
        if stage == "check":
            outcome = report[stage] = _check(path.with_name(CHECK_FILE), options.seed)
            wrong = outcome["wrong"]
            verdict = f"{len(wrong)} wrong, the first: {wrong[0]}" if wrong else "all right"
            shown = f"{outcome['checked']} cases, {verdict}"
        else:
            tally = _timed(stage, path, options, time.monotonic() - begun)
            report[stage], shown = tally.as_json(), "\n".join([*tally.lines(), *tally.unfinished])
            failed = max(failed, exit_code(tally, path))
        if not options.json:
            print(f"{stage}: {shown}", flush=True)
        if wrong:
            break  # an implementation that is wrong is not timed
    if options.json:
        print(json.dumps(report))
    return 1 if wrong else failed


def _check(path: Path, seed: int) -> dict[str, Any]:
    """Compare every variant with the oracle; the outcome is kept, for this code on this machine and device."""
    stamp = Stamp.of_this_run(__name__)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or it was damaged
        kept: dict[str, Any] = json.loads(path.read_text())
        if answers(kept["machine"], stamp.machine) and not kept["wrong"]:
            return kept
    cases = [case for block in CHECKS for case in block.cases()]
    wrong = []
    for case in cases:
        try:
            prepare(case, seed)
        except (WrongAnswerError, RuntimeError) as error:
            wrong.append({"case": dataclasses.asdict(case), "what": str(error)})
            require_a_live_device()
    origin = {"machine": stamp.machine, "commit": stamp.commit, "dirty": stamp.dirty, "utc": platforms.now()}
    outcome = {"checked": len(cases), "wrong": wrong, **origin}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outcome, indent=1) + "\n")
    return outcome


def _timed(stage: str, path: Path, options: argparse.Namespace, spent_seconds: float = 0.0) -> Tally:
    """Time the cells that are not in the file yet, as far as the minutes go of which some seconds are spent."""
    if stage == "rivals" and not options.dry_run:
        _build_libraries()
    method = SweepMethod("gpu" if stage == "rivals" else "sum_tree", make, clock, require_a_live_device)
    try:
        return sweep(groups(_cases(stage)), path, options, False, method, 60 * options.minutes - spent_seconds)
    except RuntimeError as error:
        raise RecordError(f"{error}; every finished cell is kept, the same command continues") from error


def _build_libraries() -> None:
    """Let the libraries compile before the clock runs, on every CPU. Each cell of one that fails states the reason."""
    for name in tree_names("cuda"):
        with contextlib.suppress(ImportError, OSError):
            roles(Tree)[name].after_install()


def _cases(stage: str) -> Iterator[Case]:
    """Yield the cells of a stage; for the rivals also each library's, in each of its formats."""
    blocks = {"trees": TREES, "rivals": RIVALS, "transfers": TRANSFERS}[stage]
    yield from itertools.chain.from_iterable(block.cases() for block in blocks)
    if stage == "rivals":
        for name in tree_names("cuda"):
            kind = roles(Tree)[name]
            theirs = dataclasses.replace(RIVALS[0], contestants=(name,), fanouts=(kind.fanout,), options=({},))
            yield from dataclasses.replace(theirs, dtypes=kind.dtypes).cases()


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("gpu", __doc__, "--stage check --stage rivals")
    parser.add_argument("--stage", choices=STAGES, action="append", help="only this one; repeatable (default: all)")
    minutes = (MOST_SECONDS / 60, "minutes after which nothing more is begun")
    add_numbers(parser, budget=(0.1, "seconds of sampling a cell"), minutes=minutes)
    return add_common(parser, seed_of="inputs and order")
