"""A run of a loop from its first step, or from its checkpoint, to its last: curve, checkpoints, progress.

A run is a folder:

    curve.csv        one line an evaluation: steps, updates, episodes, scores, loss, seconds, rates
                     (those of training alone, since the run began or was resumed)
    episodes.csv     one line a training episode: steps, score, length
    checkpoint.pt    the state to resume from
    best.pt          the weights of the evaluation with the highest mean, the latest of equals
    summary.json     the results, once it is done

The files of a resumed run are first cut to what they were at its checkpoint, and then grow as if nothing had happened.
A folder belongs to one run: its file .lock is locked for as long as the run goes on. A run by several processes goes
on from a checkpoint with the same records and weights, but not bit for bit, as the order of their turns is their own.
"""

import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from ..terminal import Progress, plural
from . import checkpoint
from .actor import TEST, VALIDATION, Episode, Tested, evaluate
from .environments import Environment
from .errors import ProcessLost, TrainingError
from .folder import Log, alone
from .interrupts import Interrupted, Interrupts
from .loop import SerialLoop
from .parallel.arrangement import Arrangement
from .sizes import layout_of
from .throughput import Stopwatch, learning_efficiency, sample_efficiency
from .workload import Workload

if TYPE_CHECKING:
    from .parallel.loop import ParallelLoop
    from .parallel.testing import TestProcess

CURVE = (
    "step", "updates", "episodes", "mean_score", "least_score", "largest_score", "loss",
    "seconds", "sampling_hz", "update_hz",
)  # fmt: skip
EPISODES = ("step", "score", "length")
RECENT = 20  # training episodes whose mean the live line shows
SETTLED = 100
"""Gradient steps after which ``Plan.seconds`` and the summary's rate ``settled`` begin: start-up is over by then."""


@dataclass(frozen=True)
class Plan:
    """Folder, checkpoints, tests and progress of a run; none of it changes what is learned.

    ``seconds``: the run ends when so many seconds were trained, evaluations aside, since ``SETTLED`` gradient steps.
    ``test_process``: a process of its own evaluates while training goes on, as in [Hou2023].
    """

    folder: Path
    checkpoint_every: int = 10_000
    test_episodes: int = 100
    live: bool = True  # progress is shown: a bar in a terminal, elsewhere a line now and then
    clock: Callable[[], float] = time.monotonic  # of those lines
    seconds: float | None = None
    test_process: bool = False


