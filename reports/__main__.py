"""What do a machine's records show? Draw their figures and write the page that explains them.

Every figure is written as .svg and .png; index.html holds them all and needs nothing else.

example: python -m reports --out reports/build
"""

import argparse
import base64
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dse import machines
from dse.records import Measurement, RecordError
from impls.terminal import answering

from . import style, tidy
from .chart import Chart, Material
from .markup import safe
from .page import charts, page


def main(arguments: list[str] | None = None) -> int:
    """Build the report; return the exit code: 0 done, 2 cannot be done (one sentence says why)."""
    options = _parser().parse_args(arguments)
    try:
        measurements, note = machines.read(options.results, options.machine, machines.ANYTHING)
        if note and not options.json:
            print(note)
        tell = None if options.json else partial(print, file=sys.stderr, flush=True)
        built = build(measurements, options.results, options.out, note, tell)
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        remedy = f"cannot be written ({error.strerror}); choose another folder with --out"
        print(f"error: {error.filename or options.out}: {remedy}", file=sys.stderr)
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


def build(
    measurements: Sequence[Measurement],
    results: Path,
    out: Path,
    note: str = "",
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Draw and write everything into ``out``; return the paths of page and figures, and why others were left out.

    ``note`` says, at the top of the page, whose records these are. ``tell`` is called with a line before each figure
    that is drawn, and before the page is made.
    """
    tell = tell or (lambda doing: None)
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
    """Write a figure in both formats, keep its HTML for the page; return the paths."""
    figure = chart.draw(rows, material.about)
    pictures = {"svg": style.picture(figure, "svg")}
    figure.set_layout_engine("none")  # it is laid out, which takes as long as drawing
    pictures["png"] = style.picture(figure, "png")
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
    about, _, example = (__doc__ or "").strip().rpartition("\n")
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m reports", description=about, epilog=example, formatter_class=raw)
    which = "another machine with records, see: python -m benchmarks list (default: this one, or the nearest)"
    parser.add_argument("--machine", metavar="KEY", help=which)
    for name, default, text in (
        ("results", "results", "where the records are"),
        ("out", "reports/build", "where to write"),
    ):
        help_text = f"{text} (default: %(default)s)"
        parser.add_argument(f"--{name}", type=Path, default=Path(default), metavar="FOLDER", help=help_text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


if __name__ == "__main__":
    sys.exit(answering(main))
