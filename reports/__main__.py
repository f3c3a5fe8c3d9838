"""What do a machine's records show? Draw their figures and write the page that explains them.

Every figure is written as .svg and .png; index.html holds them all and needs nothing else. What neither records nor
code have changed is kept from the build before.

examples: python -m reports --open
          python -m reports --only "other libraries"
"""

import argparse
import json
import sys
import time
import webbrowser
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dse import machines
from dse.answers.printer import say
from dse.platforms.checkout import read_races
from dse.platforms.files import RESULTS
from dse.race_trees import file_of_races
from dse.records import Record, RecordError
from dse.times.cells import evidence
from impls.cores import count_allowed
from impls.exits import is_foreseen
from impls.terminal import answering, count, plural

from . import kept


def main(arguments: list[str] | None = None) -> int:
    """Build the report; return the exit code: 0 done, 1 parts of it failed, 2 cannot be done (a sentence says why)."""
    options = _parser().parse_args(arguments)
    begin = time.perf_counter()
    try:
        built, is_kept = _built(options)
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if not is_foreseen(error):
            raise
        remedy = f"cannot be written ({error.strerror}); choose another folder with --out"
        print(f"error: {error.filename or options.out}: {remedy}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(built))
    else:
        _say(built, is_kept, time.perf_counter() - begin)
    if options.open:
        webbrowser.open(Path(built["page"]).resolve().as_uri())
    return int(bool(built["failed"]))


def _built(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Return what the build says, and whether all of it was kept from the one before."""
    stamp = _stamp(options)
    if built := kept.Kept.read(options.out).built(stamp):
        return built, True
    measurements, note = _read(options.results, options.machine)
    options.out.mkdir(parents=True, exist_ok=True)  # so that one that cannot be had is refused at once
    tell = (lambda doing: None) if options.json else partial(print, file=sys.stderr, flush=True)
    tell("loading what draws")
    try:
        from .building import How, build  # noqa: PLC0415 - libraries that draw take seconds to load
    except ModuleNotFoundError as error:
        if not error.name or find_spec(error.name.partition(".")[0]):
            raise
        remedy = "install all that it needs with: pip install '.[suite]'"
        raise RecordError(f"the page needs the package {error.name}; {remedy}") from None
    how = How(tell, options.only, options.jobs, stamp, not options.no_models)
    return build(measurements, options.results, options.out, note, how), False


def _read(results: Path, machine: str | None) -> tuple[Sequence[Record], str]:
    """Return what ``machines.read`` does, and the user's races; all evidence is read, which mappings rest on too."""
    key, known = machine or str(machines.fingerprint()["key"]), evidence(results)
    if key not in known:
        records, note = machines.read(results, machine, machines.ANYTHING)
        return records, say(note.kind, note.values) if note else ""
    races = read_races(file_of_races(key)) if results is RESULTS else []  # none of a folder that was named
    return [*races, *known[key].records], ""


def _stamp(options: argparse.Namespace) -> str:
    """Return a hash of all that a build rests on."""
    asked = str(options.results), options.only, options.no_models, machines.fingerprint()
    rests_on = kept.of_results(options.results), kept.code("impls", "dse", "reports"), kept.surroundings()
    races = kept.digest([file_of_races(options.machine or str(machines.fingerprint()["key"]))])
    return kept.key_of(asked, rests_on, races)


def _say(built: dict[str, Any], is_kept: bool, seconds: float) -> None:
    """Print whose records were drawn, what was left out and where the page is."""
    if built["machine_note"]:
        print(built["machine_note"])
    for name, reason in built["left_out"].items():
        print(f"left out {name}: {reason}")
    how = "nothing has changed since it was built" if is_kept else f"built in {plural(round(seconds), 'second')}"
    print(f"page: {built['page']}, {plural(len(built['figures']), 'picture')} with it ({how})")


def _parser() -> argparse.ArgumentParser:
    about, _, examples = (__doc__ or "").partition("\nexamples: ")
    raw = argparse.RawDescriptionHelpFormatter
    epilog = f"examples: {examples}"
    parser = argparse.ArgumentParser(prog="python -m reports", description=about, epilog=epilog, formatter_class=raw)
    which = "another machine with records, see: python -m benchmarks list (default: this one, or the nearest)"
    parser.add_argument("--machine", metavar="KEY", help=which)
    for name, default, text in (
        ("results", RESULTS, "where the records are"),
        ("out", Path("reports/build"), "where to write"),
    ):
        help_text = f"{text} (default: %(default)s)"
        parser.add_argument(f"--{name}", type=Path, default=default, metavar="FOLDER", help=help_text)
    only = "build only sections with these words in their headings, on a page of their own, SECTION.html"
    parser.add_argument("--only", default="", metavar="SECTION", help=only)
    parser.add_argument(
        "--jobs", type=count, default=count_allowed(), metavar="N", help="processes at once (default: %(default)s)"
    )
    no_models = "leave out what rests on models more than on records, which takes half of the time"
    parser.add_argument("--no-models", action="store_true", help=no_models)
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


if __name__ == "__main__":
    sys.exit(answering(main))
