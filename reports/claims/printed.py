"""Compute values of claims by arithmetic on what the documents print: expressions that stand in the claims' rows."""

import ast
import operator
import re
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dse.mapping.question import with_values
from dse.records import RecordError
from dse.times import cost_model
from dse.times.curves import FlatThenLinear
from dse.times.several import Terms, data_parallel_factor, printed_data_parallel_factor, printed_spo_factor
from impls.training import load
from impls.training.weights import layout_of, split_macs
from impls.training.workload import Workload

from .judge import Finding, Part
from .quoted import Quoted

NAME = re.compile(r"[a-z]\w*(?:\.\w[\w-]*)+")
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
FUNCTIONS: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max, "mean": statistics.fmean, "sum": sum}
HORIZONS, LEARNERS = (1, 5, 10, 25), (2, 4, 8, 16, 32)
RECORDS, BANKS, SKEW = 1_000_000, 2, 0.6  # of which priorities fall with their rank
NOTHING_TAKEN = FlatThenLinear(0.0, 0.0)
EXAMPLE = Terms(2, 1.0, FlatThenLinear(0.0, 2.0), 0.0, NOTHING_TAKEN, 0.1, NOTHING_TAKEN, shared_link=False)
"""Replay 1 s, passes 2 s a record, and a transfer of weights 0.1 s."""
TABLE_V, WORD_BYTES = "seed3_mapping.table_v", 4
Texts = Mapping[str, str]
NONE: Texts = {}


def list_printed(quoted: Quoted) -> dict[tuple[str, int], dict[str, float]]:
    """List the mappings (learner-tree-storage) that Table V prints by workload and B, and how much slower each is."""
    listed: dict[tuple[str, int], dict[str, float]] = {}
    for name in quoted.list_names(TABLE_V):
        *_, workload, batch, mapping = name.split(".")
        listed.setdefault((workload, int(batch)), {})[mapping] = quoted[name]
    return listed


ALGORITHM_3 = "Algorithm 3"


def place_storage(learner: str, tree: str, workload: Workload, rule: str = ALGORITHM_3) -> str:
    """Place the storage with the part that leaves the fewest words to move; the actors are on the CPU.

    By [Zhang2023, Alg. 3, lines 9 to 16] the words of all other parts are charged, even of those on the same device, B
    of them for the tree's indices. By [Zhang2022, 4.4.2] those of parts on other devices are: "as printed" E for
    sampling, B E for priority updates and N E for training, or "as meant" B E for training, N E for actors.
    """
    batch, record = workload.learner.batch, layout_of(workload).record_bytes // WORD_BYTES
    sizes = batch * record, workload.actors.count * record
    devices, words = (learner, "C", tree), (*sizes, batch if rule == ALGORITHM_3 else record)
    if rule == "as printed":
        devices, words = (tree, learner, tree), (*sizes, record)

    def count_words(at: int) -> int:
        own = "" if rule == ALGORITHM_3 else devices[at]
        return sum(words[other] for other in range(len(words)) if other != at and devices[other] != own)

    return devices[min(range(len(words)), key=count_words)]


def count_storages(quoted: Quoted, rules: Sequence[str]) -> Finding:
    """Count the optimal mappings of Table V whose printed storage is where each rule of ``place_storage`` has it."""
    same, facts = dict.fromkeys(rules, 0.0), dict[str, float | str]()
    for (name, batch), mappings in list_printed(quoted).items():
        workload = with_values(load(name), {"batch": batch})
        best = next(mapping for mapping, behind in mappings.items() if behind == 1)
        learner, tree, printed = best.split("-")
        for rule in rules:
            placed = place_storage(learner, tree, workload, rule)
            same[rule] += placed == printed
            facts |= {f"{rule}: {name}, B = {batch}, printed as {best}": placed} if placed != printed else {}
    return Finding.exact(same, facts=facts)


def evaluate(quoted: Quoted, parts: Texts, printed: Texts = NONE, facts: Texts = NONE, each: str = "") -> Finding:
    """Evaluate expressions of quoted numbers: parts, the numbers that parts are held against, and facts.

    With ``each``, the name of a table, an expression is evaluated for each table in it, whose name stands for ``@``.
    """
    if each:
        names = dict.fromkeys(name.removeprefix(f"{each}.").split(".")[0] for name in quoted.list_names(each))
        parts = {name: text.replace("@", f"{each}.{name}") for name in names for text in parts.values()}
    numbers = {name: calculate(text, quoted) for name, text in printed.items()}
    return Finding(
        [Part.exact(name, calculate(text, quoted), numbers.get(name)) for name, text in parts.items()],
        {name: calculate(text, quoted) for name, text in facts.items()},
    )


def calculate(expression: str, quoted: Quoted) -> float:
    """Calculate an expression of numbers, names of quoted numbers, + - * / and FUNCTIONS. RecordError for another.

    >>> calculate("2 * max(1, 3) / 4", Quoted({}, {}))
    1.5
    """
    text = NAME.sub(lambda found: repr(quoted[found[0]]), " ".join(expression.split()))

    def value_of(node: ast.AST) -> float:
        match node:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return float(OPERATORS[type(op)](value_of(left), value_of(right)))
            case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
                return float(FUNCTIONS[name]([value_of(argument) for argument in args]))
        raise RecordError(f"{expression!r} is no arithmetic on quoted numbers")

    return value_of(ast.parse(text, mode="eval").body)


def split_network(_: Quoted, workload: str) -> Finding:
    """Compute the share of a gradient step's multiply-adds that critics have: the most that a second device takes."""
    policy, critics = split_macs(load(workload))
    share = {f"share of critics in the multiply-adds of {workload}": critics / (policy + critics)}
    return Finding.exact({}, facts=share)


def evaluate_factor(_: Quoted) -> Finding:
    """Compute the scaling factor of two learners by Eqs. 5.1 and 5.2, against Eq. 5.3, in one example."""
    exact, printed = data_parallel_factor(EXAMPLE, 2), printed_data_parallel_factor(EXAMPLE, 2)
    return Finding.exact({"Eqs. 5.1 and 5.2, replay 1 s, passes 4 s, transfers 0.1 s": exact}, printed)


def compare_horizons(_: Quoted) -> Finding:
    """Compute the least factor by which Eq. 5.6 changes with the next longer H, and with the next fewer learners."""
    table = np.array([[printed_spo_factor(EXAMPLE, count, h) for h in HORIZONS] for count in LEARNERS])
    longer, fewer = table[:, 1:] / table[:, :-1], table[:-1] / table[1:]
    values = {"longer H": float(longer.min()), "fewer learners": float(fewer.min())}
    return Finding.exact(values, facts={"least": float(table.min()), "most": float(table.max())})


def weigh_banks(_: Quoted) -> Finding:
    """Compute a bank's share of all priorities where banks are equal, and how far off that is where they are not."""
    priorities = np.arange(1, RECORDS + 1) ** -SKEW
    facts = {}
    for name, shape, axis in (("ranks in turn", (-1, BANKS), 0), ("ranks of its own", (BANKS, -1), 1)):
        sums = priorities.reshape(shape).sum(axis)
        facts[f"error of equal shares, {name}"] = float(np.abs(BANKS * sums / sums.sum() - 1).max())
    return Finding.exact({f"share of each of {BANKS} banks": 1 / BANKS}, 1 / RECORDS, facts)


def count_bytes(_: Quoted) -> Finding:
    """Compute the bytes of the smallest tree of a million float32 leaves."""
    return Finding.exact({"K = 256": cost_model.tree_bytes("numpy", 1_000_000, 256, "float32", {})})
