"""Seed 3's claims about the times of its learner on an FPGA (Tables V and VII, Fig. 11), computed again: modeled.

The bars of Fig. 11 have no numbers, and no TITAN Xp was measured. What can be checked is whether the learner's modeled
curve leaves room for the crossings that the text tells, given the two GPU times which Table VII implies.
"""

from impls.fpga.learner import FP32, ledger, resources, stages
from impls.fpga.network import Network, parse
from impls.fpga.resources import Budget

from . import learner_points
from .quoted import Quoted
from .tree_claims import Claim, Verdict

TOLERANCE = 0.1
"""A rate further off than this refutes."""


def verdicts(quoted: Quoted) -> list[Claim]:
    """CartPole's and Hopper's throughput, then the crossings of Fig. 11."""
    return [
        _cartpole_throughput(quoted),
        _hopper_throughput(quoted),
        _cartpole_curve(quoted),
        _hopper_curve(quoted),
        _pong_curve(quoted),
    ]


def _rate(quoted: Quoted, name: str) -> float:
    """Gradient steps a second of a row of Table VII."""
    return quoted[f"{name}.watts"] * quoted[f"{name}.gps_per_watt"]


def _printed_dsp(quoted: Quoted, row: str) -> Budget:
    """As many DSP as are printed, and whatever else it takes."""
    return Budget(dsp=int(quoted[f"seed3.table_vi.{row}.dsp"]))


def _cartpole_throughput(quoted: Quoted) -> Claim:
    printed = _rate(quoted, "seed3.table_vii.cartpole")
    batch = int(quoted["seed3.table_vii.cartpole.batch"])
    design = learner_points.published(quoted)
    rate = 1 / ledger(design, batch).seconds
    own = learner_points.best(design.network, batch, learner_points.published_slices(quoted))
    faster = ledger(design, batch).cycles / own.cycles
    verdict: Verdict = "confirmed" if abs(rate / printed - 1) <= TOLERANCE else "refuted"
    return Claim(
        f"CartPole with all on the FPGA makes {printed:,.0f} gradient steps a second at B = {batch:,} (Table VII).",
        verdict,
        f"modeled: DP = {design.pipelines} and {max(design.stage_cycles)} cycles a stage, as this time implies, so "
        f"{', '.join(map(str, design.units))} units, make {rate:,.0f} at {design.clock_hz / 1e6:g} MHz "
        f"({rate / printed - 1:+.1%}): table and formula are consistent, nothing is predicted. They take "
        f"{resources(design).dsp} DSP. Within two SLRs DP = "
        f"{own.design.pipelines} with {max(own.design.stage_cycles)} cycles a stage takes {own.needed.dsp:,} and is "
        f"{faster:.0f} times as fast",
    )


def _hopper_throughput(quoted: Quoted) -> Claim:
    table = quoted.table("seed3_learner.table_v")
    batch, slower = int(table["hopper_batch"]), table["hopper_fpga_slower"]
    printed = _rate(quoted, "seed3_learner.table_vii.hopper") / slower
    budget = _printed_dsp(quoted, "ddpg")
    network = parse("hopper")
    best = learner_points.best(network, batch, budget)
    units = (budget.dsp or 0) // FP32.dsp
    most = units * best.design.clock_hz / (batch * sum(stage.gemm.macs for stage in stages(network)))
    return Claim(
        f"Hopper's learner on the FPGA (F-C-F) is {slower:g}x slower than G-F-G at B = {batch:,} (Table V).",
        "refuted" if printed > most else "confirmed",
        f"computed: with Table VII's rate for G-F-G it makes at least {printed:.1f} steps a second. {units} MAC units "
        f"at {best.design.clock_hz / 1e6:g} MHz, those of the printed {budget.dsp:,} DSP, make {most:.1f} if none is "
        f"ever idle, and {1 / learner_points.seconds(best, batch):.1f} in the best pipelines: "
        f"{printed / most - 1:+.0%} is more than there is, so one of the numbers is of another build, clock or network",
    )


