"""How fast are the implementations on this machine? Each command measures one side of it.

sweep      how fast is every sum tree, over N, B, K and threads? Records go to results/<machine>/; resumable
compare    is the newer of two commits, or of two files of records, slower?
peers      how fast and how exact are other libraries' trees compared with ours?
profile    how long do the primitives of a training workload take?
run        answer another question by measuring: run TOPIC
list       which results are there? Export them to an archive or a table
import     take in the records of another person's machine
"""

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import impls
from dse import records
from dse.platforms import checkout
from dse.records import RecordError
from impls.exits import is_foreseen
from impls.terminal import Parser, aligned, answering
from impls.training import TrainingError

from .arguments import about, add_common, among, listed, parser_of
from .sharing import describe_machines, export_machines, import_machines, list_rows, name_archive
from .topic import DIRECT, measure_topic, parser_for
from .topics import list_topics, load_topic
from .workers import WorkerError, WorkerFaultError

INTERRUPTED = 130
HELP = dict(line.split(maxsplit=1) for line in (__doc__ or "").splitlines()[2:])
"""What each command answers, in one line; empty where Python leaves docstrings out."""


ELSEWHERE = ("compare", *DIRECT, "run")
"""Commands with a parser of their own, whose modules are loaded where they are called."""
GONE = {"peers --training": "loops", **{name: name for name in list_topics() if name not in DIRECT}}
"""Commands of earlier versions, each with the topic that it is now."""
FIRST, ALL = "python -m benchmarks sweep --preset quick", "python -m benchmarks --help"


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return the exit code: 0 done, 1 cells failed, 2 cannot be done (one sentence says why each), 75
    not measured for the machine is busy, 130 interrupted."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        print(f"error: name a command, such as {FIRST}; {ALL} says what each is for", file=sys.stderr)
        return 2
    if explained := _explain_gone(words):
        print(f"error: {explained}", file=sys.stderr)
        return 2
    options = None if words[0] in ELSEWHERE else _parser().parse_args(words)
    if _measures(words) and checkout.is_too_loaded("--anyway" in words):
        return checkout.BUSY_EXIT_CODE
    try:
        return _call(words) if options is None else int(options.run(options))
    except (RecordError, TrainingError, ValueError, WorkerError) as error:
        if isinstance(error, WorkerFaultError) or not is_foreseen(error):
            raise
        remedy = "; what is measured is kept: run it again to continue" if isinstance(error, WorkerError) else ""
        print(f"error: {error}{remedy}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; every finished cell is kept, the same command continues from there", file=sys.stderr)
        return INTERRUPTED


def _call(words: Sequence[str]) -> int:
    """Run a command that has a parser of its own."""
    if words[0] == "compare":
        from .compare import main as compare_commits  # noqa: PLC0415  # with its own processes

        return compare_commits(list(words[1:]))
    name, rest = find_topic(words)
    kind = load_topic(name)
    options = parser_for(kind).parse_args(rest)
    if options.cluster and not options.dry_run:
        from .nodes import measure_over  # noqa: PLC0415  # with what joins a cluster

        return measure_over(name, rest)
    return measure_topic(kind, rest)


