"""A run of the serial loop from its first step, or from its checkpoint, to its last: curve, checkpoints, live line.

A run is a folder:

    curve.csv        one line an evaluation: steps, updates, episodes, scores, loss, seconds, rates
                     (those of training alone, since the run began or was resumed)
    episodes.csv     one line a training episode: steps, score, length
    checkpoint.pt    the state to resume from
    best.pt          the weights of the evaluation with the highest mean, the latest of equals
    summary.json     what came of it, once it is done

The files of a resumed run are first cut to what they were at its checkpoint, and then grow as if nothing had happened.
"""

import json
import platform
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from . import checkpoint
from .actor import TEST, VALIDATION, Episode, evaluate
from .environments import Environment
from .errors import TrainingError
from .loop import SerialLoop
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
    """How a run is done; none of it changes what is learnt."""

    folder: Path
    checkpoint_every: int = 10_000
    test_episodes: int = 100
    live: bool | None = None  # None: where there is a terminal


class Log:
    """A CSV file that grows by whole lines, and can be cut back to where it was."""

    def __init__(self, path: Path, columns: tuple[str, ...], length: int | None = None) -> None:
        self._path, self._columns = path, columns
        try:
            if length is None:
                self._file = path.open("wb", buffering=0)
                self._append(",".join(columns))
            else:
                self._file = path.open("r+b", buffering=0)
                self._file.truncate(length)
                self._file.seek(length)
        except OSError as error:
            raise TrainingError(f"{path}: cannot be written ({error.strerror})") from None

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a line. TrainingError when it cannot be written."""
        self._append(",".join(_cell(row[name]) for name in self._columns))

    def length(self) -> int:
        """Of the file by now, in bytes."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, line: str) -> None:
        try:
            self._file.write(f"{line}\n".encode())
        except OSError as error:
            self._file.close()
            raise TrainingError(
                f"{self._path}: cannot be written ({error.strerror}); what was saved before is kept"
            ) from None


