"""Judge the claims of [Zhang2023] about what its FPGA has and what the RMM takes of it (Tables IV, VI and VII)."""

import math

from impls.fpga.design import Design
from impls.fpga.resources import resources

from . import rmm_points
from .claims import ELSEWHERE, EXACT, Claim, adds_up_if, consistent_if
from .quoted import Quoted

PUBLISHED = rmm_points.PUBLISHED.design
MIB = 8 * 1024 * 1024  # bits
HALF_A_DIGIT = 0.05  # of a number printed with one decimal
A_PERCENT = 1.0  # by which rounding, up or down, changes a percentage at most
SHELLS = ("shell_201830", "shell_202110")
KINDS = {"sram_mb": "SRAM", "ff": "registers", "lut": "LUT", "dsp": "DSP"}
CLOCK_TOLERANCE = 0.02
MOST_LEAF_BITS = 40
PRINTABLE = range(10, 100)
"""Tenths of MB that Table VI might as well have printed."""
MAC_DSPS = range(1, 9)
"""DSP blocks of a multiply-accumulate that could have been assumed."""
MOST_BANKS = 64
"""The largest power of two that S might as well have been."""


def verdicts(quoted: Quoted) -> list[Claim]:
    """Judge memory, DSP blocks, the bound of S, percentages, on-chip memory, clock."""
    return [judge(quoted) for judge in (_memory, _dsps, _most_banks, _percentages, _on_chip, _clock)]


def _tree(leaf_bits: int) -> Design:
    """Build the whole tree as one bank."""
    return Design(PUBLISHED.capacity, PUBLISHED.fanout, leaf_bits, PUBLISHED.micro)


def _tree_mib(leaf_bits: int) -> float:
    return resources(_tree(leaf_bits)).sram_bits / MIB


