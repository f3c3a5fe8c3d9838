"""Which replay management module (RMM) and which learner are fastest on an FPGA, for a network and B?

Designs are explored by cycle and resource laws; nothing here is measured. A step samples B leaves, trains on them and
updates their priorities; batches are sampled ahead, so the slower of RMM and learner bounds it.
"""

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from impls.fpga import learner
from impls.fpga.learner import FILLS, FP32
from impls.fpga.network import SYNTAX, parse
from impls.fpga.resources import Budget
from impls.terminal import count

from .. import platforms
from ..answer import Answer, Note, Row
from ..estimate import Estimate, Evidence
from ..fpga.answer import SHARINGS, Choice, Question, explore, front, greedy, sources, uses
from ..fpga.learner_search import LearnerPoint
from ..fpga.points import Slice
from ..fpga.rmm_search import LEAF_BITS, Space
from ..platforms import Device, Platform, Quantity
from .options import add_command, add_verbose
from .printer import WIDTH, show

FULL = 0.9
"""Share of a budget from which a note is due."""


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
    add_verbose(ask)
    ask.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code 0. PlatformError or ValueError where it cannot be answered or does not fit."""
    question = _question(options)
    choices = explore(question.network, question.space, question.slices, question.sharing, question.fill, question.mac)
    return show(design_answer(question, choices), options)


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


def design_answer(question: Question, choices: Sequence[Choice]) -> Answer:
    """Return an RMM and a learner for an FPGA as an answer."""
    best, space = choices[0], question.space
    ledger, taken = learner.ledger(best.learner.design, space.batch), uses(best, question.slices)
    rows = [
        Row({"part": "learner", "step": what}, more={"cycles": cycles, "us": 1e6 * cycles / space.clock_hz})
        for what, cycles in ledger.entries
    ]
    rows.append(Row({"part": "RMM", "step": best.rmm_slice}, more={"cycles": best.rmm.cycles}))
    rows += [
        Row(
            {"part": use.what, "slices": " + ".join(use.slices)},
            more={f"{kind}_share": share for kind, share in use.shares.items()},
        )
        for use in taken
    ]
    rows += [_front_row(point) for point in front(question, best)]
    published, fullest = greedy(question, best), max(share for use in taken for share in use.shares.values())
    others = [_design_row(question, other, "other_pipelines", best) for other in choices[1:]]
    notes = [Note(f"bound_by_{best.bottleneck.lower()}", {"slowest_stage": ledger.bottleneck}, "first")]
    notes += [Note("no_other_pipelines", level="first")] if len(choices) == 1 else []
    notes += [Note("nearly_full", {"share": FULL}, "first")] if fullest > FULL else []
    if isinstance(published, str):
        notes.append(Note("greedy_does_not_fit", {"reason": published}, "first"))
    else:
        others.append(_greedy_row(published, max(published.cycles, best.rmm.cycles), best))
        others.sort(key=lambda row: -row.more["pace"])
    notes += [Note("basis", source) for source in sources(question)]
    asked = {
        "platform": question.platform, "network": question.network.name, "parameters": question.network.parameters,
        "macs": question.network.macs, "batch": space.batch, "capacity": space.capacity, "slice": question.sharing,
        "clock_hz": space.clock_hz,
    }  # fmt: skip
    return Answer(asked, _design_row(question, best, "design", best), tuple(rows), tuple(others), notes=tuple(notes))


def _design_row(question: Question, choice: Choice, says: str, best: Choice) -> Row:
    design, rmm, batch = choice.learner.design, choice.rmm.design, question.space.batch
    ledger, shape = learner.ledger(design, batch), rmm.design
    units = {str(stage): units for stage, units in zip(design.stages, design.units, strict=True)}
    hz = question.space.clock_hz / choice.cycles
    label = {
        "pipelines": design.pipelines, "mac_units": sum(design.units), "memory": shape.micro, "fanout": shape.fanout
    }  # fmt: skip
    of_learner = {
        "pipelines": design.pipelines, "samples_per_pipeline": -(-batch // design.pipelines), "units": units,
        "slowest_stage": ledger.bottleneck, "slowest_stage_cycles": max(design.stage_cycles),
        "update_units": design.update_units, "buffers_in_uram": design.uram, "cycles": dict(ledger.entries),
        "slices": choice.learner_slices, "needs": asdict(choice.learner.needed),
    }  # fmt: skip
    of_rmm = {"queue": rmm.queue, "uram": rmm.uram, "cycles": choice.rmm.cycles, "slice": choice.rmm_slice}
    more = {
        "cycles": choice.cycles, "seconds": 1 / hz, "bottleneck": choice.bottleneck, "learner": of_learner,
        "rmm": {**asdict(shape), **of_rmm, "needs": asdict(choice.rmm.needed)}, "dsp": choice.learner.needed.dsp,
        "pace": best.cycles / choice.cycles,
    }  # fmt: skip
    return Row(label, Estimate(hz, hz, hz, Evidence("cycles", "modeled")), "gradient steps/s", more, says)


def _greedy_row(point: LearnerPoint, cycles: float, best: Choice) -> Row:
    shape = {"update_units": point.design.update_units, "slowest_stage_cycles": max(point.design.stage_cycles)}
    more = {"cycles": cycles, "pace": best.cycles / cycles, "dsp": point.needed.dsp, **shape}
    label = {"found_by": "greedy search of [Zhang2023]", "pipelines": point.design.pipelines}
    return Row(label, more=more | {"needs": asdict(point.needed)}, says="greedy")


def _front_row(point: LearnerPoint) -> Row:
    design, needed = point.design, point.needed
    more = {"lut": needed.lut, "dsp": needed.dsp, "sram_kb": needed.sram_bits // 8000}
    shape = {"slowest_stage_cycles": max(design.stage_cycles), "update_units": design.update_units}
    return Row(
        {"front_cycles": point.cycles, "pipelines": design.pipelines}, more={**more, **shape, "needs": asdict(needed)}
    )
