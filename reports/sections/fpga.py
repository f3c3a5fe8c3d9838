"""What an FPGA would take, by laws of cycles and resources: nothing here was built or measured."""

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dse import platforms
from dse.fpga.learner_search import Problem, fastest
from impls.fpga import learner
from impls.fpga.design import BANKINGS, Design
from impls.fpga.model import ELEMENT_BYTES, Ledger, Link, bank_sums, ledger
from impls.fpga.resources import BATCH, resources
from reports.claims import models, quoted

from ..figure import Figure, Section, Table
from ..frame import Data

CAPACITY = models.CAPACITY
BATCHES = (32, 64, 128, 256, 1_024, 4_096, 16_384, 65_536)
BANKED = (256, 1_024, 16_384)  # batches of which the busiest bank is computed
SHARED = ("lut", "ff", "dsp", "bram36", "uram")
WIDTHS, LEVEL = (*range(6, 25), 28, 32, 36, 40), 0.001  # bits of a leaf, and of the test that tells them from float64
LEARNED = {"cartpole_ddpg": 16_384, "hopper_ddpg": 16_384, "pong_dqn": 256}  # the largest B of each workload
OPS = ("sample", "update")
UNSEEN_ABOVE = 1e12  # draws, above which a number of bits is enough for anything
PANELS = ("a draw and an update", "busiest bank", "bits of a leaf", "a gradient step")
RATES = {"cartpole, learner on FPGA": "seed3.table_vii.cartpole",
         "hopper, learner on GPU": "seed3_learner.table_vii.hopper",
         "pong, learner on GPU": "seed3_learner.table_vii.pong"}  # fmt: skip
PRINTED = ", formula as printed"


@dataclass(frozen=True)
class Point:
    """A design of the tree's module, the slice of the U200 that it is for, and the laws of its cycles."""

    name: str
    design: Design
    slr: str
    laws: tuple[str, ...] = ("rtl",)


PUBLISHED = Point("published", models.PUBLISHED, "slr1", ("rtl", "published"))
WIDE = Point("ours, K = 16", Design(CAPACITY, 16, 18, "wide", 32, "interleaved"), "slr0")
DOUBLE = Point("ours, S = 64", replace(WIDE.design, banks=64), "slr0")
POINTS = (PUBLISHED, Point("ours, K = 4", replace(WIDE.design, fanout=4), "slr1"), WIDE, DOUBLE)


@functools.cache
def count_cycles(design: Design, op: str, batch: int, law: str = "rtl") -> Ledger:
    """Count the cycles of a call, as if every leaf had the same priority."""
    return ledger(design, op, batch, law=law)


@functools.cache
def make_link() -> Link:
    """Make the link between host and device, which the file of [Zhang2023]'s platform fits to a quoted log."""
    move = platforms.load("u200").transfer_seconds
    return Link(functools.partial(move, "cpu", "fpga"), functools.partial(move, "fpga", "cpu"))


def list_calls(data: Data) -> pd.DataFrame:
    """List the cycles and the time of each call by design and B, and what the link to a host adds."""
    rows: list[dict[str, Any]] = []
    for op in OPS:
        for point, law in ((each, law) for each in POINTS for law in each.laws):
            design = point.name + PRINTED * (law == "published")
            calls = [count_cycles(point.design, op, batch, law) for batch in BATCHES]
            rows += [{"op": op, "design": design, "B": call.batch, "cycles": call.cycles, "us": 1e6 * call.seconds}
                     for call in calls]  # fmt: skip
        there_and_back = {batch: sum(seconds(batch * ELEMENT_BYTES) for seconds in make_link()) for batch in BATCHES}
        rows += [{"op": op, "design": "link to a host", "B": batch, "us": 1e6 * seconds}
                 for batch, seconds in there_and_back.items()]  # fmt: skip
    return pd.DataFrame(rows)


