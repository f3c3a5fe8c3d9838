"""Compute values of claims by models: laws of the FPGA's replay module (RMM) and learner, and the mapping algorithm.

Every time is modeled, by laws that equal simulated hardware cycle for cycle. Letters: B batch, K fanout, S banks.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import impls
from dse.fpga import Slice, pool
from dse.fpga.learner_search import LearnerPoint, Problem, fastest
from dse.times.laws import step_of
from impls.fpga import cycles, learner
from impls.fpga.design import Design
from impls.fpga.learner import FP32, Learner, units_for
from impls.fpga.model import bank_sums, ledger
from impls.fpga.network import NAMED, Network, parse
from impls.fpga.passes import stages
from impls.fpga.resources import Budget, resources
from impls.training import load

from .judge import Finding
from .quoted import Quoted

Batches = Sequence[int]
Reals = NDArray[np.float64]
CAPACITY = 1 << 20
PUBLISHED = Design(CAPACITY, 2, 17, "scan", 32, "contiguous")
"""The published module, with the 17-bit leaves that its 4.5 MB allow."""
SHELL = "alveo_u200.shell_202110"
"""The shell that leaves the learner's slices."""
LEARNER_SLICES = ("slr0", "slr2")
"""Slices of the published learner: the RMM is in the third."""
MEGABYTE, MIB = 8e6, 8 * 1024 * 1024  # bits
DRAWS, SAMPLED = 1 << 22, 1 << 16  # samples, and the leaves that they are of
LEAST_EXPECTED = 5.0
"""Leaves that expect fewer samples are counted together."""
SKEWS = {"uniform": 0.0, "rank^-0.2": 0.2, "rank^-0.6": 0.6, "rank^-1.0": 1.0}
"""Priorities: uniform on [0, 1), or the leaf of rank r has r^-exponent."""
TABLES, SEED = 200_000, 20230701


def _get_ends(quoted: Quoted) -> tuple[int, int, int]:
    """Return the smallest and the largest batch of Fig. 12, and the most banks."""
    fig = quoted.table("seed3.fig_12")
    return int(fig["smallest_batch"]), int(fig["largest_batch"]), int(quoted["seed3.rmm.banks"])