def _curve(network: Network, first: int, last: int, budget: Budget) -> dict[int, float]:
    return learner_points.curve(network, learner_points.powers(first, last), budget)


def _ms(curve: dict[int, float], batches: list[int]) -> str:
    return ", ".join(f"{1e3 * curve[batch]:,.3g} ms at B = {batch:,}" for batch in batches)


def _cartpole_curve(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3_learner.fig_11")
    first, last = int(fig["smallest_batch"]), int(fig["largest_batch"])
    curve = _curve(parse("cartpole"), first, last, learner_points.published_slices(quoted))
    slower = quoted["seed3_learner.table_v.cartpole_gpu_slower"]
    gpu = slower / _rate(quoted, "seed3.table_vii.cartpole")
    return Claim(
        f"For CartPole the FPGA trains fastest at every batch from {first} to {last:,} (Fig. 11).",
        "refuted" if curve[last] > gpu else "not testable here",
        f"modeled, best design for each batch: {_ms(curve, [first, 1024, last])}. Table V has the GPU learner "
        f"{slower:g}x slower at B = {last:,}, {1e3 * gpu:.2g} ms: no contradiction. For smaller batches neither table "
        "has a time of CPU or GPU. Transfers between learner and host are not modeled",
    )


def _hopper_curve(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3_learner.fig_11")
    first, last = int(fig["smallest_batch"]), int(fig["largest_batch"])
    below, above = int(fig["hopper_fpga_below"]), int(fig["hopper_gpu_above"])
    curve = _curve(parse("hopper"), first, last, _printed_dsp(quoted, "ddpg"))
    gpu = 1 / _rate(quoted, "seed3_learner.table_vii.hopper")
    lost = next(batch for batch, seconds in curve.items() if seconds > gpu)
    contradicted = curve[below // 2] > gpu or curve[last] < gpu
    return Claim(
        f"For Hopper the FPGA trains fastest below B = {below}, the GPU above {above:,} (Fig. 11).",
        "refuted" if contradicted else "not testable here",
        f"modeled with the printed DDPG learner's DSP: {_ms(curve, [first, below // 2, below, above, last])}. Table "
        f"VII's GPU mapping takes {1e3 * gpu:.2f} ms at B = {last:,}. If no GPU takes longer for less, the FPGA has "
        f"lost by B = {lost:,}, and the text needs a GPU time of at least {1e3 * curve[below // 2]:.2g} ms at "
        f"{below // 2}: {'a' if contradicted else 'no'} contradiction. Where in between they cross needs the GPU",
    )


def _pong_curve(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3_learner.fig_11")
    first, last = int(fig["pong_smallest_batch"]), int(fig["pong_largest_batch"])
    gpu = 1 / _rate(quoted, "seed3_learner.table_vii.pong")
    budget = _printed_dsp(quoted, "dqn")
    padded, cited = (_curve(parse(name), first, last, budget) for name in ("pong", "mnih2013"))
    contradicted = padded[first] > gpu * (1 + TOLERANCE) or padded[last] < gpu
    return Claim(
        f"For Pong the FPGA trains fastest below B = {fig['pong_fpga_below']:g}, the GPU above (Fig. 11).",
        "refuted" if contradicted else "not testable here",
        f"modeled with the printed DQN learner's DSP, unbounded memory and Table III's MACs: "
        f"{_ms(padded, [first, last])}. Table VII's GPU mapping takes {1e3 * gpu:.2f} ms at B = {last}, which leaves "
        f"{'' if padded[first] < gpu else 'no '}room at B = {first} unless a GPU takes longer for less; "
        f"{padded[first] / gpu - 1:+.0%} is {'more' if contradicted else 'less'} than a model can be off. With the "
        f"network of [14] the FPGA takes {_ms(cited, [first, 2 * first, last])}, which "
        f"{'leaves' if cited[first] < gpu < cited[last] else 'leaves no'} room for such a crossing",
    )