@functools.cache
def _load_banks() -> list[tuple[str, str, int, float]]:
    """Compute the busiest bank's load over an even share, by banking, what the buffer holds, and B."""
    rng = np.random.default_rng(CAPACITY)
    uniform, skewed = rng.random(CAPACITY), rng.permutation(np.arange(1.0, CAPACITY + 1) ** -0.6)
    newest = np.arange(CAPACITY) < CAPACITY // 20
    fillings = {
        "uniform priorities": uniform,
        "buffer 10 % full": np.where(np.arange(CAPACITY) < CAPACITY // 10, uniform, 0),
        "newest 5 % at the maximum, rest uniform": np.where(newest, 1, uniform),
        "newest 5 % at the maximum, rest rank^-0.6": np.where(newest, 1, skewed),
    }
    loads = []
    for banking, batch in itertools.product(BANKINGS, BANKED):
        design = Design(CAPACITY, banks=PUBLISHED.design.banks, banking=banking)
        calls = {name: ledger(design, "sample", batch, bank_sums(design, leaves)) for name, leaves in fillings.items()}
        calls["B new leaves inserted"] = ledger(design, "insert", batch)
        loads += [(banking, name, batch, call.busiest * design.banks / batch) for name, call in calls.items()]
    return loads


def list_banks(data: Data) -> pd.DataFrame:
    """List the load of the busiest bank over an even share, by banking, what the buffer holds, and B."""
    return pd.DataFrame(_load_banks(), columns=["banking", "buffer", "B", "busiest bank / even share"])


@functools.cache
def _count_draws(skew: str, leaf_bits: int) -> float:
    """Count the draws at which Pearson's statistic is expected to tell leaves of a width from float64."""
    from scipy.stats import chi2  # noqa: PLC0415  # heavy

    leaves = models.make_priorities(skew)
    kept, wanted = models.round_leaves(leaves, leaf_bits), leaves / leaves.sum()
    beyond = float(chi2.isf(LEVEL, leaves.size - 1)) - (leaves.size - 1)
    held = wanted > 0
    distance = float((((kept / kept.sum() - wanted)[held]) ** 2 / wanted[held]).sum())
    return beyond / distance if distance else float("inf")


def list_leaf_bits(data: Data) -> pd.DataFrame:
    """List how many draws would tell leaves of so many bits from float64, by the skew of priorities."""
    rows = [(skew, bits, _count_draws(skew, bits)) for skew in models.SKEWS for bits in WIDTHS]
    return pd.DataFrame(rows, columns=["skew", "leaf_bits", "needed"])


def _time_learners(printed: quoted.Quoted) -> Iterator[tuple[str, int, float]]:
    """Yield a line, B and seconds of a gradient step: of all networks by the best design for each B, and of CartPole's
    critic by the published design, whose cycles are fitted to Table VII's rate. Pong's is plain DQN, not double."""
    budget, read = models.pool_budget(printed), 1e9 * printed["seed3.table_iv.gb_per_second"]
    for name, most in LEARNED.items():
        for batch in (1 << power for power in range(3, most.bit_length())):
            design = fastest(Problem(models.find_network(name), batch, budget, bytes_per_s=read))[0].design
            yield name.replace("dqn", "plain_dqn"), batch, learner.ledger(design, batch).seconds
    published = models.build_published(printed)
    for batch in (1 << power for power in range(3, LEARNED["cartpole_ddpg"].bit_length())):
        yield "cartpole's critic, published, fitted to Table VII", batch, learner.ledger(published, batch).seconds


def list_learners(data: Data) -> pd.DataFrame:
    """List the time of a gradient step by B: the best design for each, the published, and quoted rates.

    Compare [Zhang2023, Fig. 11], whose bars have no numbers.
    """
    printed = quoted.read(data.quotes / "quoted")
    rows = [(name, batch, 1e3 * seconds, "modeled") for name, batch, seconds in _time_learners(printed)]
    for name, where in RATES.items():
        row = printed.table(where)
        rows.append((f"{name}, quoted", row["batch"], 1e3 / (row["watts"] * row["gps_per_watt"]), "quoted"))
    return pd.DataFrame(rows, columns=["learner", "B", "ms", "source"])


def list_panels(data: Data) -> pd.DataFrame:
    """List the lines of the four panels."""
    calls = list_calls(data)
    calls = calls[calls["design"] != DOUBLE.name].groupby(["design", "B"], as_index=False)["us"].sum()
    banks = list_banks(data).set_axis(["banking", "line", "x", "value"], axis=1)
    inner = banks[banks["banking"] == "interleaved"].groupby("x", as_index=False)["value"].max()
    banks = pd.concat([banks[banks["banking"] == "contiguous"], inner.assign(line="interleaved banks, worst of these")])
    bits = list_leaf_bits(data).query("needed < @UNSEEN_ABOVE")
    parts = [
        calls.set_axis(["line", "x", "value"], axis=1).assign(x_label="batch B", y_label="us"),
        banks.assign(x_label="batch B", y_label="busiest bank / even share"),
        bits.rename(columns={"skew": "line", "leaf_bits": "x", "needed": "value"}).assign(
            line="priorities " + bits["skew"], x_label="bits of a leaf", y_label="draws that tell it from float64"),
        list_learners(data).set_axis(["line", "x", "value", "source"], axis=1).assign(x_label="batch B", y_label="ms"),
    ]  # fmt: skip
    rows = pd.concat([part.assign(panel=panel) for panel, part in zip(PANELS, parts, strict=True)])
    return rows.assign(panel=pd.Categorical(rows["panel"], PANELS), source=rows["source"].fillna("modeled"))


def list_resources(data: Data) -> pd.DataFrame:
    """List what each design takes of its slice of the Alveo U200."""
    printed, rows = quoted.read(data.quotes / "quoted"), []
    for point in POINTS:
        whole, have = resources(point.design, batch=BATCH), printed.table(f"{models.SHELL}.{point.slr}")
        amounts = {kind: getattr(whole, kind) for kind in SHARED}
        shares = {f"{kind} (% of slice)": 100 * amounts[kind] / have[kind] for kind in SHARED}
        design = point.design
        shape = f"{design.micro}, K = {design.fanout}, S = {design.banks} {design.banking}, {design.leaf_bits} bits"
        rows.append({"design": point.name, "shape": shape, "slice": point.slr, **amounts, **shares})
    return pd.DataFrame(rows)


def list_placed(data: Data) -> pd.DataFrame:
    """List the clocks of the designs that were placed and routed on a Lattice ECP5, and what they take of it."""
    records = data.quotes / "fpga" / "placed.json"
    rows = json.loads(records.read_text()) if records.exists() else []
    shown = ("micro", "fanout", "capacity", "banks", "ports")
    return pd.DataFrame([
        {key: row["design"][key] for key in shown} | {"MHz": row["fmax_mhz"]} | row["used"] for row in rows
    ])  # fmt: skip


def say_gain(data: Data) -> str:
    """Compare the time of a draw and an update with the published design and with the widest that fits."""
    batch = 1_024
    times = list_calls(data).query("B == @batch").groupby("design")["us"].sum()
    published, ours, link = (times[name] for name in (PUBLISHED.name, WIDE.name, "link to a host"))
    return (
        f"To draw and update {batch:,} of {CAPACITY:,} leaves, the published design would take "
        f"{published:.2g} us, a design of this project {ours:.2g} us, and the link to a host {link:.2g} us more."
    )


SECTIONS = (
    Section(
        "What would an FPGA take? (modeled)",
        "Nothing was built: cycles come from laws that equal simulated hardware, at "
        f"{PUBLISHED.design.clock_hz / 1e6:g} MHz.",
        says=say_gain,
        figures=(
            Figure(
                "fpga", "How long would a tree and a learner on an FPGA take?", "x", "value", make=list_panels,
                hue="line", panels=("panel",), own_axes=True, labels=("", ""),
                reading="Published: the design of [Zhang2023]. A batch takes as long as its busiest bank; banks are "
                "sub-trees (contiguous) or get leaf i in bank i mod S (interleaved). Quoted: Table VII.",
            ),
        ),
        tables=(
            Table("fpga_calls", "Cycles and time of a call by design", list_calls),
            Table("fpga_resources", "Resources by design", list_resources, note="Not checked: placement "
                  "on this device, dispatch across dies, the laws at this size, the vendor's synthesis, the host's "
                  "interface, queues of larger batches, power."),
            Table("fpga_placed", "Trees placed on a Lattice ECP5", list_placed, note="Best of a few seeds, by "
                  "the tool's model of time. An ECP5 is slower than an UltraScale+, whose clock is assumed."),
            Table("fpga_banks", "Load of the busiest bank", list_banks),
            Table("fpga_leaf_bits", "Leaves of few bits against float64", list_leaf_bits),
            Table("fpga_learners", "Time of a gradient step", list_learners),
        ),
    ),
)  # fmt: skip
