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

from impls.fpga.design import PORTS
from impls.fpga.learner import FILLS, FP32
from impls.fpga.network import SYNTAX, Network, parse
from impls.terminal import count
from impls.training import load_timed

from .. import platforms
from ..answer import Note
from ..fpga.design import SHARINGS, Question, answer_design, explore
from ..fpga.hls import write_hls
from ..fpga.placement import slices_of
from ..fpga.rmm_search import LEAF_BITS, Space
from ..platforms import Quantity
from ..times import laws
from .options import add_command, add_verbose
from .printer import WIDTH, show


def add_to(commands: Any) -> None:
    """Add ``fpga`` to the commands of a parser."""
    summary = "which RMM and learner for an FPGA, a network and B"
    about = f"{__doc__ or ''}\n{textwrap.fill(f'A network is {SYNTAX}.', WIDTH)}"
    ask = add_command(commands, "fpga", summary, about, "fpga --network hopper --batch 256 --platform u200")
    trained = ask.add_mutually_exclusive_group(required=True)
    trained.add_argument("--network", help="the layers of one network, or its name; a learner without targets")
    trained.add_argument("--workload", metavar="NAME", help="a name or a file: all networks of its gradient step")
    ask.add_argument("--batch", type=count, metavar="B", help="samples of a gradient step (default: the workload's)")
    ask.add_argument("--capacity", type=count, default=1 << 20, metavar="N", help="leaves (default: %(default)s)")
    ask.add_argument("--platform", default="u200", help="a name or a file with an FPGA (default: %(default)s)")
    kept = "whether the RMM's slice is kept for it, or the learner may have what is left (default: %(default)s)"
    ask.add_argument("--slice", choices=SHARINGS, default="kept", help=kept)
    ask.add_argument("--fill", choices=FILLS, default="ideal", help="cycles of a tensor unit (default: %(default)s)")
    ask.add_argument("--leaf-bits", type=int, default=LEAF_BITS[0], metavar="W", help="default: %(default)s")
    ask.add_argument("--clock-mhz", type=float, metavar="F", help="default: the platform's")
    ask.add_argument("--dsp-per-mac", type=int, default=FP32.dsp, metavar="D", help="fp32 (default: %(default)s)")
    ask.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    ask.add_argument(
        "--emit", nargs=2, metavar=("hls", "FOLDER"), help="write the RMM as C++ for synthesis, and a host"
    )
    add_verbose(ask)
    ask.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code 0. PlatformError or ValueError where it cannot be answered or does not fit."""
    if options.emit and options.emit[0] != "hls":
        raise ValueError(f"--emit {options.emit[0]}: a design is written as hls; write --emit hls FOLDER")
    if options.dsp_per_mac < 1:
        raise ValueError(f"--dsp-per-mac must be at least 1, not {options.dsp_per_mac}")
    platform = platforms.load(options.platform, options.results)
    fpgas = [device for device in platform.devices if device.kind == "fpga"]
    if len(fpgas) != 1:
        raise ValueError(
            f"platform {platform.name!r} has {len(fpgas) or 'no'} FPGA; there must be one, as in u200 or edge"
        )
    clock = fpgas[0].clock_hz
    if options.clock_mhz is not None:
        clock = Quantity(value=1e6 * options.clock_mhz, origin="assumed", note="as asked")
    if clock is None:
        raise ValueError(f"platform {platform.name!r} states no clock of its FPGA; give one with --clock-mhz")
    network, batch = _read_networks(options)
    space = Space(options.capacity, batch, leaf_bits=(options.leaf_bits,), clock_hz=clock.value, ports=PORTS)
    mac = replace(FP32, dsp=options.dsp_per_mac)
    memory = fpgas[0].memory.bandwidth_bytes_per_s if fpgas[0].memory else None
    question = Question(network, space, slices_of(fpgas[0]), options.slice, options.fill, mac, memory)
    choices = explore(question)
    answer = answer_design(question, choices, platform.name, fpgas[0].slices[0].lut, clock)
    if options.emit:
        line = write_hls(Path(options.emit[1]), choices[0].rmm.design, choices[0].learner.design, batch)
        answer = replace(answer, paste=(line,))
    path = options.results / "fpga" / "placed.json"
    if placed := json.loads(path.read_text()) if path.exists() else []:
        answer = replace(answer, notes=(*answer.notes, _describe_placed(placed)))
    return show(answer, options)


def _describe_placed(records: Sequence[dict[str, Any]]) -> Note:
    """Return the note on the clocks of placed trees: of all, with their sizes, and of the wide by K."""
    rates = [record["fmax_mhz"] for record in records]
    sizes = {name: sorted({record["design"][key] for record in records})
             for name, key in (("leaves", "capacity"), ("banks", "banks"))}  # fmt: skip
    wide = [record for record in records if record["design"]["micro"] == "wide"]
    of_wide = {"wide": [tree["design"]["fanout"] for tree in wide], "wide_mhz": [tree["fmax_mhz"] for tree in wide]}
    return Note("placed", {"trees": len(rates), "low": min(rates), "high": max(rates), **sizes, **of_wide})


def _read_networks(options: argparse.Namespace) -> tuple[Network, int]:
    """Return the networks of a gradient step and its batch. ValueError where they are not given or not modeled."""
    if options.network is not None:
        if options.batch is None:
            raise ValueError("--network takes a batch: add --batch 256, or name a --workload, which has one")
        return parse(options.network), options.batch
    workload = load_timed(options.workload)
    return laws.step_of(workload), workload.learner.batch if options.batch is None else options.batch
