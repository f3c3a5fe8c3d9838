"""A run of the serial loop from its first step, or from its checkpoint, to its last: curve, checkpoints, progress.

A run is a folder:

    curve.csv        one line an evaluation: steps, updates, episodes, scores, loss, seconds, rates
                     (those of training alone, since the run began or was resumed)
    episodes.csv     one line a training episode: steps, score, length
    checkpoint.pt    the state to resume from
    best.pt          the weights of the evaluation with the highest mean, the latest of equals
    summary.json     the results, once it is done

The files of a resumed run are first cut to what they were at its checkpoint, and then grow as if nothing had happened.
A folder belongs to one run: its file .lock is locked for as long as the run goes on.
"""

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from ..terminal import Progress, plural
from . import checkpoint
from .actor import TEST, VALIDATION, Episode, evaluate
from .environments import Environment
from .errors import TrainingError
from .loop import SerialLoop
from .sizes import layout_of
from .throughput import Stopwatch, learning_efficiency, sample_efficiency
from .workload import Workload

CURVE = (
    "step", "updates", "episodes", "mean_score", "least_score", "largest_score", "loss",
    "seconds", "sampling_hz", "update_hz",
)  # fmt: skip
EPISODES = ("step", "score", "length")
RECENT = 20  # training episodes whose mean the live line shows


@dataclass(frozen=True)
class Plan:
    """Folder, checkpoints, tests and progress of a run; none of it changes what is learned."""

    folder: Path
    checkpoint_every: int = 10_000
    test_episodes: int = 100
    live: bool = True  # progress is shown: a bar in a terminal, elsewhere a line now and then
    clock: Callable[[], float] = time.monotonic  # of those lines


class Log:
    """A CSV file that grows by whole lines, and can be cut back to ``length`` bytes when it is opened again.

    TrainingError where it cannot be written, or is shorter than that.
    """

    def __init__(self, path: Path, columns: tuple[str, ...], length: int | None = None) -> None:
        self._path, self._columns = path, columns
        # Invariant: the file ends with a whole line, and its position is its end.
        try:
            if length is None:
                self._file = path.open("wb", buffering=0)
                self._append(",".join(columns))
            else:
                self._file = path.open("r+b", buffering=0)
                self._cut(length)
        except OSError as error:
            raise TrainingError(f"{path}: cannot be written ({error.strerror})") from None

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a line. TrainingError when it cannot be written."""
        self._append(",".join(_cell(row[name]) for name in self._columns))

    def saved(self) -> int:
        """Flush all lines to the disk; returns their bytes."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error.strerror) from None
        return self._file.tell()

    def close(self) -> None:
        """Close the file; no line can be added afterwards."""
        self._file.close()

    def _append(self, line: str) -> None:
        encoded, before = f"{line}\n".encode(), self._file.tell()
        try:
            if self._file.write(encoded) < len(encoded):
                self._file.truncate(before)
                raise self._unwritten("a part of a line")
        except OSError as error:
            raise self._unwritten(error.strerror) from None

    def _cut(self, length: int) -> None:
        size = self._file.seek(0, os.SEEK_END)
        if size < length:
            self._file.close()
            raise TrainingError(
                f"{self._path}: holds {size:,} bytes, its checkpoint says at least {length:,}; put the file back, or "
                "begin again in another folder with --out"
            )
        self._file.truncate(length)
        self._file.seek(length)

    def _unwritten(self, why: str | None) -> TrainingError:
        self._file.close()
        return TrainingError(f"{self._path}: cannot be written ({why}); what was saved before is kept")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder while the context lasts. TrainingError if another run has it; a killed run's lock is gone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("wb")
    except OSError as error:
        raise TrainingError(f"{folder}: cannot be made or written ({error.strerror})") from None
    with file:
        with suppress(ModuleNotFoundError):  # without such locks, no other run is kept out
            import fcntl  # noqa: PLC0415  # not on every system

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TrainingError(
                    f"{folder} is held by a run that goes on; wait, or name another with --out"
                ) from None
            except OSError as error:
                raise TrainingError(f"{folder}: cannot be locked ({error.strerror}); name another with --out") from None
        yield


