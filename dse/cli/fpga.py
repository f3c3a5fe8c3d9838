"""Which replay management module (RMM) and which learner are fastest on an FPGA, for a network and B?

Designs are explored by cycle and resource laws; nothing here is measured. A step samples B leaves, trains on them and
updates their priorities; batches are sampled ahead, so the slower of RMM and learner bounds it.
"""

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from impls.fpga import learner
from impls.fpga.learner import FILLS, FP32
from impls.fpga.network import SYNTAX, parse
from impls.fpga.resources import Budget
from impls.terminal import count, plural

from .. import platforms
from ..fpga.answer import SHARINGS, Choice, Question, Use, explore, front, greedy, sources, to_dict, uses
from ..fpga.learner_search import LearnerPoint
from ..fpga.points import Slice
from ..fpga.rmm_search import LEAF_BITS, Space
from ..platforms import Device, Platform, Quantity
from .text import WIDTH, add_command, roughly, wrapped

FULL = 0.9
"""Share of a budget from which a note is due."""
GREEDY = "greedy allocation of [Zhang2023]"
COLUMNS = {"lut": "LUT", "ff": "FF", "dsp": "DSP", "bram36": "BRAM36", "uram": "URAM"}


def add_to(commands: Any) -> None:
    """Add ``fpga`` to the commands of a parser."""
    summary = "which RMM and learner for an FPGA, a network and B"
    about = f"{__doc__}\n{textwrap.fill(f'A network is {SYNTAX}.', WIDTH)}"
    ask = add_command(commands, "fpga", summary, about, "fpga --network hopper --batch 256 --platform u200")
    ask.add_argument("--network", required=True, help="its layers, or a name")
    ask.add_argument("--batch", type=count, required=True, metavar="B", help="samples of a gradient step")
    ask.add_argument("--capacity", type=count, default=1 << 20, metavar="N", help="leaves (default: %(default)s)")
    ask.add_argument("--platform", default="u200", help="a name or a file with an FPGA (default: %(default)s)")
    kept = "whether the RMM's slice is kept for it, or the learner may have what is left (default: %(default)s)"
    ask.add_argument("--slice", choices=SHARINGS, default="kept", help=kept)
    ask.add_argument("--fill", choices=FILLS, default="ideal", help="cycles of a tensor unit (default: %(default)s)")
    ask.add_argument("--leaf-bits", type=int, default=LEAF_BITS[0], metavar="W", help="default: %(default)s")
    ask.add_argument("--clock-mhz", type=float, metavar="F", help="default: the platform's")
    ask.add_argument("--dsp-per-mac", type=int, default=FP32.dsp, metavar="D", help="fp32 (default: %(default)s)")
    ask.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    ask.add_argument("--front", action="store_true", help="also which learners take less and are slower; JSON has them")
    ask.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code 0. PlatformError or ValueError where it cannot be answered or does not fit."""
    question = _question(options)
    choices = explore(question.network, question.space, question.slices, question.sharing, question.fill, question.mac)
    print(json.dumps(to_dict(question, choices)) if options.json else text(question, choices, options.front))
    return 0


def _question(options: argparse.Namespace) -> Question:
    if options.dsp_per_mac < 1:
        raise ValueError(f"--dsp-per-mac must be at least 1, not {options.dsp_per_mac}")
    machine = platforms.load(options.platform, options.results)
    device = _fpga(machine)
    clock = device.clock_hz
    if options.clock_mhz is not None:
        clock = Quantity(value=1e6 * options.clock_mhz, origin="assumed", note="as asked")
    if clock is None:
        raise ValueError(f"platform {machine.name!r} states no clock of its FPGA; give one with --clock-mhz")
    return Question(
        network=parse(options.network),
        space=Space(options.capacity, options.batch, leaf_bits=(options.leaf_bits,), clock_hz=clock.value),
        platform=machine.name,
        slices=tuple(Slice(part.name, Budget(**part.usable())) for part in device.slices),
        size=device.slices[0].lut,
        clock=clock,
        sharing=options.slice,
        fill=options.fill,
        mac=replace(FP32, dsp=options.dsp_per_mac),
    )


def _fpga(machine: Platform) -> Device:
    """The FPGA of a platform, which must have one."""
    fpgas = [device for device in machine.devices if device.kind == "fpga"]
    if len(fpgas) != 1:
        raise ValueError(
            f"platform {machine.name!r} has {len(fpgas) or 'no'} FPGA; there must be one, as in u200 or edge"
        )
    return fpgas[0]


def text(question: Question, choices: Sequence[Choice], with_front: bool = False) -> str:
    """Write the answer for a reader."""
    best, space, network = choices[0], question.space, question.network
    micro = 1e6 * best.cycles / space.clock_hz
    ledger = learner.ledger(best.learner.design, space.batch)
    waits = f"the learner, whose slowest stage is {ledger.bottleneck}" if best.bottleneck == "learner" else "the RMM"
    shape = best.rmm.design.design
    units = f"{plural(best.learner.design.pipelines, 'pipeline')} of {sum(best.learner.design.units):,} MAC units"
    lines = [
        *wrapped(
            f"Take a learner of {units} and a {shape.micro} RMM of K = {shape.fanout}: about {roughly(1e6 / micro)} "
            f"gradient steps/s (modeled); bottleneck: {waits.partition(',')[0]}.",
            "",
        ),
        f"For {network.name} ({network.parameters:,} parameters, {network.macs:,} MACs a sample), batches of "
        f"{space.batch:,}, N = {space.capacity:,} leaves, on {question.platform} at {space.clock_hz / 1e6:g} MHz with "
        f"the RMM's slice {question.sharing}:",
        "",
        *_designs(best, space.batch),
        f"  {best.cycles:,.0f} cycles a step ({micro:,.2f} us, {1e6 / micro:,.0f} per second); bottleneck: {waits}",
        f"  RMM {best.rmm.cycles:,.0f} cycles; learner {ledger.cycles:,}: "
        + ", ".join(f"{spent:,} {what}" for what, spent in ledger.entries),
        "",
        *_utilization(uses(best, question.slices)),
        "",
        *_alternatives(question, choices),
        "",
        *(_front(front(question, best)) if with_front else ()),
        "  all of it is modeled, none measured; it rests on",
        *(f"    {one['what']}: {one['basis']}, {one['source']}" for one in sources(question)),
    ]
    return "\n".join(lines)


def _designs(choice: Choice, batch: int) -> list[str]:
    design, rmm = choice.learner.design, choice.rmm.design
    shape = rmm.design
    units = ", ".join(f"{stage} {amount}" for stage, amount in zip(design.stages, design.units, strict=True))
    return [
        f"  learner in {' + '.join(choice.learner_slices)}: DP = {plural(design.pipelines, 'pipeline')} of "
        f"{sum(design.units)} MAC units, PI = {-(-batch // design.pipelines):,} samples each, "
        f"{max(design.stage_cycles):,} cycles a stage, {design.update_units} update units",
        f"    units: {units}",
        f"  RMM in {choice.rmm_slice}: {shape.micro}, K = {shape.fanout}, S = {shape.banks} {shape.banking}, "
        f"{shape.leaf_bits}-bit leaves, queues for {rmm.queue:,}",
    ]


def _utilization(taken: Sequence[Use]) -> list[str]:
    names = [f"{' + '.join(use.slices)} ({use.what})" for use in taken]
    wide = max(map(len, ["utilization", *names]))
    lines = [f"  {'utilization':{wide}}" + "".join(f"{title:>8}" for title in COLUMNS.values())]
    for name, use in zip(names, taken, strict=True):
        cells = (f"{use.shares[kind]:8.0%}" if kind in use.shares else f"{'-':>8}" for kind in COLUMNS)
        lines.append(f"  {name:{wide}}" + "".join(cells))
    if max(share for use in taken for share in use.shares.values()) > FULL:
        lines.append(f"  note: more than {FULL:.0%} of something is taken; whether that meets the clock is not modeled")
    return lines


def _alternatives(question: Question, choices: Sequence[Choice]) -> list[str]:
    best = choices[0]
    others = [("runner-up", one.learner, one.cycles) for one in choices[1:]]
    published = greedy(question, best)
    if not isinstance(published, str):
        others.append((GREEDY, published, max(published.cycles, best.rmm.cycles)))
    lines = [
        f"  {name}: DP = {point.design.pipelines}, {point.needed.dsp:,} DSP instead of {best.learner.needed.dsp:,}, "
        f"{cycles / best.cycles - 1:+.1%} cycles"
        for name, point, cycles in others
    ]
    if len(choices) == 1:
        lines.insert(0, "  runner-up: no other number of pipelines fits")
    return [*lines, f"  {GREEDY}: {published}"] if isinstance(published, str) else lines


def _front(points: Sequence[LearnerPoint]) -> list[str]:
    titles = ("cycles", "LUT", "DSP", "SRAM KB", "DP", "T_max")
    lines = ["  front of learners, sampled at eighths of the DSP:", "  " + "".join(f"{title:>12}" for title in titles)]
    for point in points:
        design, needed = point.design, point.needed
        cells = (point.cycles, needed.lut, needed.dsp, needed.sram_bits // 8000, design.pipelines)
        lines.append("  " + "".join(f"{cell:>12,}" for cell in (*cells, max(design.stage_cycles))))
    return [*lines, ""]
