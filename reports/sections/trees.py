"""Which tree, which fanout, and what a GPU adds."""

import dataclasses
import statistics

import pandas as pd

from dse.answers.printer import write_tree
from dse.answers.tree_answer import label_of
from dse.race_trees import configuration_of
from dse.records import Record, RecordError
from dse.times import cost_model
from dse.times.tree_times import Table as Times
from dse.times.tree_times import family_of

from ..draw import write_number
from ..figure import BATCH, FANOUT, LEAVES, NS, Figure, Section, Table
from ..frame import Data
from ..tables import mark_unstable

SWEEP = "python -m benchmarks sweep --preset quick"
GPU = "make gpu, on a machine with a CUDA device"
TREE = "primitive == 'sum_tree' and op in ('draw', 'update') and distribution == 'uniform' and dtype == 'float32'"
RACES = ("race", "race of runs")
PLAIN = f"{TREE} and options == '' and threads == 1"


def over_capacity(data: Data) -> pd.DataFrame:
    """Select each tree over N, and one random read of a buffer of 4 N bytes, as a name "one random read"."""
    trees = data.query(PLAIN)
    reads = data.frame[(data.frame["primitive"] == "memory") & (data.frame["contestant"] == "chase")]
    reads = reads[reads["machine"].isin(trees["machine"])]
    is_fpga = trees["contestant"] == "fpga"
    trees = trees.assign(contestant=trees["contestant"].where(~is_fpga, "fpga, modeled, without its link to a host"))
    reads = reads.assign(capacity=reads["capacity"] * 16, contestant="one random read", batch=256, fanout=16)
    return pd.concat([trees, *(reads.assign(op=op) for op in ("draw", "update"))])


def list_races(data: Data) -> pd.DataFrame:
    """List the latest race of each question on this machine, of trees and of training runs: the winner and the next."""
    races = {repr(record.metrics["race"]["asked"]): record for record in data.own if record.primitive in RACES}
    rows = []
    for record in races.values():
        race, is_run = record.metrics["race"], record.primitive != "race"
        first, *others = race["rows"]
        names = [row["name"] if is_run else write_tree(label_of(configuration_of(row))) for row in race["rows"]]
        slower = next((place for place, row in enumerate(others, 1) if row["status"] != "equal" and row["ratio"][0]), 0)
        middle, low, high = first["hz"] if is_run else (1e6 * s for s in race.get("step", first)["seconds"])
        asked = ", ".join(f"{key} {value}" for key, value in race["asked"].items() if value)
        time = {"question": asked, "winner": names[0], "time": middle, "time_low": low, "time_high": high}
        time |= {"unit": "gradient steps/s" if is_run else "us per step", "next": names[slower] if slower else ""}
        behind = 100 * (race["rows"][slower]["ratio"][0] - 1) if slower else None
        rows.append(
            {
                **time,
                "slower by (%)": behind,
                "candidates": race.get("candidates", len(names)) - race.get("excluded", 0),
                "ending": race["ending"],
                "day": record.utc[:10],
            }
        )
    return pd.DataFrame(rows)


def list_trees(data: Data) -> pd.DataFrame:
    """List each tree's time per element, as it is by default, by op and N, at the B and K that a figure holds."""
    figure = Figure("trees", "", "capacity", where=PLAIN, hue="contestant", panels=("op",), holds=("fanout", "batch"))
    rows = data.select(figure)
    if rows.empty:
        return rows
    table = rows.pivot_table(index=["contestant", "source"], columns=["op", "capacity"], values="ns")
    table.columns = [f"{op}, N = {capacity:,} (ns)" for op, capacity in table.columns]
    data.used.append(rows)
    rows = rows.assign(what=rows["op"] + " at N = " + rows["capacity"].map("{:,}".format))
    return mark_unstable(table, rows, list(table.index.names), "what").reset_index()


def best_fanouts(data: Data) -> pd.DataFrame:
    """List the fastest K of each N, B and op of this machine's sweep, with the next one's slowdown."""
    rows = data.query(f"{PLAIN} and contestant == 'numba' and machine == '{data.machine}'")
    table = rows.sort_values("ns").groupby(["op", "capacity", "batch"])
    best = table.first()[["fanout", "ns", "ns_low", "ns_high"]]
    return best[table.size() > 1].round(2).reset_index()


def list_lanes(data: Data) -> pd.DataFrame:
    """List the GPU tree's time per element by the lanes that share a sample, at the largest N with several."""
    rows = data.query(f"{TREE} and contestant == 'cupy' and o_lanes == o_lanes")
    rows = rows[rows["capacity"] == rows["capacity"].max()]
    columns = ["op", "fanout", "batch", "o_lanes"]
    return rows.pivot_table(index=columns[:3], columns="o_lanes", values="ns").round(2).reset_index()


def _fit_parts(data: Data) -> dict[str, tuple[cost_model.Family, list[cost_model.Point]]]:
    """Collect what the cost model of the default numba tree is fitted to, by op. RecordError for too few cells."""
    floor, caches = (
        Times(data.own).floor,
        next((record.machine.get("caches") or {} for record in reversed(data.own)), {}),
    )
    parts = {}
    for op in ("draw", "update"):
        cells = [record for record in data.own if record.median_seconds is not None and _is_default(record, op)]
        points = [cost_model.Point(cell.capacity, cell.fanout, cell.batch, cell.seconds) for cell in cells]
        if len(points) >= cost_model.LEAST_POINTS:
            parts[op] = (family_of(cells[0], caches, floor), points)
    if not parts:
        raise RecordError(f"too few cells for a model; measure more: {SWEEP}")
    return parts


