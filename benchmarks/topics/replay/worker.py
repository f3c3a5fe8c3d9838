"""A process that makes buffers and takes samples of a cell on request, as ``benchmarks.worker`` does for trees.

{"do": "prepare", "cell": {...}, ...}     -> {"number": 0, ..}, {"skipped": why}, {"failed": why}
{"do": "sample", "number": 0}             -> {"seconds": 1e-05, "calls": 800, "beside": null, ..}, {"failed": why}
{"do": "balance", "contestant": ..}       -> {"rows": 37, "insert": [..], "learn": [..]}, {"skipped": why}
{"do": "forget"}                          -> {}
{"do": "versions", "packages": ["cpprb"]} -> {"cpprb": "11.0.0"}
"""

import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from impls.cluster.connection import import_ray
from impls.replay import SegmentedReplay
from impls.terminal import plural
from impls.training import TrainingError

from ...cases import WrongAnswerError
from ...clock import ALL_CPUS, Call, CallClock, Clock, pin_to
from ...libraries import rows
from ...libraries.base import Buffer, make, part_of
from ...worker import NOT_HERE, Session, sentence_of, serve, threads
from . import fault, filled, kind_of
from .cells import ALONE, LEARNED, RETRIEVE
from .jobs import ROTATING, Crew, CrewError, Job, Processes, Quota, Threads, rounds_of

MODEL_RECORDS = 100_000  # of all segments, the middle of three sizes that [Zhang2022, Fig. 3.6] tries
LEAD_SECONDS = 0.003  # from asking the jobs to begin until they do


class Operation(CallClock):
    """An operation of one buffer by this thread: insert, sample or update of ``batch`` records, or a step: one record
    inserted, then ``batch`` sampled and updated, or ``rollouts``. Updates and retrievals are of records sampled since
    the sample before."""

    def __init__(self, buffer: Buffer, op: str, batch: int, sample_seconds: float) -> None:
        rng, count = np.random.default_rng(0), batch if op == "insert" else 1
        placed = [buffer.place(rows.made(numbers)) for numbers in rng.integers(0, rows.MOST, (ROTATING, count))]
        errors = [buffer.place_errors(made) for made in rng.random((ROTATING, batch)).astype(np.float32)]
        self._sampled: list[Any] = []
        self._draw = (lambda: buffer.keep(buffer.sample(batch))) if op in ("update", RETRIEVE) else None
        self._renew()

        def step(turn: int) -> None:
            buffer.insert(placed[turn % ROTATING])
            buffer.update(buffer.sample(batch), errors[turn % ROTATING])

        calls: dict[str, Call] = {
            "insert": lambda turn: buffer.insert(placed[turn % ROTATING]),
            "sample": lambda turn: buffer.sample(batch),
            "update": lambda turn: buffer.update(self._sampled[turn % ROTATING], errors[turn % ROTATING]),
            RETRIEVE: lambda turn: buffer.retrieve(self._sampled[turn % ROTATING]),
            "step": step,
        }
        call = calls[op] if op in calls else rollouts(buffer, batch, placed, errors)
        super().__init__(call, sample_seconds, buffer.wait)

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call."""
        self._renew()
        return super().sample()

    def _renew(self) -> None:
        if self._draw:
            self._sampled[:] = [self._draw() for _ in range(ROTATING)]


def rollouts(buffer: Buffer, batch: int, placed: list[Any], errors: list[Any]) -> Call:
    """Return what an environment step of [Zhang2022, Alg. 2] asks of its two buffers: one record inserted, M =
    ``batch`` sampled, a segment of M that a model makes of them stored with their weights, M priorities updated.

    No library has a buffer in segments: all store into ours, so that they differ by the prioritized buffer alone.
    """
    model = SegmentedReplay(max(1, MODEL_RECORDS // batch), batch, rows.LAYOUT)
    made = [rows.made(turn * batch + np.arange(batch)) for turn in range(ROTATING)]
    for turn in range(model.segments):
        model.insert(made[turn % ROTATING], np.ones(batch))

    def step(turn: int) -> None:
        buffer.insert(placed[turn % ROTATING])
        sampled = buffer.sample(batch)
        model.insert(made[turn % ROTATING], buffer.weights(sampled))
        buffer.update(sampled, errors[turn % ROTATING])

    return step


def part_of_step(cell: dict[str, Any], seed: int, sample_seconds: float) -> CallClock:
    """Return the clock of another part of an environment step. TrainingError where its workload cannot be had."""
    from impls.training import learners, load  # noqa: PLC0415  # of processes of ours alone

    from ..profile import parts  # noqa: PLC0415

    learners.use_threads(1)
    return CallClock(parts.make(parts.World(load(cell["options"]["workload"]), seed, 0), cell), sample_seconds)


@dataclass
class SharedRun:
    """A clock of jobs that several processes do at once: for N ``seconds``, or until their quota is done.

    For a stretch a call is an iteration of the slowest, or of the first, and ``beside`` are the seconds of the last's;
    for a quota it is a gradient step, by the wall time until the last member is done. ``before`` precedes every run.
    """

    crew: Crew
    jobs: Sequence[Job]
    seconds: float = 0.0
    is_slowest: bool = True
    before: Callable[[], object] = lambda: None
    calls_per_sample: int = 0
    beside: float | None = None
    superseded: float | None = None  # share of the samples of learners that retrieve priorities

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call. CrewError where a member failed."""
        self.before()
        begin = time.perf_counter() + LEAD_SECONDS
        jobs = [dataclasses.replace(job, begin=begin, end=begin + self.seconds) for job in self.jobs]
        outcomes = self.crew.run(jobs)
        self.calls_per_sample = max(1, min(outcome.iterations for outcome in outcomes))
        if shares := jobs[0].quota:
            done = sum(
                job.batch * outcome.iterations
                for job, outcome in zip(jobs, outcomes, strict=True)
                if job.role == RETRIEVE
            )
            self.superseded = sum(outcome.superseded for outcome in outcomes) / done if done else None
            return (max(outcome.ended for outcome in outcomes) - begin) / shares.total
        each = [outcome.seconds for outcome in outcomes]
        self.beside = each[-1]
        return max(each) if self.is_slowest else each[0]


