"""Judge claims of the published documents, each with a verdict; the registry is the folder.

A module ``dse/published/*_claims.py`` judges claims of one document: ``PAPER`` is its short name, ``ORDER`` its place
among the modules of that paper, and ``verdicts(records, quoted)`` takes records and quoted numbers and returns Claims.
"""

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from ..records import Measurement, RecordError
from . import quoted

Verdict = Literal["confirmed", "refuted", "not testable here"]


@dataclass(frozen=True)
class Claim:
    """A claim in the paper's words, the verdict, and the numbers behind it."""

    text: str
    verdict: Verdict
    evidence: str


def verdict_of(holds: bool) -> Verdict:
    """Return the verdict of a claim that can be tested."""
    return "confirmed" if holds else "refuted"


def _modules() -> list[ModuleType]:
    """Import the modules of all papers, by paper and order."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = [importlib.import_module(f"{__package__}.{name}") for name in names if name.endswith("_claims")]
    return sorted(modules, key=lambda module: (module.PAPER, module.ORDER))


def papers() -> list[str]:
    """List the short name of every document that a module judges claims of."""
    return list(dict.fromkeys(module.PAPER for module in _modules()))


def judged(paper: str, records: Sequence[Measurement], results: Path) -> list[Claim]:
    """Judge all claims of a paper by the records and by the numbers quoted in a results folder.

    RecordError where a claim needs a number that is not quoted.
    """
    try:
        printed = quoted.read(results / "quoted")
    except RecordError:
        printed = quoted.NOTHING
    modules = [module for module in _modules() if module.PAPER == paper]
    return [claim for module in modules for claim in module.verdicts(records, printed)]
