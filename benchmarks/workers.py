"""The owner's end of processes that measure: environments of their own, prepared cells, samples on request.

Topics measure by a ``Pool``, the clocks that it prepares and nothing else, so that another place can measure for them.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, Self

from dse.records import RecordError
from impls.exits import FAULT

ROOT = Path(__file__).parents[1]  # the checkout
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


class WorkerError(Exception):
    """A worker process died; the message says how."""


class WorkerFaultError(WorkerError):
    """A worker process died of what it did not foresee, as of a fault of Fanout's; a note has its traceback."""


def explain_death(error: WorkerError) -> str:
    """Return why a cell has no time whose process died; of what nobody foresaw the traceback goes to standard error."""
    if isinstance(error, WorkerFaultError):
        print(*error.__notes__, sep="\n", file=sys.stderr)
    return str(error)


@dataclasses.dataclass(frozen=True)
class Untimed:
    """A case that a worker cannot time: "skipped" or "failed", and why."""

    status: Any
    reason: str


def refusal(answer: dict[str, Any]) -> Untimed | None:
    """Return why a worker does not time what it was asked for, if its answer says so."""
    return next((Untimed(status, answer[status]) for status in ("skipped", "failed") if status in answer), None)


class FailedError(WorkerError):
    """A sample of ``clock`` failed; the message says why. It may be of the ``members`` of a clock of several."""

    def __init__(self, clock: "WorkerClock", reason: str) -> None:
        super().__init__(reason)
        self.clock = clock