def find_topic(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the topic that the words of a command name, and the words that follow; the parser ends the process for a
    name that no topic has."""
    name, *rest = words
    if name in DIRECT:
        return name, rest
    return (rest[0] if rest and rest[0] in list_topics() else _topic_parser().parse_args(rest[:1]).topic), rest[1:]


def _list_indirect() -> dict[str, str]:
    """Return the questions of the topics that follow the command ``run``."""
    return {name: question for name, question in list_topics().items() if name not in DIRECT}


def _topic_parser() -> argparse.ArgumentParser:
    """Return the parser of the name of a topic."""
    topics = _list_indirect()
    doc = "Answer a question by measuring. Every topic has a --help of its own: python -m benchmarks run TOPIC --help"
    parser = parser_of("run", doc, "transports --preset quick", f"topics:\n{listed(topics)}\n")
    parser.add_argument("topic", metavar="TOPIC", type=among("topic", *topics), help="a topic of the list below")
    return parser


def _explain_gone(words: Sequence[str]) -> str:
    """Say what to type in place of a command that there is no more; "" for others."""
    for gone, topic in GONE.items():
        name, *options = gone.split()
        if words[0] == name and {*options} <= {*words}:
            rest = shlex.join(["run", topic, *(word for word in words[1:] if word not in options)])
            return f"{gone} is a topic now: python -m benchmarks {rest}"
    return ""


def _measures(words: list[str]) -> bool:
    """Say whether a command compares commits, so that load disturbs it; to compare two files is to read them. A topic
    looks for itself, once it knows that it can be measured."""
    given = [word for word in words[1:] if not word.startswith("-")]
    is_reading = all(Path(word).is_file() for word in given[:2])
    return words[0] == "compare" and not is_reading and not {"-h", "--help", "--dry-run"}.intersection(words)


def _list(options: argparse.Namespace) -> int:
    """Which results are there? Count the records by machine, primitive, implementation, operation and status."""
    measurements = records.read_folder(options.results, options.machine)
    if options.export and options.export.suffix == ".zip":
        export_machines(options.results, options.machine, options.export)
    elif options.export:
        records.export(measurements, options.export)
    counts = Counter(
        (r.machine_key, r.machine.get("cpu", "?"), r.primitive, r.contestant, r.op, r.status) for r in measurements
    )
    names = ("machine", "cpu", "primitive", "contestant", "op", "status")
    rows = [dict(zip(names, key, strict=True)) | {"cells": cells} for key, cells in sorted(counts.items())]
    origins = {row["machine"]: name_archive(options.results, row["machine"]) for row in rows}
    if any(origins.values()):
        rows = [row | {"imported from": origins[row["machine"]]} for row in rows]
    if options.json:
        print(json.dumps(rows))
        return 0
    print(*aligned([list(rows[0]), *([str(value) for value in row.values()] for row in rows)]), sep="\n")
    return 0


def _import(options: argparse.Namespace) -> int:
    """Take in the records of another person's machine, from an archive that `list --export FILE.zip` wrote there.

    Each record is checked before anything is written: its schema, its machine, its time. Then it counts as that
    machine's, for `list`, for reports and for answers: python -m dse recommend --machine KEY
    """
    machines = import_machines(options.archive, options.results)
    print(json.dumps(list_rows(machines)) if options.json else "\n".join(aligned([*describe_machines(machines)])))
    if not options.json:
        print(f"ask for that machine: python -m dse recommend --machine {machines[0].key} --capacity 1e6 --batch 256")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m benchmarks",
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"topics of run:\n{listed(_list_indirect())}\nevery command has a --help of its own\nexample: {FIRST}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fanout {impls.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], example: str, epilog: str = "") -> Any:
        command = commands.add_parser(name, help=HELP.get(name), **about(name, run.__doc__, example, epilog))
        command.set_defaults(run=run)
        return command

    kept = add("list", _list, "--export results.csv")
    kept.add_argument("--machine", metavar="KEY", help="only this machine's")
    forms = "also write the records: .zip for another person to import, .csv or .parquet as a table"
    kept.add_argument("--export", type=Path, metavar="FILE", help=forms)
    taken = add("import", _import, "theirs.zip")
    taken.add_argument("archive", type=Path, metavar="FILE.zip", help="an archive of records")
    add_common(kept, measures=False)
    add_common(taken, measures=False)
    for name in ELSEWHERE:
        other = commands.add_parser(name, help=HELP.get(name), add_help=False)
    topics = other.add_subparsers(metavar="TOPIC")  # of the last, which is ``run``
    for name, question in _list_indirect().items():
        topics.add_parser(name, help=question, add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(answering(main))
