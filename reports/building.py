"""Draw the figures of a machine's records and write the page around them, anew only where something changed."""

import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dse.records import Record, RecordError
from dse.times.cells import evidence

from . import kept, look, style, tidy
from .chart import Chart, Material, Section
from .kept import Kept
from .markup import paragraph, slug
from .page import charts, figure_html, names_of, page, section_html, sections

Tell = Callable[[str], None]


@dataclass(frozen=True)
class How:
    """How to build: whom to tell of progress, the words of the only sections to build, processes at once, with models.

    ``stamp`` stands for all that the build rests on, so that the next one can tell whether anything changed.
    """

    tell: Tell = lambda doing: None
    only: str = ""
    processes: int = 1
    stamp: str = ""
    modeled: bool = True


def build(
    measurements: Sequence[Record], results: Path, out: Path, note: str = "", how: How | None = None
) -> dict[str, Any]:
    """Draw and write everything into ``out``; return the paths of page and figures, and why others were left out.

    ``note`` says, at the top of the page, whose records these are. A figure or section that cannot be made costs the
    page no more than itself; what failed otherwise than for want of records is listed too, and tried again next time.
    RecordError where no section is as ``how`` wants.
    """
    how = how or How()
    shown = sections(how.only, modeled=how.modeled)
    if not shown:
        raise RecordError(f"--only {how.only}: no section is headed so; there are: {names_of(sections())}")
    out.mkdir(parents=True, exist_ok=True)
    material = Material(measurements, tidy.about(measurements), results, note=note)
    cache = Kept.read(out)
    with suppress(RecordError):
        evidence(results)  # which mappings rest on: read here, all processes that are forked off have it
    drawn = _figures(charts(how.only, modeled=how.modeled), material, cache, how)
    written = _sections(shown, material, cache, how)
    index = out / (f"{slug(how.only)}.html" if how.only else "index.html")
    text = page(material, how.only, lambda section, _: written[section.heading], modeled=how.modeled)
    index.write_text(look.with_library(text, out), encoding="utf-8")
    paths = [str(path) for name in drawn for path in cache.pictures(name)]
    whose = {"machine": material.about.key, "machine_note": note, "results": str(results)}
    said = {"page": str(index), "figures": paths, "left_out": material.left_out, "failed": material.failed, **whose}
    cache.finish("" if material.failed else how.stamp, said)
    return said


def _figures(every: Sequence[Chart], material: Material, cache: Kept, how: How) -> list[str]:
    """Draw what has changed, keep the HTML of all figures for the page; return the names of those that are there."""
    titles: dict[str, str] = {}
    needed: list[tuple[Chart, Any, str]] = []
    for chart in every:
        own = material.of(chart.borrowed)
        try:
            rows = chart.rows(own)
            if isinstance(rows, pd.DataFrame) and rows.empty:
                command = chart.command.format(key=material.about.key)
                raise RecordError(f"not measured on machine {material.about.key}; this would measure it: {command}")
        except Exception as error:
            material.leave_out(chart.name, error)
            continue
        key = kept.key_of(rows, own.about, kept.of_drawing(chart), kept.surroundings())
        title = cache.title(chart.name, key)
        if title is None:
            needed.append((chart, rows, key))
        else:
            titles[chart.name] = title
    needed.sort(key=lambda one: bool(one[0].command))  # those that rest on laws first, for they take longest
    jobs = [partial(_draw, chart, rows, material, cache) for chart, rows, _ in needed]
    try:
        for count, (place, made) in enumerate(done(jobs, how.processes), 1):
            chart, _, key = needed[place]
            how.tell(f"figure {count} of {len(jobs)}: {chart.name}")
            try:
                titles[chart.name] = made()
                cache.keep(chart.name, key, titles[chart.name])
            except Exception as error:
                material.leave_out(chart.name, error)
    finally:  # so that a build that is interrupted need not begin anew
        cache.write()
    there = [chart for chart in every if chart.name in titles]
    for chart in there:
        svg = cache.pictures(chart.name)[0].read_text(encoding="utf-8")
        material.drawn[chart.name] = figure_html(chart, titles[chart.name], svg)
    return [chart.name for chart in there]


def _draw(chart: Chart, rows: Any, material: Material, cache: Kept) -> str:
    """Write a figure in both formats; return its title."""
    figure = chart.draw(rows, material.of(chart.borrowed).about)
    svg, png = cache.pictures(chart.name)
    svg.write_bytes(style.picture(figure, "svg"))
    figure.set_layout_engine("none")  # it is laid out, which takes as long as drawing
    png.write_bytes(style.picture(figure, "png"))
    return str(figure.subfigs[0].get_suptitle())


def _sections(shown: Iterable[Section], material: Material, cache: Kept, how: How) -> dict[str, str]:
    """Return the HTML of each section by its heading, written anew where anything changed that it may rest on."""
    rests_on = kept.of_results(material.results), kept.code("impls", "dse", "reports"), kept.surroundings()
    left_out, times = sorted(material.left_out.items()), [one.utc for one in material.measurements]
    key = kept.key_of(material.about, sorted(material.drawn), left_out, rests_on, times)
    needed = [one for one in shown if cache.sections.get(one.heading, {}).get("key") != key]
    needed.sort(key=lambda one: not one.is_modeled)  # the longest first, so that no process waits at the end
    jobs = [partial(section_html, one, material) for one in needed]
    for count, (place, made) in enumerate(done(jobs, how.processes), 1):
        heading = needed[place].heading
        how.tell(f"section {count} of {len(jobs)}: {heading}")
        try:
            cache.sections[heading] = {"key": key, "html": made()}
        except Exception as error:
            material.leave_out(heading, error)
            why = paragraph(f"Left out: {material.left_out[heading]}.")
            empty = replace(needed[place], html=lambda _, why=why: why)
            cache.sections[heading] = {"key": "none", "html": section_html(empty, material)}
    return {one.heading: cache.sections[one.heading]["html"] for one in shown}


Job = Callable[[], Any]
_JOBS: list[Job] = []  # of the pool that is open; a forked process has them, so that none has to be pickled


def done(jobs: Sequence[Job], processes: int) -> Iterator[tuple[int, Job]]:
    """Yield (place of a job, a call that returns what it made or raises what it raised), as one after the other ends.

    With one process, or on a system other than Linux, whose libraries may not survive a fork, the job runs when that
    is called. What a job makes must pickle.
    """
    workers = min(processes, len(jobs)) if sys.platform == "linux" else 1
    if workers < 2:
        yield from enumerate(jobs)
        return
    _JOBS[:] = jobs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: those of BLAS are at rest
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _leave_interrupts) as pool:
            places = {pool.submit(_run, place): place for place in range(len(jobs))}
            try:
                for future in as_completed(places):
                    yield places[future], future.result
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _leave_interrupts() -> None:
    """Let the first process alone answer to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(place: int) -> Any:
    return _JOBS[place]()
