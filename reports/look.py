"""Charts that readers look into: they hover, filter and switch axes, and Vega-Lite draws what they choose, in the page.

A ``Look`` is a question with rows and the names of their columns. Its HTML holds the rows once, as compact JSON, a form
of labelled choices, and how to draw; ``layout/look.js`` selects rows and hands them over. The library's script stands
in the page, which fetches nothing; its interpreter evaluates expressions, which the page has no right to compile.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from dse.records import RecordError
from impls.files import write_whole

from . import style
from .chart import Material
from .markup import here, link, safe
from .tidy import digits, nearest

SIGN = '<figure class="look"'  # what a page holds that needs the library
BUNDLE = "vega-{}.js"  # kept next to the page, for making it takes seconds
LEGEND = {"orient": "bottom", "symbolLimit": 0, "symbolOpacity": 1}
DIGITS = 4  # of a number that is drawn
ALL = "all"
MARKED = "Bars: 95 % intervals of medians. Hollow: unstable, its interval is wide. Dotted: not measured."
SCALES = ("log", "linear")
HEIGHT = 380
TIMES = {"value": "ns", "low": "low_ns", "high": "high_ns"}
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right", "triangle-left")
TOLD = ("status", "source", "machine", "commit", "day", "command")
"""What a tooltip says of a point after its place and its number."""
PLAIN = "datum.value >= 1000 && datum.value % 1000 == 0 ? format(datum.value, '~s') : format(datum.value, ',~g')"


@dataclass(frozen=True)
class Look:
    """A chart to look into: how to select its rows, what to call their columns, and what it shows at first.

    ``rows`` selects as a figure's do: a tidy table, whose ``ns`` is in ``unit``. ``columns`` are those that can be
    chosen, by what readers call them. ``across`` are those that may lie along the chart, ``by`` those that lines may
    differ in, the first of each at first; ``usual`` has what the others are then, unless all of them. ``figures`` show
    the same unmoved.
    """

    name: str
    question: str
    rows: Callable[[Material], pd.DataFrame]
    unit: str
    columns: Mapping[str, str]
    across: tuple[str, ...]
    by: tuple[str, ...]
    usual: Mapping[str, Any]
    reading: str
    command: str
    figures: tuple[str, ...] = ()


def html(look: Look, material: Material) -> str:
    """Return a chart as HTML, or the sentence that says why it is omitted."""
    try:
        rows = look.rows(material)
        if rows.empty:
            raise RecordError(f"not measured on machine {material.about.key}; this would measure it: {look.command}")
    except RecordError as error:
        return f"<p>{safe(f'Left out, {look.name}: {error}')}</p>\n"
    anchor = f"figure-{look.name}"
    given = {"spec": _spec(look), "columns": _columns(look, rows), "times": _times(rows), "usual": _usual(look, rows)}
    text = json.dumps(given | {"names": look.columns, "told": [*TOLD]}, separators=(",", ":")).replace("<", "\\u003c")
    there = [link(f"figure-{name}", name) for name in look.figures if name in material.drawn]
    still = f" Without it, {' and '.join(there)} show such records." if there else ""
    return (
        f'{SIGN} id="{anchor}"><h3>{safe(look.question)}</h3>\n{_form(look, rows)}'
        f'<div class="drawing"><p>This chart needs a script.{still}</p></div>\n'
        '<p class="said" role="status"></p>'
        f"<details hidden><summary>These records as a table</summary></details>\n"
        f'<script type="application/json">{text}</script>\n'
        f"<figcaption>{here(anchor, f'figure {look.name}')}{safe(look.reading)} {MARKED}{_elsewhere(rows, material)}"
        "</figcaption></figure>\n"
    )


def with_library(text: str, folder: Path) -> str:
    """Return a page with the library's script before its own where it has charts to look into, else as it is.

    ``folder``: where the script is kept from one build to the next.
    """
    return text.replace("</main>\n", f"</main>\n<script>{_library(folder)}</script>\n", 1) if SIGN in text else text


def _library(folder: Path) -> str:
    """Return Vega, Vega-Lite and what embeds them as one script that defines ``vegaEmbed``."""
    path = folder / BUNDLE.format(version("vl-convert-python"))
    if path.is_file():
        return path.read_text(encoding="utf-8")
    write_whole(path, _make_library().encode())
    return _make_library()


@functools.cache
def _make_library() -> str:
    """Bundle the script that ``_library`` keeps; it takes seconds, so a process does it once for all folders."""
    import vl_convert  # noqa: PLC0415 - needed once a version

    newest = vl_convert.get_vegalite_versions()[-1]
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", newest).replace("</script", "<\\/script")


def _values(rows: pd.DataFrame, name: str) -> list[Any]:
    """List what a column has, in its order: a categorical one has its own."""
    column = rows[name]
    if isinstance(column.dtype, pd.CategoricalDtype):
        there = set(column)
        return [value for value in column.cat.categories if value in there]
    return sorted(column.unique().tolist())


def _columns(look: Look, rows: pd.DataFrame) -> dict[str, dict[str, list[Any]]]:
    """Return of each column that is told its values, and the place of each row's among them."""
    told = rows.assign(commit=[(one or "no commit")[:10] for one in rows["commit"]], day=rows["utc"].str[:10])
    made = {}
    for name in (*look.columns, *TOLD):
        values = _values(told, name)
        places = {value: place for place, value in enumerate(values)}
        made[name] = {"values": values, "at": [places[value] for value in told[name]]}
    return made


