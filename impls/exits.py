"""How a command of ours ends without an answer: by Ctrl-C during its import, for a lack, by a fault of Fanout's."""

import errno
import itertools
import signal
import sys
from contextlib import suppress
from types import TracebackType

OURS = ("impls", "dse", "benchmarks", "reports")
LACKING, FAULT = 2, 70
"""Exit codes: a package, memory or room is lacking, which the user can mend; a fault of Fanout's, no verdict."""
_FILES = "allow more open files, as by: ulimit -n 4096"
_LIMITS = {errno.EMFILE: _FILES, errno.ENFILE: _FILES, errno.EAGAIN: "allow more processes, as by: ulimit -u 4096"}


def is_command() -> bool:
    """Whether ``python -m`` has started one of our packages, rather than another program that imports this one."""
    return _module().partition(".")[0] in OURS


def _module() -> str:
    return next((word for flag, word in itertools.pairwise(sys.orig_argv) if flag == "-m"), "")


def until_ready() -> None:
    """Let Ctrl-C end the process at once, until ``ready``; where this is a command, and nobody ignores Ctrl-C.

    What a command does not foresee ends it by ``report`` from now on.
    """
    if is_command():
        sys.excepthook = _exit
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def ready() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Exit by ``report``: for ``sys.excepthook``, which also sees what is raised while a command is imported."""
    if isinstance(error, Exception):
        sys.exit(report(error))
    sys.__excepthook__(kind, error, trace)


def report(error: Exception) -> int:
    """Say on stderr why a command ends by an exception that it did not foresee; return the exit code.

    It is LACKING, in a sentence, where somebody else's package or memory is missing or a limit of the machine is
    reached; else FAULT, after the traceback.
    """
    import shlex  # noqa: PLC0415  # these take time to import
    import traceback  # noqa: PLC0415

    words = " ".join(str(error).split())
    said = f"{type(error).__name__}: {words}".removesuffix(": ")
    limit = _LIMITS.get(error.errno or 0) if isinstance(error, OSError) else None
    if limit:
        text, code = f"error: a limit of this machine is reached ({said}); {limit}\n", LACKING
    elif isinstance(error, MemoryError):
        text, code = f"error: not enough memory ({said}); ask for less, or free some\n", LACKING
    elif isinstance(error, ImportError) and (name := _foreign_package(error)):
        remedy = "install what is lacking with: pip install '.[suite,train]'"
        text, code = f"error: the package {name} cannot be imported ({words}); {remedy}\n", LACKING
    else:
        text, code = "".join(traceback.format_exception(error)), FAULT
        if not _module().endswith("worker"):  # whose parent says it
            version = getattr(sys.modules.get("impls"), "__version__", "?")
            command = shlex.join(["python", *sys.orig_argv[1:]])
            text += (
                f"error: a fault of Fanout's, and no result: {said}; please report it to Fanout's contributors with "
                f"the lines above and: Fanout {version}, Python {sys.version.split()[0]}, {command}\n"
            )
    with suppress(OSError, AttributeError):  # nobody reads it, or it was closed before we began
        sys.stderr.write(text)
    return code


def is_foreseen(error: Exception) -> bool:
    """Say whether an error is of a class of ours, of a file, or of a ``raise`` in our code; other calls failed."""
    from opcode import opmap  # noqa: PLC0415  # see report

    if type(error).__module__.partition(".")[0] in OURS or (isinstance(error, OSError) and error.filename):
        return True
    package, instruction = _origin(error)
    return package in OURS and instruction == opmap["RAISE_VARARGS"]


def _foreign_package(error: ImportError) -> str:
    """Return the package of others that was not found, or that refused to be imported; "" for ours and Python's."""
    package = error.name.partition(".")[0] if error.name else _origin(error)[0]
    return "" if package in (*OURS, *sys.stdlib_module_names) else package


def _origin(error: Exception) -> tuple[str, int]:
    """Return the package of the code that raised an error, also where ``python -m`` runs it, and the instruction."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None:
        return "", 0
    parent = getattr(trace.tb_frame.f_globals.get("__spec__"), "parent", None) or ""
    return parent.partition(".")[0], trace.tb_frame.f_code.co_code[trace.tb_lasti]
