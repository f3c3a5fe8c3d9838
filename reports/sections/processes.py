"""What several processes add to training: arrangements, what hands records over, and a search for the best setting."""

import pandas as pd

from dse import platforms
from dse.platforms.files import FILE
from impls.training.arrangement import TRANSPORTS
from reports.claims import quoted

from .. import laws
from ..draw import PREDICTED
from ..figure import Figure, Section, Table
from ..frame import Data
from ..tables import lack, name_other, spread

USUAL = "o_learners == 1 and o_sync == 'synchronous' and o_transport == 'shared' and o_weights == 'shared'"
SHAPE = ["o_workload", "o_update_interval", "o_arrangement", "o_actors", "o_environments", "o_presampled"]
ENDS = ["per_second", "per_second_low", "per_second_high"]
OPS = {"environment step", "gradient step", "cycle", "transfer", "cpu"}
TABLE_3 = "hou2023.table_3.rows."
RATES = ("sampling_hz", "update_hz", "frames_hz", "cpu_percent", "used_bytes")
PRINTED = {
    "batch": "B", "cpu": "CPU (%)", "sampled": "sampling (Hz)", "frames": "update frames (Hz)",
    "updates": "updates (Hz)", "cycle": "transfer cycle (s)", "age": "age (s)", "loss": "loss (%)",
}  # fmt: skip
"""The columns of the quoted table, and their names on the page."""


def select_rates(data: Data, op: str = "rate") -> pd.DataFrame:
    """Select the runs of every arrangement that keep the ratio of steps, by default their gradient steps."""
    rows = data.query(f"primitive == 'training arrangement' and op == {op!r} and o_ratio == 'kept' and {USUAL}")
    return data.nearest(lack(rows, "o_identity", "o_units"))


def select_best(data: Data) -> pd.DataFrame:
    """Select the fastest run of each arrangement by workload and update interval, and what the model predicts of it."""
    rows = select_rates(data)
    best = rows.loc[rows.groupby(SHAPE[:3])["us"].idxmin()]
    return pd.concat([best, predict(data, best)], ignore_index=True)


def predict(data: Data, rows: pd.DataFrame) -> pd.DataFrame:
    """Predict the rates of runs from the other records of their machine; no rows where it has no platform."""
    machine = str(rows["machine"].iloc[0])
    path = data.results / machine / FILE
    if not path.is_file():
        return rows[:0]
    records = [record for record in data.records if record.machine_key == machine]
    answers = laws.predict_runs(records, platforms.load(path), [record.options for record in rows["record"]])
    rates = [(answer.hz, answer.low, answer.high) if answer else (None,) * 3 for answer in answers]
    told = pd.DataFrame(rates, index=rows.index, columns=ENDS, dtype=float)
    names = rows["o_arrangement"] + PREDICTED
    return rows.assign(**told, o_arrangement=names, source="modeled", status="ok").dropna(subset="per_second")


def list_arrangements(data: Data) -> pd.DataFrame:
    """List the gradient steps/s of every run, and the rate at which its busiest part would never wait."""
    rows, keys = select_rates(data), ["options", "capacity", "batch"]
    bounds = select_rates(data, "bound").set_index(keys)["per_second"].rename("bound")
    table = rows.join(bounds, on=keys, validate="1:1").sort_values([*SHAPE[:2], "us"])
    busiest = table["record"].map(lambda record: record.metrics.get("busiest", ""))
    share = 100 * table["per_second"] / table["bound"]
    columns = [*SHAPE, "o_learner", *ENDS, "bound"]
    table = table[columns].assign(busiest=busiest, **{"share of the bound (%)": share})
    return table.rename(columns={"per_second": "gradient steps/s"})


def select_transfers(data: Data) -> pd.DataFrame:
    """Select single transfers of records by each transport that there is, in us a record."""
    rows = data.query("primitive == 'transport' and op in ('send', 'hand over')")
    rows = rows[rows["contestant"].isin(TRANSPORTS)]
    ends = {f"record_us{end}": rows[f"ns{end}"] / 1e3 for end in ("", "_low", "_high")}
    counts = rows["batch"].map(lambda count: f"{count} record{'s' * (count > 1)} a transfer")
    return rows.assign(**ends, count=counts)


def list_transfers(data: Data) -> pd.DataFrame:
    """List every single transfer of records or weights, in microseconds a transfer."""
    rows = data.nearest(data.query("primitive == 'transport'"))
    counts = rows["batch"].map(lambda count: f", {count} records" if count > 1 else "")
    return spread(rows.assign(what=rows["op"] + counts), ["contestant"], "what")