def _times(rows: pd.DataFrame) -> dict[str, list[float]]:
    return {name: [float(f"{one:.{DIGITS}g}") for one in rows[column]] for name, column in TIMES.items()}


def _usual(look: Look, rows: pd.DataFrame) -> dict[str, int | str]:
    """Return the place of each column's usual value, or of the one nearest to it; "" for all."""
    made: dict[str, int | str] = {}
    for name in look.columns:
        values, wanted = _values(rows, name), look.usual.get(name, ALL)
        made[name] = "" if wanted == ALL else values.index(nearest(rows[name], wanted))
    return made


def _form(look: Look, rows: pd.DataFrame) -> str:
    """Return the choices: what lies along, what lines differ in, which rows, and how axes grow."""
    usual, first = _usual(look, rows), (look.across[0], look.by[0])
    parts = [
        _choice(name, label, [(column, look.columns[column]) for column in columns], columns[0])
        for name, label, columns in (("along", "x axis", look.across), ("lines", "a line each", look.by))
    ]
    for column, name in look.columns.items():
        values = [(str(place), digits(value)) for place, value in enumerate(_values(rows, column))]
        if len(values) > 1:
            parts.append(_choice(column, name, [("", ALL), *values], "" if column in first else str(usual[column])))
    for axis, name in (("y", "y scale"), ("x", "x scale")):
        parts.append(_choice(axis, name, [(scale, scale) for scale in SCALES], SCALES[0]))
    return f'<form aria-label="what {look.name} shows" hidden>{"".join(parts)}</form>\n'


def _choice(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> str:
    made = "".join(
        f'<option value="{safe(value)}"{" selected" * (value == chosen)}>{safe(text)}</option>'
        for value, text in options
    )
    return f'<label>{safe(label)}<select name="{name}" autocomplete="off">{made}</select></label>\n'


def _elsewhere(rows: pd.DataFrame, material: Material) -> str:
    """Say so where the rows are another machine's."""
    others = sorted(set(rows["machine"]) - {material.about.key})
    return f" Measured on machine {', '.join(others)}, for machine {material.about.key} has none." if others else ""


def _spec(look: Look) -> dict[str, Any]:
    """Return how to draw, in Vega-Lite: intervals, lines, and points that tell of themselves.

    A row that is drawn has ``x``, ``value``, ``low``, ``high``, ``series`` (its color, with its source unless it was
    measured), ``line`` (its line's name) and the texts of its tooltip.
    """
    scale, axis = {"type": SCALES[0], "nice": False, "padding": 14}, {"labelExpr": PLAIN, "labelOverlap": "greedy"}
    quantity = {"type": "quantitative", "scale": scale, "axis": axis, "title": look.unit}
    series = {"field": "series", "type": "nominal", "scale": {}, "legend": LEGEND}
    names = {"said": look.unit, **look.columns, **dict(zip(TOLD, TOLD, strict=True))}
    tooltip = [{"field": field, "type": "nominal", "title": title} for field, title in names.items()]
    dots = {"condition": {"test": "datum.source == 'measured'", "value": [1, 0]}, "value": [2, 4]}
    hollow = {"condition": {"test": "datum.status == 'unstable'", "value": 0}, "value": 1}
    return {
        "description": look.question,
        "width": "container",
        "height": HEIGHT,
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "scale": scale, "axis": axis},
            "y": quantity,
            "color": series,
        },
        "layer": [
            {
                "mark": {"type": "rule", "opacity": 0.6, "aria": False},
                "encoding": {"y": {"field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "aria": False},
                "encoding": {"y": {"field": "value"}, "detail": {"field": "line"}, "strokeDash": dots},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "strokeWidth": 1.5, "opacity": 1},
                "encoding": {
                    "y": {"field": "value"},
                    "shape": {**series},
                    "stroke": {**series},
                    "fillOpacity": hollow,
                    "tooltip": tooltip,
                },
            },
        ],
        "palette": {"colors": [_hex(color) for color in style.COLORS], "shapes": SHAPES},
    }


def _hex(color: Iterable[float]) -> str:
    return "#" + bytes(round(255 * part) for part in color).hex()
