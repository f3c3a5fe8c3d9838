"""A run of a loop from its first step, or from its checkpoint, to its last: curve, checkpoints, progress.

A run is a folder:

    curve.csv        one line an evaluation: steps, updates, episodes, scores, loss, seconds, rates
                     (those of training alone, since the run began or was resumed)
    episodes.csv     one line a training episode: steps, score, length
    checkpoint.pt    the state to resume from
    best.pt          the weights of the evaluation with the highest mean, the latest of equals
    summary.json     the results, once it is done
    adaptation.csv   with --adapt: one line a pair of actors and batch that was tried, and one for the pair kept

The files of a resumed run are first cut to what they were at its checkpoint, and then grow as if nothing had happened;
but for adaptation.csv, of which no look is taken again.
A folder belongs to one run: its file .lock is locked for as long as the run continues. A run by several processes goes
on from a checkpoint with the same records and weights, but not bit for bit, as the order of their turns is their own.
"""

import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import files
from ..terminal import Progress, plural
from . import algorithms, checkpoint, clock, learners
from .actor import TEST, VALIDATION, Episode, Tested, evaluate
from .arrangement import COPIES, NODES, Arrangement
from .checkpoint import check_state, refusing, threads_and_devices, too_large
from .clock import Stopwatch, learning_efficiency, sample_efficiency
from .environments import INSTALL, Environment
from .errors import ProcessLost, TrainingError
from .folder import Log, alone, check
from .interrupts import Interrupted, Interrupts
from .loop import Loop, SerialLoop
from .settings import EPISODES_SHOWN
from .workload import Workload

if TYPE_CHECKING:
    from .adaptation import Search
    from .copies.loop import CopiesLoop
    from .nodes.loop import NodesLoop
    from .parallel.loop import ParallelLoop
    from .parallel.testing import TestProcess


def rates_of(
    loop: Loop, watch: Stopwatch, began: tuple[int, int], settled: tuple[float, int, int] | None
) -> dict[str, Any]:
    """Rates of a run, and of it since it has settled, so without its start; both leave evaluations out.

    ``began``: steps and gradient steps when the watch was started; ``settled``: seconds, steps and gradient steps when
    the run had settled, None where it has not; without a gradient step since then there is no rate to tell.
    """
    step, updates = began
    batch = loop.workload.learner.batch
    whole = watch.read(loop.step - step, loop.updates - updates, batch).row() if loop.step > step else None
    if settled is None or settled[2] == loop.updates:
        return {"throughput": whole, "settled": None}
    before, step, updates = settled
    seconds, steps, updates = watch.seconds() - before, loop.step - step, loop.updates - updates
    since = {"seconds": seconds, "steps": steps, "updates": updates}
    since |= {"sampling_hz": steps / max(seconds, 1e-9), "update_hz": updates / max(seconds, 1e-9)}
    return {"throughput": whole, "settled": since}


def summary(
    loop: Loop,
    done: Mapping[str, Any],
    points: Sequence[Sequence[float]],
    best: Mapping[str, Any],
    scores: Sequence[float],
) -> dict[str, Any]:
    """The summary of a loop that has ended.

    ``done``: what else the run tells of itself, among it its rates; ``points``: step, gradient steps and mean score of
    each evaluation, of which ``best`` has the highest mean, and its weights these ``scores`` in the end.
    """
    workload, solved = loop.workload, loop.workload.evaluation.solved
    steps, updates = [int(point[0]) for point in points], [int(point[1]) for point in points]
    means, has_replay = [point[2] for point in points], workload.traits.has_replay
    return {
        "workload": workload.name, "environment": workload.environment, "algorithm": workload.algorithm,
        "contestant": loop.contestant if has_replay else None, "device": loop.device,
        "learner": loop.learner.implementation, "policy": loop.policy_name,
        "fanout": workload.replay.fanout if has_replay else None,
        "alpha": workload.replay.alpha if has_replay else None,
        "seed": loop.seed, "steps": loop.step, "updates": loop.updates, **_describe_program(),
        **done, "arrangement": loop.arrangement.to_dict(), "ratio": _ratio(loop),
        "validation_best": best["mean"] + 0.0 if means else None, "validation_best_step": best["step"],
        "test_episodes": len(scores), "test_mean": fmean(scores) + 0.0 if scores else None,
        "test_deviation": pstdev(scores) if scores else None, "solved_at": solved,
        "sample_efficiency": sample_efficiency(steps, means, solved),
        "learning_efficiency": learning_efficiency(updates, means, solved),
    }  # fmt: skip


