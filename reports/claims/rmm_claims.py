"""Judge the claims of [Zhang2023] about its replay management module (RMM) on an FPGA: modeled, never measured.

Printed numbers come from ``results/quoted``; ours come from the laws of ``impls.fpga`` and from seeded samples. Claims
about what the device has and the module takes are in ``rmm_device``.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from dse.records import Record
from impls.fpga import cycles
from impls.fpga.design import Design

from . import fixed_point, rmm_device, rmm_points
from .claims import EXACT, Claim, Verdict, adds_up_if
from .quoted import Quoted

PAPER, ORDER = "[Zhang2023]", 1
TOLERANCE = 0.1
"""Relative error of a time or rate beyond which a claim is refuted."""
ELEMENT_BYTES = 8
PUBLISHED = rmm_points.PUBLISHED.design
LAW = f"{EXACT}, with a law that equals simulated hardware cycle for cycle"

Formula = Callable[[Design, int], float]


def verdicts(_: Sequence[Record], quoted: Quoted) -> list[Claim]:
    """Judge all claims of sections IV-C4, VI-A2, VII-A and VII-C that laws can answer."""
    module = [_sampling_cycles(quoted), _update_cycles(quoted), _even_banks(), _fixed_point()]
    return [*module, *rmm_device.verdicts(quoted), _sampling_span(quoted), _update_span(quoted), _link(quoted)]


def _shrunk(banks: int) -> Design:
    """Build the published design with other banks, as it scales them with the batch."""
    return dataclasses.replace(PUBLISHED, banks=banks)


def _sampling_cycles(quoted: Quoted) -> Claim:
    text = "Sampling a batch takes B/S x K cycles (VI-A2)."
    return _cycles(quoted, text, "(b-1)K + L(K+1)", cycles.published_sample_cycles, "sample")


def _update_cycles(quoted: Quoted) -> Claim:
    text = "Updating a batch of priorities takes B/S cycles (VI-A2)."
    return _cycles(quoted, text, "b-1 + L+2", cycles.published_update_cycles, "update")


def _cycles(quoted: Quoted, text: str, law: str, printed: Formula, op: str) -> Claim:
    """Compare the formula with the law at the ends of Fig. 12, banks evenly loaded: in favor of the formula."""
    most = int(quoted["seed3.rmm.banks"])
    ends = [(int(quoted["seed3.fig_12.smallest_batch"]), 1), (int(quoted["seed3.fig_12.largest_batch"]), most)]
    compared, off = [], []
    for batch, banks in ends:
        design = _shrunk(banks)
        formula, cycles_taken = printed(design, batch), cycles.count_cycles(design, op, -(-batch // banks))
        off.append(abs(cycles_taken / formula - 1))
        compared.append(
            f"at B = {batch:,}, S = {banks}: {formula:,.0f} by the formula and {cycles_taken:,} by the law "
            f"({cycles_taken / formula:.2f}x)"
        )
    levels = _shrunk(1).levels
    return Claim(
        text,
        adds_up_if(max(off) <= TOLERANCE),
        f"modeled, K = {PUBLISHED.fanout}, {levels} levels: {'; '.join(compared)}. The law {law} is that of "
        "simulated hardware: it counts the fill of the pipeline, which the formula leaves out; b is the load of the "
        "busiest bank, here B/S",
        f"adds up if formula and law differ by at most {TOLERANCE:.0%} at both ends of Fig. 12, refuted otherwise",
        LAW,
    )


def _even_banks() -> Claim:
    even, full, fresh, new = (
        [rmm_points.load_of("contiguous", filling, batch) for batch in rmm_points.BANKED]
        for filling in (rmm_points.UNIFORM, rmm_points.PART_FULL, rmm_points.NEWEST, rmm_points.INSERTED)
    )
    spread = [load for load in rmm_points.loads() if load.banking == "interleaved"]
    batches = ", ".join(f"{batch:,}" for batch in rmm_points.BANKED)
    return Claim(
        "S banks divide the time of a batch by S: B/S (VI-A2).",
        adds_up_if(max(load.over_even for load in even) <= 1 + TOLERANCE),
        f"modeled, {PUBLISHED.banks} banks that each hold a sub-tree, B = {batches}: the busiest bank has "
        f"{_shares(even)} times its even share with uniform priorities, {_shares(full)} in a buffer filled to 10 %, "
        f"{_shares(fresh)} where the newest 5 % have the maximum and the rest are rank^-0.6, {_shares(new)} when B new "
        f"leaves are inserted. With leaf i in bank i mod S it is never more than "
        f"{max(load.over_even for load in spread):.2f}",
        f"adds up if with uniform priorities, which favor it most, the busiest bank has at most {TOLERANCE:.0%} more "
        "than its share at every batch, refuted otherwise",
        f"{EXACT}, of expected loads",
    )


def _shares(loads: list[rmm_points.Load]) -> str:
    return ", ".join(f"{load.over_even:.2f}" for load in loads)


def _fixed_point() -> Claim:
    bits, second = PUBLISHED.leaf_bits, fixed_point.URAM_BITS
    at = {skew: fixed_point.fit_of(skew, bits) for skew in fixed_point.SKEWS}
    failing = [fit for fit in at.values() if not fit.passes]
    least = ", ".join(f"{fixed_point.least_bits(skew)} bits with {skew}" for skew in fixed_point.SKEWS)
    zeros = {skew: fixed_point.lost(skew, bits, PUBLISHED.capacity) for skew in fixed_point.SKEWS}
    never = "; ".join(
        f"{gone:,} with {skew}, {100 * share:.2g} % of the probability" for skew, (gone, share) in zeros.items() if gone
    )
    wide = rmm_points.WIDE.design.leaf_bits
    needed = ", ".join(f"{_round(fixed_point.fit_of(skew, wide).needed)} with {skew}" for skew in fixed_point.SKEWS)
    sound = all(fixed_point.fit_of(skew, second).passes for skew in fixed_point.SKEWS)
    return Claim(
        "Fixed point does not affect what is sampled, compared with floating point (IV-C4).",
        _of_readings(not failing, sound),
        f"the width of a leaf is not printed. Computed: {fixed_point.DRAWS:,} seeded "
        f"samples from {fixed_point.CAPACITY:,} leaves against their float64 "
        f"chances (chi-square, p > {fixed_point.LEVEL:g} passes), with the most fraction bits that still hold "
        f"the largest priority, for they are not printed: {_failures(failing, bits)}. It passes from {least}; "
        f"{second} bits, the second reading of Table VI, {'pass' if sound else 'do not pass'} everywhere. Samples that "
        f"would tell {wide} bits from float64: {needed}. At N = {PUBLISHED.capacity:,} and {bits} bits, leaves of "
        f"positive priority stored as 0 and so never sampled: {never or 'none'}",
        f"adds up if samples pass with every skew by both widths that Table VI may mean, {bits} and {second} bits, "
        "refuted if by neither; where the two disagree it hangs on a width that is not printed",
        f"chi-square refutes leaves that are exact in {fixed_point.LEVEL:.1%} of cases a skew; how many samples it "
        "takes to miss no difference in half of the cases is given too",
    )


def _of_readings(first: bool, second: bool) -> Verdict:
    """Return the verdict of a claim that was tested by both readings of a number that is not printed."""
    return adds_up_if(first) if first == second else "not testable here"


def _failures(failing: list[fixed_point.Fit], bits: int) -> str:
    if not failing:
        return f"every skew passes at {bits} bits"
    return f"at {bits} bits it fails with " + ", ".join(f"{fit.skew} (p = {fit.p_value:.1g})" for fit in failing)


def _round(value: float) -> str:
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def _sampling_span(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3.fig_12")
    first, last = int(fig["smallest_batch"]), int(fig["largest_batch"])
    faster, slower = fig["sampling_speed_up"], fig["sampling_slow_down"]
    text = (
        f"Against a GPU whose time hardly depends on B, sampling is {faster:g}x faster to {slower:g}x slower (VII-C, "
        f"Fig. 12: B = {first:,} to {last:,})."
    )
    needed = faster * slower
    most = int(quoted["seed3.rmm.banks"])
    formula = _span(cycles.published_sample_cycles, first, last, most)
    filled = {
        banks: cycles.count_cycles(_shrunk(most), "sample", last // most)
        / cycles.count_cycles(_shrunk(banks), "sample", -(-first // banks))
        for banks in (2**power for power in range(most.bit_length()))
    }
    reached = max(formula, *filled.values())
    sooner = math.ceil(needed / formula)
    return Claim(
        text,
        adds_up_if(reached >= needed),
        f"{'reproduced' if reached >= needed else 'not reproduced'}: the FPGA's own time would have to grow "
        f"{needed:,.1f} times from B = {first:,} to {last:,}, more if the GPU's grows at all. B/S x K with S from 1 to "
        f"{most} grows {formula:,.0f} times, the law with fill {filled[1]:,.1f} times, and {max(filled.values()):,.1f} "
        f"with whatever S at B = {first:,}; the clock cancels. The formula would need S >= {sooner} at B = {first:,}, "
        f"but S is said to grow with B up to B = {fig['linear_above']:,.0f}. None of this has a host's transfers",
        "adds up if by the formula, or by the law with any S at the smallest batch, the FPGA's time grows so many "
        "times, refuted if by none",
        LAW,
    )


def _span(law: Formula, first: int, last: int, most: int) -> float:
    return law(_shrunk(most), last) / law(_shrunk(1), first)


def _update_span(quoted: Quoted) -> Claim:
    fig = quoted.table("seed3.fig_12")
    first, last = int(fig["smallest_batch"]), int(fig["largest_batch"])
    most, least = fig["update_speed_up_most"], fig["update_speed_up_least"]
    text = f"Updates are {least:g}x to {most:g}x faster than on a GPU, whose time is linear in B (VII-C, Fig. 12)."
    span = _span(cycles.published_update_cycles, first, last, int(quoted["seed3.rmm.banks"]))
    falling, rising = span * least / most, span * most / least
    possible = 1 <= falling <= last / first or 1 <= rising <= last / first
    evidence = (
        f"no such GPU was measured. By B/S with S from 1 to {quoted['seed3.rmm.banks']:g} the FPGA's time grows "
        f"{span:,.0f} times, so the GPU's must grow {falling:,.1f} times if the gain falls with B, {rising:,.0f} times "
        f"if it rises, where B grows {last // first:,} times: "
    )
    rule = "refuted if no growth of the GPU's time between none and that of B fits; otherwise it takes such a GPU"
    if possible:
        return Claim(text, "not testable here", evidence + "no contradiction", rule, EXACT)
    return Claim(text, "refuted", evidence + "neither can be", rule, EXACT)


def _link(quoted: Quoted) -> Claim:
    printed = quoted["seed3.link.gb_per_second"]
    log = {int(size): 1e6 * rate for size, rate in quoted.table("alveo_u200.link.to_device_mb_per_second").items()}
    back = 1e6 * quoted["alveo_u200.link.from_device_mb_per_second"]
    smallest = min(log)
    off = max(abs(rmm_points.link().to_device_seconds(size) / (size / rate) - 1) for size, rate in log.items())
    batch = int(quoted["seed3.fig_12.smallest_batch"])
    sampled = rmm_points.call(PUBLISHED, "sample", batch).seconds
    reached = max(*log.values(), back)
    return Claim(
        f"PCIe connects CPU and FPGA at {printed:g} GB/s (VII-A).",
        adds_up_if(reached >= (1 - TOLERANCE) * printed * 1e9),
        f"quoted log of a U200: at most {max(log.values()) / 1e9:.1f} GB/s to the device and {back / 1e9:.1f} from it, "
        f"and {1e6 * smallest / log[smallest]:.1f} us for {smallest} bytes. A batch of {batch} there and back at 8 "
        f"bytes an element is then {1e6 * rmm_points.link_seconds(batch):.1f} us (a fit of that log, {off:.0%} off at "
        f"worst), not {2e6 * batch * ELEMENT_BYTES / (printed * 1e9):.2f}, against {1e6 * sampled:.2f} us to sample it "
        f"(modeled)",
        f"adds up if the fastest transfer of the log reaches {1 - TOLERANCE:.0%} of the rate, refuted otherwise",
        "one log of another machine with the same device: a faster host is not excluded",
    )
