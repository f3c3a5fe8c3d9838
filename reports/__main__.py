"""Draw the figures of a machine's records and write the page that shows them.

Every figure as .svg and .png, and index.html, which holds them all and needs nothing else.
"""

import argparse
import base64
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dse import machines
from dse.recommend import QUESTIONS_FILE
from dse.records import Measurement, RecordError
from impls.terminal import answering

from . import style, tidy
from .chart import Chart, Material
from .markup import safe
from .page import charts, page


def main(arguments: list[str] | None = None) -> int:
    """Build the report; returns the exit code: 0 done, 2 cannot be done (one sentence says why)."""
    options = _parser().parse_args(arguments)
    try:
        measurements, note = machines.read(options.results, options.machine, machines.ANYTHING, skip=(QUESTIONS_FILE,))
        if note and not options.json:
            print(note)
        built = build(measurements, options.results, options.out, note, _silent if options.json else _say)
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = error.filename or options.out
        print(
            f"error: {where}: cannot be written ({error.strerror}); choose another folder with --out", file=sys.stderr
        )
        return 2
    if options.json:
        print(json.dumps(built))
        return 0
    for name, reason in built["left_out"].items():
        print(f"left out {name}: {reason}")
    for path in built["figures"]:
        print(f"figure: {path}")
    print(f"page: {built['page']}")
    return 0


def _say(doing: str) -> None:
    print(doing, file=sys.stderr, flush=True)


def _silent(doing: str) -> None:
    """Say nothing, for whoever reads JSON."""


def build(
    measurements: Sequence[Measurement],
    results: Path,
    out: Path,
    note: str = "",
    tell: Callable[[str], None] = _silent,
) -> dict[str, Any]:
    """Draw and write everything into ``out``; returns the paths of page and figures, and why others were left out.

    ``note``: a sentence on whose records these are, for the top of the page. ``tell`` is called with a line before each
    figure that is drawn, and before the page is made.
    """
    out.mkdir(parents=True, exist_ok=True)
    material = Material(measurements, tidy.about(measurements), results, note=note)
    paths: list[str] = []
    every = charts()
    for position, chart in enumerate(every, 1):
        try:
            rows = chart.rows(material)
            if isinstance(rows, pd.DataFrame) and rows.empty:
                command = chart.command.format(key=material.about.key)
                raise RecordError(f"not measured on machine {material.about.key}; this would measure it: {command}")
            tell(f"drawing figure {position} of {len(every)}: {chart.name}")
            paths += _draw(chart, rows, material, out)
        except RecordError as error:
            material.left_out[chart.name] = str(error)
    tell("making the page of them")
    index = out / "index.html"
    index.write_text(page(material), encoding="utf-8")
    whose = {"machine": material.about.key, "machine_note": note, "results": str(results)}
    return {"page": str(index), "figures": paths, "left_out": material.left_out, **whose}


def _draw(chart: Chart, rows: Any, material: Material, out: Path) -> list[str]:
    """Write a figure in both formats, keep its HTML for the page; returns the paths."""
    figure = chart.draw(rows, material.about)
    pictures = {ending: style.picture(figure, ending) for ending in ("svg", "png")}
    paths = [out / f"{chart.name}.{ending}" for ending in pictures]
    for path, content in zip(paths, pictures.values(), strict=True):
        path.write_bytes(content)
    material.drawn[chart.name] = (
        f'<figure id="{chart.name}"><img alt="{safe(figure.subfigs[0].get_suptitle())}" '
        f'src="data:image/png;base64,{base64.b64encode(pictures["png"]).decode()}">'
        f"<figcaption>{safe(chart.reading)}</figcaption></figure>\n"
    )
    return list(map(str, paths))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument(
        "--machine",
        metavar="KEY",
        help="key of another machine with records; `python -m benchmarks list` shows them (default: this machine, or "
        "the nearest with records)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("reports/build"), metavar="FOLDER", help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


if __name__ == "__main__":
    sys.exit(answering(main))
