"""The page: one HTML file that needs nothing else, with the sections that the files of ``reports/sections`` declare.

Every section, table, console answer and figure has an anchor and a visible link to it. A figure that several sections
show stands where it comes first; the others link to it.
"""

import importlib
import itertools
import pkgutil
import re
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType

from dse.records import RecordError

from .chart import Chart, Material, Section
from .markup import here, items, link, paragraph, safe

LAYOUT = Path(__file__).parent / "layout"
ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"  # fetch nothing
BLOCKS = {"table": '<div class="wide">', "console": "<pre>"}  # what scrolls within itself and is numbered
LINK = re.compile(r'<a href="#([^"]+)"[^>]*>(.*?)</a>')
PARTS = {
    0: "Answers",
    30: "Trees",
    55: "Replay and loops",
    60: "GPU and FPGA",
    80: "Training",
    90: "Mappings",
    110: "Checks",
    118: "Papers",
    160: "Records",
}
"""The parts of the page, by the order of a section at which each begins."""
WITHOUT_MODELS = "Sections that rest on models are omitted; python -m reports builds them too."
FIGURE = re.compile(r"<!-- figure: (\w+) -->\n")
NEEDLESS = re.compile(r"<metadata>.*?</metadata>\n?|<\?xml.*?>\n?|<!DOCTYPE.*?>\n?", re.DOTALL)  # in an SVG
INDENT = re.compile(r"\n\s+")
KEPT_IN_ADDRESS = " !$&'()*+,-./:;=?@[]^_`{|}~\n<>"  # of an SVG inside of src="...", without quotes, % and #