@dataclasses.dataclass(eq=False)
class WorkerClock:
    """A cell prepared in a process, which takes its samples.

    ``prepared`` is the process's answer when it prepared the cell, ``answers`` are those to each request for a sample:
    "seconds" of a call, the "calls" where their number varies, and whatever else the module says. ``arguments`` go
    with each request.
    """

    worker: "Worker"
    prepared: dict[str, Any]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    answers: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    calls_per_sample: int = 0

    def __post_init__(self) -> None:
        self.calls_per_sample = self.prepared.get("calls", 0)

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call. FailedError where that failed."""
        return float(sample_at_once([self])[0]["seconds"])


def sample_at_once(clocks: Sequence[WorkerClock], **arguments: Any) -> list[dict[str, Any]]:
    """Take a sample of each clock, all at the same time; return the processes' answers. FailedError where one failed.

    ``arguments`` go with each request besides the clock's own.
    """
    for clock in clocks:
        with contextlib.suppress(WorkerError):  # there will be no answer, which says why
            clock.worker.send("sample", number=clock.prepared["number"], **clock.arguments, **arguments)
    # Invariant: every request has its answer before any failure is raised, so that the processes can be asked again.
    answers = [clock.worker.try_to_receive() for clock in clocks]
    for clock, answer in zip(clocks, answers, strict=True):
        if "failed" in answer:
            raise FailedError(clock, answer["failed"])
        clock.calls_per_sample = answer.get("calls", clock.calls_per_sample)
        clock.answers.append(answer)
    return answers


def has_libraries(options: Namespace, is_needed: bool = False) -> bool:
    """Say whether the interpreter with the libraries is there; a dry run goes without. RecordError where it
    ``is_needed``."""
    is_there = bool(options.dry_run or options.python.exists())
    if is_needed and not is_there:
        raise RecordError(f"{options.python}: no such interpreter; install the libraries first: make peers")
    return is_there


def environment(python: Path, paths: Sequence[Path] = (ROOT,)) -> dict[str, str]:
    """Return the variables of a process of ``python`` that finds modules in ``paths`` first.

    What this interpreter is told of where modules are is for no other one.
    """
    is_own, found = Path(python) == Path(sys.executable), [str(path) for path in paths]
    kept = {name: value for name, value in os.environ.items() if is_own or name not in ("PYTHONHOME", "PYTHONPATH")}
    found += [kept["PYTHONPATH"]] if kept.get("PYTHONPATH") else []
    return {**kept, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(found)}


class Worker:
    """A process of ``python`` that finds its modules in ``paths`` first and nowhere else besides its environment.

    RecordError where that cannot be run.
    """

    def __init__(self, python: Path, paths: Sequence[Path] = (ROOT,), module: str = "benchmarks.worker") -> None:
        self._errors = tempfile.TemporaryFile()  # closed with the worker
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors, "text": True}
        command = [str(python), "-P", "-m", module]
        try:
            self._process = subprocess.Popen(command, env=environment(python, paths), **pipes)
        except OSError as error:
            self._errors.close()
            raise RecordError(f"{python}: cannot be run ({error.strerror}); name an interpreter") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and close its pipes."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its answer. WorkerError if the process has died."""
        self.send(what, **arguments)
        return self.receive()

    def send(self, what: str, **arguments: Any) -> None:
        """Send a request, where a cell may be a dataclass; its answer is received later. WorkerError if it has died."""
        line = json.dumps({"do": what, **arguments}, default=dataclasses.asdict)
        try:
            print(line, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._death() from None

    def receive(self) -> dict[str, Any]:
        """Return the answer to the oldest request. WorkerError if the process has died."""
        answer = self._process.stdout.readline() if self._process.stdout else ""
        if not answer:
            raise self._death()
        return dict(json.loads(answer))

    def try_to_receive(self) -> dict[str, Any]:
        """Return the answer to the oldest request, "failed" where the process has died."""
        try:
            return self.receive()
        except WorkerError as error:
            return {"failed": explain_death(error)}

    def prepare(self, what: str = "prepare", **arguments: Any) -> WorkerClock | Untimed:
        """Prepare a cell there; return its clock, or why it cannot be timed. WorkerError if the process has died."""
        answer = self.ask(what, **arguments)
        return refusal(answer) or WorkerClock(self, answer)

    def _death(self) -> WorkerError:
        code = self._process.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        last = f": {said.splitlines()[-1]}" if said else ""
        death = (WorkerFaultError if code == FAULT else WorkerError)(f"the process ended {how}{last}")
        death.add_note(said)
        return death


class Bounded(Worker):
    """A worker that is killed if it does not answer in time."""

    limit_seconds = 300.0  # of one request: filling a buffer of a slow library is the longest

    def receive(self) -> dict[str, Any]:
        """Return the answer to the oldest request. WorkerError if the process has died, or was too late."""
        timer = threading.Timer(self.limit_seconds, self._process.kill)
        timer.start()
        try:
            return super().receive()
        except WorkerError:
            if not timer.is_alive():
                raise WorkerError(f"the process gave no answer in {self.limit_seconds:g} s, and was ended") from None
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process and close its pipes, once."""
        if not self._errors.closed:
            super().close()


class Pool:
    """Processes that measure, each with a key: they run one module, whose session answers requests (``worker.serve``).

    ``open`` starts the process of a key, ``prepare`` makes the clock of a cell there, the clock's ``sample`` times it,
    ``forget`` lets all processes drop their clocks, ``drop`` ends one that may hang, ``close`` ends all. A process that
    does not answer in ``limit_seconds`` is killed.
    """

    def __init__(self, module: str, limit_seconds: float = Bounded.limit_seconds) -> None:
        self._module, self._limit_seconds = module, limit_seconds
        self._workers: dict[Hashable, Bounded] = {}
        self._opened: dict[Hashable, dict[str, Any]] = {}

    def open(self, key: Hashable, python: Path, what: str, **arguments: Any) -> dict[str, Any]:
        """Start the process of a key by an interpreter and send its first request, unless that is done; return the
        answer to it. WorkerError if the process cannot be started."""
        if key not in self._opened:
            worker = self._workers[key] = Bounded(python, module=self._module)
            worker.limit_seconds = self._limit_seconds
            try:
                self._opened[key] = worker.ask(what, **arguments)
            except WorkerError:
                self.drop(worker)
                raise
        return self._opened[key]

    def prepare(self, key: Hashable, what: str = "prepare", **arguments: Any) -> WorkerClock | Untimed:
        """Prepare a cell in the process of a key, which is open; return its clock, or why it cannot be timed."""
        try:
            return self._workers[key].prepare(what, **arguments)
        except WorkerError as error:
            self.drop(self._workers[key])
            return Untimed("failed", explain_death(error))

    def ask(self, key: Hashable, what: str, **arguments: Any) -> dict[str, Any]:
        """Send any other request to the process of a key, which is open; return its answer. WorkerError if it died."""
        return self._workers[key].ask(what, **arguments)

    def forget(self) -> None:
        """Let every process drop its clocks; one that has died meanwhile is started again when it is needed."""
        for worker in [*self._workers.values()]:
            try:
                worker.ask("forget")
            except WorkerError:
                self.drop(worker)

    def drop(self, worker: Worker) -> None:
        """End a process, for it may hang; whoever needs its key opens another."""
        worker.close()
        for key in [key for key, own in self._workers.items() if own is worker]:
            del self._workers[key]
            self._opened.pop(key, None)

    def close(self) -> None:
        """Close every process of the pool."""
        for worker in [*self._workers.values()]:
            self.drop(worker)


def ask_once(python: Path, module: str, limit_seconds: float, what: str, **arguments: Any) -> dict[str, Any]:
    """Send one request to a process of its own; return its answer, "failed" where it died or was too late."""
    with Bounded(python, module=module) as worker:
        worker.limit_seconds = limit_seconds
        try:
            return worker.ask(what, **arguments)
        except WorkerError as error:
            return {"failed": explain_death(error)}


REACHING = (
    "CONFIG_FILE INDEX_URL EXTRA_INDEX_URL NO_INDEX FIND_LINKS TRUSTED_HOST KEYRING_PROVIDER USE_FEATURE "
    "PROXY CERT CLIENT_CERT RETRIES TIMEOUT DEFAULT_TIMEOUT CACHE_DIR NO_CACHE_DIR"
)
"""The user's settings that pip keeps: where packages come from. Others change where they go, and which."""


def install_into(python: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``pip install`` in the environment of an interpreter, and into it, whatever is set elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    reaching = {f"PIP_{name}" for name in REACHING.split()} & os.environ.keys()
    kept |= {name: os.environ[name] for name in reaching}
    command = [str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return quietly([*command, "--no-user", "--target=", *words], env=kept | settings)


def quietly(command: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its exit code, and capture its output."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)