def _is_default(record: Record, op: str) -> bool:
    shape = (record.primitive, record.contestant, record.op, record.threads, record.dtype, record.distribution)
    return shape == ("sum_tree", "numba", op, 1, "float32", "uniform") and not record.options


def validate_cost_model(data: Data) -> pd.DataFrame:
    """Predict each cell by a fit without its (N, K): the errors by op."""
    checks = {op: [check.error for check in cost_model.cross_validate(*part)] for op, part in _fit_parts(data).items()}
    columns = ("op", "held-out cells", "median error", "worst error")
    rows = [(op, len(off), statistics.median(off), max(off)) for op, off in checks.items() if off]
    return pd.DataFrame(rows, columns=columns)


def list_regrets(data: Data) -> pd.DataFrame:
    """List what it costs to take the model's K*, K = 16 or the printed formula's K* instead of the fastest K."""
    parts = list(_fit_parts(data).values())
    return pd.DataFrame([dataclasses.asdict(regret) for regret in cost_model.fanout_regrets(*parts)]).round(4)


def describe_fanouts(data: Data) -> str:
    """Say the fastest K at the usual B, by op, at the largest N that is at most 1,000,000."""
    rows = data.query(f"{PLAIN} and contestant == 'numba' and machine == '{data.machine}' and batch == 256")
    rows = rows[rows["capacity"] <= 1_000_000]
    rows = rows[rows["capacity"] == rows["capacity"].max()]
    if rows["fanout"].nunique() < 2:
        return ""
    parts = []
    for op, part in rows.groupby("op"):
        best = part.loc[part["ns"].idxmin()]
        equal = part[(part["ns_low"] <= best["ns_high"])]["fanout"].tolist()
        which = (
            f"K = {best['fanout']}" if len(equal) == 1 else f"K = {', '.join(map(str, sorted(equal)))} (equally fast)"
        )
        parts.append(f"{which} for {op}s ({write_number(best['ns'])} ns per element)")
    return f"At N = {rows['capacity'].iloc[0]:,} and B = 256 the fastest is {' and '.join(parts)}."


def describe_gpu(data: Data) -> str:
    """Say from which B on a draw on the GPU beats the numba tree on one core, where both were timed at that N."""
    figure = SECTIONS[1].figures[0]
    rows = data.select(figure)
    if rows.empty:
        return ""
    draws = rows[rows["op"] == "draw"]
    capacity = int(draws["capacity"].iloc[0])
    cpu = data.query(f"{PLAIN} and contestant == 'numba' and op == 'draw' and capacity == {capacity} and fanout == 16")
    cpu = data.nearest(cpu)
    core = float(cpu.loc[cpu["batch"].idxmax(), "ns"])
    best = draws.groupby("batch")["ns"].min()
    ahead = best[best < core]
    most, machine = cpu["batch"].max(), cpu["machine"].iloc[0]
    core_of = f"the {write_number(core)} ns per element that one core takes at B = {most:,} (numba, machine {machine})"
    if ahead.empty:
        return f"At no batch up to {best.index.max():,} is a draw on the GPU faster than {core_of}."
    first = draws[draws["batch"] == ahead.index.min()].nsmallest(1, "ns").iloc[0]
    return (
        f"A draw on the GPU is faster than {core_of} from B = {first['batch']:,} on at best ({first['name']}, "
        f"{write_number(first['ns'])} ns)."
    )


SECTIONS = (
    Section(
        "Which tree?",
        "Trees of this project, each as it is by default. The fanout K trades levels against work per level.",
        says=describe_fanouts,
        figures=(
            Figure(
                "fanout", "Which fanout K is the fastest?", "fanout", where=f"{PLAIN} and contestant == 'numba'",
                hue="capacity", panels=("op",), holds=("batch",), labels=(FANOUT, NS), command=SWEEP,
                reading="Lower is faster; where intervals overlap, K may be equally fast. Compare [Zhang2021, Fig. 9].",
            ),
            Figure(
                "capacity", "How does time grow with the number of leaves?", "capacity", make=over_capacity,
                hue="contestant", panels=("op",), holds=("fanout", "batch"), labels=(LEAVES, NS), command=SWEEP,
                reading="A flat line: time does not depend on N. Gray: one random read of a buffer of as many bytes. "
                "Compare [Zhang2021, Fig. 8].",
            ),
        ),
        tables=(
            Table("races", "What raced on this machine, and won", list_races),
            Table("trees", "Each tree's time per element", list_trees),
            Table("best_fanouts", "The fastest fanout of every N and B", best_fanouts),
            Table("cost_model", "A model of time, validated against cells it was not fitted to", validate_cost_model),
            Table("fanout_regrets", "What the model's fanout costs, and K = 16, beside the fastest", list_regrets),
        ),
    ),
    Section(
        "What does a GPU add?",
        "The trees of CuPy and torchrl on one GPU, launched call by call, or as a captured graph.",
        says=describe_gpu,
        figures=(
            Figure(
                "gpu_batch", "From which batch on does a GPU pay?", "batch",
                where="primitive == 'gpu' and op in ('draw', 'update') and distribution == 'uniform'", hue="name",
                panels=("op",), holds=("capacity",), labels=(BATCH, NS), command=GPU,
                reading="Where a line falls by half when B doubles, launching is all of the cost.",
            ),
        ),
        tables=(Table("gpu_lanes", "Threads of a GPU that share a sample (lanes)", list_lanes),),
    ),
)  # fmt: skip
