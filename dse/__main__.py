"""Ask which implementation to choose, what to run where, and how many of it.

recommend   which part of a training workload on which device of a machine; or which tree for N leaves and batches of B
run         train by the best mapping on this machine, its rate predicted and measured
explain     why another mapping loses, ties or does not fit
what-if     the answer, and that of a changed machine
adapt       how many samplers and which batch, searched as training could find them
cores       how many cores to actors and how many to learners
depth       how many batches to sample ahead of the gradient step
learners    whether a second learner is worth it, and how often to average weights
times       times of one's own, typed into a file: an example of one, and a check
platform    which machines there are, as files: show, check, compare, and probe the one that runs
fpga        which replay management module and learner, for an FPGA, a network and batches of B
"""

import argparse
import shlex
import sys
from collections.abc import Sequence

from impls import __version__
from impls.exits import is_foreseen
from impls.terminal import Parser, answering
from impls.training import TrainingError

from .answers import ask, fpga, platform, run, tune
from .platforms import PlatformError
from .records import RecordError


def main(arguments: list[str] | None = None) -> int:
    """Answer a command; returns the exit code: 0 answered, 1 nothing fits, 2 no answer (one sentence says why)."""
    words = sys.argv[1:] if arguments is None else arguments
    if gone := _explain_gone(words):
        print(f"error: {gone}", file=sys.stderr)
        return 2
    options = _parser(words).parse_args(words)
    try:
        return int(_COMMANDS[options.command].run(options))
    except (PlatformError, TrainingError, RecordError, ValueError) as error:
        if not is_foreseen(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except FileNotFoundError as error:  # a link in the folder of results that leads nowhere
        if not is_foreseen(error):
            raise
        remedy = "remove it, or name another folder: --results FOLDER"
        print(f"error: {error.filename}: cannot be read ({error.strerror}); {remedy}", file=sys.stderr)
        return 2


def _explain_gone(words: Sequence[str]) -> str:
    """Say what to type in place of a command or an option that there is no more; "" for others."""
    command, options = " ".join(words[:1]), " ".join(words).replace("=", " ")
    if command == "adapt" and "--running" in words:
        gone = ("--running", "--keep", "--platform", "--platform=this", "this")
        kept = shlex.join(word for word in words[1:] if word not in gone)
        return f"--running is a command now: python -m benchmarks run adapt {kept}"
    if [*words[:2]] == ["platform", "diff"]:
        return "platform diff is gone, because files are compared by: git diff --no-index A B"
    if command == "validate":
        return "validate is gone, because a race on the machine that asks decides: python -m dse recommend --help"
    if command == "times" and "--check" in options:
        asked = "python -m dse platform estimate NAME --workload NAME --times FILE"
        return f"--check is gone, because a question checks its file: {asked}"
    if command == "fpga" and "--front" in words:
        return "--front is gone, because --verbose prints the front of learners too"
    if "--emit json" in options:
        return "--emit json is gone, because an answer is printed so by --json"
    if "--emit python" in options:
        return (
            "--emit python is gone, because the answer has a line to paste, and a file of it is written by --emit toml"
        )
    return ""


def _parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Make the parser of the command that these words name, or else of all commands."""
    raw = argparse.RawDescriptionHelpFormatter
    example = "example:\n  python -m dse recommend --platform u200 --workload hopper_ddpg"
    parser = Parser(prog="python -m dse", description=__doc__, epilog=example, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"fanout {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    named = [_COMMANDS[word] for word in words[:1] if word in _COMMANDS]
    for module in named or dict.fromkeys(_COMMANDS.values()):
        module.add_to(commands)
    return parser


_COMMANDS = {
    "recommend": ask,
    "run": run,
    "explain": ask,
    "what-if": ask,
    "adapt": tune,
    "cores": tune,
    "depth": tune,
    "learners": tune,
    "times": platform,
    "platform": platform,
    "fpga": fpga,
}


if __name__ == "__main__":
    sys.exit(answering(main))
