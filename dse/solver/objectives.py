"""What is to be as large as possible, and which of several equally good configurations is the answer.

One rule orders everything. A configuration is **as good as the best** where its value is at least (1 - epsilon) times
the best value of all: against the best, not against a neighbor, since "within epsilon of each other" is no order.
Among those the answer has the smallest ``tie_key``: fewest devices, then bytes moved, depth, cores, seconds of all
parts, and last part by part its seconds, where it runs, what it needs, and its names.

Taking away a **dominated** choice never changes the answer. Let choices a and b, of a part or of a tree, be on the same
devices and engines, b with no more seconds and no more of any need than a in any part, and b before a in the order of
``option_keys``. Put b in place of a: the same engines are shared, the same links are used, so no engine is busier and
no loop longer; budgets hold. Hence

* the value is not smaller (rounding is monotone, so this also holds for the floats), and what was as good as the best
  still is; the best value itself is reached without a;
* devices and bytes are the same, the smallest sufficient depth and the sums of cores and seconds are not larger;
* part by part the key is smaller, since only these parts differ and b comes before a.

So the key with b is strictly smaller, and an answer never uses a. The last components of the key are there for this
proof: without them a tie could fall to a dominated option because of its name.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from ..stats import frugal
from .problem import Choice, Configuration, Option, Problem, ProblemError
from .throughput import Outcome, used_engines

Objective = Literal["training", "ratio", "per_watt", "fewest_devices"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
EPSILONS: dict[Objective, float] = {"training": 0.01, "ratio": 0.01, "per_watt": 0.01, "fewest_devices": 0.1}
"""What counts as equally good unless a question says otherwise.

``fewest_devices`` is ``ratio`` with more patience: devices come first in every tie, so it takes only a larger epsilon.
"""

OptionKey = tuple[float, tuple[tuple[str, str], ...], tuple[float, ...], str, float, float, str, str]
TieKey = tuple[int, float, int, float, float, tuple[OptionKey, ...]]
FrugalKey = tuple[int, float, float, int, float, tuple[OptionKey, ...]]


def value(objective: Objective, outcome: Outcome) -> float:
    """Larger is better: gradient steps a second, or per joule. ``training`` leaves actors out.

    ProblemError where watts are asked for and not known.
    """
    if objective == "training":
        return outcome.training_hz
    if objective == "per_watt":
        if not outcome.watts:
            raise ProblemError(f"steps per joule need the watts of every device of {', '.join(outcome.devices)}")
        return outcome.hz / outcome.watts
    return outcome.hz


def bottleneck(objective: Objective, outcome: Outcome) -> str:
    """The engine that bounds ``value``, or ``LOOP_BOUND``."""
    return outcome.training_bottleneck if objective == "training" else outcome.bottleneck


def threshold(best: float, epsilon: float) -> float:
    """The smallest value that is as good as the best."""
    return best * (1 - epsilon)


def cores(needs: Mapping[str, float]) -> float:
    """What an option, or an engine, takes of budgets of cores, whatever device they are of."""
    return sum(needs[name] for name in sorted(needs) if name.endswith(".cores"))


def option_keys(problem: Problem, options: Iterable[Option]) -> list[OptionKey]:
    """Keys by which the options of one part are ordered."""
    budgets, keys = sorted(problem.budgets), list[OptionKey]()
    for option in options:
        needs = tuple(taken.get(budget, 0.0) for taken in (option.needs, option.ahead) for budget in budgets)
        time, evidence = option.time, option.time.rests_on
        keys.append(
            (time.value, option.where, needs, option.name, time.low, time.high, evidence.number, evidence.source)
        )
    return keys


def undominated(problem: Problem, choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """The choices that no answer can do without, of those of one axis on the same devices and engines, in order.

    One is dropped where another comes before it in the order of ``option_keys`` and needs no more seconds, and no more
    of anything, in any part: see above. Of equal ones the first stays.
    """
    keyed = sorted(((option_keys(problem, choice), choice) for choice in choices), key=lambda pair: pair[0])
    costs = [[cost for key in keys for cost in (key[0], *key[2])] for keys, _ in keyed]
    return tuple(keyed[place][1] for place in frugal(costs))


def tie_key(problem: Problem, configuration: Configuration, outcome: Outcome) -> TieKey:
    """Order of the configurations that are as good as the best: the smallest one is the answer."""
    core_count = seconds = 0.0
    for engine in used_engines(configuration):
        core_count += cores(problem.engines.get(engine, {}))
    for option in configuration.options:
        core_count += cores(option.needs)
        seconds += option.seconds
    keys = tuple(option_keys(problem, configuration.options))
    return len(outcome.devices), outcome.bytes_moved, configuration.depth, core_count, seconds, keys


def frugal_key(problem: Problem, configuration: Configuration, outcome: Outcome) -> FrugalKey:
    """Order by what a configuration takes: devices, cores, bytes moved, depth, seconds, and the options' own keys."""
    devices, nbytes, depth, core_count, seconds, keys = tie_key(problem, configuration, outcome)
    return devices, core_count, nbytes, depth, seconds, keys