def _cell(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


class Run:
    """One run; ``resume`` goes on from the checkpoint in its folder, otherwise the folder must have none.

    TrainingError for a folder that does not fit that, or a checkpoint of another run.
    """

    def __init__(self, loop: SerialLoop, plan: Plan, resume: bool = False) -> None:
        self._loop, self._plan, self._workload = loop, plan, loop.workload
        self._path = plan.folder / "checkpoint.pt"
        self._seconds, self._due = 0.0, plan.checkpoint_every
        self._best: dict[str, Any] = {"mean": -float("inf"), "step": 0, "weights": {}}
        self._points: list[list[float]] = []  # step, updates, mean score of each evaluation
        self._recent: list[float] = []
        self._episodes = 0
        self._resources = ExitStack()
        self._resources.callback(loop.close)
        try:
            if resume and not self._path.exists():
                raise TrainingError(f"{plan.folder} holds no checkpoint; leave out --resume to begin")
            self._resources.enter_context(alone(plan.folder))
            self._evaluated = Environment(self._workload)
            self._resources.callback(self._evaluated.close)
            if resume:
                self._resume()
            else:
                self._begin()
        except BaseException:
            self.close()
            raise

    def run(self, until: int | None = None) -> dict[str, Any] | None:
        """Train to the last step, or only to ``until``; returns the summary once the run is done, else None."""
        last = self._workload.steps
        end = min(last, until or last)
        began, before, self._watch = time.perf_counter(), self._seconds, Stopwatch()
        self._from = self._loop.step, self._loop.updates
        plan, first = self._plan, self._loop.step
        with Progress(last, "step", initial=first, shown=plan.live, clock=plan.clock) as progress:
            while self._loop.step < end:
                # Invariant: the files have a line for every episode that ended and every evaluation due so far.
                turn, step, interval = self._loop.turns, self._loop.step, self._workload.evaluation.interval
                episodes = self._loop.advance()
                self._seconds = before + time.perf_counter() - began
                for episode in episodes:
                    self._ended(episode)
                if self._loop.step // interval > step // interval:
                    self._evaluate()
                # Resuming is cheapest where the first actor's episode has just ended, as it need not be replayed.
                is_first = turn % self._workload.actors.count == 0
                if episodes and is_first and self._loop.step >= self._due:
                    with self._watch.paused():
                        self.save()
                progress.update(min(self._loop.step, last) - step, self._shown if episodes else None)
        if self._loop.step < last:
            return None
        with self._watch.paused():
            self.save()
        return self._summary()

    def save(self) -> None:
        """Write the checkpoint; the next is due in ``checkpoint_every`` steps."""
        self._due = self._loop.step + self._plan.checkpoint_every
        lengths = [self._curve.saved(), self._log.saved()]
        try:
            state = {
                "identity": self._loop.identity(),
                "setting": self._setting(),
                "loop": self._loop.state_dict(),
                "best": self._best,
                "points": self._points,
                "recent": self._recent,
                "episodes": self._episodes,
                "seconds": self._seconds,
                "lengths": lengths,
            }
            checkpoint.save(state, self._path)
        except MemoryError:
            raise self._too_large("written", "what was saved before is kept") from None

    def close(self) -> None:
        """Close files and environments."""
        self._resources.close()

    def _setting(self) -> dict[str, Any]:
        """Threads and all that computes; a resumed run repeats bit for bit only where they stay the same."""
        import torch  # noqa: PLC0415  # loaded long since

        loop = self._loop
        made = {"device": loop.device, "compile": loop.compiled, "learner": loop.learner.implementation}
        return {"threads": torch.get_num_threads(), **made, "policy": loop.policy.implementation}

    def _too_large(self, verb: str, and_then: str) -> TrainingError:
        replay = self._workload.replay
        size = replay.capacity * layout_of(self._workload).record_bytes / 1e9
        return TrainingError(
            f"{self._path}: cannot be {verb}, as it takes up to {size:,.1f} GB of memory beside the buffer's own "
            f"{size:,.1f}; free some, or begin with less [replay] capacity than {replay.capacity:,}; {and_then}"
        )

    def _begin(self) -> None:
        folder = self._plan.folder
        if self._path.exists():
            raise TrainingError(f"{folder} holds a run; go on with it by --resume, or name another folder with --out")
        if (folder / "summary.json").exists():
            raise TrainingError(f"{folder} holds a run that is done, see its summary.json; name another with --out")
        self._open(None, None)

    def _resume(self) -> None:
        if (self._plan.folder / "summary.json").exists():
            raise TrainingError(f"{self._plan.folder} holds a run that is done; see its summary.json")
        try:
            state = checkpoint.load(self._path)
            self._check(state)
            self._loop.load_state_dict(state["loop"])
        except MemoryError:
            raise self._too_large("read", "the file is as it was") from None
        self._best, self._points, self._recent = state["best"], state["points"], state["recent"]
        self._episodes, self._seconds = state["episodes"], state["seconds"]
        self._due = self._loop.step + self._plan.checkpoint_every
        self._open(*state["lengths"])

    def _check(self, state: Mapping[str, Any]) -> None:
        """Compare with the checkpoint: TrainingError if it is of another run, a warning if the setting differs."""
        if other := _differences(state["identity"], self._loop.identity()):
            raise TrainingError(f"{self._path}: is of another run, which differs in {', '.join(other)}")
        setting, here = state["setting"], self._setting()
        if setting["threads"] != here["threads"]:
            raise TrainingError(
                f"{self._path}: is of a run on {setting['threads']} threads, this one has {here['threads']}; go on "
                f"with --threads {setting['threads']}"
            )
        if other := _differences(setting, here):
            changes = ", ".join(f"{name} {setting[name]} to {here[name]}" for name in other)
            print(f"warning: the run changes from {changes}; it may leave its curve", file=sys.stderr)

    def _open(self, curve: int | None, log: int | None) -> None:
        """The files that grow, cut to these lengths, or new."""
        folder = self._plan.folder
        self._curve = Log(folder / "curve.csv", CURVE, curve)
        self._resources.callback(self._curve.close)
        self._log = Log(folder / "episodes.csv", EPISODES, log)
        self._resources.callback(self._log.close)

    def _ended(self, episode: Episode) -> None:
        self._episodes += 1
        self._recent = [*self._recent, episode.score][-RECENT:]
        self._log.add({"step": self._loop.step, "score": episode.score, "length": episode.length})

    def _evaluate(self) -> None:
        loop, settings = self._loop, self._workload.evaluation
        seed = loop.seed, VALIDATION, loop.step
        with self._watch.paused():
            scores = evaluate(self._workload, loop.learner, self._evaluated, settings.episodes, *seed)
        mean = fmean(scores)
        self._points.append([loop.step, loop.updates, mean])
        rates = self._watch.read(loop.step - self._from[0], loop.updates - self._from[1], 1)
        row = {
            "step": loop.step, "updates": loop.updates, "episodes": self._episodes, "mean_score": mean,
            "least_score": min(scores), "largest_score": max(scores), "loss": next(iter(loop.losses.values()), 0.0),
            "seconds": round(self._seconds, 3), "sampling_hz": round(rates.sampling_hz, 1),
            "update_hz": round(rates.update_hz, 1),
        }  # fmt: skip
        self._curve.add(row)
        if mean >= self._best["mean"]:
            self._best = {"mean": mean, "step": loop.step, "weights": loop.learner.weights()}
            with self._watch.paused():
                checkpoint.save(self._best, self._plan.folder / "best.pt")

    def _shown(self) -> str:
        best = f", best {self._best['mean']:z.0f}" if self._points else ""
        latest = f", evaluated {self._points[-1][2]:z.0f}" if self._points else ""
        rate = self._watch.read(0, self._loop.updates - self._from[1], 1).update_hz
        episodes = plural(self._episodes, "episode")
        return f"{episodes}, return {fmean(self._recent):z.0f}{latest}{best}, {rate:.0f} updates/s"

    def _summary(self) -> dict[str, Any]:
        """Test the best weights on fresh episodes, and write the summary. TrainingError if it cannot be written."""
        loop, workload = self._loop, self._workload
        rates = self._watch.read(loop.step - self._from[0], loop.updates - self._from[1], workload.learner.batch)
        tested = self._tested() if self._points and self._plan.test_episodes else []
        steps, updates = [int(point[0]) for point in self._points], [int(point[1]) for point in self._points]
        means, solved = [point[2] for point in self._points], workload.evaluation.solved
        summary = {
            "workload": workload.name, "environment": workload.environment, "algorithm": workload.algorithm,
            "contestant": loop.contestant, "learner": loop.learner.implementation,
            "policy": loop.policy.implementation, "fanout": workload.replay.fanout, "alpha": workload.replay.alpha,
            "seed": loop.seed, "steps": loop.step, "updates": loop.updates, "episodes": self._episodes,
            "seconds": round(self._seconds, 1), **_made_by(),
            "throughput": rates.row() if loop.step > self._from[0] else None,
            "validation_best": self._best["mean"] + 0.0 if means else None, "validation_best_step": self._best["step"],
            "test_episodes": len(tested), "test_mean": fmean(tested) + 0.0 if tested else None,
            "test_deviation": pstdev(tested) if tested else None, "solved_at": solved,
            "sample_efficiency": sample_efficiency(steps, means, solved),
            "learning_efficiency": learning_efficiency(updates, means, solved),
        }  # fmt: skip
        path = self._plan.folder / "summary.json"
        try:
            path.with_suffix(".part").write_text(json.dumps(summary, indent=1) + "\n")
            path.with_suffix(".part").replace(path)
        except OSError as error:
            raise TrainingError(f"{path}: cannot be written ({error.strerror}); all else of the run is kept") from None
        return summary

    def _tested(self) -> list[float]:
        """Scores of the best weights on episodes that no evaluation has seen."""
        learner, loop = self._loop.learner, self._loop
        latest = learner.state_dict()
        learner.load_weights(self._best["weights"])
        scores = evaluate(self._workload, learner, self._evaluated, self._plan.test_episodes, loop.seed, TEST)
        learner.load_state_dict(latest)
        return scores


def _made_by() -> dict[str, Any]:
    """Time, command, threads and library versions of a summary."""
    import torch  # noqa: PLC0415  # loaded long since

    packages = ("numpy", "torch", "gymnasium", "numba")
    versions = {name: sys.modules[name].__version__ for name in packages if sys.modules.get(name)}
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "impls.training", *sys.argv[1:]]),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version()} | versions,
    }


def _differences(saved: Mapping[str, Any], here: Mapping[str, Any], at: str = "") -> list[str]:
    """The keys in which two identities differ."""
    differing = []
    for key, value in here.items():
        before = saved.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            differing += _differences(before, value, f"{at}{key}.")
        elif before != (list(value) if isinstance(value, tuple) else value):
            differing.append(f"{at}{key}")
    return differing


def start(
    workload: Workload, plan: Plan, *, contestant: str = "numba", seed: int = 0, resume: bool = False, **options: Any
) -> Run:
    """A run that is ready to start or resume; ``options`` are the loop's device and compiled."""
    return Run(SerialLoop(workload, contestant=contestant, seed=seed, **options), plan, resume)
