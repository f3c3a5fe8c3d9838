"""Other libraries' trees, and whole training loops by library."""

import pandas as pd

from dse import accuracy
from dse.accuracy import ACCURACY_FILE
from dse.records import RecordError
from impls.files import list_files

from ..answer import OURS, compare_libraries
from ..draw import write_number
from ..figure import BATCH, NS, Figure, Section, Table
from ..frame import Data
from ..tables import mark_unstable

PEERS = "primitive == 'peer' and op in ('draw', 'update')"


def list_slowdowns(data: Data) -> pd.DataFrame:
    """List each tree's time of a draw and an update by B, at the N with most batches, and its slowdown over numba's."""
    rows = data.nearest(data.query(PEERS))
    rows = rows[rows["capacity"] == rows.groupby("capacity")["batch"].nunique().idxmax()]
    both = rows.groupby(["name", "batch"])["ns"].agg(["sum", "size"])
    table = both[both["size"] == 2]["sum"].unstack("batch").sort_values(rows["batch"].max())
    ratios = (table / table.loc["numba"]).add_prefix("slowdown at B = ") if "numba" in table.index else table[[]]
    return mark_unstable(table.add_prefix("ns at B = ").join(ratios), rows, ["name"], "batch").reset_index()


def list_accuracy(data: Data) -> pd.DataFrame:
    """List how each library's tree errs: failures of so many trials, or the relative error of the root."""
    paths = [data.results / data.machine / ACCURACY_FILE, *list_files(data.results, f"*/{ACCURACY_FILE}")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise RecordError("no tree was checked for errors; check them: make peers")
    found = [
        {"tree": finding.contestant, "dtype": finding.dtype, "check": finding.check, "seen": _describe(finding)}
        for finding in accuracy.read(path)
    ]
    return (
        pd.DataFrame(found)
        .pivot_table(index=["tree", "dtype"], columns="check", values="seen", aggfunc="last")
        .reset_index()
    )


def _describe(finding: accuracy.Accuracy) -> str:
    if finding.value is None:
        return "not checked"
    return f"{finding.value:.1e}" if finding.check == "drift" else f"{finding.value:,.0f} of {finding.trials:,}"


def list_threads(data: Data) -> pd.DataFrame:
    """List the time of a draw from one tree that several Python threads share, in ns per element and as a speedup."""
    rows = data.nearest(data.query("primitive == 'peer_shared'"))
    table = rows.assign(name=rows["name"].str.replace(r", \d+ threads", "", regex=True))
    table = table.pivot_table(index="name", columns="threads", values="ns")
    return table.assign(speedup=table.iloc[:, 0] / table.iloc[:, -1]).reset_index()


def describe_libraries(data: Data) -> str:
    """Say the fastest library's slowdown over the fastest of ours, at the N and B of the first screen."""
    rows = compare_libraries(data)
    rows = rows[~rows["name"].str.contains("unchecked")] if len(rows) else rows
    best = rows.loc[rows.groupby("whose")["ns"].idxmin()].set_index("whose") if len(rows) else rows
    if len(best) < 2:
        return ""
    ours, theirs = best.loc["this project"], best.loc["other libraries"]
    ratio, fast = theirs["ns"] / ours["ns"], f"{write_number(ours['ns'])} ns per element"
    low, high = theirs["ns_low"] / ours["ns_high"], theirs["ns_high"] / ours["ns_low"]
    return (
        f"The fastest tree of a library, {theirs['name']}, has a slowdown of {ratio:.2g} [{low:.2g}, {high:.2g}] over "
        f"{ours['name']} ({fast}), at N = {ours['capacity']:,} and B = {ours['batch']:,}.{_list_losses(data)}"
    )


def _list_losses(data: Data) -> str:
    """Say which libraries are faster than the numba tree, at which batches."""
    table = list_slowdowns(data).set_index("name").filter(like="slowdown").drop(index=[*OURS], errors="ignore")
    lost = table[table < 1].stack().dropna()
    said = ", ".join(f"{name} at B = {column.rpartition(' ')[2]} ({ratio:.2f} of the time)"
                     for (name, column), ratio in lost.items() if not name.startswith(OURS))  # fmt: skip
    return f" Faster than numba: {said}." if said else ""


LOOPS = "primitive == 'loop_peer' and op == 'clean' and (o_environments != o_environments or o_environments == 1)"
SECTIONS = (
    Section(
        "How fast are other libraries?",
        "Every tree holds the same priorities and is timed in one run, interleaved; ours stand among them.",
        figures=(
            Figure(
                "peers_batch", "How does time per element fall with the batch?", "batch", where=PEERS, hue="name",
                panels=("op",), holds=("capacity", "threads"), labels=(BATCH, NS), command="make peers",
                reading="Lower is faster. A falling line is the cost of a call, shared by more elements. Gray: the "
                "libraries without a color; the table names them.",
            ),
            Figure(
                "loops", "How many training steps per second does a library's loop take?", "contestant", "per_second",
                where=f"{LOOPS} and o_batch != o_batch", hue="o_replay", kind="bar", log=(False, True),
                labels=("", "environment and gradient steps/s"),
                command="python -m benchmarks run loops",
                reading="Right is faster. CartPole by DQN, one core a loop, the same network and batch. A step is the "
                "10th percentile over blocks of time, which leaves out disturbances.",
            ),
        ),
        tables=(
            Table("slowdowns", "Every library by batch", list_slowdowns),
            Table("accuracy", "What each tree gets wrong", list_accuracy),
            Table("peer_threads", "One tree, several Python threads", list_threads),
        ),
        says=describe_libraries,
    ),
)  # fmt: skip
