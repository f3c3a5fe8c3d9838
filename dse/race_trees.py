"""Which tree on this machine: raced, where records are the prior, or by records alone; from Python ``best`` makes it.

What is raced takes steps of training: a sample of B leaves, R updates of B leaves, and updates of one leaf, on inputs
that change from call to call. A race is a record, which answers the same question until the code, a version or the
machine changes. What drifts (``propagate="delta"`` or ``"atomic"``) races against the choice, and is not the choice
unless asked for.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import impls
from impls import SumTree
from impls.cores import count_allowed, free_bytes
from impls.files import cache_folder, lock, warn_once
from impls.race import Candidate, Result, race
from impls.sumtree.compiling import compiler
from impls.sumtree.registry import options_of

from . import machines, platforms, stats
from .answer import Note
from .estimate import Estimate, Evidence
from .platforms.checkout import evidence_here, find_race, keep_race
from .platforms.files import RESULTS
from .records import NoRecordsError, Record, RecordError, Run, parse
from .times.cost_model import DEFAULT
from .times.tree_times import Configuration, Question, Table, TreeTime
from .tree import Recommendation, answer, bytes_of, check, keep_fitting, unusual

Progress = Callable[[float, int], None]
FILE = "races.jsonl"
FANOUTS = (4, 8, 16, 32, 64)
AXES = {"layout": ("prefix", "plain"), "propagate": ("recompute", "delta", "atomic")}
ATOMIC = ("propagate", "atomic")
DRIFTS = {("propagate", "delta"), ATOMIC}
SECONDS = {False: 5.0, True: 15.0}  # of a race with hot caches, and with cold ones
PATIENCE_SECONDS = 60.0  # and those of a race: for who races here and shows no sign of life
SHARE = 0.8  # of the seconds, for the race of what does not drift
ZONE, DRIFT_ZONE = 0.01, 0.03  # of that race, and of the race of the choice against what drifts
LOOK_SECONDS = 0.1  # whether it is one's turn
BLOCK_SECONDS = 0.3e-3
WARM_SECONDS, READ_BYTES = (0.3e-3, 4e-3), 2e9  # before a block: what a tree reads in a second into the caches
ALIKE, ALIKE_BYTES = 8, 32e6  # trees of a candidate in cold caches, and their bytes: where one lies changes its time
STEP_SECONDS, PARTS = 0.5, 5  # for the time of a step of the winner, and its parts, each with a new tree
ALIKE_LEAVES = 2_000_000  # of a tree for which it is not filled again
STEP_BLOCK_SECONDS, COLD_STEPS = 0.5e-3, 8  # of a block in hot caches, and the steps of one in cold caches
POOL_BYTES, OBJECT_BYTES = 96e6, 500  # of arguments, more than caches hold; and of a step's objects among them
WARMING = 0.2  # of the blocks of a tree, the first ones, which do not count
BETWEEN_RUNS = 0.16  # of |ln(time in one run / time in another)|, nineteen in twenty are below: see results/races.md
BUSY = 0.05  # of the time of a race's last half second: where others had more, a warning says so
COLD_BYTES = 16 << 20  # a gradient step's: weights, gradients, moments and activations
HOPELESS = 1.5  # a tree is not raced that is predicted, with its uncertainty, to be slower than the best by this factor
FILL_SECONDS = 10.0  # a tree that takes longer to fill is not raced
FILL_BYTES = 32  # of a leaf that is filled into a tree, beside those of the tree
SMALL = 1_000  # leaves of a tree that has the kernels of a larger one
MOST_CALLS = 100  # updates or insertions of a step
LEAST_INPUTS = 4  # calls with inputs of their own
ELEMENTS, ARRAYS = 1 << 20, 1 << 17  # of these inputs, at most
DENOMINATOR = 16  # updates per sample are told apart by 1 / 16: so many steps are a call


def find_tree(
    capacity: int,
    batch: int,
    updates_per_sample: float = 1.0,
    threads: int | None = None,
    dtype: str = "float32",
    distribution: str = "uniform",
    results: str | Path | None = None,
    machine: str | None = None,
    unchecked: bool = False,
    inserts: int = 0,
    race: bool = False,
    seconds: float | None = None,
    cold: bool = False,
    again: bool = False,
    allow_drift: bool = False,
    progress: Progress = lambda spent, left: None,
) -> Recommendation:
    """The best configuration for N leaves and batches of B on a machine (default: this one, or the nearest swept one).

    A step is a sample, ``updates_per_sample`` updates of B leaves, and ``inserts`` updates of one leaf. ``threads``
    bounds the threads (default: the machine's cores, for this one those that this process may use); ``unchecked``
    admits trees that do not check their input (``validate=False``).

    ``race``: decide on this machine in at most so many ``seconds`` (default: 5, or 15 with ``cold`` caches), unless the
    question was raced before and not ``again``; ``allow_drift`` admits sums that drift as the choice.
    ``progress`` is told (seconds spent, candidates left). ``results``: the folder of records, which then keeps races
    too (default: records of the folder ``results``, races of the user's cache; "": no records, races of the cache).
    RecordError if the results cannot answer; ValueError for a question out of bounds.
    """
    most = 1 if threads is None else threads
    question = Question(capacity, batch, updates_per_sample, most, dtype, distribution, inserts)
    check(question)
    if race:
        question = dataclasses.replace(question, threads=threads or count_allowed())
        terms = {"cold": cold, "unchecked": unchecked, "allow_drift": allow_drift}
        return _raced(question, results, SECONDS[cold] if seconds is None else seconds, terms, again, progress)
    here, folder = platforms.fingerprint(), Path(results or RESULTS)
    records, note = machines.read(folder, machine, machines.SWEEP)
    table = Table(records, unchecked, folder)
    there = int(table.machine.get("cores", 1))
    most = threads or (there if machine not in (None, here["key"]) else min(there, count_allowed()))
    answered = answer(table, dataclasses.replace(question, threads=most))
    return dataclasses.replace(answered, machine_note=note, results=str(folder))


def best(capacity: int, batch: int = 256, results: str | Path | None = None, **asked: Any) -> SumTree:
    """Make the tree that is the fastest here for N leaves and batches of B, empty; raced where it was not before.

    ``best(1_000_000, batch=256)`` may be a ``NumbaTree`` of K = 16. ``results``: the folder that keeps races (default:
    in the user's cache). ``asked``: what else ``find_tree`` takes.
    """
    answered = find_tree(capacity, batch, results=results or "", race=True, **asked)
    return _make(answered.choice.configuration, capacity, answered.question.dtype)


def _make(chosen: Configuration, capacity: int, dtype: str) -> SumTree:
    shape: dict[str, Any] = {"fanout": chosen.fanout, "dtype": dtype, "threads": chosen.threads}
    return impls.make(chosen.contestant, capacity, **shape, **dict(chosen.options))


def _raced(
    question: Question, results: Any, limit: float, terms: Mapping[str, bool], again: bool, progress: Progress
) -> Recommendation:
    """The answer of a race that is kept, or is run and kept. ValueError and RecordError before anything is raced."""
    if not 0 < limit < math.inf:
        raise ValueError(f"the seconds of a race must be above 0 and finite, not {limit:g}; 5 are usual")
    for what, calls in (("updates per sample", question.updates_per_sample), ("inserts", question.inserts)):
        if calls > MOST_CALLS:
            raise ValueError(f"a race takes at most {MOST_CALLS} {what}, not {calls:g}; ask records with --no-race")
    if question.distribution != "uniform":
        raise ValueError(f"a race has uniform priorities, not {question.distribution}; ask records with --no-race")
    if results and os.path.isfile(results):  # noqa: PTH113  # Path's raises where it may not look
        raise RecordError(f"{results}: is a file, and races are kept in a folder; name another")
    here = platforms.fingerprint()
    machine: dict[str, Any] = {**here, "evidence": evidence_here(__name__)}
    path, asked = file_of_races(str(here["key"]), results), {**dataclasses.asdict(question), **terms}
    prior = RESULTS if results is None else Path(results or os.devnull)
    find = partial(find_race, path, asked, limit, machine)
    if kept := None if again else find():
        return _answered(kept, question, str(path))
    with _turn(path, limit) as has_waited:
        if kept := find() if has_waited and not again else None:
            return _answered(kept, question, str(path))
        able, more = _candidates(question, prior, terms["unchecked"])
        outcome = _run(question, able, limit, terms, progress)
        record = _record(question, machine, {"asked": asked, "limit": limit, **more, **outcome})
        is_kept = outcome["ending"] != "interrupted" and keep_race(path, record)
    return _answered(parse(record.to_json(), ""), question, str(path) if is_kept else "")  # as it is read again


def file_of_races(key: str, results: str | Path | None = None) -> Path:
    """The file that keeps a machine's races, of ``best`` as of ``recommend``; one that is nowhere without a cache."""
    try:
        return Path(results or cache_folder("races")) / key / FILE
    except OSError:
        return Path(os.devnull) / key / FILE


@contextlib.contextmanager
def _turn(path: Path, limit: float) -> Iterator[bool]:
    """Let one process or thread of the user race at a time, and yield whether it waited for others.

    Whoever is killed has had its turn. A race is not waited for without end, nor where files cannot be locked.
    """
    file, has_waited, until, seen = -1, False, 0.0, [-1]
    try:
        with contextlib.suppress(OSError):
            folder = cache_folder("races")
            file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
            while True:
                try:
                    lock(file)
                    break
                except BlockingIOError:
                    has_waited = True
                shared = path, cache_folder("kernels")
                signs = [place.stat().st_mtime_ns for place in shared if place.exists()]
                if signs != seen:  # others keep races, or compile what they race
                    seen, until = signs, time.monotonic() + limit + PATIENCE_SECONDS
                if time.monotonic() > until:
                    warn_once("another process races trees here and does not end; this one no longer waits for it")
                    break
                warn_once("another process races trees here, and a race beside it would disturb both: waiting for it")
                time.sleep(LOOK_SECONDS)
        yield has_waited
    finally:
        if file >= 0:
            os.close(file)


def _candidates(question: Question, results: Path, unchecked: bool) -> tuple[list[Configuration], dict[str, Any]]:
    """What is raced, the cheapest first, and what is not: how many the records of which machine exclude.

    RecordError where no tree fits the free memory.
    """
    found = set[Configuration]()
    for name in impls.names():
        kind, own = impls.traits(name), options_of(name)
        if kind.modeled or kind.fill_seconds * question.capacity > FILL_SECONDS or impls.why_not(name):
            continue
        axes: list[Any] = [[(key, value) for value in AXES[key]] for key in AXES if key in own]
        axes += [[("validate", True), ("validate", False)]] * unchecked
        counts = {min(2**power, question.threads) for power in range(question.threads.bit_length() + 1)}
        shapes = itertools.product(FANOUTS if kind.uses_fanout else [DEFAULT], counts if kind.threaded else [1], *axes)
        for fanout, threads, *options in shapes:
            plain = kind.runs_as(question.capacity, question.batch, fanout, threads, dict(options))
            if plain[1] > 1 or ATOMIC not in plain[2].items():  # a thread alone adds the same without atomics
                found.add(Configuration(name, plain[0], plain[1], tuple(sorted(plain[2].items()))))
    able = keep_fitting(sorted(found, key=repr), question, free_bytes(), "free", _bytes_beside(question))
    is_default = [Configuration(name, DEFAULT, 1) for name in impls.names()].__contains__
    able.sort(key=lambda tree: (not is_default(tree), tree.threads, bytes_of(tree, question)))
    try:
        records, _ = machines.read(results, None, machines.SWEEP)
    except RecordError as error:
        if not isinstance(error, NoRecordsError):
            warn_once(f"{error}; no candidate is excluded by records")
        return able, {"candidates": len(able), "excluded": 0, "prior": ""}
    table = Table(records, unchecked)
    # Of several threads no more is known than that they cannot be faster than one by more than their number.
    times = {tree: time for tree in able if (time := table.step(dataclasses.replace(tree, threads=1), question))}
    least = {tree: time.seconds / math.exp(stats.Z * time.own_sigma) / tree.threads for tree, time in times.items()}
    most = HOPELESS * min((time.seconds for time in times.values()), default=math.inf)
    exact = [tree for tree in able if DRIFTS.isdisjoint(tree.options)]
    surest = sorted(exact, key=lambda tree: least.get(tree, 0.0))[:2]
    kept = [tree for tree in able if tree in surest or least.get(tree, 0.0) <= most]
    return kept, {"candidates": len(able), "excluded": len(able) - len(kept), "prior": table.machine_key}


def _run(
    question: Question, able: Sequence[Configuration], limit: float, terms: Mapping[str, bool], progress: Progress
) -> dict[str, Any]:
    """Race what does not drift, then the choice against what does; or all together, if that is asked for."""
    inputs, steps = _inputs(question)
    leaves = np.random.default_rng(1).random(question.capacity).astype(question.dtype)
    state = {"leaves": leaves, "capacity": question.capacity, "dtype": question.dtype}

    def fill(chosen: Configuration) -> SumTree:
        tree = _make(chosen, question.capacity, question.dtype)
        tree.load_state_dict(state)
        return tree

    def made(chosen: Configuration) -> Candidate:
        nbytes = bytes_of(chosen, question)
        count = max(1, min(ALIKE, int(ALIKE_BYTES / nbytes))) if terms["cold"] else 1

        def make() -> Callable[..., None]:
            steppers = itertools.cycle([_stepper(fill(chosen)) for _ in range(count)])
            return next(steppers) if count == 1 else lambda *steps: next(steppers)(*steps)  # noqa: PLW0108

        return Candidate(json.dumps(dataclasses.asdict(chosen)), make, nbytes * count)

    def run(trees: Sequence[Configuration], most: float, zone: float) -> Result:
        caches, candidates = COLD_BYTES * terms["cold"], [made(tree) for tree in trees]
        room = free_bytes() - FILL_BYTES * question.capacity
        warm = float(np.clip(max(tree.nbytes for tree in candidates) / READ_BYTES, *WARM_SECONDS))
        return race(
            candidates,
            inputs,
            most,
            zone,
            block_seconds=BLOCK_SECONDS,
            warm_seconds=warm,
            touch=_touch,
            cold_bytes=caches,
            memory_bytes=room,
            progress=progress,
        )

    small = min(question.capacity, SMALL)
    compiler.expect((_make(tree, small, question.dtype) for tree in able), question.batch)
    drifting = [] if terms["allow_drift"] else [tree for tree in able if not DRIFTS.isdisjoint(tree.options)]
    exact = [tree for tree in able if tree not in drifting]
    if len(exact) < 2:
        raise ValueError(f"a race needs at least 2 trees that can be made here, not {len(exact)}; ask with --no-race")
    first = run(exact, limit * (SHARE if drifting else 1.0), ZONE)
    rows = _rows(first, steps)
    outcome: dict[str, Any] = {"zone": ZONE, "ending": first.ending, "seconds": first.seconds, "rows": rows}
    exact = [configuration_of(row) for row in outcome["rows"]]
    as_exact = {tree: tuple(option for option in tree.options if option not in DRIFTS) for tree in drifting}
    # What is hopeless without drift is so with it.
    drifting = [tree for tree in drifting if dataclasses.replace(tree, options=as_exact[tree]) in exact]
    if drifting and first.ending != "interrupted":
        chosen = exact[0]
        second = run([chosen, *drifting], limit * (1 - SHARE), DRIFT_ZONE)
        beside = _rows(second, steps)
        outcome |= {"seconds": first.seconds + second.seconds, "drifting": beside}
        behind = [row for row in beside if row["status"] == "slower" and configuration_of(row) == chosen]
        if behind and behind[0]["ratio"][0] > 1 + DRIFT_ZONE:
            outcome |= {"faster": beside[0], "gain": behind[0]["ratio"]}
    try:
        if first.ending != "interrupted":
            outcome["step"] = _time_step(
                question, partial(fill, exact[0]), outcome["rows"][0]["seconds"][0], terms["cold"]
            )
    except KeyboardInterrupt:
        outcome["ending"] = "interrupted"
    return outcome


def _time_step(question: Question, fill: Callable[[], SumTree], seconds: float, is_cold: bool) -> dict[str, Any]:
    """Time a step as a program takes it, on one new tree after the other; ``seconds``: about what it takes.

    ``seconds`` of the answer: the median of blocks, and the ends of what it may be in another run: of the medians of
    parts of the time, and of what runs differ by; every second part makes its arguments as rows of larger arrays are
    made, which takes 0.1 us each. ``busy``: the share of the time that others had.
    """
    steps, at, blocks, medians, tree = _program(question), 0, list[float](), list[float](), None
    size = min(len(steps), COLD_STEPS if is_cold else math.ceil(STEP_BLOCK_SECONDS / seconds))
    begin, worked, scratch = time.perf_counter(), time.process_time(), np.zeros(COLD_BYTES // 8 * is_cold)
    for number in range(PARTS):
        if tree is None or question.capacity < ALIKE_LEAVES:
            tree = None  # before the next is filled
            tree = fill()
        own, until = list[float](), time.perf_counter() + STEP_SECONDS / PARTS
        while not own or time.perf_counter() < until:
            at *= at + size <= len(steps)
            block, taken = steps[at : at + size], 0.0
            for part in [[step] for step in block] if is_cold else [block]:
                scratch += 1.0
                taken += _take(tree, part, is_cold, number % 2 == 1)
            own.append(float(f"{taken / size:.4g}"))
            at += size
        blocks += own[int(WARMING * len(own)) :]
        medians.append(float(np.median(own[int(WARMING * len(own)) :])))
    busy = max(0.0, 1 - (time.process_time() - worked) / (time.perf_counter() - begin))
    low, median, high = np.log([min(medians), np.median(blocks), max(medians)])
    ends = median - math.hypot(median - low, BETWEEN_RUNS), median + math.hypot(high - median, BETWEEN_RUNS)
    return {"seconds": np.exp([median, *ends]).tolist(), "busy": busy, "samples": blocks}


def _program(question: Question) -> list[tuple[Any, list[Any], list[Any]]]:
    """Return the steps of a program, whose arguments no cache holds: uniforms, priorities of updates, slots of inserts.

    Priorities are of the leaves' type, as a learner's are.
    """
    rng, (_, updates, steps), inserts = np.random.default_rng(), _calls(question), question.inserts
    nbytes = OBJECT_BYTES + question.batch * (8 + np.dtype(question.dtype).itemsize * updates / steps)
    count = steps * max(LEAST_INPUTS, int(POOL_BYTES / nbytes / steps))
    slots = np.arange(count * inserts).reshape(count, inserts, 1) % question.capacity

    def step(at: int) -> tuple[Any, list[Any], list[Any]]:
        shares = range(at * updates // steps, (at + 1) * updates // steps)
        errors = [rng.random(question.batch, np.dtype(question.dtype)) for _ in shares]
        return rng.random(question.batch), errors, list(slots[at])

    return [step(at) for at in range(count)]


def _take(tree: SumTree, steps: Sequence[tuple[Any, list[Any], list[Any]]], is_cold: bool, is_row: bool) -> float:
    """Return the seconds of steps that set the priorities of what they sample, and those of inserts.

    ``is_row``: an argument is made as it is passed, as ``uniforms[k]`` is.
    """
    new = np.ones(1, tree.dtype)
    for array in [array for uniforms, errors, _ in steps for array in (uniforms, *errors)] if is_cold else ():
        array.tobytes()  # who calls a tree has just made them
    begin = time.perf_counter()
    for uniforms, errors, slots in steps:
        indices, _ = tree.sample(uniforms[...] if is_row else uniforms)
        for priorities in errors:
            tree.update(indices, priorities[...] if is_row else priorities)
        for slot in slots:
            tree.update(slot, new)
    tree.synchronize()
    return time.perf_counter() - begin


def _inputs(question: Question) -> tuple[list[tuple[Any, ...]], int]:
    """The arguments of one call after the other, each of a few steps, and the steps of a call."""
    rng, (count, updates, steps) = np.random.default_rng(0), _calls(question)
    shape = count, question.batch
    uniforms = rng.random((steps, *shape))
    indices, priorities = rng.integers(0, question.capacity, (updates, *shape)), rng.random((updates, *shape))
    slots, ones = np.arange(count * question.inserts * steps)[:, None] % question.capacity, np.ones(1)

    def step(call: int, at: int) -> tuple[Any, ...]:
        which = range(at * updates // steps, (at + 1) * updates // steps)
        first = (call * steps + at) * question.inserts
        inserted = [(slots[slot], ones) for slot in range(first, first + question.inserts)]
        return uniforms[at, call], [*((indices[update, call], priorities[update, call]) for update in which), *inserted]

    return [tuple(step(call, at) for at in range(steps)) for call in range(count)], steps


def _calls(question: Question) -> tuple[int, int, int]:
    """Return how many calls have inputs of their own, and the updates and steps of a call."""
    share = Fraction(question.updates_per_sample).limit_denominator(DENOMINATOR)
    updates, steps = share.numerator, share.denominator
    arrays = updates + steps * (1 + question.inserts)
    return max(LEAST_INPUTS, min(ARRAYS // arrays, ELEMENTS // (question.batch * (updates + steps)))), updates, steps


def _bytes_beside(question: Question) -> float:
    """Return the bytes that a race takes beside its trees: their leaves, the room to fill one, and the inputs."""
    count, updates, steps = _calls(question)
    leaf_bytes = np.dtype(question.dtype).itemsize + FILL_BYTES
    return leaf_bytes * question.capacity + 8.0 * count * question.batch * (steps + 2 * updates)


def _stepper(tree: SumTree) -> Callable[..., None]:
    """A call that takes steps of training on a tree."""
    sample, update, wait = tree.sample, tree.update, tree.synchronize

    def run(*steps: tuple[Any, ...]) -> None:
        for uniforms, updates in steps:
            sample(uniforms)
            for indices, priorities in updates:
                update(indices, priorities)
        wait()

    return run


def _touch(*steps: tuple[Any, ...]) -> None:
    """Read a call's arguments: who calls a tree has just made them."""
    for uniforms, updates in steps:
        uniforms.tobytes()
        for indices, priorities in updates:
            indices.tobytes()
            priorities.tobytes()


def _rows(result: Result, steps: int) -> list[dict[str, Any]]:
    """The standings of a race as plain values, the fastest first, of those that ran; bounds nobody knows are null."""
    rows = []
    for standing in (standing for standing in result.standings if result.blocks[standing.name]):
        samples = [float(f"{seconds / steps:.4g}") for seconds in result.blocks[standing.name].values()]
        median, low, high = (seconds / steps for seconds in standing.seconds)
        ends = [median, max(low, min(median, *samples)), min(high, max(median, *samples))]
        ratio = [bound if math.isfinite(bound) else None for bound in standing.ratio]
        row = {**json.loads(standing.name), "status": standing.status, "seconds": ends, "ratio": ratio}
        rows.append(row | {"first_round": min(result.blocks[standing.name]), "samples": samples})
    return rows


def _record(question: Question, machine: dict[str, Any], outcome: dict[str, Any]) -> Record:
    """A race as a record: the time of its choice, and all samples."""
    row = outcome["rows"][0]
    timed, (commit, dirty) = outcome.get("step", row), platforms.commit(Path(__file__).parent, is_told=False)
    fields: dict[str, Any] = {name: row[name] for name in ("contestant", "fanout", "threads")}
    fields |= {name: getattr(question, name) for name in ("capacity", "batch", "dtype", "distribution")}
    fields |= dict(zip(("median_seconds", "low_seconds", "high_seconds"), timed["seconds"], strict=True))
    fields |= {"source": "measured", "status": "ok" if outcome["ending"] == "decided" else "unstable", "op": "step"}
    fields |= {
        "options": {**dict(row["options"]), "asked": outcome["asked"]},
        "samples_seconds": tuple(timed["samples"]),
    }
    fields |= {"primitive": "race", "utc": platforms.now(), "metrics": {"race": outcome}}
    return Record(run=Run(commit=commit, dirty=dirty, command=platforms.command_line(), machine=machine), **fields)


def _answered(record: Record, question: Question, kept_in: str) -> Recommendation:
    """The answer that a race's record gives, and the file that keeps it, if one does."""
    outcome, busy = record.metrics["race"], record.metrics["race"].get("step", {}).get("busy", 0.0)
    notes = (*unusual(question), *[Note("race_was_disturbed", {"busy_share": busy}, "warning")] * (busy > BUSY))
    ends = record.median_seconds, record.low_seconds, record.high_seconds
    rows = [(row["status"], _time(row, ends, outcome["rows"][0])) for row in outcome["rows"]]
    return Recommendation(
        question=question,
        choice=rows[0][1],
        ties=tuple(time for status, time in rows if status == "equal"),
        runner_up=next((time for status, time in rows[1:] if status in ("slower", "undecided")), None),
        machine=record.machine_key,
        notes=notes,
        results=kept_in,
        race={**outcome, "utc": record.utc},
    )


def configuration_of(row: Mapping[str, Any]) -> Configuration:
    """The tree of a row of a race."""
    return Configuration(row["contestant"], row["fanout"], row["threads"], tuple(map(tuple, row["options"])))


def _time(row: Mapping[str, Any], ends: Sequence[Any], first: Mapping[str, Any]) -> TreeTime:
    """The time of a row of a race: that of the first, times the ratio of the two in the race."""
    ratio = row["ratio"][0] or row["seconds"][0] / first["seconds"][0]
    median, low, high = (ratio * end for end in ends)
    time = Estimate(median, low, high, Evidence(f"race({configuration_of(row)})", "measured"))
    return TreeTime(configuration_of(row), time, stats.log_sigma(low, high, 0.0))
