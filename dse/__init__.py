"""Choose from measured records: implementations, mappings, and how many of each.

Which tree
    ``recommend``           for N leaves and batches of B: a ``Recommendation``
Which mapping
    ``recommend_mapping``   what to run where, of a workload on a platform: a ``MappingAnswer``, or a ``Shortage``
    ``explain_mapping``     why another configuration loses, ties or does not fit: an ``Explanation``
How many
    ``platform_split``      cores for actors and for learners, of a workload on a platform: a ``CoreSplit``
    ``split_cores``         the same from your own curves, each a ``RateCurve``
    ``platform_depth``      batches to sample ahead, of a workload on a platform: a ``DepthAnswer``
Records
    ``Measurement``         one number with its source, machine, commit and command
    ``read_folder``         of each cell below a folder the latest quiet record; ``read_file`` those of a file, in order
    ``RecordError``         records that cannot be used, in a sentence
The cost model of a tree
    ``family_and_points``   records of one operation, as the ``Family`` and the ``Point`` of each cell to fit
    ``fit``                 nonnegative costs of what a call touches: a ``CostModel``, which has ``predict``
    ``cross_validate``      every cell predicted without its (N, K): a ``HeldOut`` with its error
    ``error_factor``        how far off its time at (N, B) may be, the farther from the cells the more
    ``best_fanout``         the K of the least expected time at (N, B), under the model's doubt: a ``FanoutChoice``
    ``FanoutModel``         the same for many questions of the same cells
    ``fanout_regrets``      what answering that K costs at each (N, B) left out: a ``FanoutRegret``
The solver
    ``Problem``             what to choose from: each ``Option``, each ``Flow``, each link's ``Hop``
    ``Estimate``            a time, how far off it may be, and the ``Evidence`` it rests on
    ``solve``               what to choose, how sure and why: a ``Solution``, or ``Infeasible``; ``ProblemError`` for
                            what is outside any sense. By epsilon alone: ``dse.solver.search.solve``, with a ``Found``

Each is imported when it is first asked for, so that ``import dse`` is quick.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimate import Estimate, Evidence
    from .mapping.answer import MappingAnswer, Shortage
    from .mapping.explain import Explanation
    from .mapping.question import explain_mapping, recommend_mapping
    from .recommend import Recommendation, recommend
    from .records import Measurement, RecordError, read_file, read_folder
    from .solver.infeasible import Infeasible
    from .solver.problem import Flow, Hop, Option, Problem, ProblemError
    from .solver.result import Solution
    from .solver.search import Found
    from .solver.solution import solve
    from .times.fanout_choice import FanoutChoice, FanoutModel, FanoutRegret, best_fanout, error_factor, fanout_regrets
    from .times.tree_cost_model import CostModel, Family, HeldOut, Point, cross_validate, fit
    from .times.tree_times import family_and_points
    from .tuning.core_question import CoreSplit, platform_split, split_cores
    from .tuning.core_split import RateCurve
    from .tuning.presampling import DepthAnswer, platform_depth

_HOMES = {
    "mapping.answer": "MappingAnswer Shortage",
    "mapping.explain": "Explanation",
    "mapping.question": "explain_mapping recommend_mapping",
    "recommend": "Recommendation recommend",
    "estimate": "Estimate Evidence",
    "records": "Measurement RecordError read_file read_folder",
    "solver.infeasible": "Infeasible",
    "solver.problem": "Flow Hop Option Problem ProblemError",
    "solver.search": "Found",
    "solver.result": "Solution",
    "solver.solution": "solve",
    "times.fanout_choice": "FanoutChoice FanoutModel FanoutRegret best_fanout error_factor fanout_regrets",
    "times.tree_cost_model": "CostModel Family HeldOut Point cross_validate fit",
    "times.tree_times": "family_and_points",
    "tuning.core_question": "CoreSplit platform_split split_cores",
    "tuning.core_split": "RateCurve",
    "tuning.presampling": "DepthAnswer platform_depth",
}
__all__ = [
    "CoreSplit",
    "CostModel",
    "DepthAnswer",
    "Estimate",
    "Evidence",
    "Explanation",
    "Family",
    "FanoutChoice",
    "FanoutModel",
    "FanoutRegret",
    "Flow",
    "Found",
    "HeldOut",
    "Hop",
    "Infeasible",
    "MappingAnswer",
    "Measurement",
    "Option",
    "Point",
    "Problem",
    "ProblemError",
    "RateCurve",
    "Recommendation",
    "RecordError",
    "Shortage",
    "Solution",
    "best_fanout",
    "cross_validate",
    "error_factor",
    "explain_mapping",
    "family_and_points",
    "fanout_regrets",
    "fit",
    "platform_depth",
    "platform_split",
    "read_file",
    "read_folder",
    "recommend",
    "recommend_mapping",
    "solve",
    "split_cores",
]


__version__: str


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # mypy reads the imports above, and refuses any other name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("impls").__version__
        for module, names in _HOMES.items():
            if name in names.split():
                globals()[name] = getattr(import_module(f".{module}", __name__), name)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Keep the function ``recommend``: importing the module ``dse.recommend`` would bind its name here."""
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
