"""The first screen of the page: what this is, the fastest tree with a line to paste, two figures, and some words."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse.answers.printer import write_tree
from dse.answers.tree_answer import label_of
from dse.race_trees import configuration_of
from dse.records import NoRecordsError, RecordError
from dse.times.tree_times import Question, Table
from dse.tree import answer as answer_tree

from .draw import write_number
from .figure import Figure, Section
from .frame import USUAL, Data

ABOUT = (
    "A sum tree keeps the N priorities of a replay buffer, so that a learner draws the records it has most to learn "
    "from in a time that grows with log N. This page shows which tree is the fastest, and what that is worth."
)
WORDS = {
    "N, K, B": "leaves of the tree (records of the replay); children of a node; leaves drawn or updated in one call",
    "draw, update": "B leaves found by their priorities; B leaves given new priorities",
    "training step": "what one batch takes: acting, storing, drawing, learning, new priorities",
    "dense, torch": "gradient steps by compiled code of this project; by PyTorch",
    "hollow or hatched": "unstable: the 95 % interval of the median is wide",
    "compare": "only times within a figure: those of two days or versions of the code differ by more than intervals",
    "unchecked, delta, graph": "a tree that checks no input; that adds differences; launched as a captured graph",
    "cartpole_dqn, hopper_ddpg": "workloads: an environment and an algorithm; all: python -m impls.training list",
    "machine 8fb834d50a": "a machine by a hash of its processor, cores and caches; all: python -m benchmarks list",
    "measured, modeled, quoted": "timed on that machine; told by a law of times; printed by others",
}
PARTS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "environment": (("env", "step", False),),
    "policy": (("inference", "act", False), ("forward", "act", False)),
    "records": (("storage", "write", False), ("storage", "gather", True)),
    "tree": (("numba", "draw", True), ("numba", "update", True)),
    "learner": (("learner", "step", True),),
}
"""Parts of a training step: their records by contestant and op, and whether they handle a batch."""
OURS = ("numba", "numpy", "cumsum", "python", "fpga", "flat", "cupy")


@dataclass(frozen=True)
class Answer:
    """The first screen in words: ``says`` is the answer, ``means`` what it means, ``command`` the line to paste."""

    title: str
    about: str
    says: str
    means: str
    command: str
    source: str
    words: tuple[tuple[str, str], ...]


def make_answer(data: Data) -> Answer:
    """Make the first screen's sentences: the last race of trees on this machine, or else what its records say."""
    machine = data.own[-1].machine if data.own else {}
    cpu, cores = machine.get("cpu", "an unknown CPU"), machine.get("cores", "?")
    says, means = _find_fastest(data)
    means = f"{means} {_describe_share(data)}".strip()
    command = f"python -m dse recommend --capacity {choose_shape(data)[0]} --batch {choose_shape(data)[1]}"
    floor, pairs = data.noise
    noise = f" A cell timed twice differs by up to {floor:.0%} ({pairs} pairs)." if pairs else ""
    source = f"Machine {data.machine}: {cpu}, {cores} cores.{noise}"
    title = "K-ary sum trees for prioritized replay: which is the fastest?"
    return Answer(title, ABOUT, says, means, command, source, tuple(WORDS.items()))


def _describe_share(data: Data) -> str:
    """Say what share of a training step the tree takes, over all loops that were timed."""
    try:
        parts = divide_step(data)
    except NoRecordsError:
        return ""
    if parts.empty:
        return ""
    table = parts.pivot_table(index="loop", columns="what", values="us")
    shares = 100 * table["tree"] / table.sum(axis=1)
    others = sorted(set(parts["machine"]) - {data.machine})
    where = f" on machine {others[0]}" if others else ""
    ends = f"{shares.min():.2g} % to {shares.max():.2g} %"
    return f"Of a step of this project's training loops{where} the tree takes {ends}."


def list_shapes(data: Data) -> Counter[tuple[int, int]]:
    """Count the measured cells of this machine's sweeps by N and B."""
    return Counter(
        (record.capacity, record.batch)
        for record in data.own
        if (record.primitive, record.source) == ("sum_tree", "measured")
    )


def choose_shape(data: Data) -> tuple[int, int]:
    """Choose the N and B of the answer: the usual, or of a machine that lacks it the most frequent."""
    usual, shapes = (USUAL["capacity"], USUAL["batch"]), list_shapes(data)
    return usual if usual in shapes or not shapes else shapes.most_common(1)[0][0]