def measure_systems(data: Data) -> pd.DataFrame:
    """Return a row for each running system of actors and a learner, in the columns of the quoted table.

    ``cycle``: seconds between two transfers that brought records; ``age``: seconds, of the newest record that the
    learner can sample; ``loss``: the learner's share of time in transfers, in percent.
    """
    rows = data.query("primitive == 'training transport' and o_rows == o_rows")
    rows = data.nearest(rows[rows["contestant"].str.partition(" ")[0].isin(TRANSPORTS)])
    keys = ["o_workload", "o_rows", "options", "batch", "contestant", "machine"]
    times = spread(rows, keys, "op", "seconds").reindex(columns=[*keys, *OPS, "interval"]).dropna(subset=list(OPS))
    cores = int(rows["record"].iloc[0].machine.get("cores", 1))
    updates = 1 / times["gradient step"]
    return times.assign(
        cpu=100 * times["cpu"] / cores, sampled=1 / times["environment step"], frames=times["batch"] * updates,
        updates=updates, cycle=times["interval"], age=times["cycle"], loss=100 * times["transfer"] * updates,
    )  # fmt: skip


def list_systems(data: Data) -> pd.DataFrame:
    """List every running system beside the rows that [Hou2023, Table 3] prints."""
    measured = measure_systems(data).assign(source="measured")
    folder = data.quotes / "quoted"
    numbers = quoted.read(folder).numbers if folder.is_dir() else {}
    names = [name for name in numbers if name.startswith(TABLE_3)]
    if names:
        keys = [tuple(name.removeprefix(TABLE_3).split(".")) for name in names]
        printed = pd.Series([numbers[name] for name in names], index=pd.MultiIndex.from_tuples(keys))
        others = printed.unstack().rename_axis("contestant").reset_index()
        measured = pd.concat([measured, others.assign(source="quoted: [Hou2023]")])
    columns = ["contestant", "o_workload", "o_rows", *PRINTED, "source"]
    return measured[columns].rename(columns={"contestant": "transport", **PRINTED})


def list_looks(data: Data) -> pd.DataFrame:
    """List the looks of the latest search for samplers and B on a running loop, then all pairs that were measured."""
    rows = data.nearest(data.query("primitive == 'training adaptation' and o_run == o_run"))
    rows = rows[rows["o_run"] == rows["o_run"].max()].sort_values("o_look")
    over = rows["record"].map(lambda record: record.metrics["over"])
    rates = [f"m_{name}" for name in RATES]
    table = rows[["o_look", "op", "o_actors", "batch", *rates]]
    return table.rename(columns={"op": "search", **dict(zip(rates, RATES, strict=True))}).assign(over=over)


def say_gains(data: Data) -> str:
    """Say how many times as many gradient steps/s the best of several processes takes as the best serial process."""
    rows = select_rates(data)
    rates = rows.groupby(SHAPE[:3])["per_second"].max().unstack()
    if not {"serial"} < set(rates):
        return ""
    gains = (rates.drop(columns="serial").max(axis=1) / rates["serial"]).dropna()
    ends = " to ".join(dict.fromkeys([f"{gains.min():.2f}", f"{gains.max():.2f}"]))
    return f"The best of several processes reaches {ends} times the gradient steps/s of one{name_other(data, rows)}."


ARRANGEMENTS = Figure(
    "arrangements", "Which arrangement trains the fastest?", "o_update_interval", "per_second",
    make=select_best, hue="o_arrangement", panels=("o_workload",), own_axes=True,
    labels=("update interval u", "gradient steps/s"),
    command="python -m benchmarks run arrangements",
    reading="Higher is faster. Of each arrangement the fastest of 1 or 2 actors with 1 or 8 environments. Dashed: "
    "predicted from other records of the machine. Compare [Zhang2021, Fig. 12].",
)  # fmt: skip
TRANSFERS = Figure(
    "transports", "How long does it take to hand a record over?", "contestant", "record_us",
    make=select_transfers, hue="op", panels=("count",), kind="bar", labels=("", "us per record"),
    log=(False, False), own_axes=True, command="python -m benchmarks run transports",
    reading="Shorter is faster. Send is the actor's part; hand over lasts until the record is in the replay.",
)  # fmt: skip
NOTE = (
    "Queue n and fill n hold n records; CPU is of all cores; a transfer cycle is the time between two transfers that "
    "brought records; the age is of the newest record; the loss is the learner's share of time in transfers."
)
SECTIONS = (
    Section(
        "What do several processes add?",
        "Apart: actors and a learner are processes of their own. Pipelined: another process draws batches ahead.",
        figures=(ARRANGEMENTS, TRANSFERS),
        tables=(
            Table("arrangements_all", "Every run, and the rate of its busiest part", list_arrangements),
            Table("transport_systems", "Running systems by transport, and [Hou2023, Table 3]", list_systems, note=NOTE),
            Table("transport_transfers", "Single transfers of records and weights", list_transfers),
            Table("adaptation_path", "A search for samplers and batch while training runs", list_looks),
        ),
        says=say_gains,
    ),
)