def cpus_of(member: int, members: int) -> tuple[int, ...]:
    """Return the CPUs of a member: one of its own where there are enough, or any."""
    return ALL_CPUS if members > len(ALL_CPUS) else ALL_CPUS[member : member + 1]


def share_quota(job: Job, shares: Quota) -> list[Job]:
    """Return the jobs of actors and learners that do a quota together; ``job`` is a learner's."""
    roles = ["actor"] * shares.actors + [job.role] * shares.learners
    job_of = functools.partial(dataclasses.replace, job, quota=shares)
    return [job_of(role=role, index=index, cpus=cpus_of(index, len(roles))) for index, role in enumerate(roles)]


def cut(buffer: Any, op: str, until: str) -> Any:
    """Return the buffer, or one in its memory whose operation ends after the step ``until``.

    What a sample that is cut returns is unfinished, and never looked at.
    """
    if until == "whole":
        return buffer
    whole = buffer.compiled
    kind = type(whole)
    kernels = dataclasses.replace(kind.kernels, **{op: _kernels()[op, until]})
    some = type("CutReplay", (kind,), {"kernels": kernels})
    made: Any = kind_of(buffer.name).__new__(kind_of(buffer.name))
    made.take(some(whole.settings, whole._memory), buffer.capacity, seed=0)
    return made


@functools.cache
def _kernels() -> dict[tuple[str, str], Any]:
    """Return the kernel of each operation and last step. They are made here, once the compiler is needed."""
    from impls.replay import sampling, tree_lock, updating  # noqa: PLC0415
    from impls.sumtree.kernels import header  # noqa: PLC0415

    kernel = header.kernel()
    begin = [_sampling(kernel, sampling, tree_lock, gathers) for gathers in (False, True)]

    @kernel
    def nothing(trial, view, first, second, third, fourth):
        return 0

    @kernel
    def inserted(trial, view, source, count, errors, keep, exponent):
        return 0

    @kernel
    def raised(trial, view, sequence, errors, exponent, present):
        leaves = np.empty(errors.size)
        updating.leaves_of(view, errors, 0, errors.size, exponent, leaves)
        return 0 if leaves[-1] >= 0 else 1

    return {
        ("sample", "call"): nothing,
        ("sample", "tree"): begin[0],
        ("sample", "gather"): begin[1],
        ("update", "call"): nothing,
        ("update", "priorities"): raised,
        ("insert", "call"): inserted,
    }