def _cell(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


class Run:
    """One run; ``resume`` takes it up from the checkpoint in its folder, otherwise the folder must hold none."""

    def __init__(self, loop: SerialLoop, plan: Plan, resume: bool = False) -> None:
        self._loop, self._plan, self._workload = loop, plan, loop.workload
        self._path = plan.folder / "checkpoint.pt"
        self._seconds, self._due = 0.0, plan.checkpoint_every
        self._best: dict[str, Any] = {"mean": -float("inf"), "step": 0, "weights": {}}
        self._points: list[list[float]] = []  # step, updates, mean score of each evaluation
        self._recent: list[float] = []
        self._episodes = 0
        self._evaluated = Environment(self._workload)
        if resume:
            self._resume()
        else:
            self._begin()

    def run(self, until: int | None = None) -> dict[str, Any] | None:
        """Train to the last step (or to ``until``, and leave it at that); returns the summary when it is done."""
        from tqdm import tqdm  # noqa: PLC0415  # a library, used here alone

        last = self._workload.steps
        end = min(last, until or last)
        hidden = None if self._plan.live is None else not self._plan.live
        began, before, self._watch = time.perf_counter(), self._seconds, Stopwatch()
        self._from = self._loop.step, self._loop.updates
        with tqdm(total=last, initial=self._loop.step, unit="step", disable=hidden, dynamic_ncols=True) as bar:
            while self._loop.step < end:
                episode = self._loop.advance()
                self._seconds = before + time.perf_counter() - began
                if episode:
                    self._ended(episode)
                if self._loop.step % self._workload.evaluation.interval == 0:
                    self._evaluate()
                # The first actor's episode has just ended: of all moments the cheapest to take up again.
                if (
                    episode
                    and self._loop.step >= self._due
                    and (self._loop.step - 1) % self._workload.actors.count == 0
                ):
                    self.save()
                bar.update(1)
                if episode:
                    bar.set_postfix_str(self._shown(), refresh=False)
        if self._loop.step < last:
            return None
        self.save()
        return self._summary()

    def save(self) -> None:
        """Write the checkpoint; the next is due in ``checkpoint_every`` steps."""
        self._due = self._loop.step + self._plan.checkpoint_every
        state = {
            "identity": self._loop.identity(),
            "loop": self._loop.state_dict(),
            "best": self._best,
            "points": self._points,
            "recent": self._recent,
            "episodes": self._episodes,
            "seconds": self._seconds,
            "lengths": [self._curve.length(), self._log.length()],
        }
        checkpoint.save(state, self._path)

    def close(self) -> None:
        """Give back files and environments."""
        self._curve.close()
        self._log.close()
        self._evaluated.close()
        self._loop.close()

    def _begin(self) -> None:
        folder = self._plan.folder
        if self._path.exists():
            raise TrainingError(f"{folder} holds a run; go on with it by --resume, or name another folder with --out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrainingError(f"{folder}: cannot be made ({error.strerror})") from None
        self._curve, self._log = Log(folder / "curve.csv", CURVE), Log(folder / "episodes.csv", EPISODES)

    def _resume(self) -> None:
        if not self._path.exists():
            raise TrainingError(f"{self._plan.folder} holds no checkpoint; leave out --resume to begin")
        if (self._plan.folder / "summary.json").exists():
            raise TrainingError(f"{self._plan.folder} holds a run that is done; see its summary.json")
        state, identity = checkpoint.load(self._path), self._loop.identity()
        if other := _differences(state["identity"], identity):
            raise TrainingError(f"{self._path}: is of another run, which differs in {', '.join(other)}")
        self._loop.load_state_dict(state["loop"])
        self._best, self._points, self._recent = state["best"], state["points"], state["recent"]
        self._episodes, self._seconds = state["episodes"], state["seconds"]
        self._due = self._loop.step + self._plan.checkpoint_every
        curve, log = state["lengths"]
        folder = self._plan.folder
        self._curve = Log(folder / "curve.csv", CURVE, curve)
        self._log = Log(folder / "episodes.csv", EPISODES, log)

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
            checkpoint.save(self._best, self._plan.folder / "best.pt")

    def _shown(self) -> str:
        best = f", best {self._best['mean']:.0f}" if self._points else ""
        latest = f", evaluated {self._points[-1][2]:.0f}" if self._points else ""
        rate = self._watch.read(0, self._loop.updates - self._from[1], 1).update_hz
        return f"return {fmean(self._recent):.0f}{latest}{best}, {rate:.0f} updates/s"

    def _summary(self) -> dict[str, Any]:
        """Test the best weights on fresh episodes, and write down what came of the run."""
        loop, workload = self._loop, self._workload
        rates = self._watch.read(loop.step - self._from[0], loop.updates - self._from[1], workload.learner.batch)
        tested = self._tested() if self._points and self._plan.test_episodes else []
        steps, updates = [int(point[0]) for point in self._points], [int(point[1]) for point in self._points]
        means, solved = [point[2] for point in self._points], workload.evaluation.solved
        summary = {
            "workload": workload.name, "environment": workload.environment, "algorithm": workload.algorithm,
            "contestant": loop.contestant, "fanout": workload.replay.fanout, "alpha": workload.replay.alpha,
            "seed": loop.seed, "steps": loop.step, "updates": loop.updates, "episodes": self._episodes,
            "seconds": round(self._seconds, 1), **_made_by(),
            "throughput": rates.row() if loop.step > self._from[0] else None,
            "validation_best": self._best["mean"] if means else None, "validation_best_step": self._best["step"],
            "test_episodes": len(tested), "test_mean": fmean(tested) if tested else None,
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
        latest = learner.weights()
        learner.networks.load_state_dict(self._best["weights"])
        scores = evaluate(self._workload, learner, self._evaluated, self._plan.test_episodes, loop.seed, TEST)
        learner.networks.load_state_dict(latest)
        return scores


def _made_by() -> dict[str, Any]:
    """When, by which command and with which libraries a summary was made."""
    import torch  # noqa: PLC0415  # loaded long since

    packages = ("numpy", "torch", "gymnasium", "numba")
    found = {name: sys.modules[name].__version__ for name in packages if name in sys.modules}
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "impls.training", *sys.argv[1:]]),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version()} | found,
    }


def _differences(saved: Mapping[str, Any], here: Mapping[str, Any], at: str = "") -> list[str]:
    """The keys in which two identities differ."""
    found = []
    for key in here:
        one, other = saved.get(key), here[key]
        if isinstance(other, dict) and isinstance(one, dict):
            found += _differences(one, other, f"{at}{key}.")
        elif one != (list(other) if isinstance(other, tuple) else other):
            found.append(f"{at}{key}")
    return found


def start(
    workload: Workload, plan: Plan, *, contestant: str = "numba", seed: int = 0, resume: bool = False, **options: Any
) -> Run:
    """A run that is ready to go; ``options`` are the loop's device and compiled."""
    return Run(SerialLoop(workload, contestant=contestant, seed=seed, **options), plan, resume)
