"""The page's table of mappings over platforms and workloads, and what changed platforms would change in it.

All answers are computed when the page is built; ``layout/what_ifs.js`` puts those of a switch into the table.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from dse.answers.printer import rounded
from dse.estimate import weakest
from dse.mapping.alternatives import JointUncertainty
from dse.mapping.build import build
from dse.mapping.question import load_workload
from dse.mapping.what_if import with_changes
from dse.platforms import Device, Platform, PlatformError, load, names
from dse.records import RecordError
from dse.solver.law import EPSILONS, Objective
from dse.solver.problem import Option, ProblemError
from dse.solver.solve import Solution, solve
from dse.times.cells import tables
from dse.times.door import Times

from ..chart import Material, Section
from ..markup import Cell, paragraph, safe, table
from .mapping import RECORDS

OBJECTIVE: Objective = "ratio"
EPSILON = EPSILONS[OBJECTIVE]
WORKLOADS = ("cartpole_dqn", "hopper_ddpg", "pong_dqn")  # a small, a middle and a large network
GIVER = "h200"  # whose GPU, with its link, a platform without one is given
MORE_CORES, SLOWER = 2, 10
HEAD = ("platform", "workload", "execution mode", "actors", "tree", "records", "learner", "steps/s", "against as it is")
BASE = "as it is"
HEADING = "Mappings, and what would change them"
ABOUT = (
    f"Each row is what recommend answers of a platform and a workload with --epsilon {EPSILON:g}: "
    f"of the mappings within {EPSILON:.0%} of the best the one with the fewest devices, however little is known of the "
    "times; Which mapping, above, weighs that too. Our compiled learner, dense, is known only where it was timed; "
    "elsewhere a framework's is modeled, so that a small machine that was timed may lie above a large one that was "
    "not. The switches show what other platforms would change: modeled, for "
    "nobody has timed them. What a switch adds need not be used, so the rate is never below that of the platform as it "
    "is."
)


@dataclass(frozen=True)
class Changed:
    """A platform, and the devices of it that may not be used."""

    platform: Platform
    excluded: frozenset[str] = frozenset()


Change = Callable[[Platform], Changed | str]
"""Changes a platform, or says why that would be no change."""


def _cpu(platform: Platform) -> Device:
    return next(device for device in platform.devices if device.kind == "cpu")


def _more_cores(platform: Platform) -> Changed | str:
    cpu = _cpu(platform)
    if cpu.cores is None:
        return "its cores are not stated"
    return Changed(with_changes(platform, {f"{cpu.name}.cores": MORE_CORES * cpu.cores.value}))


def _without(kind: str, platform: Platform) -> Changed | str:
    found = frozenset(device.name for device in platform.devices if device.kind == kind)
    return Changed(platform, found) if found else f"it has no {kind.upper()}"


def _with_gpu(platform: Platform) -> Changed | str:
    if any(device.kind == "gpu" for device in platform.devices):
        return "it has a GPU"
    giver = load(GIVER)
    gpu = next(device for device in giver.devices if device.kind == "gpu")
    ends = {_cpu(giver).name: _cpu(platform).name, gpu.name: gpu.name}
    links = (
        replace(link, source=ends[link.source], target=ends[link.target])
        for link in giver.links
        if {link.source, link.target} == set(ends)
    )
    return Changed(replace(platform, devices=(*platform.devices, gpu), links=(*platform.links, *links)))


def _slower_links(platform: Platform) -> Changed | str:
    if not platform.links:
        return "it has no link"
    slower = {
        f"{link.name}.{way}beta_gb_per_s": getattr(link, f"{way}beta_bytes_per_s").value / 1e9 / SLOWER
        for link in platform.links
        for way in ("", "back_")
    }
    return Changed(with_changes(platform, slower))


MORE: dict[str, Change] = {f"{MORE_CORES} times the cores": _more_cores, f"with the GPU of {GIVER}": _with_gpu}
"""Changes that add something, which need not be used."""
CHANGES: dict[str, Change] = {
    BASE: Changed,
    **MORE,
    "without its GPU": partial(_without, "gpu"),
    "without its FPGA": partial(_without, "fpga"),
    f"links {SLOWER} times slower": _slower_links,
}
"""By the words of its switch, each change; the first is none."""


class Known:
    """What a folder of results tells of the parts of a workload on a platform; what trees take is worked out once."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self.parts = cache(self._made)

    def _made(self, platform: Platform, workload: str) -> Times:
        """Return the times of the parts, as far as records tell of them."""
        task = load_workload(workload)
        try:
            found = tables(platform, task, self._results)
        except RecordError:
            found = None, None
        return Times(platform, task, *found, {}, workload)