def _find_fastest(data: Data) -> tuple[str, str]:
    races = [record for record in data.own if record.primitive == "race" and record.median_seconds]
    if races:
        last = races[-1]
        race = last.metrics["race"]
        first, raced = race["rows"][0], race.get("candidates", len(race["rows"])) - race.get("excluded", 0)
        tree, ns = write_tree(label_of(configuration_of(first))), 1e9 * last.seconds / last.batch
        asked = f"N = {last.capacity:,}, B = {last.batch:,}"
        time = f"{write_number(ns)} ns per element for a draw and an update ({asked})"
        says = f"Fastest on machine {data.machine}: {tree}, {time}."
        return says, f"{raced} candidates raced on {last.utc[:10]} (measured)."
    cores = int(data.own[-1].machine.get("cores", 1)) if data.own else 1
    if not list_shapes(data):
        return "No tree was timed on this machine yet.", "This does it: python -m benchmarks sweep --preset quick."
    capacity, batch = choose_shape(data)
    try:
        found = answer_tree(Table(data.own), Question(int(capacity), int(batch), 1.0, cores)).choice
    except RecordError as error:
        return f"{error}.", ""
    tree, ns = write_tree(label_of(found.configuration)), 1e9 * found.seconds / batch
    says = f"Fastest by the records: {tree}, {write_number(ns)} ns per element for a draw and an update "
    says += f"(N = {capacity:,}, B = {batch:,})."
    return says, "Measured in a sweep; the line below races the best trees on your machine."


def compare_libraries(data: Data) -> pd.DataFrame:
    """Add the times of a draw and an update of each tree, ours and other libraries', at one N and B.

    Intervals are the sums of both intervals' ends. The B nearest to 1,024 is shown, at N nearest to 1,000,000.
    """
    figure = Figure("libraries", "", "name", where="primitive == 'peer' and threads == 1", hue="op",
                    holds={"capacity": 1_000_000, "batch": 1_024}, kind="bar")  # fmt: skip
    rows = data.select(figure)
    if rows.empty:
        return rows
    keys = ["name", "contestant", "machine", "source", "capacity", "batch"]
    times = rows.groupby(keys, as_index=False, observed=True).agg(
        ns=("ns", "sum"), ns_low=("ns_low", "sum"), ns_high=("ns_high", "sum"), count=("op", "size"),
        utc=("utc", "max"), commit=("commit", "last"),
        status=("status", lambda statuses: "unstable" if "unstable" in set(statuses) else "ok"),
    )  # fmt: skip
    times = times[times["count"] == 2]
    ours = times["contestant"].isin(OURS)
    return times.assign(whose=ours.map({True: "this project", False: "other libraries"}))


def divide_step(data: Data) -> pd.DataFrame:
    """Divide a serial training step into its parts, each timed alone, and the rest of the whole loop.

    Rows: ``loop`` (workload and learner), ``what`` (part) and ``us``. A loop without a whole, or with a part that was
    not timed, has no row.
    """
    unusual = ("o_beside", "o_environments", "o_via", "o_units")
    usual = " and ".join(f"{name} != {name}" for name in unusual)
    rows = data.query(f"primitive == 'training' and threads == 1 and {usual}")
    wholes = rows[rows["contestant"] == "loop"]
    for machine in dict.fromkeys([data.machine, *wholes["machine"].value_counts().index]):
        own, timed = (part[part["machine"] == machine] for part in (rows, wholes))
        if made := [part for _, whole in timed.iterrows() for part in _divide(own, whole)]:
            return pd.DataFrame(made)
    return pd.DataFrame(columns=["loop", "what", "us"])


def _divide(rows: pd.DataFrame, whole: pd.Series) -> list[dict[str, Any]]:
    learner = whole["o_learner"]
    own, parts = rows[(rows["o_workload"] == whole["o_workload"]) & rows["o_learner"].isin([learner, np.nan])], {}
    for part, records in PARTS.items():
        found = [
            own.query(f"contestant == '{who}' and op == '{op}' and batch == {whole['batch'] if batched else 1}")
            for who, op, batched in records
        ]
        if part == "policy":  # a policy with a model of its own, or else a forward pass
            found = [next((cell for cell in found if len(cell)), found[0])]
        if any(len(cell) != 1 for cell in found):
            return []
        parts[part] = sum(float(cell["us"].iloc[0]) for cell in found)
    interval = float(whole.get("o_update_interval") or 1)
    for name in ("environment", "policy"):
        parts[name] *= interval
    parts["rest"] = max(0.0, float(whole["us"]) - sum(parts.values()))
    loop = f"{whole['o_workload']}, {learner}"
    same = {name: whole[name] for name in ("machine", "commit", "utc", "source")}
    return [{"loop": loop, "what": part, "us": us, **same} for part, us in parts.items()]


FIRST = Section(
    "The answer", "",
    figures=(
        Figure(
            "libraries", "How fast are the trees of libraries?", "name", make=compare_libraries,
            kind="bar", hue="whose", labels=("", "ns per element, draw and update"), log=(False, True),
            reading="Logarithmic scale; left is faster.", command="make peers",
        ),
        Figure(
            "step", "Where does the time of a training step go?", "loop", "us", make=divide_step, kind="stack",
            part="what", labels=("share of a training step (%)", "us"), log=(False, False),
            reading="Each part is timed alone; the rest is what the whole loop takes beyond them.",
            command="python -m benchmarks profile --workload cartpole_dqn",
        ),
    ),
)  # fmt: skip
