"""Where each public name of ``dse`` comes from: the one list, which type checkers and ``__init__.py`` read."""

from .answer import Answer as Answer, Note as Note, Row as Row
from .answers.ask import (
    explain_mapping as explain_mapping,
    list_front as list_front,
    recommend as recommend,
    recommend_mapping as recommend_mapping,
)
from .estimate import Estimate as Estimate, Evidence as Evidence
from .race_trees import best as best
from .records import (
    Record as Record,
    RecordError as RecordError,
    Run as Run,
    read_file as read_file,
    read_folder as read_folder,
)
from .solver.problem import Flow as Flow, Hop as Hop, Option as Option, Problem as Problem, ProblemError as ProblemError
from .solver.solve import Candidate as Candidate, Infeasible as Infeasible, Solution as Solution, solve as solve
from .times.cost_model import (
    FanoutChoice as FanoutChoice,
    FanoutModel as FanoutModel,
    FanoutRegret as FanoutRegret,
    best_fanout as best_fanout,
    error_factor as error_factor,
    fanout_regrets as fanout_regrets,
)
from .times.cost_model import (
    CostModel as CostModel,
    Family as Family,
    HeldOut as HeldOut,
    Point as Point,
    cross_validate as cross_validate,
    fit as fit,
)
from .times.tree_times import family_and_points as family_and_points
from .tuning.cores import RateCurve as RateCurve, platform_split as platform_split, split_cores as split_cores
from .tuning.depth import platform_depth as platform_depth

__version__: str