def _memory(quoted: Quoted) -> Claim:
    printed = quoted["seed3.table_vi.rmm.sram_mb"]
    bits = min(range(1, MOST_LEAF_BITS), key=lambda width: abs(_tree_mib(width) - printed))
    rows, row_bits = (int(quoted[f"alveo_u200.primitives.uram_{name}"]) for name in ("rows", "row_bits"))
    urams = -(-PUBLISHED.capacity // (2 * rows))
    by_rows = urams * rows * row_bits / MIB
    fits = min(abs(_tree_mib(bits) - printed), abs(by_rows - printed)) < HALF_A_DIGIT
    sizes = [by_rows, *map(_tree_mib, range(1, MOST_LEAF_BITS))]
    passing = sum(min(abs(tenth / 10 - size) for size in sizes) < HALF_A_DIGIT for tenth in PRINTABLE)
    step = _tree_mib(bits + 1) - _tree_mib(bits)
    return Claim(
        f"The RMM takes {printed:g} MB of on-chip memory (Table VI).",
        consistent_if(fits),
        f"computed: K = 2, N = 2^20, each level down a bit narrower, as IV-C4 says: {_tree_mib(bits):.2f} MiB with "
        f"leaves of {bits} bits and a root of {_tree(bits).widths[-1]}. The width is not printed, and every bit of it "
        f"is {step:.2f} MiB. A second reading has leaves alone, two of {row_bits // 2} bits in a row of UltraRAM: "
        f"{urams} of them, {by_rows:.2f} MiB. Both read MB as MiB. 32 bits a node would be "
        f"{sum(_tree(1).sizes) * 32 / MIB:.2f} MiB",
        f"consistent if some width of a leaf from 1 to {MOST_LEAF_BITS - 1} bits, or leaves alone in UltraRAM, come to "
        "the number as printed, refuted if none do: the width was chosen",
        f"of the {len(PRINTABLE)} numbers from {PRINTABLE[0] / 10:.1f} to {PRINTABLE[-1] / 10:.1f} MB, "
        f"{passing / len(PRINTABLE):.0%} would have passed",
    )


def _dsps(quoted: Quoted) -> Claim:
    printed, banks = quoted["seed3.table_vi.rmm.dsp"], quoted["seed3.rmm.banks"]
    text = f"The RMM takes {printed:,.0f} DSP blocks at S = {banks:g} (Table VI)."
    levels, own = _tree(PUBLISHED.leaf_bits).levels, PUBLISHED.levels
    each = printed / banks
    return Claim(
        text,
        consistent_if(each == 2 * levels),
        f"computed: {each:g} a pipeline; one for each stage of a sampler and of an updater are 2 x {levels} = "
        f"{2 * levels} where every pipeline has all {levels} levels of K = 2. The text shares the first "
        f"{levels - own}, which would leave 2 x {own} x {banks:g} = {2 * own * banks:,.0f}. Ours adds in LUTs: "
        f"{resources(_tree(PUBLISHED.leaf_bits)).dsp} DSP",
        "consistent if one DSP a stage of a sampler and an updater with all levels comes to the number, refuted if "
        "not: that a stage takes one, and that none is shared, was chosen",
        f"of whole DSPs a pipeline from 1 to {ELSEWHERE * each:g}, one would have passed: {1 / (ELSEWHERE * each):.1%}",
    )


def _most_banks(quoted: Quoted) -> Claim:
    banks = int(quoted["seed3.rmm.banks"])
    taken = quoted.table("seed3.table_vi.rmm")
    slr = f"slr{quoted['seed3.build.rmm_slr']:g}"
    by_shell, bounds = [], []
    for shell in SHELLS:
        have = quoted.table(f"alveo_u200.{shell}.{slr}")
        most = {kind: int(have[kind] / (taken[kind] / banks)) for kind in ("dsp", "lut")}
        bound = 1 << (min(most.values()).bit_length() - 1)
        bounds.append(bound)
        shares = ", ".join(f"{taken[kind] / have[kind]:.0%} of its {KINDS[kind]}" for kind in ("dsp", "lut"))
        by_shell.append(
            f"{shell.replace('_', ' ')}: {most['dsp']} pipelines by DSP, {most['lut']} by LUT, so S = {bound}; Table "
            f"VI's is {shares}"
        )
    other = quoted["alveo_u200.shell_201830.slr0.dsp"]
    return Claim(
        f"The resources of one SLR bound S at {banks} (VI-A2, Table VI).",
        consistent_if(banks in bounds),
        f"computed, as powers of two: the authors' build files put the RMM into {slr.upper()}, where the shell sits. "
        f"{'. '.join(by_shell)}. SLR0 has {other:,.0f} DSP: nothing but its place bounds it there",
        f"consistent if one of the {len(SHELLS)} quoted shells bounds S so, refuted if none does: the shell was chosen",
        f"of the {MOST_BANKS.bit_length()} powers of two up to {MOST_BANKS}, {len(set(bounds))} would have passed",
    )


def _percentages(quoted: Quoted) -> Claim:
    whole = quoted.table("alveo_u200.whole") | {"sram_mb": quoted["seed3.table_iv.sram_mb"]}
    wrong, close = [], 0
    for row in ("rmm", "dqn", "ddpg"):
        printed = quoted.table(f"seed3.table_vi.{row}_percent")
        for kind, amount in quoted.table(f"seed3.table_vi.{row}").items():
            share = 100 * amount / whole[kind]
            if abs(share - printed[kind]) < A_PERCENT:
                close += 1
            else:
                wrong.append(f"{row.upper()} {KINDS[kind]} {share:.1f} %, printed {printed[kind]:g}")
    off = f"; not so: {'; '.join(wrong)}" if wrong else ""
    return Claim(
        "The percentages of Table VI are shares of the device.",
        adds_up_if(not wrong),
        f"computed against the whole device, SRAM against Table IV's {whole['sram_mb']:g} MB: {close} of "
        f"{close + len(wrong)} agree within rounding up or down{off}. They say little of a module that must stay in "
        "one SLR of three",
        f"adds up if every printed percentage is within {A_PERCENT:g} of the share, as rounding is, refuted if one "
        "is not",
        EXACT,
    )


def _on_chip(quoted: Quoted) -> Claim:
    printed = quoted["seed3.table_iv.sram_mb"]
    whole, kinds = quoted.table("alveo_u200.whole"), quoted.table("alveo_u200.primitives")
    block = whole["bram36"] * kinds["bram36_bits"] / MIB
    ultra = whole["uram"] * kinds["uram_rows"] * kinds["uram_row_bits"] / MIB
    return Claim(
        f"The FPGA has {printed:g} MB of SRAM (Table IV).",
        adds_up_if(abs(block + ultra - printed) < 1),
        f"computed: {whole['bram36']:,.0f} block RAMs are {block:.2f} MiB, {whole['uram']:,.0f} UltraRAMs "
        f"{ultra:.2f} MiB, together {block + ultra:.1f} MiB; UltraRAM alone is {ultra * MIB / 8e6:.1f} million bytes",
        "adds up if block RAM and UltraRAM together are within 1 MiB of the number, refuted otherwise",
        EXACT,
    )


def _clock(quoted: Quoted) -> Claim:
    printed, mhz = quoted["seed3.table_iv.peak_tops"], quoted["seed3.build.clock_mhz"]
    units = quoted["alveo_u200.whole.dsp"] / quoted["alveo_u200.macs.dsp_per_int32"]
    per_hz = units * quoted["alveo_u200.macs.operations"]
    cartpole = quoted.table("seed3.table_vii.cartpole")
    batch, hidden = cartpole["batch"], cartpole["hidden"]
    seconds = 1 / (cartpole["watts"] * cartpole["gps_per_watt"])
    stages = batch / quoted["seed3.table_vi.parameters.data_parallel"] + 3 * cartpole["weight_tensors"] - 1
    slowest = seconds * 1e6 * mhz / stages
    peaks = [1e6 * mhz * per_hz / 1e12 * quoted["alveo_u200.macs.dsp_per_int32"] / dsp for dsp in MAC_DSPS]
    near = sum(1 / ELSEWHERE <= peak / printed <= ELSEWHERE for peak in peaks)
    passing = near * math.log((1 + CLOCK_TOLERANCE) / (1 - CLOCK_TOLERANCE)) / (2 * math.log(ELSEWHERE))
    return Claim(
        f"The FPGA's peak is {printed:g} TOPS (INT32, Table IV); no clock is printed.",
        consistent_if(abs(1e6 * mhz * per_hz / 1e12 / printed - 1) < CLOCK_TOLERANCE),
        f"reconstructed from three hints, {mhz:g} MHz: {units:,.0f} multiply-accumulates of 4 DSP give {printed:g} "
        f"TOPS at {1e6 * printed / per_hz:.0f} MHz; Table VII's CartPole takes {1e6 * seconds:.1f} us a step, over its "
        f"{stages:,.0f} stages {slowest:.2f} cycles each at {mhz:g} MHz, as {hidden:g} x {hidden:g} products on 4 "
        f"units take (whole at other clocks too, so no proof alone); the authors' build notes ask for {mhz:g} MHz",
        f"consistent if at the clock of the build notes the device's units make the peak within {CLOCK_TOLERANCE:.0%}, "
        "refuted otherwise: how many DSP a multiply-accumulate takes was chosen",
        f"a peak within a factor of {ELSEWHERE:g} would have passed with some whole number of DSP up to "
        f"{MAC_DSPS[-1]} in {passing:.0%} of cases",
    )