def _count(op: str, batch: int, banks: int) -> int:
    """Count the cycles of a batch that loads banks evenly."""
    return cycles.count_cycles(replace(PUBLISHED, banks=banks), op, -(-batch // banks))


def _count_printed(op: str, batch: int, banks: int) -> float:
    law = cycles.published_sample_cycles if op == "sample" else cycles.published_update_cycles
    return law(replace(PUBLISHED, banks=banks), batch)


def count_cycles(quoted: Quoted, op: str) -> Finding:
    """Compute the cycles of the law over those of the printed formula, at both ends of Fig. 12, banks evenly loaded."""
    first, last, most = _get_ends(quoted)
    ends = ((first, 1), (last, most))
    law = {f"cycles of the law at B = {b:,}": _count(op, b, s) for b, s in ends}
    values = {f"B = {b:,}, S = {s}": _count(op, b, s) / _count_printed(op, b, s) for b, s in ends}
    return Finding.exact(values, facts=law)


def load_banks(_: Quoted, batches: Batches) -> Finding:
    """Compute the busiest bank's load over an even share, by batch, with uniform priorities; facts have others."""
    rng = np.random.default_rng(CAPACITY)
    uniform, skewed = rng.random(CAPACITY), rng.permutation(np.arange(1.0, CAPACITY + 1) ** -0.6)
    fillings = {
        "buffer 10 % full": np.where(np.arange(CAPACITY) < CAPACITY // 10, uniform, 0),
        "newest 5 % at the maximum": np.where(np.arange(CAPACITY) < CAPACITY // 20, 1, skewed),
    }

    def load(batch: int, leaves: Reals) -> float:
        return ledger(PUBLISHED, "sample", batch, bank_sums(PUBLISHED, leaves)).busiest * PUBLISHED.banks / batch

    least = min(batches)
    facts = {f"{name}, B = {least:,}": load(least, leaves) for name, leaves in fillings.items()}
    return Finding.exact({f"uniform, B = {batch:,}": load(batch, uniform) for batch in batches}, facts=facts)


def sample_fixed_point(_: Quoted, widths: Sequence[int]) -> Finding:
    """Compute the least p-value over skews of samples from fixed-point leaves, by width, against float64 chances."""
    return Finding.exact({f"{bits} bits": min(fit_fixed_point(skew, bits) for skew in SKEWS) for bits in widths})


def make_priorities(skew: str, capacity: int = SAMPLED) -> Reals:
    """Make the leaves ``[N]`` of a skew, before they are stored."""
    exponent = SKEWS[skew]
    return np.arange(1.0, capacity + 1) ** -exponent if exponent else np.random.default_rng(capacity).random(capacity)


def round_leaves(leaves: Reals, leaf_bits: int) -> Reals:
    """Round leaves ``[N]`` to a width, with the most fraction bits that still hold the largest of them."""
    most, largest = (1 << leaf_bits) - 1, float(leaves.max())
    fraction_bits = math.floor(math.log2(most / largest)) + 1
    fraction_bits -= np.rint(math.ldexp(largest, fraction_bits)) > most
    tree = impls.make("fpga", leaves.size, dtype="float64", leaf_bits=leaf_bits, fraction_bits=int(fraction_bits))
    rounded: Reals = tree.rounded(leaves)
    return rounded


@functools.cache
def fit_fixed_point(skew: str, leaf_bits: int) -> float:
    """Compute the p-value of Pearson's chi-square of seeded samples from stored leaves, against float64 chances."""
    from scipy.stats import chi2  # noqa: PLC0415  # heavy

    leaves = make_priorities(skew)
    kept, expected = round_leaves(leaves, leaf_bits), DRAWS * leaves / leaves.sum()
    seen = np.random.default_rng(DRAWS).multinomial(DRAWS, kept / kept.sum()).astype(np.float64)
    few = expected < LEAST_EXPECTED
    if few.any():
        seen, expected = (np.append(counts[~few], counts[few].sum()) for counts in (seen, expected))
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), seen.size - 1))


def _tree(leaf_bits: int) -> Design:
    """Build the whole tree as one bank."""
    return replace(PUBLISHED, leaf_bits=leaf_bits, banks=1, banking="contiguous")


def measure_memory(quoted: Quoted, most_bits: int) -> Finding:
    """Compute the MiB of a tree with each width of a leaf, or of leaves alone, two in a row of UltraRAM."""
    sizes = {f"{bits} bits": resources(_tree(bits)).sram_bits / MIB for bits in range(1, most_bits + 1)}
    rows, bits = (int(quoted[f"alveo_u200.primitives.uram_{name}"]) for name in ("rows", "row_bits"))
    sizes["leaves in UltraRAM"] = -(-CAPACITY // (2 * rows)) * rows * bits / MIB
    return Finding.exact(sizes)


def count_dsps(quoted: Quoted) -> Finding:
    """Compute the DSP blocks of a sampler and an updater with one for each stage, in every pipeline."""
    banks, levels = int(quoted["seed3.rmm.banks"]), _tree(PUBLISHED.leaf_bits).levels
    shared, own = levels - PUBLISHED.levels, PUBLISHED.levels
    counts = {f"2 x {levels} levels x {banks} banks": 2.0 * levels * banks}
    return Finding.exact(counts | {f"with the first {shared} levels shared": 2 * (shared + own * banks)})


def span_samples(quoted: Quoted) -> Finding:
    """Compute how many times the FPGA's time of sampling grows over Fig. 12, against what the printed gains need."""
    first, last, most = _get_ends(quoted)
    fig = quoted.table("seed3.fig_12")
    needed = fig["sampling_speed_up"] * fig["sampling_slow_down"]
    grown = {"formula": _count_printed("sample", last, most) / _count_printed("sample", first, 1)}
    for banks in (1 << power for power in range(most.bit_length())):
        grown[f"law, S = {banks} at first"] = _count("sample", last, most) / _count("sample", first, banks)
    return Finding.exact(grown, needed)


def count_macs(quoted: Quoted, table: str, network: str = "") -> Finding:
    """Compute the forward multiply-adds of a network: a named one, or a critic of the printed sizes."""
    row = quoted.table(table)
    inputs = int(row.get("states", 0) + row["actions"] + 1)
    built = parse(network or f"mlp:{inputs}-{row['hidden']:g}-{row['hidden']:g}-1")
    padded = {"of the padded network": parse("pong").macs, "of its successor": parse("nature").macs} if network else {}
    return Finding.exact({"forward": built.macs}, facts={"weights and biases": built.parameters, **padded})


def count_stages(_: Quoted) -> Finding:
    """Count the stages of a pipeline for one network, against three for each layer of weights; facts have workloads."""
    network, workloads = parse("cartpole"), ("pong_dqn", "cartpole_ddpg")
    facts = {f"stages of all networks of {name}": len(stages(find_network(name))) for name in workloads}
    return Finding.exact({"CartPole": len(stages(network))}, 3 * len(network.layers), facts)


@functools.cache
def find_network(name: str) -> Network:
    """Read a network alone, or all networks of a workload's gradient step; of DQN without the double form's pass."""
    if name in NAMED:
        return parse(name)
    workload = load(name)
    return step_of(replace(workload, learner=replace(workload.learner, double=False)))


def pool_budget(quoted: Quoted) -> Budget:
    """Pool what the published learner may use: all slices but the RMM's, less the shell."""
    slices = {name: quoted.table(f"{SHELL}.{name}") for name in LEARNER_SLICES}
    counts = {name: {kind: int(amount) for kind, amount in table.items()} for name, table in slices.items()}
    return pool([Slice(name, Budget(**amounts)) for name, amounts in counts.items()])


@functools.cache
def find_best(network: Network, batch: int, budget: Budget, pipelines: int | None = None) -> LearnerPoint:
    """Find the exploration's own learner, with whatever number of pipelines is best, or with this one."""
    return fastest(Problem(network, batch, budget, pipelines=pipelines))[0]


def _balanced(network: Network, pipelines: int, most_cycles: int) -> Learner:
    """Build a learner with the fewest units for N cycles a stage; the update has as many as the largest stage."""
    units = tuple(units for stage in stages(network) if (units := units_for(stage.gemm, most_cycles)))
    return Learner(network, pipelines, units, max(units))


def _pipelines(quoted: Quoted) -> int:
    return int(quoted["seed3.table_vi.parameters.data_parallel"])


def _rate(quoted: Quoted, table: str) -> float:
    """Compute the gradient steps/s of a row of Table VII."""
    return quoted[f"{table}.watts"] * quoted[f"{table}.gps_per_watt"]


def build_published(quoted: Quoted) -> Learner:
    """Build CartPole's learner with the printed pipelines, and the cycles a stage that Table VII's rate implies."""
    network, clock = parse("cartpole"), 1e6 * quoted["seed3.build.clock_mhz"]
    passes = quoted["seed3.table_vii.cartpole.batch"] / _pipelines(quoted) + len(stages(network)) - 1
    most_cycles = round(clock / _rate(quoted, "seed3.table_vii.cartpole") / passes)
    return replace(_balanced(network, _pipelines(quoted), most_cycles), clock_hz=clock)


def compare_pipelines(quoted: Quoted, cases: Sequence[tuple[str, int]]) -> Finding:
    """Compute the slowdown of the printed number of pipelines over the best number, at most over batches.

    Of a critic alone, and of all networks of its DDPG.
    """
    budget, ratios, facts = pool_budget(quoted), dict[str, float](), dict[str, float | str]()
    for (name, batch), more in itertools.product(cases, ("", "_ddpg")):
        network, reading = find_network(name + more), "all networks" if more else "critic alone"
        own, printed = (find_best(network, batch, budget, number) for number in (None, _pipelines(quoted)))
        ratios[reading] = max(ratios.get(reading, 0.0), printed.cycles / own.cycles)
        facts[f"best number for {name}, B = {batch:,}, {reading}"] = own.design.pipelines
    return Finding.exact(ratios, facts=facts)


def count_units(quoted: Quoted) -> Finding:
    """Compute the DSP blocks of the fewest units that the rule allows for Hopper, against the printed ones."""
    network = parse("hopper")
    smallest = min(layer.forward.macs for layer in network.layers)
    units = sum(-(-stage.gemm.macs // smallest) for stage in stages(network) if stage.layer)
    needed, printed = _pipelines(quoted) * units * FP32.dsp, quoted["seed3.table_vi.ddpg.dsp"]
    return Finding.exact({"f = 1": needed}, printed, {"DSP of two SLRs": pool_budget(quoted).dsp or 0})


def store_learner(quoted: Quoted, row: str, network: str, workload: str, weights_only: bool = False) -> Finding:
    """Compute the MB of a network's weights alone, or of its learner's buffers, against a printed number.

    Buffers are of the printed pipelines: of the one network, and of all networks of a workload's gradient step.
    """
    printed = quoted[f"seed3.table_vi.{row}.sram_mb"]

    def hold(name: str) -> float:
        built = find_network(name)
        return learner.resources(_balanced(built, _pipelines(quoted), built.macs)).sram_bits / MEGABYTE

    if not weights_only:
        return Finding.exact({"critic alone": hold(network), "all networks": hold(workload)}, printed)
    others = {f"buffers of {name}": hold(name) for name in (network, "nature", "mnih2013", workload)}
    return Finding.exact({"weights": 32 * parse(network).parameters / MEGABYTE}, printed, others)


def rate_cartpole(quoted: Quoted) -> Finding:
    """Compute the steps/s of the balanced design that Table VII's rate implies, against that rate."""
    batch = int(quoted["seed3.table_vii.cartpole.batch"])
    design = build_published(quoted)
    own = find_best(design.network, batch, pool_budget(quoted))
    taken = learner.ledger(design, batch)
    facts = {"cycles a stage": max(design.stage_cycles), "best design is faster by": taken.cycles / own.cycles}
    return Finding.exact({"steps/s": 1 / taken.seconds}, _rate(quoted, "seed3.table_vii.cartpole"), facts)


def rate_hopper(quoted: Quoted) -> Finding:
    """Compute the most steps/s that the printed DSP blocks can make, against those that Tables V and VII imply."""
    table = quoted.table("seed3_learner.table_v")
    batch, dsp = int(table["hopper_batch"]), int(quoted["seed3.table_vi.ddpg.dsp"])
    printed = _rate(quoted, "seed3_learner.table_vii.hopper") / table["hopper_fpga_slower"]
    most, facts = dict[str, float](), dict[str, float | str]()
    for reading, name in (("critic alone", "hopper"), ("all networks", "hopper_ddpg")):
        best = find_best(find_network(name), batch, Budget(dsp=dsp))
        work = batch * sum(stage.gemm.macs for stage in best.design.stages)
        for format, taken in (("fp32", FP32.dsp), ("INT32", int(quoted["alveo_u200.macs.dsp_per_int32"]))):
            most[f"{reading}, no {format} unit ever idle"] = dsp // taken * best.design.clock_hz / work
        facts[f"{reading}, in the best pipelines"] = 1 / learner.ledger(best.design, batch).seconds
    return Finding.exact(most, printed, facts)


def cross_curves(
    quoted: Quoted, networks: list[str], rate: str, faster: Batches, slower: Batches, row: str = "", slowdown: str = ""
) -> Finding:
    """Compute the FPGA's modeled time over the GPU's printed time where the FPGA is said to win, else its inverse.

    ``rate``: the row of Table VII with the learner on the GPU, or, with ``slowdown``, so many times as fast. ``row``:
    whose printed DSP blocks bound the FPGA's learner. ``networks``: a workload, with all networks of its gradient
    step; and one network alone, as n = 3 L counts stages: a reading each, of which the largest ratio counts. A ratio
    above 1 leaves no room for the crossing, if no GPU takes longer for less.
    """
    gpu = (quoted[slowdown] if slowdown else 1.0) / _rate(quoted, rate)
    budget = Budget(dsp=int(quoted[f"seed3.table_vi.{row}.dsp"])) if row else pool_budget(quoted)
    whole, alone = ({b: learner.ledger(find_best(find_network(name), b, budget).design, b).seconds
                     for b in (*faster, *slower)} for name in networks)  # fmt: skip
    readings, facts = dict[str, float](), {"the GPU's printed time, ms": 1e3 * gpu}
    for name, times in (("all networks", whole), ("one network alone", alone)):
        ratios = {f"FPGA to GPU, B = {batch:,}": times[batch] / gpu for batch in faster}
        ratios |= {f"GPU to FPGA, B = {batch:,}": gpu / times[batch] for batch in slower}
        readings[name] = max(ratios.values())
        facts |= {f"{name}, {what}": ratio for what, ratio in ratios.items()}
    return Finding.exact(readings, facts=facts)


def compare_slowest(quoted: Quoted, few: int, many: int) -> Finding:
    """Compute how many times as long the slowest mapping takes for a larger batch, by the printed gains over it."""
    design = build_published(quoted)
    gains = {batch: quoted[f"seed3_mapping.table_v.cartpole_ddpg.{batch}.G-G-G"] for batch in (few, many)}
    times = {batch: gain * learner.ledger(design, batch).seconds for batch, gain in gains.items()}
    facts = {f"ms of G-G-G at B = {batch}": 1e3 * seconds for batch, seconds in times.items()}
    return Finding.exact({f"B = {few} to {many}": times[many] / times[few]}, facts=facts)


def map_tables(_: Quoted, near: float) -> Finding:
    """Compute on what share of random tables each reading of the mapping algorithm is ``near`` the optimum."""
    ratios = lose_time(*10 ** np.random.default_rng(SEED).uniform(0.0, 2.0, (2, TABLES, 3)))
    return Finding.exact({name: float(np.mean(losses <= 1 + near)) for name, losses in ratios.items()})


def lose_time(first: Reals, second: Reals) -> dict[str, Reals]:
    """Compute each reading's step time over the joint optimum's ``[tables]``, by [Zhang2023, Alg. 3].

    ``first``, ``second``: seconds ``[tables, devices]`` of learner and RMM on CPU, GPU, FPGA. A step takes the longer
    time, or their sum where both are on the GPU. Lines 6 and 7 take the GPU from the RMM where the RMM is as fast as
    the learner on a tested device; as printed they come too late, and readings differ in which devices are tested.
    """
    gpu, row = 1, np.arange(len(first))
    both = np.maximum(first[:, :, None], second[:, None, :])
    both[:, gpu, gpu] = first[:, gpu] + second[:, gpu]
    chosen = first.argmin(axis=1)
    readings = {"as printed": (), "heeded, FPGA tested": (2,), "heeded, CPU and FPGA tested": (0, 2)}
    mapped = {"learner first, then the best RMM": both[row, chosen].argmin(axis=1)}
    for name, tested in readings.items():
        left = second.copy()
        left[(chosen == gpu) & (second[:, list(tested)] <= first[:, [gpu]]).any(axis=1), gpu] = np.inf
        mapped[name] = left.argmin(axis=1)
    best = both.min(axis=(1, 2))
    return {name: both[row, chosen, device] / best for name, device in mapped.items()}
