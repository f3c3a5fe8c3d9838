"""``python -m dse run``: ask which mapping is best here, train by it, and print its rate predicted and measured."""

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from impls.terminal import count, plural
from impls.training import TrainingError, Workload
from impls.training.folder import check
from impls.training.interrupts import Interrupted, terminable
from impls.training.options import check_ranges

from ..estimate import off
from ..mapping.answer import MappingAnswer, Shortage
from ..mapping.question import answer_question
from ..platforms.busy import average
from ..platforms.reading import HERE
from .emit import why_not_run
from .mapping import add_choices, add_records, question_of, to_run, without_fit
from .mapping_words import expected, headline
from .text import add_command, not_its_own, number, roughly, told

ABOUT = f"""Which mapping of a workload is the best on this machine, and how fast is it when it runs?

It asks as `python -m dse recommend --platform {HERE}` does, trains by the answer, and prints the predicted and
the measured gradient steps/s, once training has settled and without evaluations.
With --seconds a run ends S seconds after its first step, even beyond the workload's last one, and without --out it
leaves no folder behind."""
PREDICTED = ("ratio", "fewest_devices")  # objectives whose value is the rate of a run, with its interval
ANY_STEPS = 1 << 40  # of a run that only its seconds end
FAR_BELOW = 0.7  # of the predicted rate, where what else ran may be the reason
END_SECONDS = 60.0  # that a run has to save itself after Ctrl-C or SIGTERM


def add_to(commands: Any) -> None:
    """Add ``run`` to the commands of a parser."""
    summary = "train by the best mapping on this machine, its rate predicted and measured"
    parser = add_command(commands, "run", summary, ABOUT, f"run cartpole_dqn --platform {HERE} --seconds 30")
    add = parser.add_argument
    add("workload", help="a workload's name or file")
    add("--platform", default=HERE, metavar="NAME", help=f"`{HERE}`: a run is on the machine that asks (the default)")
    add("--seconds", type=count, metavar="S", help="end so long after the first step of the run")
    add("--steps", type=count, metavar="S", help="of the environment (default: the workload's)")
    add("--seed", type=int, default=0, help="of the run (default: %(default)s)")
    add("--out", type=Path, metavar="FOLDER", help="of the run (default: runs/WORKLOAD/recommended-seedN)")
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
    question = question_of(options)
    _check(options, question.workload)
    answer = answer_question(question)
    if isinstance(answer, Shortage):
        if options.json:
            print(json.dumps(answer.to_dict()))
        else:
            print(without_fit(options, answer), file=sys.stderr)
        return 1
    if why := why_not_run(answer):
        hint = "" if "arrangement" in question.fix else "; ask for one that runs, with --fix arrangement=serial"
        raise ValueError(f"impls.training cannot run the answer: {why}{hint}")
    if answer.machine_note:
        print(not_its_own(answer.machine), file=sys.stderr if options.json else sys.stdout, flush=True)
    if not options.json:
        print(headline(answer), flush=True)
    with _folder(options, answer.workload) as folder:
        command = _command(options, folder)
        is_quiet = options.json or not _is_kept(options)
        code = _trained(command, json.dumps(to_run(question, answer)), is_quiet)
        summary = folder / "summary.json"
        if code or not summary.exists():
            return code
        _show(answer, json.loads(summary.read_text()), options.json)
    return 0


def _check(options: argparse.Namespace, workload: Workload) -> None:
    """ValueError for options that no run can have, or its folder, before the seconds that an answer takes."""
    try:
        check_ranges({name: getattr(options, name) for name in ("seconds", "steps", "seed")})
        if _is_kept(options):
            check(_kept(options, workload.name), options.resume, options.steps or workload.steps)
    except TrainingError as error:
        raise ValueError(str(error)) from None


def _is_kept(options: argparse.Namespace) -> bool:
    """Whether the run leaves its folder behind."""
    return options.seconds is None or options.out is not None or options.resume


def _kept(options: argparse.Namespace, workload: str) -> Path:
    return options.out or Path("runs") / workload / f"recommended-seed{options.seed}"


@contextlib.contextmanager
def _folder(options: argparse.Namespace, workload: str) -> Iterator[Path]:
    """The folder of the run: one that is deleted afterwards, where a run of some seconds names none."""
    if _is_kept(options):
        yield _kept(options, workload)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "run"


def _command(options: argparse.Namespace, folder: Path) -> list[str]:
    words = ["impls.training", options.workload, "--mapping", "-", "--out", str(folder), "--seed", str(options.seed)]
    words += ["--parent", str(os.getpid()), *(["--resume"] if options.resume else [])]
    words += ["--seconds", str(options.seconds), "--test-episodes", "0"] if options.seconds is not None else []
    steps = options.steps if options.seconds is None else options.steps or ANY_STEPS
    words += ["--steps", str(steps)] if steps is not None else []
    return [sys.executable, "-m", *words]


def _trained(command: list[str], answer: str, is_quiet: bool) -> int:
    """The exit code of a run that reads the answer from its standard input; ``is_quiet`` keeps only its errors."""
    out = subprocess.DEVNULL if is_quiet else None
    with terminable(), subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, text=True) as process:
        try:
            assert process.stdin is not None  # it is a pipe
            with contextlib.suppress(BrokenPipeError):  # it has ended, and said why
                process.stdin.write(answer)
                process.stdin.close()
            return process.wait()
        except KeyboardInterrupt as error:
            process.terminate()  # where a terminal has sent Ctrl-C to the run as well, this changes nothing
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()
            return (error if isinstance(error, Interrupted) else Interrupted()).exit_code


def _show(answer: MappingAnswer, summary: dict[str, Any], as_json: bool) -> None:
    measured = summary["settled"]
    hz = measured["update_hz"] if measured and measured["updates"] else None
    ends = {"low": answer.low, "high": answer.high} if answer.objective in PREDICTED else {"low": None, "high": None}
    share = None if hz is None else hz / answer.hz
    if as_json:
        predicted = {"update_hz": answer.hz, **ends, "interval": answer.interval, "upper_bound": answer.upper_bound}
        shown = {"predicted": predicted, "measured": measured, "measured_of_predicted": share, "run": summary}
        print(json.dumps(shown))
        return
    print(f"predicted: {expected(answer)}")
    if hz is None or share is None:
        done = f"{plural(summary['updates'], 'gradient step')} in {plural(summary['steps'], 'environment step')}"
        print(f"measured:  {done}: the run ended before it had settled; give it more --seconds or --steps")
        return
    taken = f"{plural(measured['updates'], 'gradient step')} in {measured['seconds']:,.1f} s"
    where = ""
    if answer.objective in PREDICTED:
        where = f"; {'within' if _is_inside(answer, hz) else 'outside'} the interval"
    print(f"measured:  {number(hz)} gradient steps/s ({taken}), {share:.2f} times the predicted{where}")
    if share < FAR_BELOW:
        percent = summary["throughput"]["cpu_percent"]
        print(
            f"  the run had {percent:.0f} % of one core's time; load average {average():.3g} on {os.cpu_count()} cores"
        )


def _is_inside(answer: MappingAnswer, hz: float) -> bool:
    """Whether a measured rate, as it is printed, lies within the ends, or the factor, that were printed."""
    hz = float(number(hz).replace(",", ""))
    if answer.interval == "factor":
        factor = float(roughly(off(answer.value, answer.low, answer.high)).replace(",", ""))
        return 1 / factor <= hz / told(answer.value, answer.low, answer.high) <= factor
    low, high = (told(end, answer.low, answer.high) for end in (answer.low, answer.high))
    return low <= hz <= high
