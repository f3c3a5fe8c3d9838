"""What do the records show? Write the page that explains them, a figure for a paper, or their tables.

examples: python -m reports --open
          python -m reports --machine 8fb834d50a
          python -m reports figure fanout --batches 64,1024 --out fanout.pdf
          python -m reports data --out tables
"""

import argparse
import json
import sys
import time
import webbrowser
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dse import machines
from dse.platforms.files import RESULTS
from dse.records import RecordError
from impls.checks import closest
from impls.exits import is_foreseen
from impls.terminal import answering, count, plural


def main(arguments: list[str] | None = None) -> int:
    """Write what is asked for; return the exit code: 0 done, 1 in part, 2 not at all (a sentence says why)."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if not error.name or find_spec(error.name.partition(".")[0]):
            raise
        print(f"error: this needs the package {error.name}; pip install '.[suite]' installs it", file=sys.stderr)
        return 2
    except OSError as error:
        if not is_foreseen(error):
            raise
        name = error.filename or options.out or BUILD
        print(f"error: {name}: cannot be written ({error.strerror}); choose another place with --out", file=sys.stderr)
        return 2


def _read(options: argparse.Namespace) -> Any:
    """Read the records; of this machine without any, those of the nearest, which a line on standard error says."""
    from .frame import Data  # noqa: PLC0415  # pandas and seaborn take seconds to load

    own = str(machines.fingerprint()["key"])
    records, note = machines.read(options.results, options.machine, machines.ANYTHING)
    key = records[-1].machine_key if records else own
    if note:
        from dse.answers.printer import say  # noqa: PLC0415

        print(say(note.kind, note.values), file=sys.stderr)
    return Data.read(options.results, options.machine or key)


def write_page(options: argparse.Namespace) -> int:
    """Write ``index.html`` into the folder ``--out``; return 1 where a part of it failed by a fault of ours."""
    begin, tell = time.perf_counter(), _make_progress(options.json)
    tell("the records")
    data = _read(options)
    from .page import build_page  # noqa: PLC0415

    text, shown = build_page(data, tell)
    path = (options.out or BUILD) / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    figures = [view for section in shown for view in section.figures]
    faults = {view.title: view.missing for section in shown for view in section.faults}
    missing = {view.name: view.missing for view in figures if view.missing and not view.is_fault}
    drawn = [view.name for view in figures if not view.missing]
    if options.json:
        said = {"page": str(path), "machine": data.machine, "figures": drawn, "missing": missing, "faults": faults}
        print(json.dumps(said))
    else:
        for name, why in missing.items():
            print(f"without {name}: {why}")
        for title, why in faults.items():
            print(f"{title} {why}", file=sys.stderr)
        print(f"page: {path}, with {plural(len(drawn), 'figure')}; {time.perf_counter() - begin:.0f} s")
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return int(bool(faults))


def write_figure(options: argparse.Namespace) -> int:
    """Write a figure for a paper, of the user's own grid."""
    from .draw import save  # noqa: PLC0415
    from .frame import with_values  # noqa: PLC0415
    from .page import columns_of, list_figures  # noqa: PLC0415

    figures = list_figures()
    if options.name not in figures:
        near = closest(options.name, figures)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(figures)}"
        raise RecordError(f"no figure is named {options.name}; {hint}")
    path = options.out or Path(f"{options.name}.svg")
    if path.suffix not in ENDINGS:
        raise RecordError(f"{path}: a figure ends in {', '.join(ENDINGS)}; change the ending")
    data, wanted = _read(options), {name: getattr(options, name) for name in GRID if getattr(options, name)}
    figure = with_values(figures[options.name], **wanted)
    rows = data.select(figure, **wanted)
    _check_figure(data, figures[options.name], rows, wanted, options.machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(rows, figure, path)
    kept = [name for name in columns_of(rows, figure) if name in rows]
    if options.json:
        print(json.dumps({"figure": str(path), "rows": json.loads(rows[kept].to_json(orient="records"))}))
    else:
        whose = f" of machine {', '.join(sorted(set(rows['machine'])))}" if "machine" in rows else ", modeled"
        print(f"figure: {path}, {plural(len(rows), 'point')}{whose}")
    return 0


def _check_figure(data: Any, figure: Any, rows: Any, wanted: dict[str, list[int]], machine: str | None) -> None:
    """Refuse a figure that would not show what was asked for: its values, and the machine that was named."""
    known = data.select(figure) if wanted else rows
    for name, values in wanted.items() if len(known) else ():
        if name not in known:
            raise RecordError(f"figure {figure.name} has no {name} to choose; leave it out")
        gone = sorted(set(values) - (set(rows[name]) if len(rows) else set()))
        if gone:
            there = data.query(figure.where)[name].unique() if figure.where else known[name].unique()
            measured = ", ".join(f"{value:,}" for value in sorted(there))
            raise RecordError(
                f"{figure.name}: {name} {', '.join(map(str, gone))} was not measured; there are {measured}, or measure "
                f"with: {figure.command}"
            )
    if rows.empty:
        raise RecordError(f"{figure.name}: nothing was measured; measure it with: {figure.command}")
    others = sorted(set(rows["machine"]) - {data.machine}) if "machine" in rows else []
    if others and (machine or wanted):
        raise RecordError(
            f"{figure.name}: machine {data.machine} has no such cells; draw those of another: --machine {others[0]}"
        )
    if others:
        print(f"machine {data.machine} has no such cells; these are of {', '.join(others)}", file=sys.stderr)


def write_data(options: argparse.Namespace) -> int:
    """Write every table and the rows of every figure as CSV, a file each."""
    data = _read(options)
    from .page import list_figures, list_tables, to_frames  # noqa: PLC0415

    known = {**list_figures(), **list_tables()}
    if options.only and options.only not in known:
        near = closest(options.only, known)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise RecordError(f"no figure or table is named {options.only}; {hint}")
    folder, written = options.out or BUILD / "data", []
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in to_frames(data, options.only):
        path = folder / f"{name}.csv"
        frame.to_csv(path, index=False)
        written.append({"file": str(path), "rows": len(frame)})
    if options.json:
        print(json.dumps(written))
    else:
        print(
            f"{plural(len(written), 'table')} in {folder}: {', '.join(Path(table['file']).stem for table in written)}"
        )
    return 0


GRID = ("capacity", "batch", "fanout", "threads")
ENDINGS = (".svg", ".png", ".pdf")
BUILD = Path("reports/build")


def _make_progress(is_quiet: bool) -> Callable[[str], None]:
    return (lambda text: None) if is_quiet else partial(print, file=sys.stderr, flush=True)


def _numbers(text: str) -> list[int]:
    return [count(word) for word in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    about, _, examples = (__doc__ or "").partition("\nexamples: ")
    how: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="python -m reports", description=about, epilog=f"examples: {examples}", **how)
    _add_options(parser, "index.html goes, and what it needs (default: reports/build)", machine=None, results=RESULTS)
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.set_defaults(run=write_page)
    commands = parser.add_subparsers(title="commands, in place of the page", metavar="COMMAND")
    figure, data = (commands.add_parser(name, help=text, description=f"Write {text}.") for name, text in OTHERS.items())
    figure.set_defaults(run=write_figure)
    data.set_defaults(run=write_data)
    _add_options(figure, "it goes: a file .svg, .png or .pdf (default: NAME.svg)")
    _add_options(data, "files go, NAME.csv each (default: reports/build/data)")
    figure.add_argument("name", metavar="NAME", help="a figure of the page, such as fanout, libraries or replay_locks")
    for name, option in zip(GRID, ("capacities", "batches", "fanouts", "threads"), strict=True):
        text = f"show only these values of {name}, a panel each where it is no axis"
        figure.add_argument(f"--{option}", dest=name, type=_numbers, metavar="N,N", help=text)
    data.add_argument("--only", default="", metavar="NAME", help="only this table or figure")
    return parser


OTHERS = {"figure": "a figure for a paper", "data": "every table and the numbers of every figure, as CSV"}
"""The commands beside the page, each with what it writes."""


def _add_options(parser: argparse.ArgumentParser, where: str, **defaults: Any) -> None:
    """Add what all commands take; one after COMMAND counts before one that stands before it."""
    unstated = {"default": argparse.SUPPRESS}
    given = {name: {"default": defaults[name]} if name in defaults else unstated for name in ("machine", "results")}
    which = "another machine with records, see: python -m benchmarks list (default: this one, or the nearest)"
    parser.add_argument("--machine", metavar="KEY", help=which, **given["machine"])
    text = "where the records are (default: results)"
    parser.add_argument("--results", type=Path, metavar="FOLDER", help=text, **given["results"])
    out = {"default": None} if defaults else unstated
    parser.add_argument("--out", type=Path, metavar="PATH", help=f"where {where}", **out)
    flag = {} if defaults else unstated
    parser.add_argument("--json", action="store_true", help="print JSON instead of text", **flag)


if __name__ == "__main__":
    sys.exit(answering(main))
