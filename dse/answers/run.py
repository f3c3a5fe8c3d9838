"""Which mapping of a workload is the best on this machine, and how fast is it when it runs?

It asks as `python -m dse recommend --platform this` does, lets the configurations that may be best train in turn
for the seconds of --decide, continues with the fastest, or ends with one that has taken all its steps by then, and
prints the gradient steps/s that were predicted, raced and measured, once training has settled and without evaluations.
A race is kept, and answers until code or machine change. Where others keep the machine busy a run says so first, and
beside the rate that it measured, and trains all the same.
With --seconds a run ends S seconds after its first step or its race, even beyond the workload's last step, and without
--out it leaves no folder behind.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from impls.terminal import amount, count
from impls.training import TrainingError, Workload
from impls.training.arrangement import NODES
from impls.training.folder import check
from impls.training.interrupts import Interrupted, exiting, terminable
from impls.training.settings import check_ranges

from ..answer import Answer, Note, notes_of_records
from ..mapping.answer import MappingAnswer, Shortage
from ..mapping.nodes import OverNodes
from ..mapping.question import FREE, MappingQuestion, answer_question
from ..platforms import checkout
from ..platforms.files import HERE
from ..race_runs import SECONDS
from .deciding import OBJECTIVE, RACED, Contender, KeptRace, add_nodes, contenders, follow, race_of, raced_rows
from .emit import why_not_run
from .mapping_answer import choice_row, input_of_run, mapping_answer
from .options import add_choices, add_command, add_records, question_of
from .printer import round_as_shown, say, show, show_end, show_start

PREDICTED = ("ratio", "fewest_devices")  # objectives whose value is the rate of a run, with its interval
ANY_STEPS = 1 << 40  # of a run that only its seconds end
FAR_BELOW = 0.7  # of the predicted rate, where what else ran may be the reason
END_SECONDS = 60.0  # that a run has to save itself after Ctrl-C or another signal


def add_to(commands: Any) -> None:
    """Add ``run`` to the commands of a parser."""
    summary = "train by the best mapping on this machine, its rate predicted and measured"
    parser = add_command(commands, "run", summary, __doc__, f"run cartpole_dqn --platform {HERE} --seconds 30")
    add = parser.add_argument
    add("workload", help="a workload's name or file")
    add("--platform", default=HERE, metavar="NAME", help=f"`{HERE}`: a run is on the machine that asks (the default)")
    add("--seconds", type=count, metavar="S", help="end so long after the first step of the run, or after its race")
    decide = f"seconds of the race, with its start (default: {SECONDS:.0f}); 0 trusts the prediction"
    add("--decide", type=amount, metavar="S", help=decide)
    add(
        "--cluster",
        metavar="WHERE",
        help="race the best plan over nodes of a Ray cluster too: auto, local or HOST:PORT",
    )
    add("--again", action="store_true", help="race anew, though a race is kept that answers")
    add("--steps", type=count, metavar="S", help="environment steps to take (default: the workload's)")
    add("--seed", type=int, default=0, help="seed of the run (default: %(default)s)")
    add("--out", type=Path, metavar="FOLDER", help="folder of the run (default: runs/WORKLOAD/recommended-seedN)")
    add("--resume", action="store_true", help="continue from the folder's checkpoint, if the answer is still the same")
    add_records(parser)
    add_choices(parser)


def run(options: argparse.Namespace) -> int:
    """Answer and run; returns the exit code: 0 done, 1 nothing fits, 130 or 143 interrupted, else that of training."""
    if options.platform != HERE:
        asked = shlex.join(["--platform", options.platform, "--workload", options.workload])
        raise ValueError(
            f"a run is on the machine that asks, not on {options.platform}; leave out --platform, or ask about that: "
            f"python -m dse recommend {asked}"
        )
    free, options.free = options.free, [key for key in options.free if key in FREE]
    if unknown := [key for key in free if key not in (*FREE, *RACED)]:
        raise ValueError(f"--free {unknown[0]}: a run races {', '.join(RACED)}, and its question has {', '.join(FREE)}")
    question, _ = question_of(options), checkout.read_load()  # before a race of our own is load
    _check(options, question.workload)
    seconds = _seconds_of_race(options)
    if "strategy" in free and not seconds:
        raise ValueError("--free strategy races, and here nothing does; leave it out, or give seconds to --decide")
    is_over_nodes = question.fix.get("arrangement") == NODES
    if is_over_nodes and not options.cluster:
        raise ValueError("arrangement=nodes runs on a cluster; name it with --cluster, such as --cluster auto")
    if options.cluster and not (seconds or is_over_nodes):
        raise ValueError("--cluster races, and here nothing does; leave it out, or add --fix arrangement=nodes")
    raced = contenders(question, free) if seconds and not is_over_nodes else []
    if options.cluster:
        raced, free = add_nodes(question, raced, options.cluster), [*free, "cluster"]
    is_raced = seconds and not (options.again or is_over_nodes)
    race = KeptRace.of_question(question, free).race(seconds) if is_raced else None
    chosen = next((contender for contender in raced if race and contender.fix == race["rows"][0]["fix"]), None)
    chosen = raced[0] if is_over_nodes else chosen
    if raced and not chosen:
        return _race(options, question, raced, seconds, free)
    contender = chosen or _predicted(options, question)
    if contender is None:
        return 1
    _announce(options, question, contender, race)
    with _folder(options, question.workload.name) as folder:
        is_quiet = options.json or not _is_run_folder(options)
        code = _trained([*_command(options, folder), *contender.words], contender.settings, is_quiet)
        return code or _end(contender, race, folder, options.json)


def _predicted(options: argparse.Namespace, question: MappingQuestion) -> Contender | None:
    """The answer to run; None where nothing fits, which is told. ValueError for one that no run can have."""
    answer = answer_question(question)
    if isinstance(answer, Shortage):
        with contextlib.nullcontext() if options.json else contextlib.redirect_stdout(sys.stderr):
            show(mapping_answer(answer), options)
        return None
    if why := why_not_run(answer):
        hint = "" if "arrangement" in question.fix else " Ask for one that runs, with --fix arrangement=serial"
        raise ValueError(f"impls.training cannot run the answer: {say(why.kind, why.values)}{hint}")
    return Contender({}, ("--mapping", "-"), json.dumps(input_of_run(question, answer)), 1, answer)


def _seconds_of_race(options: argparse.Namespace) -> float:
    """The seconds of a race, 0 where the prediction is trusted: a run that continues, or whose rate is not its aim."""
    is_raced = not options.resume and options.objective == OBJECTIVE
    if options.decide is None:
        return SECONDS * is_raced
    if options.decide and not is_raced:
        raise ValueError(f"a race is of new runs, for --objective {OBJECTIVE}; leave out --decide, or give 0")
    return float(options.decide)


def _race(
    options: argparse.Namespace, question: MappingQuestion, raced: list[Contender], seconds: float, free: list[str]
) -> int:
    """Race, and train on by the winner; returns its exit code."""

    def command(contender: Contender, out: Path) -> list[str]:
        return [*_command(options, out), *contender.words]

    with exiting(), _folder(options, question.workload.name) as folder:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty, and a run that wins a race is moved there; name another --out")
        place = folder.with_name(f"{folder.name}.race")
        shutil.rmtree(place, ignore_errors=True)  # of a race that was killed
        try:
            with race_of(question, raced, command, folder, seconds, free) as (contender, program, race):
                _announce(options, question, contender, race)
                is_shown = _is_run_folder(options) and not options.json
                assert program.process is not None  # it has raced
                code = _ended(program.process, lambda: follow(program, folder, is_shown))
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return code or _end(contender, race, folder, options.json)


def _announce(options: argparse.Namespace, question: MappingQuestion, contender: Contender, race: Any) -> None:
    """Print what will train, and what the race told; with --json the warnings alone, on standard error."""
    notes = [Note("is_busy", {"load": checkout.describe_load()}, "warning")] if checkout.read_load() else []
    notes += notes_of_records(question.machine_note, question.profile_notes)
    rows = tuple(raced_rows(race))
    if race:
        notes.append(Note("raced_runs" if rows else "not_raced", race, "first"))
        notes += [Note("race_kept_since", race, "first")] if "utc" in race else []
    show_start(Answer({}, choice_row(contender.answer), rows, notes=tuple(notes)), options.json)


def _check(options: argparse.Namespace, workload: Workload) -> None:
    """ValueError for options that no run can have, or its folder, before the seconds that an answer takes."""
    try:
        check_ranges({name: getattr(options, name) for name in ("seconds", "steps", "seed")})
        if _is_run_folder(options):
            check(_run_folder(options, workload.name), options.resume, options.steps or workload.steps)
    except TrainingError as error:
        raise ValueError(str(error)) from None


def _is_run_folder(options: argparse.Namespace) -> bool:
    """Whether the run leaves its folder behind."""
    return options.seconds is None or options.out is not None or options.resume


def _run_folder(options: argparse.Namespace, workload: str) -> Path:
    return options.out or Path("runs") / workload / f"recommended-seed{options.seed}"


@contextlib.contextmanager
def _folder(options: argparse.Namespace, workload: str) -> Iterator[Path]:
    """The folder of the run: one that is deleted afterwards, where a run of some seconds names none."""
    if _is_run_folder(options):
        yield _run_folder(options, workload)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "run"


def _command(options: argparse.Namespace, folder: Path) -> list[str]:
    words = ["impls.training", "train", options.workload, "--out", str(folder), "--seed", str(options.seed)]
    words += ["--parent", str(os.getpid()), *(["--resume"] if options.resume else [])]
    words += ["--seconds", str(options.seconds), "--test-episodes", "0"] if options.seconds is not None else []
    steps = options.steps if options.seconds is None else options.steps or ANY_STEPS
    words += ["--steps", str(steps)] if steps is not None else []
    return [sys.executable, "-m", *words]


def _trained(command: list[str], answer: str, is_quiet: bool) -> int:
    """The exit code of a run that reads the answer from its standard input; ``is_quiet`` keeps only its errors."""
    out = subprocess.DEVNULL if is_quiet else None
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, text=True) as process:

        def wait() -> int:
            assert process.stdin is not None  # it is a pipe
            with contextlib.suppress(BrokenPipeError):  # it has ended, and said why
                process.stdin.write(answer)
                process.stdin.close()
            return process.wait()

        return _ended(process, wait)


def _ended(process: "subprocess.Popen[str]", wait: Callable[[], int]) -> int:
    """The exit code of a run, which Ctrl-C, SIGTERM and SIGHUP end with what it has saved."""
    with terminable():
        try:
            return wait()
        except KeyboardInterrupt as error:
            process.terminate()  # where a terminal has sent Ctrl-C to the run as well, this changes nothing
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()
            return (error if isinstance(error, Interrupted) else Interrupted()).exit_code


def _end(contender: Contender, race: Any, folder: Path, as_json: bool) -> int:
    """Print the rates of a run that has ended, if it has any; returns the exit code 0."""
    with contextlib.suppress(FileNotFoundError):
        show_end(ended_answer(contender, race, json.loads((folder / "summary.json").read_text())), as_json)
    return 0


def ended_answer(contender: Contender, race: Any, summary: Mapping[str, Any]) -> Answer:
    """Return the rate of a run that has ended: predicted, raced if it was, and measured once it had settled."""
    measured, found = summary["settled"], contender.answer
    hz = measured["update_hz"] if measured and measured["updates"] else None
    has_ends = found.objective in PREDICTED
    more = {"measured": measured, "measured_of_predicted": hz / found.hz if hz else None, "load": checkout.read_load()}
    more |= {"measured_hz": hz, "is_inside": has_ends and hz is not None and is_inside(found, hz), "run": dict(summary)}
    choice = choice_row(found, **more, race=race)
    ends = {"predicted_hz": found.hz, "low": found.low, "high": found.high}
    notes = [Note("predicted_rate" if has_ends else "predicted_rate_alone", ends, "first")]
    if race and race["rows"]:
        turns = dict(zip(("raced_hz", "raced_low_hz", "raced_high_hz"), race["rows"][0]["hz"], strict=True))
        notes.append(Note("raced_rate", turns, "first"))
    if hz is None or measured is None:
        done = {"updates": summary["updates"], "steps": summary["steps"]}
        notes.append(Note("ended_too_early", done, "first"))
        return Answer({"workload": found.workload}, choice, tuple(raced_rows(race)), notes=tuple(notes))
    rate = {"hz": hz, "updates": measured["updates"], "seconds": measured["seconds"], "pace": hz / found.hz}
    notes.append(
        Note(
            "measured_rate" if not has_ends else "measured_inside" if more["is_inside"] else "measured_outside",
            rate,
            "first",
        )
    )
    if checkout.read_load():
        notes.append(Note("is_busy", {"load": checkout.describe_load()}, "first"))
    if hz / found.hz < FAR_BELOW:
        average = checkout.read_load_average()
        shared = {"percent": summary["throughput"]["cpu_percent"], "average": average, "cores": os.cpu_count()}
        notes.append(Note("cores_were_shared", shared, "first"))
    notes += notes_of_records(found.machine_note, found.profile_notes)
    return Answer({"workload": found.workload}, choice, tuple(raced_rows(race)), notes=tuple(notes))


def is_inside(found: MappingAnswer | OverNodes, hz: float) -> bool:
    """Return whether a measured rate, as it is printed, lies within the ends that are printed."""
    low, high = map(round_as_shown, (found.low, found.high))
    return low <= round_as_shown(hz) <= high