def write(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write a summary to the folder of its run, and return it. TrainingError if it cannot be written."""
    path = folder / "summary.json"
    with files.refusing(path, TrainingError, "all else of the run is kept"):
        path.with_suffix(".part").write_text(json.dumps(content, indent=1) + "\n")
        path.with_suffix(".part").replace(path)
    return content


def _ratio(loop: Loop) -> float | None:
    """Environment steps taken for each gradient step, from the one before the first on; None before any."""
    learner = loop.workload.learner
    first = (learner.learning_starts - 1) // learner.update_interval * learner.update_interval
    return (loop.step - first) / loop.updates if loop.updates else None


def _describe_program() -> dict[str, Any]:
    """Time, command, threads and library versions of a summary."""
    packages = ("numpy", "torch", "gymnasium", "numba")
    versions = {name: sys.modules[name].__version__ for name in packages if sys.modules.get(name)}
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "impls.training", *sys.argv[1:]]),
        "threads": learners.threads(),
        "versions": {"python": platform.python_version()} | versions,
    }


CURVE = (
    "step", "updates", "episodes", "mean_score", "least_score", "largest_score", "loss",
    "seconds", "sampling_hz", "update_hz",
)  # fmt: skip
EPISODES = ("step", "score", "length")
RECENT = 20  # training episodes whose mean the live line shows
LAST_SECONDS = 60.0  # that the end of a run waits for an episode that is drawn
SETTLED = 100
"""Gradient steps after which the summary's rate ``settled`` begins: start-up is over by then."""


class _OverError(Exception):
    """The run is over, perhaps in the middle of a search."""


@dataclass(frozen=True)
class Plan:
    """Folder, checkpoints, tests and progress of a run; none of it changes what is learned.

    ``seconds``: the run ends N seconds after its first step, or after a race that it won, once the evaluation or
    save under way then ends.
    ``test_process``: a process of its own evaluates while training continues, as in [Hou2023].
    ``adaptation``: the search for actors and a batch by which the run begins, in a ``ChangingLoop``.
    """

    folder: Path
    checkpoint_every: int = 10_000
    test_episodes: int = 100
    live: bool = True  # progress is shown: a bar in a terminal, elsewhere a line now and then
    clock: Callable[[], float] = time.monotonic  # of those lines
    seconds: float | None = None
    test_process: bool = False
    adaptation: "Search | None" = None


class Run:
    """One run; ``resume`` continues from the checkpoint in its folder, otherwise the folder must have none.

    TrainingError for a folder that does not fit that, or a checkpoint of another run.
    """

    def __init__(self, loop: Loop, plan: Plan, resume: bool = False) -> None:
        self._loop, self._plan, self._workload = loop, plan, loop.workload
        self._path = plan.folder / "checkpoint.pt"
        self._seconds, self._due = 0.0, plan.checkpoint_every
        self._best: dict[str, Any] = {"mean": -float("inf"), "step": 0, "weights": loop.learner.weights()}
        self._points: list[list[float]] = []  # step, updates, mean score of each evaluation
        self._recent: list[float] = []
        self._episodes = 0
        self._settled: tuple[float, int, int] | None = None  # seconds, steps and updates at SETTLED gradient steps
        self._tester: TestProcess | None = None
        self._drawer: TestProcess | None = None
        self._gap = 0  # steps from one episode that is drawn to the next; 0: each as soon as it can be
        self._is_owed = False  # an evaluation is due: the test process was busy, or it was broken off
        self._saved = -1, -1  # steps and updates of the latest checkpoint
        self._seen, self._has_complained = loop.step, False
        self._adapted: dict[str, Any] = {}
        self._interrupts = Interrupts(loop.shorten_shutdown)
        self._resources = ExitStack()
        self._resources.callback(loop.close)
        try:
            check(plan.folder, resume, self._workload.steps)
            self._resources.enter_context(alone(plan.folder))
            self._evaluated = Environment(self._workload)
            self._resources.callback(self._evaluated.close)
            if resume:
                self._resume()
            else:
                self._open(None, None)
            if plan.test_process:
                self._tester = self._begin_testing()
        except BaseException:
            self.close()
            raise

    def run(self, until: int | None = None, show: str | None = None) -> dict[str, Any] | None:
        """Train to the last step, or only to ``until``; returns the summary once the run is done, else None.

        With ``show`` a process of its own draws episodes: images in that folder, or in a window if it is that word.
        Interrupted, or TrainingError where a process is lost or an environment fails: the run is saved before.
        """
        loop = self._loop
        self._watch, self._from = Stopwatch(loop.cpu_seconds), (loop.step, loop.updates)
        self._settled, self._began = None, clock.seconds() - self._seconds
        self._first: float | None = None  # when the first step was made
        with self._interrupts:
            try:
                if show is not None:
                    self._begin_drawing(show)
                return self._trained(min(self._workload.steps, until or self._workload.steps))
            except (Interrupted, ProcessLost) as error:
                raise self._save_for(error) from None

    def _trained(self, end: int) -> dict[str, Any] | None:
        loop, plan, last = self._loop, self._plan, self._workload.steps
        total = None if plan.seconds else last
        with Progress(total, "step", initial=loop.step, shown=plan.live, clock=plan.clock) as progress:
            if (rest := self._workload.learner.learning_starts - loop.step) > 0:
                progress.say(f"collecting {plural(rest, 'step')} before learning")
            self._seen = loop.step
            loop.until(end)
            if self._is_owed:
                self._evaluate()

            def turn() -> None:
                if loop.done(end) or self._is_over():
                    raise _OverError
                self._interrupts.check()
                self._turn(progress)

            with suppress(_OverError):
                if plan.adaptation:
                    self._adapt(turn)
                while True:
                    turn()
        if plan.adaptation and not self._adapted:
            print(
                "note: the run is over before its search for actors and a batch; give more --steps or --seconds",
                file=sys.stderr,
            )
        return self._finish() if self._is_over() or loop.step >= last else None

    def _adapt(self, turn: Callable[[], None]) -> None:
        """Take turns in which actors and batch are searched; the rates of the run are of those that follow."""
        loop: Any = self._loop
        assert self._plan.adaptation is not None
        self._adapted = self._plan.adaptation(loop, turn)
        self._watch, self._from, self._settled = Stopwatch(loop.cpu_seconds), (loop.step, loop.updates), None

    def _save_for(self, error: Interrupted | ProcessLost) -> Interrupted | TrainingError:
        """Save what was learned and stored; returns the error that says so.

        What has diverged is not saved, so that an earlier checkpoint stays.
        """
        loop, number = self._loop, self._interrupts.number
        sentence, *more = str(error).splitlines() if isinstance(error, ProcessLost) else [loop.failure]
        if isinstance(error, ProcessLost) and not np.isfinite(loop.learner.weights()).all():
            return TrainingError(str(error))
        try:
            if self._saved != (loop.step, loop.updates):
                self.save()
            saved = f"the run is saved as of step {self._saved[0]:,}: continue with --resume"
        except TrainingError as other:
            saved = f"the run cannot be saved: {other}"
            number = None
        if number is not None:
            return Interrupted(number, "; ".join(filter(None, (sentence or loop.failure, self._rate(), saved))))
        return TrainingError("\n".join(["; ".join(filter(None, (sentence, saved))), *more]))

    def _turn(self, progress: Progress) -> None:
        """Advance the loop; then log, evaluate and save what is due."""
        # Invariant: the files have a line for every episode that ended and every evaluation due up to step ``_seen``.
        loop, before, turn, interval = self._loop, self._seen, self._loop.turns, self._workload.evaluation.interval
        episodes = loop.advance()
        if self._first is None and loop.step > self._from[0] and not clock.is_raced():
            self._first = clock.seconds()
        self._seen, self._seconds = loop.step, clock.seconds() - self._began
        for episode in episodes:
            self._ended(episode)
        self._print_events()
        self._is_owed = self._is_owed or self._seen // interval > before // interval
        if not loop.is_measured:
            if self._tester:
                self._add(self._tester.result())
            if self._is_owed:
                self._evaluate()
        if self._drawer and (self._seen // self._gap > before // self._gap if self._gap else episodes):
            self._draw()
        # Resuming is cheapest where the first actor's episode has just ended, as it need not be replayed.
        is_first = turn % self._workload.actors.count == 0
        if episodes and is_first and self._seen >= self._due and not loop.is_measured:
            with self._watch.paused():
                self.save()
        clock.publish_progress(loop.step, loop.updates, self._watch.seconds())
        if self._settled is None and loop.updates >= self._from[1] + SETTLED and not clock.is_raced():
            self._settled = self._watch.seconds(), loop.step, loop.updates
        last = self._workload.steps
        progress.update(min(self._seen, last) - min(before, last), self._describe_progress if episodes else None)

    def _is_over(self) -> bool:
        """Whether the run has trained for as long as its plan says."""
        seconds, first = self._plan.seconds, self._first
        return seconds is not None and first is not None and clock.seconds() - first >= seconds

    def _finish(self) -> dict[str, Any]:
        """Wait for the evaluation under way, save, end all processes, test the best weights; returns the summary."""
        loop = self._loop
        rates, report = rates_of(loop, self._watch, self._from, self._settled), loop.report()
        if self._tester:
            with self._interrupts.at_once():
                self._add(self._tester.last_result())
            self._tester.close()
            self._tester = None
        if self._is_owed:
            self._evaluate()
        if self._drawer and self._gap:
            with self._interrupts.at_once():
                self._draw(LAST_SECONDS)
                self._has_drawn(LAST_SECONDS)
        self.save()
        self._complain()
        loop.end()
        best, tested = self._best, list[float]()
        if self._points and self._plan.test_episodes:
            with self._interrupts.at_once():
                latest = loop.learner.state_dict()
                loop.learner.load_weights(best["weights"])
                episodes = self._plan.test_episodes  # which no evaluation has seen
                tested = evaluate(self._workload, loop.learner, self._evaluated, episodes, loop.seed, TEST)
                loop.learner.load_state_dict(latest)
        done = {"episodes": self._episodes, "seconds": round(self._seconds, 1), **rates, "processes": report}
        done |= {"adaptation": self._adapted} if self._adapted else {}
        return write(summary(loop, done, self._points, best, tested), self._plan.folder)

    def save(self) -> None:
        """Write the checkpoint; the next is due in ``checkpoint_every`` steps."""
        self._due = self._loop.step + self._plan.checkpoint_every
        try:
            with self._loop.paused():
                for episode in self._loop.ended():
                    self._ended(episode)
                checkpoint.save(self._state((self._curve.saved(), self._log.saved())), self._path)
                self._saved = self._loop.step, self._loop.updates
            self._print_events()
        except MemoryError:
            raise too_large(self._path, self._workload, "written", "what was saved before is kept") from None

    def _print_events(self) -> None:
        for event in self._loop.take_events():
            print(f"note: {event}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close files and environments."""
        self._resources.close()

    def _state(self, lengths: tuple[int, int]) -> dict[str, Any]:
        """All that a resumed run depends on, with the lengths of its files."""
        return {
            "identity": self._loop.identity(),
            "setting": threads_and_devices(self._loop),
            "loop": self._loop.state_dict(),
            "best": self._best,
            "points": self._points,
            "recent": self._recent,
            "episodes": self._episodes,
            "seconds": self._seconds,
            "owed": self._is_owed or self._is_evaluation_lost(),
            "lengths": lengths,
        }

    def _is_evaluation_lost(self) -> bool:
        """Whether a run that continues from here would lack an evaluation: one under way, or due by others' steps."""
        interval, tester = self._workload.evaluation.interval, self._tester
        return bool(tester and tester.is_busy) or self._loop.step // interval > self._seen // interval

    def _resume(self) -> None:
        form = self._state((0, 0)) | {"points": [(0, 0, 0.0)], "recent": [0.0]}
        try:
            state = checkpoint.load(self._path)
            check_state(self._path, state, self._loop, form)
            with refusing(self._path):
                begun = int(state["identity"]["workload"]["steps"])  # by which beta goes on; checkpoints keep it
                self._loop.workload = replace(self._loop.workload, steps=begun)
                self._loop.load_state_dict(state["loop"])
        except MemoryError:
            raise too_large(self._path, self._workload, "read", "the file is as it was") from None
        self._best, self._points, self._recent = state["best"], state["points"], state["recent"]
        self._episodes, self._seconds, self._is_owed = state["episodes"], state["seconds"], state["owed"]
        self._due = self._loop.step + self._plan.checkpoint_every
        self._open(*state["lengths"])
        (self._plan.folder / "summary.json").unlink(missing_ok=True)  # it continues, so it is not done

    def _open(self, curve: int | None, log: int | None) -> None:
        """The files that grow, cut to these lengths, or new."""
        folder = self._plan.folder
        self._curve = self._resources.enter_context(closing(Log(folder / "curve.csv", CURVE, curve)))
        self._log = self._resources.enter_context(closing(Log(folder / "episodes.csv", EPISODES, log)))

    def _ended(self, episode: Episode) -> None:
        self._episodes += 1
        self._recent = [*self._recent, episode.score][-RECENT:]
        self._log.add({"step": self._loop.step, "score": episode.score, "length": episode.length})

    def _begin_testing(self, *begin: Any) -> "TestProcess":
        from .parallel.testing import TestProcess  # noqa: PLC0415  # shared memory, which not every system has

        learner = self._loop.learner
        made = TestProcess(self._workload, learner.implementation, self._loop.seed, len(learner.parameters), *begin)
        self._resources.callback(made.close)
        return made

    def _begin_drawing(self, place: str) -> None:
        from .parallel import drawing  # noqa: PLC0415  # shared memory, which not every system has

        if place != drawing.WINDOW:
            self._gap = max(self._workload.evaluation.interval, -(-self._workload.steps // (EPISODES_SHOWN - 2)))
        self._drawer = self._begin_testing(drawing.Drawing(place))
        self._draw()

    def _draw(self, seconds: float = 0.0) -> None:
        """Let the process that draws begin another episode, if it is free within some seconds."""
        if self._has_drawn(seconds) and self._drawer:
            self._drawer.ask(self._loop.step, self._loop.updates, self._loop.learner.weights())

    def _has_drawn(self, seconds: float) -> bool:
        """Whether the process that draws is free within some seconds; where it has failed, say so, and end it."""
        drawer, why = self._drawer, "the process that draws has ended"
        if drawer is None:
            return False
        try:
            drawer.last_result(seconds)
        except ProcessLost as error:
            why, drawer.is_there = str(error), False
        if not drawer.is_there:
            print(f"warning: no episode is drawn any more: {why}; training continues", file=sys.stderr)
            drawer.close()
            self._drawer = None
        return drawer.is_there and not drawer.is_busy

    def _evaluate(self) -> None:
        """Evaluate the weights of this step, here or in the test process."""
        loop, tester = self._loop, self._tester
        self._is_owed = tester is None or tester.is_busy
        if tester and not tester.is_busy:
            tester.ask(loop.step, loop.updates, loop.learner.weights())
        if tester:
            return
        with self._watch.paused(), loop.paused(), self._interrupts.at_once():
            settings, seed = self._workload.evaluation, (loop.seed, VALIDATION, loop.step)
            try:
                scores = evaluate(self._workload, loop.learner, self._evaluated, settings.episodes, *seed)
            except TrainingError as error:
                raise ProcessLost(str(error)) from error
            tested = Tested(loop.step, loop.updates, loop.learner.weights(), scores)
        self._is_owed = False
        self._add(tested)

    def _add(self, tested: Tested | None) -> None:
        """Add an evaluation to the curve, and keep its weights if no earlier ones were better."""
        if self._tester and not self._tester.is_there:
            print("warning: the test process has ended; evaluations pause training from now on", file=sys.stderr)
            self._tester, self._is_owed = None, True
        if tested is None:
            return
        loop, mean, scores = self._loop, fmean(tested.scores), tested.scores
        self._complain()
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

    def _complain(self) -> None:
        """Warn once of a model of the environment that is no use."""
        if self._loop.model and not self._has_complained and (complaint := self._loop.model.complaint()):
            self._has_complained = True
            print(f"warning: {complaint}", file=sys.stderr)

    def _rate(self) -> str:
        """The rate of this run so far, since it had settled if it had; "" before any gradient step."""
        seconds, _, updates = self._settled or (0.0, *self._from)
        if self._loop.updates == updates:  # it has only just settled
            seconds, (_, updates) = 0.0, self._from
        done, taken = self._loop.updates - updates, self._watch.seconds() - seconds
        return f"{plural(done, 'gradient step')} at {done / max(taken, 1e-9):,.1f}/s so far" if done else ""

    def _describe_progress(self) -> str:
        best = f", best {self._best['mean']:z.0f}" if self._points else ""
        latest = f", evaluated {self._points[-1][2]:z.0f}" if self._points else ""
        rate = self._watch.read(0, self._loop.updates - self._from[1], 1).update_hz
        episodes = plural(self._episodes, "episode") + self._loop.status
        return f"{episodes}, return {fmean(self._recent):z.0f}{latest}{best}, {rate:.0f} updates/s"


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
    arrangement = arrangement or Arrangement()
    arrangement.check(workload)
    if not arrangement.is_parallel:
        serial: type[SerialLoop] = algorithms.hook(workload, "Loop", SerialLoop)
        return Run(serial(workload, contestant=contestant, seed=seed, **options), plan, resume)
    try:
        kind = _changing_loop() if plan.adaptation else loop_of(arrangement)
    except ImportError as error:
        raise TrainingError(
            f"several processes cannot train here: {error}; {INSTALL}, or leave out --arrangement"
        ) from None
    if contestant != kind.contestant:
        raise TrainingError(
            f"several processes have the tree {kind.contestant}, not {contestant!r}; leave out --contestant"
        )
    if options.pop("compiled", False):
        raise TrainingError("--compile is for a run of one process; leave it out, or --arrangement")
    return Run(kind(workload, arrangement, seed=seed, **options), plan, resume)


def _changing_loop() -> "type[ParallelLoop]":
    from .parallel.changing import ChangingLoop  # noqa: PLC0415  # compiled code and shared memory

    return ChangingLoop


def loop_of(arrangement: Arrangement) -> "type[ParallelLoop] | type[CopiesLoop] | type[NodesLoop]":
    """The loop of several processes that an arrangement needs; ImportError without what compiles or shares memory."""
    if arrangement.name == COPIES:
        from .copies.loop import CopiesLoop  # noqa: PLC0415  # compiled code and shared memory

        return CopiesLoop
    if arrangement.name == NODES:
        from .nodes.loop import NodesLoop  # noqa: PLC0415

        return NodesLoop
    from .parallel.loop import ParallelLoop  # noqa: PLC0415

    return ParallelLoop
