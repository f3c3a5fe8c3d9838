"""Ctrl-C while a command of ours is still being imported: it ends as any program does, without a traceback."""

import signal
import sys

OURS = ("impls", "dse", "benchmarks", "reports")


def is_command() -> bool:
    """Whether ``python -m`` has started one of our packages, rather than another program that imports this one."""
    words = sys.orig_argv
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return module.partition(".")[0] in OURS


def until_ready() -> None:
    """Let Ctrl-C end the process at once, until ``ready``; where this is a command, and nobody ignores Ctrl-C."""
    if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def ready() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
