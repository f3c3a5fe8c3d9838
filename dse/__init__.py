"""Choose from measured records: implementations, mappings, and how many of each.

Answers
    ``Answer``              what to choose, its parts, the next best, what would change it, and lines to paste
    ``Row``                 an option, a part or a value, with its ``Estimate``
    ``Note``                what a reader must know, as a kind with values
Which tree
    ``recommend``           for N leaves and batches of B: an ``Answer``; ``race=True`` decides on this machine
    ``best``                the tree itself, made and empty: the fastest on this machine, raced where it was not before
Which mapping
    ``recommend_mapping``   what to run where, of a workload on a platform: an ``Answer``, with no choice if none fits
    ``list_front``          all mappings that no other beats in rate, watts and bytes over links: an ``Answer``
    ``explain_mapping``     why another configuration loses, ties or does not fit: an ``Answer``
How many
    ``platform_split``      cores for actors and for learners, of a workload on a platform: an ``Answer``
    ``split_cores``         the same from your own curves, each a ``RateCurve``
    ``platform_depth``      batches to sample ahead, of a workload on a platform: an ``Answer``
Records
    ``Record``              one number with its source, facts and metrics, and its ``Run``: machine, commit and command
    ``read_folder``         of each cell below a folder the latest quiet record; ``read_file`` those of a file, in order
    ``RecordError``         records that cannot be used, in a sentence
The cost model of a tree
    ``family_and_points``   records of one operation, as the ``Family`` and the ``Point`` of each cell to fit
    ``fit``                 nonnegative costs of what a call touches: a ``CostModel``, which has ``predict``
    ``cross_validate``      every cell predicted without its (N, K): a ``HeldOut`` with its error
    ``error_factor``        the error bound of its time at (N, B), which grows with the distance from the cells
    ``best_fanout``         the K of least expected time at (N, B), with the model's uncertainty: a ``FanoutChoice``
    ``FanoutModel``         the same for many questions of the same cells
    ``fanout_regrets``      what answering that K costs at each (N, B) left out: a ``FanoutRegret``
The solver
    ``Problem``             what to choose from: each ``Option``, each ``Flow``, each link's ``Hop``
    ``Estimate``            a time, its uncertainty, and the ``Evidence`` it rests on
    ``solve``               what to choose, what ties and what else there is, a ``Candidate`` each: a ``Solution``,
                            or ``Infeasible``, which says what lacks; ``ProblemError`` for what is outside any sense

Each is imported when it is first asked for, so that ``import dse`` is quick; ``__init__.pyi`` says where from.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTS = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
_HOMES = {name.name: node.module for node in _IMPORTS if isinstance(node, ast.ImportFrom) for name in node.names}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("impls").__version__
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return globals()[name]