def topics() -> list[ModuleType]:
    """Return every module of ``reports/sections`` that declares sections, by the order of its first section."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "sections")])]
    modules = [importlib.import_module(f"{__package__}.sections.{name}") for name in names]
    return sorted(
        (module for module in modules if getattr(module, "SECTIONS", ())), key=lambda module: module.SECTIONS[0].order
    )


def sections(wanted: str = "", *, modeled: bool = True) -> list[Section]:
    """Return the sections in the order of the page: those whose heading has the wanted words, with or without modeled.

    Without wanted words they are all topics'.
    """
    words = wanted.lower()
    every = (section for topic in topics() for section in topic.SECTIONS if modeled or not section.is_modeled)
    named = (section for section in every if words in section.heading.lower() or words in section.anchor)
    return sorted(named, key=lambda section: section.order)


def charts(wanted: str = "", *, modeled: bool = True) -> list[Chart]:
    """Return the figures in the order of drawing: first the measured ones, for laws take longer.

    Of wanted sections those of their topics are drawn, and those of other topics that they show.
    """
    there = sections(wanted, modeled=modeled)
    shown = {name for section in there for name in section.figures}
    every = (
        chart
        for topic in topics()
        for chart in getattr(topic, "CHARTS", ())
        if chart.name in shown or any(section in there for section in topic.SECTIONS)
    )
    return sorted(every, key=lambda chart: not chart.command)


def figure_html(chart: Chart, title: str, svg: str) -> str:
    """Return a figure as HTML with its picture inside, which scrolls within itself where a screen is narrow."""
    anchor = f"figure-{chart.name}"
    picture = urllib.parse.quote(_compact(svg), safe=KEPT_IN_ADDRESS)
    return (
        f'<figure id="{anchor}"><div class="card" tabindex="0" role="region" aria-label="figure {chart.name}">'
        f'<img alt="{safe(title)}" src="data:image/svg+xml,{picture}"></div>'
        f"<figcaption>{here(anchor, f'figure {chart.name}')}{safe(chart.reading)}</figcaption></figure>\n"
    )


def _compact(svg: str) -> str:
    """Return an SVG without what no reader sees, in quotes that an address keeps: some 15 % smaller there."""
    text = INDENT.sub("\n", NEEDLESS.sub("", svg))
    return text if "'" in text else text.replace('"', "'")


def page(
    material: Material,
    wanted: str = "",
    written: Callable[[Section, Material], str] | None = None,
    *,
    modeled: bool = True,
) -> str:
    """Return the page as HTML, with all sections or the wanted ones; ``written`` returns a section, by default anew."""
    title = f"K-ary sum trees on {material.about.cpu}, {material.about.cores} cores"
    shown = sections(wanted, modeled=modeled)
    bodies = [(written or section_html)(section, material) for section in shown]
    contents = _contents(shown, bodies)
    notes = [material.note, "" if modeled else WITHOUT_MODELS]
    body = "".join(paragraph(note) for note in notes if note) + _with_figures("\n".join(bodies), material)
    if wanted or not modeled:
        body = _linked(body)
    style = "".join(_layout("css"))
    scripts = "".join(f"<script>{script}</script>\n" for script in _layout("js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{ALONE}">\n'
        f'<title>{safe(title)}</title><link rel="icon" href="data:,"><style>{style}</style></head>\n'
        '<body><a class="skip" href="#content">Skip to the content</a>\n'
        f'<nav class="menu" aria-label="Contents"><details><summary>Contents</summary>{contents}</details></nav>\n'
        f'<nav class="side" aria-label="Contents">{contents}</nav>\n'
        f'<main id="content"><h1>{safe(title)}</h1>\n{body}\n</main>\n'
        f"{scripts}</body></html>\n"
    )


def _linked(body: str) -> str:
    """Return a body in which what links to sections that this page does not have is text alone."""
    there = set(re.findall(r'\bid="([^"]+)"', body))
    return LINK.sub(lambda found: found[0] if found[1] in there else found[2], body)


def _layout(kind: str) -> list[str]:
    """Return the text of every style sheet, or of every script, of the page, by the names of their files."""
    return [path.read_text(encoding="utf-8") for path in sorted(LAYOUT.glob(f"*.{kind}"))]


def part(section: Section) -> str:
    """Return the name of the part of the page that a section is of."""
    return PARTS[max(first for first in PARTS if first <= section.order)]


def _contents(shown: Iterable[Section], bodies: Iterable[str]) -> str:
    """List the sections by part; those that have nothing to show are said to be left out."""
    parts = []
    for name, found in itertools.groupby(zip(shown, bodies, strict=True), lambda one: part(one[0])):
        lines = []
        for section, body in found:
            kind = ' class="left-out" title="left out: not measured"' if "</a>\n<p>Left out" in body else ""
            lines.append(f'<li{kind}><a href="#{section.anchor}">{section.heading}</a></li>\n')
        parts.append(f"<li>{name}<ol>{''.join(lines)}</ol></li>\n")
    return f"<ol>{''.join(parts)}</ol>"


def _with_figures(text: str, material: Material) -> str:
    """Put each figure where it comes first, and a link to it where it comes again."""
    there: set[str] = set()

    def picture(found: re.Match[str]) -> str:
        name = found[1]
        if name in there:
            return f"<p>Figure {link(f'figure-{name}', name)} stands above.</p>\n"
        there.add(name)
        return material.drawn.get(name, "")

    return FIGURE.sub(picture, text)


def section_html(section: Section, material: Material) -> str:
    """Return a section as HTML, or the sentence that says why it is omitted."""
    own = material.of(section.borrowed)
    try:
        body = (paragraph(own.note) if own is not material else "") + section.html(own)
    except (RecordError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != "scipy":  # which `make demo` does without
            raise
        body = paragraph(f"Left out: {error}.")
    rests_on = section.rests_on(own)
    origin = f"<details><summary>Rests on</summary>{items(rests_on)}</details>\n" if rests_on else ""
    body = _anchored(section, body)
    if section.is_folded:
        body = f'<details class="folded"><summary>Show</summary>\n{body}</details>\n'
    title = re.sub("<[^>]*>", "", section.heading)
    head = f"<h2>{section.heading}</h2>{here(section.anchor, title)}"
    return f'<section id="{section.anchor}">{head}\n{body}{origin}</section>'


def _anchored(section: Section, body: str) -> str:
    """Number what scrolls within itself, name it for those who hear the page, and let it be reached by keyboard."""
    title = re.sub("<[^>]*>", "", section.heading)
    for kind, start in BLOCKS.items():
        first, *others = body.split(start)
        parts = [first]
        for number, rest in enumerate(others, 1):
            anchor, name = f"{kind}-{section.anchor}-{number}", f"{kind} {number} of {title}"
            opening = f'{start[:-1]} id="{anchor}" tabindex="0" role="region" aria-label="{safe(name)}">'
            parts.append(here(anchor, name) + opening + rest)
        body = "".join(parts)
    return body


def names_of(shown: Sequence[Section]) -> str:
    """List the headings of sections."""
    return "; ".join(re.sub("<[^>]*>", "", section.heading) for section in shown)