class Run:
    """One run; ``resume`` goes on from the checkpoint in its folder, otherwise the folder must have none.

    TrainingError for a folder that does not fit that, or a checkpoint of another run.
    """

    def __init__(self, loop: "SerialLoop | ParallelLoop", plan: Plan, resume: bool = False) -> None:
        self._loop, self._plan, self._workload = loop, plan, loop.workload
        self._path = plan.folder / "checkpoint.pt"
        self._seconds, self._due = 0.0, plan.checkpoint_every
        self._best: dict[str, Any] = {"mean": -float("inf"), "step": 0, "weights": {}}
        self._points: list[list[float]] = []  # step, updates, mean score of each evaluation
        self._recent: list[float] = []
        self._episodes = 0
        self._settled: tuple[float, int, int] | None = None  # seconds, steps and updates at SETTLED gradient steps
        self._tester: TestProcess | None = None
        self._is_owed = False  # an evaluation was due while the test process was busy
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
            if plan.test_process:
                self._tester = self._begun_tester()
        except BaseException:
            self.close()
            raise

    def run(self, until: int | None = None) -> dict[str, Any] | None:
        """Train to the last step, or only to ``until``; returns the summary once the run is done, else None.

        Interrupted, or TrainingError where a process is lost: a run by several processes is saved before.
        """
        loop, plan, last = self._loop, self._plan, self._workload.steps
        end = min(last, until or last)
        self._watch, self._from = Stopwatch(loop.cpu_seconds), (loop.step, loop.updates)
        self._settled, self._began = None, time.perf_counter() - self._seconds
        try:
            with (
                Interrupts(are_noted=loop.is_parallel) as interrupts,
                Progress(
                    None if plan.seconds else last, "step", initial=loop.step, shown=plan.live, clock=plan.clock
                ) as progress,
            ):
                self._seen = loop.step
                loop.until(end)
                while not (loop.done(end) or self._is_over()):
                    interrupts.check()
                    self._turn(progress)
            return self._finish() if self._is_over() or loop.step >= last else None
        except Interrupted:
            self.save()
            raise
        except ProcessLost as error:
            sentence, *more = str(error).splitlines()
            try:
                self.save()
                saved = f"the run is saved as of step {loop.step:,}: go on with --resume"
            except TrainingError as other:
                saved = f"and the run cannot be saved: {other}"
            raise TrainingError("\n".join([f"{sentence}; {saved}", *more])) from None

    def _turn(self, progress: Progress) -> None:
        """Advance the loop; then log, evaluate and save what is due."""
        # Invariant: the files have a line for every episode that ended and every evaluation due up to step ``_seen``.
        loop, before, turn, interval = self._loop, self._seen, self._loop.turns, self._workload.evaluation.interval
        episodes = loop.advance()
        self._seen, self._seconds = loop.step, time.perf_counter() - self._began
        for episode in episodes:
            self._ended(episode)
        if self._tester:
            self._add(self._tester.result())
        if self._seen // interval > before // interval or self._is_owed:
            self._evaluate()
        # Resuming is cheapest where the first actor's episode has just ended, as it need not be replayed.
        is_first = turn % self._workload.actors.count == 0
        if episodes and is_first and self._seen >= self._due:
            with self._watch.paused():
                self.save()
        if self._settled is None and loop.updates >= self._from[1] + SETTLED:
            self._settled = self._watch.seconds(), loop.step, loop.updates
        last = self._workload.steps
        progress.update(min(self._seen, last) - min(before, last), self._shown if episodes else None)

    def _is_over(self) -> bool:
        """Whether the run has trained for as long as its plan says."""
        seconds, settled = self._plan.seconds, self._settled
        return seconds is not None and settled is not None and self._watch.seconds() - settled[0] >= seconds

    def _finish(self) -> dict[str, Any]:
        """Wait for the evaluation under way, save, end all processes, test the best weights; returns the summary."""
        rates, report = self._rates(), self._loop.report()
        if self._tester:
            self._add(self._tester.last_result())
            self._tester.close()
            self._tester = None
        if self._is_owed:
            self._evaluate()
        self.save()
        self._loop.end()
        return self._summary(rates, report)

    def _rates(self) -> dict[str, Any]:
        """Rates of this run, and of it since it has settled, so without its start; both leave evaluations out."""
        loop, watch, batch, (step, updates) = self._loop, self._watch, self._workload.learner.batch, self._from
        whole = watch.read(loop.step - step, loop.updates - updates, batch).row() if loop.step > step else None
        if self._settled is None:
            return {"throughput": whole, "settled": None}
        began, step, updates = self._settled
        seconds, steps, updates = watch.seconds() - began, loop.step - step, loop.updates - updates
        settled = {"seconds": seconds, "steps": steps, "updates": updates}
        settled |= {"sampling_hz": steps / max(seconds, 1e-9), "update_hz": updates / max(seconds, 1e-9)}
        return {"throughput": whole, "settled": settled}

    def save(self) -> None:
        """Write the checkpoint; the next is due in ``checkpoint_every`` steps."""
        self._due = self._loop.step + self._plan.checkpoint_every
        try:
            with self._loop.paused():
                for episode in self._loop.ended():
                    self._ended(episode)
                state = {
                    "identity": self._loop.identity(),
                    "setting": self._setting(),
                    "loop": self._loop.state_dict(),
                    "best": self._best,
                    "points": self._points,
                    "recent": self._recent,
                    "episodes": self._episodes,
                    "seconds": self._seconds,
                    "lengths": [self._curve.saved(), self._log.saved()],
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
        return {"threads": torch.get_num_threads(), **made, "policy": loop.policy_name}

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

    def _begun_tester(self) -> "TestProcess":
        from .parallel.testing import TestProcess  # noqa: PLC0415  # shared memory, which not every system has

        loop = self._loop
        tester = TestProcess(self._workload, loop.learner.implementation, loop.seed, len(loop.learner.parameters))
        self._resources.callback(tester.close)
        return tester

    def _evaluate(self) -> None:
        """Evaluate the weights of this step, here or in the test process."""
        loop, tester = self._loop, self._tester
        self._is_owed = tester is not None and tester.is_busy
        if self._is_owed:
            return
        if tester:
            tester.ask(loop.step, loop.updates, loop.learner.weights())
            return
        with self._watch.paused(), loop.paused():
            settings, seed = self._workload.evaluation, (loop.seed, VALIDATION, loop.step)
            scores = evaluate(self._workload, loop.learner, self._evaluated, settings.episodes, *seed)
            tested = Tested(loop.step, loop.updates, loop.learner.weights(), scores)
        self._add(tested)

    def _add(self, tested: Tested | None) -> None:
        """Add an evaluation to the curve, and keep its weights if no earlier ones were better."""
        if self._tester and not self._tester.is_there:
            print("warning: the test process has ended; evaluations pause training from now on", file=sys.stderr)
            self._tester, self._is_owed = None, True
        if tested is None:
            return
        loop, mean, scores = self._loop, fmean(tested.scores), tested.scores
        self._points.append([tested.step, tested.updates, mean])
        rates = self._watch.read(loop.step - self._from[0], loop.updates - self._from[1], 1)
        row = {
            "step": tested.step, "updates": tested.updates, "episodes": self._episodes, "mean_score": mean,
            "least_score": min(scores), "largest_score": max(scores), "loss": next(iter(loop.losses.values()), 0.0),
            "seconds": round(self._seconds, 3), "sampling_hz": round(rates.sampling_hz, 1),
            "update_hz": round(rates.update_hz, 1),
        }  # fmt: skip
        self._curve.add(row)
        if mean >= self._best["mean"]:
            self._best = {"mean": mean, "step": tested.step, "weights": tested.weights}
            with self._watch.paused():
                checkpoint.save(self._best, self._plan.folder / "best.pt")

    def _shown(self) -> str:
        best = f", best {self._best['mean']:z.0f}" if self._points else ""
        latest = f", evaluated {self._points[-1][2]:z.0f}" if self._points else ""
        rate = self._watch.read(0, self._loop.updates - self._from[1], 1).update_hz
        episodes = plural(self._episodes, "episode")
        return f"{episodes}, return {fmean(self._recent):z.0f}{latest}{best}, {rate:.0f} updates/s"

    def _summary(self, rates: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
        """Test the best weights on fresh episodes, and write the summary. TrainingError if it cannot be written."""
        loop, workload = self._loop, self._workload
        tested = self._tested() if self._points and self._plan.test_episodes else []
        steps, updates = [int(point[0]) for point in self._points], [int(point[1]) for point in self._points]
        means, solved = [point[2] for point in self._points], workload.evaluation.solved
        summary = {
            "workload": workload.name, "environment": workload.environment, "algorithm": workload.algorithm,
            "contestant": loop.contestant, "learner": loop.learner.implementation,
            "policy": loop.policy_name, "fanout": workload.replay.fanout, "alpha": workload.replay.alpha,
            "seed": loop.seed, "steps": loop.step, "updates": loop.updates, "episodes": self._episodes,
            "seconds": round(self._seconds, 1), **_made_by(),
            **rates, "arrangement": loop.arrangement.to_dict(), "processes": report, "ratio": self._ratio(),
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

    def _ratio(self) -> float | None:
        """Environment steps taken for each gradient step, from the one before the first on; None before any."""
        learner, loop = self._workload.learner, self._loop
        first = (learner.learning_starts - 1) // learner.update_interval * learner.update_interval
        return (loop.step - first) / loop.updates if loop.updates else None

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
    workload: Workload,
    plan: Plan,
    *,
    contestant: str = "numba",
    seed: int = 0,
    resume: bool = False,
    arrangement: Arrangement | None = None,
    **options: Any,
) -> Run:
    """A run that is ready to start or resume; ``options`` are the loop's learner, policy, device and compiled.

    TrainingError for what cannot be trained so: several processes have the numba tree, and nothing compiled by torch.
    """
    if arrangement is None or not arrangement.is_parallel:
        return Run(SerialLoop(workload, contestant=contestant, seed=seed, **options), plan, resume)
    try:
        from .parallel.loop import ParallelLoop  # noqa: PLC0415  # compiled code and shared memory
    except ImportError as error:
        raise TrainingError(f"several processes cannot train here: {error}; leave out --arrangement") from None
    if contestant != ParallelLoop.contestant:
        raise TrainingError(
            f"several processes share the tree {ParallelLoop.contestant}, not {contestant!r}; leave out --contestant"
        )
    if options.pop("compiled", False):
        raise TrainingError("--compile is for a run of one process; leave it out, or --arrangement")
    return Run(ParallelLoop(workload, arrangement, seed=seed, **options), plan, resume)
