"""The page: one HTML file that needs nothing else, with the sections that the files of ``reports/sections`` declare."""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from dse.records import RecordError

from .chart import Chart, Material, Section
from .markup import items, paragraph, safe

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
figure { margin: 1.5rem 0; } figure img { width: 100%; height: auto; border: 1px solid #eee; }
.wide, pre { overflow-x: auto; } pre { background: #f6f6f6; padding: .75rem; font-size: .8rem; }
table { border-collapse: collapse; font-size: .85rem; margin: .75rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; vertical-align: top; }
th[colspan] { text-align: center; border-left: 1px solid #ddd; }
td.number { text-align: right; } td.number, td.name { white-space: nowrap; } td.ours { font-weight: bold; }
td.best { background: #d8f0d0; } td.fault { color: #b00020; } small, details { color: #555; font-weight: normal; }
details { font-size: .85rem; }
"""


def topics() -> list[ModuleType]:
    """Return every module of ``reports/sections`` that declares sections, by the order of its first section."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "sections")])]
    modules = [importlib.import_module(f"{__package__}.sections.{name}") for name in names]
    return sorted(
        (module for module in modules if getattr(module, "SECTIONS", ())), key=lambda module: module.SECTIONS[0].order
    )


def sections() -> list[Section]:
    """Return the sections of all topics in the order of the page."""
    return sorted((section for topic in topics() for section in topic.SECTIONS), key=lambda section: section.order)


def charts() -> list[Chart]:
    """Return the figures of all topics in the order of drawing: first the measured ones, for laws take longer."""
    every = (chart for topic in topics() for chart in getattr(topic, "CHARTS", ()))
    return sorted(every, key=lambda chart: not chart.command)


def page(material: Material) -> str:
    """Return the whole page as HTML."""
    title = f"K-ary sum trees on {material.about.cpu}, {material.about.cores} cores"
    body = "\n".join(section_html(section, material) for section in sections())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{safe(title)}</h1>\n{paragraph(material.note) if material.note else ''}{body}\n</body></html>\n"
    )


def section_html(section: Section, material: Material) -> str:
    """Return a section as HTML, or the sentence that says why it is left out."""
    try:
        body = section.html(material)
    except RecordError as error:
        body = paragraph(f"Left out: {error}.")
    rests_on = section.rests_on(material)
    origin = f"<details><summary>Rests on</summary>{items(rests_on)}</details>\n" if rests_on else ""
    return f"<section><h2>{section.heading}</h2>\n{body}{origin}</section>"
