"""Judge claims of the published documents, each with a verdict; the registry is the folder.

A module ``reports/claims/*_claims.py`` judges claims of one document: ``PAPER`` is its short name, ``ORDER`` its place
among the modules of that paper, and ``verdicts(records, quoted)`` takes records and quoted numbers and returns Claims.
"""

import importlib
import math
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from dse.records import Record, RecordError, how_to_measure

from . import quoted

Verdict = Literal["confirmed", "refuted", "adds up", "consistent", "not testable here"]
UNTESTED: Verdict = "not testable here"
VERDICTS: tuple[Verdict, ...] = ("confirmed", "refuted", "adds up", "consistent", UNTESTED)

EXACT = "exact: arithmetic"
NOT_RUN = "none: nothing was run"
BESIDE = ". For comparison was run: "
ELSEWHERE = 2.0
"""Factor, up and down, within which the numbers lie that a paper might as well have printed."""


@dataclass(frozen=True)
class Claim:
    """A claim in the paper's words, the verdict, and what it rests on.

    "confirmed": what was run agrees; "adds up": nothing was run, and arithmetic on printed numbers, a count or a law of
    ours agrees. "consistent": the numbers agree, but a parameter that is not printed was chosen so that they do.
    ``rule``: what confirms and what refutes, in one sentence. ``power``: how likely that rule refutes a true claim and
    misses a false one, or ``EXACT``.
    """

    text: str
    verdict: Verdict
    evidence: str
    rule: str
    power: str


def adds_up_if(holds: bool) -> Verdict:
    """Return the verdict of a claim that is tested by arithmetic alone."""
    return "adds up" if holds else "refuted"


def consistent_if(holds: bool) -> Verdict:
    """Return the verdict of a claim that agrees only with a parameter of our choice."""
    return "consistent" if holds else "refuted"


def not_run(text: str, evidence: str, would: str, beside: str = "") -> Claim:
    """Make the claim of what nothing here has run; ``would`` says what would run it.

    ``beside``: what was run that comes near. Neither ``evidence`` nor ``would`` may name a thing that records hold.
    """
    rule = "none is applied: what would confirm or refute it was not run"
    near = f"{BESIDE}{beside}" if beside else ""
    return Claim(text, "not testable here", f"not run: {evidence}; it would take {would}{near}", rule, NOT_RUN)


def unmeasured(text: str, rule: str, lacks: str, command: str, takes: str = "the noise", remedy: str = "") -> Claim:
    """Make the claim of which ``lacks`` says what was not measured; ``command`` of the benchmarks measures it.

    ``takes``: what the test of the claim rests on. ``remedy``: what measures it where that is no such command.
    """
    evidence = f"{lacks}; {remedy or how_to_measure(command)}"
    return Claim(text, UNTESTED, evidence, rule, f"none: it takes {takes}, not measured yet")


def within(tolerance: float) -> str:
    """Say by what chance a number passes that has nothing to do with ours, where a relative error is tolerated."""
    chance = math.log((1 + tolerance) / (1 - tolerance)) / (2 * math.log(ELSEWHERE))
    return (
        f"the computing is exact; a printed number that has nothing to do with it, within a factor of {ELSEWHERE:g}, "
        f"would pass in {chance:.1%} of cases"
    )


def _modules() -> list[ModuleType]:
    """Import the modules of all papers, by paper and order."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = [importlib.import_module(f"{__package__}.{name}") for name in names if name.endswith("_claims")]
    return sorted(modules, key=lambda module: (module.PAPER, module.ORDER))


def papers() -> list[str]:
    """List the short name of every document that a module judges claims of."""
    return list(dict.fromkeys(module.PAPER for module in _modules()))


def judged(paper: str, records: Sequence[Record], results: Path) -> list[Claim]:
    """Judge all claims of a paper by the records and by the numbers quoted in a results folder.

    RecordError where a claim needs a number that is not quoted.
    """
    try:
        printed = quoted.read(results / "quoted")
    except RecordError:
        printed = quoted.NOTHING
    modules = [module for module in _modules() if module.PAPER == paper]
    return [claim for module in modules for claim in module.verdicts(records, printed)]
