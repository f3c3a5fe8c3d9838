"""The owner's end of worker processes: environments of their own, prepared cases, samples on request."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from dse.records import RecordError
from impls.exits import FAULT

from .cases import Case
from .clock import LEAST_SAMPLE_SECONDS

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
    """A worker process died of a fault of Fanout's; a note has its traceback."""


@dataclasses.dataclass(frozen=True)
class Untimed:
    """A case that a worker cannot time: "skipped" or "failed", and why."""

    status: Any
    reason: str


def refusal(answer: dict[str, Any]) -> Untimed | None:
    """Return why a worker does not time what it was asked for, if its answer says so."""
    return next((Untimed(status, answer[status]) for status in ("skipped", "failed") if status in answer), None)


@dataclasses.dataclass(frozen=True)
class WorkerClock:
    """A case prepared in a worker, which takes its samples."""

    worker: "Worker"
    number: int
    calls_per_sample: int
    affinity: list[int]

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call."""
        return float(self.worker.ask("sample", number=self.number)["seconds"])


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
    """A process of ``python`` that finds its modules in ``paths`` first and nowhere else besides its environment."""

    def __init__(self, python: Path, paths: Sequence[Path] = (ROOT,), module: str = "benchmarks.worker") -> None:
        self._errors = tempfile.TemporaryFile()  # closed with the worker
        self._process = subprocess.Popen(
            [str(python), "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(python, paths),
        )

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
        """Send a request whose answer is received later. WorkerError if the process has died."""
        try:
            print(json.dumps({"do": what, **arguments}), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._death() from None

    def receive(self) -> dict[str, Any]:
        """Return the answer to the oldest request. WorkerError if the process has died."""
        answer = self._process.stdout.readline() if self._process.stdout else ""
        if not answer:
            raise self._death()
        return dict(json.loads(answer))

    def prepare(
        self, case: Case, seed: int, least_seconds: float = LEAST_SAMPLE_SECONDS, callers: int = 0, cpus: int = 1
    ) -> WorkerClock | Untimed:
        """Prepare a case there, on some CPUs; return its clock, or why it cannot be timed.

        ``callers`` threads of the process call it at once; with 0 its main thread does.
        """
        how = {"seed": seed, "least_seconds": least_seconds, "callers": callers, "cpus": cpus}
        answer = self.ask("prepare", case=dataclasses.asdict(case), **how)
        if refused := refusal(answer):
            return refused
        return WorkerClock(self, answer["number"], answer["calls"], answer["affinity"])

    def forget(self) -> None:
        """Let the process drop every prepared case."""
        self.ask("forget")

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
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process and close its pipes, once."""
        if not self._errors.closed:
            super().close()


def ask_once(python: Path, module: str, limit_seconds: float, what: str, **arguments: Any) -> dict[str, Any]:
    """Send one request to a process of its own; return its answer, "failed" where it died or was too late."""
    with Bounded(python, module=module) as worker:
        worker.limit_seconds = limit_seconds
        try:
            return worker.ask(what, **arguments)
        except WorkerError as error:
            return {"failed": str(error)}


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