@dataclass(frozen=True)
class Answer:
    """The cells of a row from the execution mode to the rate, each with its note, and the rate; 0 if nothing fits."""

    cells: tuple[tuple[str, str], ...]
    hz: float


def answer(known: Known, changed: Changed, workload: str) -> Answer:
    """Return the best mapping by epsilon alone."""
    try:
        problems = build(known.parts(changed.platform, workload), excluded=changed.excluded).problems
        solved = solve(problems, OBJECTIVE, EPSILON)
    except ProblemError:
        solved = None
    if not isinstance(solved, Solution):
        return Answer((*[("", "")] * 5, ("nothing fits", "")), 0.0)
    one, chosen, mode = solved.answer, solved.choice, solved.answer.mode
    low, high = JointUncertainty(OBJECTIVE, EPSILON).ends(one)
    source = weakest(option.time.rests_on.source for option in chosen.options)
    most = "at most, " * (not mode.in_turns)
    rate = rounded(one.value, low, high), f"{most}{rounded(low, low, high)} to {rounded(high, low, high)}, {source}"
    trees = list(dict.fromkeys(map(_where, (chosen.sampling, chosen.updating))))
    tree = (
        trees[0] if len(trees) == 1 else (" + ".join(name for name, _ in trees), "; ".join(told for _, told in trees))
    )
    places = (_where(chosen.actors), tree, (chosen.storage.device, ""), _where(chosen.learner))
    return Answer(((mode.arrangement, ""), *places, rate), one.value)


def _where(option: Option) -> tuple[str, str]:
    return " + ".join(dict.fromkeys(device for device, _ in option.where)), option.name


Row = tuple[tuple[str, str], ...]


def rows(platforms: Mapping[str, Platform], known: Known) -> list[list[Row]]:
    """Return the cells of each row, platform by platform and workload by workload, by change."""
    made = []
    for name, platform in platforms.items():
        changes = [change(platform) for change in CHANGES.values()]
        for workload in WORKLOADS:
            base = answer(known, Changed(platform), workload)
            where = ((name, ""), (workload, ""))
            made.append([(*where, *cells) for cells in _cells(known, changes, workload, base)])
    return made


def _cells(known: Known, changes: Sequence[Changed | str], workload: str, base: Answer) -> Iterator[Row]:
    """Yield the cells of a row behind platform and workload for each change, the first of which is none."""
    yield (*base.cells, ("", ""))
    for words, change in list(zip(CHANGES, changes, strict=True))[1:]:
        if isinstance(change, str):
            yield (*base.cells, (f"as it is: {change}", ""))
        else:
            found = answer(known, change, workload)
            if words in MORE and found.hz < base.hz:  # runs of several processes were timed without it
                found = base
            yield (*found.cells, (f"{found.hz / base.hz:.2f}x" if base.hz and found.hz else "", ""))


def _platforms(material: Material) -> dict[str, Platform]:
    """Return the platforms by what the table calls them: that of the page's machine first, where it was probed.

    RecordError where the file of its probe cannot be read.
    """
    path = material.folder / "platform.toml"
    try:
        own = {f"this machine, {material.about.key}": load(path)} if path.is_file() else {}
    except PlatformError as error:
        raise RecordError(str(error)) from None
    return own | {name: load(name) for name in names()}


def _html(material: Material) -> str:
    made = rows(_platforms(material), Known(material.results))
    texts: dict[str, int] = {}
    places = [
        [[texts.setdefault("\n".join(cell), len(texts)) for cell in cells] for cells in by_change] for by_change in made
    ]
    known = json.dumps({"texts": list(texts), "rows": places}, separators=(",", ":")).replace("<", "\\u003c")
    switches = "".join(
        f'<label><input type="radio" name="change" value="{place}"{" checked" * (place == 0)}> {safe(words)}</label>\n'
        for place, words in enumerate(CHANGES)
    )
    return (
        paragraph(ABOUT)
        + f'<form id="what-ifs" class="switches" hidden><fieldset><legend>What if it were</legend>\n{switches}'
        + '</fieldset><output class="about"></output></form>\n'
        + f'<script type="application/json" id="what-ifs-data">{known}</script>\n'
        + table(HEAD, ([Cell(text, note=note) for text, note in by_change[0]] for by_change in made))
    )


SECTIONS = (Section(92, HEADING, _html, RECORDS, ("*/platform.toml",), is_modeled=True),)
