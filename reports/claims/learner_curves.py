"""Judge where [Zhang2023, Fig. 11] has the curves of its learners cross, given the GPU times that Table VII implies."""

from impls.fpga.network import Network, parse
from impls.fpga.resources import Budget

from . import learner_points
from .claims import EXACT, UNTESTED, Claim
from .quoted import Quoted

TOLERANCE = 0.1
"""Relative error of a modeled time beyond which it contradicts a printed one."""
MODEL = f"{EXACT}, by cycle laws that equal simulated hardware; clock and units are assumed"
ROOM = "refuted if a printed GPU time and the modeled curve leave no room for it; otherwise it takes that GPU"


def verdicts(quoted: Quoted) -> list[Claim]:
    """Judge the crossings of CartPole, Hopper and Pong."""
    return [judge(quoted) for judge in (_cartpole_curve, _hopper_curve, _pong_curve)]


def rate(quoted: Quoted, name: str) -> float:
    """Compute the gradient steps/s of a row of Table VII."""
    return quoted[f"{name}.watts"] * quoted[f"{name}.gps_per_watt"]


def printed_dsp(quoted: Quoted, row: str) -> Budget:
    """Bound DSP by the printed number, and nothing else."""
    return Budget(dsp=int(quoted[f"seed3.table_vi.{row}.dsp"]))


def _claim(text: str, is_contradicted: bool, evidence: str) -> Claim:
    return Claim(text, "refuted" if is_contradicted else UNTESTED, evidence, ROOM, MODEL)


def _curve(network: Network, first: int, last: int, budget: Budget) -> dict[int, float]:
    return learner_points.curve(network, learner_points.powers(first, last), budget)


def _ms(curve: dict[int, float], batches: list[int]) -> str:
    return ", ".join(f"{1e3 * curve[batch]:,.3g} ms at B = {batch:,}" for batch in batches)


def _cartpole_curve(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3_learner.fig_11")
    first, last = int(fig["smallest_batch"]), int(fig["largest_batch"])
    curve = _curve(parse("cartpole"), first, last, learner_points.published_slices(quoted))
    slower = quoted["seed3_learner.table_v.cartpole_gpu_slower"]
    gpu = slower / rate(quoted, "seed3.table_vii.cartpole")
    return _claim(
        f"For CartPole the FPGA trains fastest at every batch from {first} to {last:,} (Fig. 11).",
        curve[last] > gpu,
        f"modeled, best design for each batch: {_ms(curve, [first, 1024, last])}. Table V has the GPU learner "
        f"{slower:g}x slower at B = {last:,}, {1e3 * gpu:.2g} ms: no contradiction. For smaller batches neither table "
        "has a time of CPU or GPU. Transfers between learner and host are not modeled",
    )


def _hopper_curve(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3_learner.fig_11")
    first, last = int(fig["smallest_batch"]), int(fig["largest_batch"])
    below, above = int(fig["hopper_fpga_below"]), int(fig["hopper_gpu_above"])
    curve = _curve(parse("hopper"), first, last, printed_dsp(quoted, "ddpg"))
    gpu = 1 / rate(quoted, "seed3_learner.table_vii.hopper")
    lost = next(batch for batch, seconds in curve.items() if seconds > gpu)
    contradicted = curve[below // 2] > gpu or curve[last] < gpu
    return _claim(
        f"For Hopper the FPGA trains fastest below B = {below}, the GPU above {above:,} (Fig. 11).",
        contradicted,
        f"modeled with the printed DDPG learner's DSP: {_ms(curve, [first, below // 2, below, above, last])}. Table "
        f"VII's GPU mapping takes {1e3 * gpu:.2f} ms at B = {last:,}. If no GPU takes longer for less, the FPGA has "
        f"lost by B = {lost:,}, and the text needs a GPU time of at least {1e3 * curve[below // 2]:.2g} ms at "
        f"{below // 2}: {'a' if contradicted else 'no'} contradiction. Where in between they cross needs the GPU",
    )


def _pong_curve(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3_learner.fig_11")
    first, last = int(fig["pong_smallest_batch"]), int(fig["pong_largest_batch"])
    gpu = 1 / rate(quoted, "seed3_learner.table_vii.pong")
    budget = printed_dsp(quoted, "dqn")
    padded, cited = (_curve(parse(name), first, last, budget) for name in ("pong", "mnih2013"))
    contradicted = padded[first] > gpu * (1 + TOLERANCE) or padded[last] < gpu
    return _claim(
        f"For Pong the FPGA trains fastest below B = {fig['pong_fpga_below']:g}, the GPU above (Fig. 11).",
        contradicted,
        f"modeled with the printed DQN learner's DSP, unbounded memory and Table III's MACs: "
        f"{_ms(padded, [first, last])}. Table VII's GPU mapping takes {1e3 * gpu:.2f} ms at B = {last}, which leaves "
        f"{'' if padded[first] < gpu else 'no '}room at B = {first} unless a GPU takes longer for less; "
        f"{padded[first] / gpu - 1:+.0%} is {'more' if contradicted else 'less'} than a model can be off. With the "
        f"network of [14] the FPGA takes {_ms(cited, [first, 2 * first, last])}, which "
        f"{'leaves' if cited[first] < gpu < cited[last] else 'leaves no'} room for such a crossing",
    )