def _sampling(kernel: Any, sampling: Any, tree_lock: Any, gathers: bool) -> Any:
    """Return the kernel that draws a batch as the default strategy does, with or without its records."""
    from impls.replay.steps import PORTION  # noqa: PLC0415

    words = sampling.DRAWN

    @kernel
    def sampled(trial, view, uniforms, stratified, beta, out):
        count = uniforms.size
        drawn = np.empty(words * count, np.int64)
        sampling.begin(view, drawn, count, uniforms, stratified)
        for low in range(0, count, PORTION):
            # Invariant: the places before ``low`` are drawn.
            high = min(low + PORTION, count)
            tree_lock.enter(view)
            status = sampling.search(view, drawn, count, low, high)
            tree_lock.leave(view)
            if status != 0:
                return status
            if gathers:
                sampling.gather(view, drawn, count, low, high, out)
        if gathers:
            sampling.changed(view, drawn, count, count)
        return 0

    return sampled


MOST_ROWS = 65_536  # that balance tries
BALANCE_SAMPLES = 11


class _Session(Session):
    """The buffers and crews of this process, and the clocks that have been prepared, by number."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: dict[str, Buffer] = {}
        self._crews: dict[str, Crew] = {"threads": Threads(self._buffers), "processes": Processes(self._buffers)}
        self._faults: dict[str, str | None] = {}

    def prepare(self, cell: dict[str, Any], **how: Any) -> dict[str, Any]:
        """Make the clock of a cell; ``how``: the seed, the seconds of a sample, the rows of an insertion of a pair."""
        part, is_clustered = cell["part"], kind_of(cell["contestant"]).clustered  # Ray's processes inherit the CPUs
        cpus = pin_to(ALL_CPUS[: 1 if part in ALONE and not is_clustered else None], threads())
        make_clock = {"pairs": self._pair, "flush": self._flush}.get(part, self._parallel)
        try:
            clock: Clock = (self._operation if part in ALONE else make_clock)(cell, **how)
            note = plural(len(import_ray().nodes()), "node") if is_clustered else _note(**cell["options"])
            if part not in ALONE:
                clock.sample()  # compiles, attaches and touches every page
        except (CrewError, WrongAnswerError) as error:
            return {"failed": str(error)}
        except (TrainingError, *NOT_HERE) as error:
            return {"skipped": str(error) or "not enough memory"}
        except Exception as error:  # whatever a library raises
            return {"failed": sentence_of(error)}
        return self.keep(clock, affinity=cpus, note=note)

    def sample(self, number: int) -> dict[str, Any]:
        """Take one sample of a clock, in seconds of a call."""
        clock = self.clocks[number]
        try:
            seconds = clock.sample()
        except (CrewError, *NOT_HERE) as error:
            return {"failed": str(error)}
        more = {name: getattr(clock, name, None) for name in ("beside", "superseded")}
        return {"seconds": seconds, **more, "calls": clock.calls_per_sample}

    def balance(self, cell: dict[str, Any], seed: int) -> dict[str, Any]:
        """Return how many rows an insertion must have to take as long as a sample and an update of a pair's batch."""
        most = part_of(cell["capacity"])
        more = max(2, min(1_024, most))
        pin_to(ALL_CPUS, threads())
        try:
            key = self._shared(cell, seed)
            learn, few, many = (
                self._time_alone(*job, key, cell) for job in (("learner", 1), ("actor", 1), ("actor", more))
            )
            least = statistics.median(few)
            a_row = max((statistics.median(many) - least) / (more - 1), 1e-12)
            rows = min(MOST_ROWS, most, max(1, round(1 + (statistics.median(learn) - least) / a_row)))
            return {"rows": rows, "insert": self._time_alone("actor", rows, key, cell), "learn": learn}
        except CrewError as error:
            return {"failed": str(error)}
        except NOT_HERE as error:
            return {"skipped": str(error) or "not enough memory"}

    def _time_alone(self, role: str, rows: int, key: str, cell: dict[str, Any]) -> list[float]:
        clock = self._stretch([(role, key)], 0.02, rows=rows, batch=cell["batch"])
        clock.sample()
        return [clock.sample() for _ in range(BALANCE_SAMPLES)]

    def _make_buffer(self, key: str, cell: dict[str, Any], seed: int, is_full: bool = True, **options: Any) -> str:
        """Make a buffer, once, after the check that its kind has passed; return its key."""
        name = cell["contestant"]
        options |= {option: cell["options"][option] for option in ("strategy",) if option in cell["options"]}
        checked = f"{name} {options}"
        key = f"{key} {checked} {cell['capacity']}"
        if checked not in self._faults:
            self._faults[checked] = fault(name, seed, **options)
        if wrong := self._faults[checked]:
            raise WrongAnswerError(wrong)
        if key not in self._buffers:
            make_kind = filled if is_full else functools.partial(make, Buffer)
            self._buffers[key] = make_kind(name, cell["capacity"], seed, **options)
        return key

    def _operation(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> CallClock:
        if "workload" in cell["options"]:
            return part_of_step(cell, seed, sample_seconds)
        buffer = self._buffers[self._make_buffer("alone", cell, seed)]
        buffer = cut(buffer, cell["op"], cell["options"].get("until", "whole"))
        return Operation(buffer, cell["op"], cell["batch"], sample_seconds)

    def _shared(self, cell: dict[str, Any], seed: int, key: str = "first") -> str:
        return self._make_buffer(key, cell, seed, shared=True)

    def _stretch(
        self, roles: Sequence[tuple[str, str]], seconds: float, is_slowest: bool = True, **job: Any
    ) -> SharedRun:
        """Return the clock of processes, each with a role and the key of its buffer."""
        jobs = [
            Job(key, role, index, cpus=cpus_of(index, len(roles)), **job) for index, (role, key) in enumerate(roles)
        ]
        return SharedRun(self._crews["processes"], jobs, seconds, is_slowest)

    def _pair(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> SharedRun:
        options, op = cell["options"], cell["op"]
        first = self._shared(cell, seed)
        second = self._shared(cell, seed, "second") if op == "apart" else first
        work, seconds = options["work"], options["work_seconds"]
        amount = rounds_of(seconds) if work == "computing" else seconds
        two = [("actor", first), ("learner", second)]
        roles = {"one": [("both", first)], "insert": two[:1], "learn": two[1:]}.get(op, two)
        return self._stretch(roles, sample_seconds, rows=rows, batch=cell["batch"], work=work, amount=amount)

    def _flush(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> SharedRun:
        key = self._shared(cell, seed)
        roles = [("actor" if cell["op"] == "insert" else "cache", key), ("learner", key)]
        count = 2 if cell["options"]["beside"] == "learner" else 1
        return self._stretch(roles[:count], sample_seconds, is_slowest=False, rows=cell["batch"], batch=LEARNED)

    def _parallel(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> SharedRun:
        mode, options = cell["part"], cell["options"]
        more = {"shared": True} if mode == "processes" else {}
        key = self._make_buffer(mode, cell, seed, is_full=False, **more)
        seconds = options["work_seconds"]
        role = RETRIEVE if cell["op"] == RETRIEVE else "learner"
        job = Job(key, role, 0, 1, cell["batch"], (), "sleeping" if seconds else "none", seconds)
        shares = Quota(options["actors"], options["learners"], options["iterations"], options["starts_after"])
        buffer: Any = self._buffers[key]
        return SharedRun(self._crews[mode], share_quota(job, shares), before=buffer.clear)


def _note(work_seconds: float = 0.0, work: str = "sleeping", **_: Any) -> str | None:
    """Return what to know of a cell's work, by its options."""
    if not work_seconds or work != "sleeping":
        return None
    return f"a sleep of {1e6 * work_seconds:.0f} us takes {1e6 * _slept(work_seconds):.0f} us here"


@functools.cache
def _slept(seconds: float) -> float:
    begin = time.perf_counter()
    for _ in range(100):
        time.sleep(seconds)
    return (time.perf_counter() - begin) / 100


if __name__ == "__main__":
    sys.exit(serve(_Session()))
