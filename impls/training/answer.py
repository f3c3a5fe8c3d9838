"""Read the answer that ``python -m dse recommend --json`` writes: the options of the run that it recommends."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..checks import near, short
from .arrangement import flag_of
from .errors import TrainingError
from .options import ANSWERED, RunSetup, Values, list_given, setup_of
from .settings import OPTIONS, list_fields
from .workload import Workload

KEY = "training_options"
"""The table of an answer that has the options of a run by name, and other values of its workload by table.key."""
WHY_NOT = "why_not_training"
"""The key of an answer that says why no run does what it recommends."""
STDIN = "-"


def set_up_answer(file: str, workload: Workload, options: argparse.Namespace) -> RunSetup:
    """Return the setup of a run by the answer in a file and the options that the answer does not decide.

    A file called - is the standard input. TrainingError names the file, and what is wrong with it.
    """
    called = "the answer from the standard input" if file == STDIN else file
    try:
        content = _content(file)
        if given := next((name for name in list_given(options) if name in ANSWERED), None):
            raise TrainingError(f"{flag_of(given)} is decided by the answer of --mapping; leave one of them out")
        decided, values = _read(content, workload)
        return setup_of(workload, argparse.Namespace(**vars(options) | decided | list_given(options)), values)
    except TrainingError as error:
        raise TrainingError(f"{called}: {error}") from None


def _content(file: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"cannot be read ({error.strerror}); give the file of an answer") from None
    except UnicodeDecodeError:
        raise TrainingError("is no text; it should be what dse recommend --json wrote") from None
    except (ValueError, RecursionError) as error:
        raise TrainingError(f"is no JSON ({error}); it should be what dse recommend --json wrote") from None


def _read(content: Any, workload: Workload) -> tuple[dict[str, Any], Values]:
    """The options that an answer about this workload decides, and other values of the workload."""
    if isinstance(content, dict) and "repairs" in content:
        raise TrainingError("says that nothing fits the machine, so there is nothing to run")
    if not isinstance(content, dict) or "workload" not in content:
        raise TrainingError("is no answer of dse recommend --json about a workload: it has no 'workload'")
    if content["workload"] != workload.name:
        about = short(content["workload"])
        raise TrainingError(f"is about the workload {about}, not {workload.name!r}; ask about that, or name the other")
    if reason := content.get(WHY_NOT):
        raise TrainingError(f"nothing here runs its mapping: {reason}; ask for another, with --fix or --exclude")
    settings, values = content.get(KEY), Values()
    if not isinstance(settings, dict):
        raise TrainingError(
            f"has no table {KEY!r}, as answers of older versions; ask again: python -m dse recommend --json --workload "
            f"{workload.name} with the options of then"
        )
    known = [f"{table}.{field.name}" for table, fields in list_fields() for field in fields]
    for name, value in [*settings.items()]:
        table, _, key = name.rpartition(".")
        if name not in OPTIONS and name not in known:
            raise TrainingError(f"has an unknown setting {short(name)}{near(name, OPTIONS)}")
        is_text = not table and OPTIONS[name].rules["shape"] == "text"
        if type(value) is not (str if is_text else int):
            kind = "text" if is_text else "a whole number"
            raise TrainingError(f"has {short(value)} as {name}, which must be {kind}")
        if table:
            values[table, key] = settings.pop(name)
    return settings, values
