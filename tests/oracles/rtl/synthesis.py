"""Count the cells of RMMs: Amaranth to RTLIL, Yosys for UltraScale+, results/fpga/synthesis.json.

    python -m tests.oracles.rtl.synthesis [--out FILE] [--only PART] [--again] [--limit SECONDS]

Records that the file has already are kept. Cells are counted before placement: they give no clock rate, and a placed
design differs.
"""

import argparse
import contextlib
import importlib.metadata
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.lib import wiring

from .bank import Bank
from .dispatch import Dispatcher, kinds
from .fit import POINTS, RECORDS, Point
from .rmm import Rmm
from .sampler import Sampler
from .updater import Updater

TOOLS = ("amaranth", "pyosys")

LUTS_OF = {
    **{f"LUT{inputs}": 1 for inputs in range(1, 7)},
    **dict.fromkeys(("INV", "SRL16E", "SRLC16E", "SRLC32E", "RAM32X1S", "RAM64X1S"), 1),
    **dict.fromkeys(("RAM32X1D", "RAM64X1D", "RAM128X1S"), 2),
    **dict.fromkeys(("RAM32M", "RAM64M", "RAM128X1D", "RAM256X1S"), 4),
    **dict.fromkeys(("RAM32M16", "RAM64M8", "RAM256X1D", "RAM512X1S", "RAM32X16DR8", "RAM64X8SW"), 8),
}
"""Look-up tables that a cell takes, those that serve as memory or as a shift register included."""
FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE")
BLOCKS = {"dsp": "DSP48E2", "bram18": "RAMB18E2", "bram36": "RAMB36E2", "uram": "URAM288", "carry": "CARRY4"}


def component(point: Point) -> wiring.Component:
    """The hardware of a point's part."""
    design = point.design
    parts: dict[str, Callable[[], wiring.Component]] = {
        "sampler": lambda: Sampler(design, point.tag_bits),
        "updater": lambda: Updater(design, point.tag_bits),
        "bank": lambda: Bank(design, point.tag_bits),
        "dispatcher": lambda: Dispatcher(design, point.tag_bits, point.batch, kinds(design)[0]),
        "rmm": lambda: Rmm(design, point.tag_bits, point.batch),
    }
    return parts[point.part]()


def counts(cells: Mapping[str, int]) -> dict[str, int]:
    """Resources by name from cells by type. ValueError for a cell of unknown cost.

    >>> counts({"LUT6": 3, "RAM32M16": 1, "FDRE": 5, "RAMB18E2": 2})["lut"]
    11
    """
    free = {"MUXF7", "MUXF8", "MUXF9", "BUFG", "$scopeinfo"}
    unknown = set(cells) - set(LUTS_OF) - set(FLIP_FLOPS) - set(BLOCKS.values()) - free
    if unknown:
        raise ValueError(f"cells of unknown cost: {sorted(unknown)}")
    counted = {"lut": sum(luts * cells.get(cell, 0) for cell, luts in LUTS_OF.items())}
    counted["lutram"] = sum(luts * cells.get(cell, 0) for cell, luts in LUTS_OF.items() if cell.startswith("RAM"))
    counted["ff"] = sum(cells.get(cell, 0) for cell in FLIP_FLOPS)
    return counted | {name: cells.get(cell, 0) for name, cell in BLOCKS.items()}


def run_yosys(build: Callable[[], wiring.Component], folder: Path, *commands: tuple[Path, str]) -> None:
    """Run commands on hardware, each with the file for what it says, in a process that is there for it alone."""
    from pyosys import libyosys  # noqa: PLC0415  # the parent has no need of it

    os.setsid()  # the synthesizer starts processes of its own, which end with this one
    os.dup2(os.open(folder / "said", os.O_WRONLY | os.O_CREAT), sys.stdout.fileno())
    (folder / "rtl.il").write_text(rtlil.convert(build()))
    netlist = libyosys.Design()
    for to, command in ((folder / "log", f"read_rtlil {folder / 'rtl.il'}"), *commands):
        libyosys.run_pass(f"tee -q -o {to} {command}", netlist)


def synthesize(point: Point, limit_seconds: float) -> dict[str, Any]:
    """The record of a point and its counts, made in a process of its own. RuntimeError where no cells were counted.

    Success is judged by the counts: the synthesizer may exit with 0 without having mapped anything.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        to_cells = f"synth_xilinx -family xcup -flatten -noiopad {'-uram' if point.uram else ''}"
        commands = (folder / "log", to_cells), (folder / "cells.json", "stat -json")
        arguments = partial(component, point), folder, *commands
        worker = multiprocessing.get_context("spawn").Process(target=run_yosys, args=arguments)
        began = time.perf_counter()
        worker.start()
        worker.join(limit_seconds)
        if worker.pid and worker.is_alive():
            with contextlib.suppress(ProcessLookupError):  # where it has no process group of its own yet
                os.killpg(worker.pid, signal.SIGKILL)
            worker.kill()
            worker.join()
        seconds = round(time.perf_counter() - began, 1)
        written = folder / "cells.json"
        text = written.read_text() if written.exists() else ""
    if not text.strip():
        raise RuntimeError(f"no cells after {seconds} s, exit status {worker.exitcode}")
    cells = json.loads(text)["design"]["num_cells_by_type"]
    counted = counts(cells)
    if not counted["lut"] or not counted["ff"]:
        raise RuntimeError(f"nothing was mapped: {counted}")
    return describe(point) | {"counts": counted, "cells": cells, "seconds": seconds}


def describe(point: Point) -> dict[str, Any]:
    """A point's fields in the file, without its counts."""
    tools = {tool: importlib.metadata.version(tool) for tool in TOOLS}
    return asdict(point) | {"tag_bits": point.tag_bits, "tools": tools}


def main(arguments: list[str] | None = None) -> int:
    """Synthesize the points that the file has no counts of, a line each; returns 1 if one failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.rtl.synthesis", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RECORDS, help="file of counts (%(default)s)")
    parser.add_argument("--only", choices=sorted({point.part for point in POINTS}), help="points of one part only")
    parser.add_argument("--again", action="store_true", help="also points that the file has")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that a point may take (%(default)s)")
    options = parser.parse_args(arguments)
    saved = json.loads(options.out.read_text()) if options.out.exists() else []
    records = {key_of(record): record for record in saved}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    points = [point for point in POINTS if options.only in (None, point.part)]
    failures = 0
    for index, point in enumerate(points, 1):
        print(f"{index}/{len(points)} {point}", end="  ", flush=True)
        key = key_of(describe(point))
        if "counts" in records.get(key, ()) and not options.again:
            print("kept")
            continue
        try:
            records[key] = synthesize(point, options.limit)
        except (RuntimeError, ValueError) as failure:
            print(failure)
            failures += 1
            continue
        print(records[key]["seconds"], "s", records[key]["counts"], flush=True)
        options.out.write_text(_lines(records.values()))
    return 1 if failures else 0


def key_of(record: Mapping[str, Any]) -> str:
    """Key that distinguishes records."""
    return json.dumps([record[name] for name in ("part", "design", "batch", "uram")], sort_keys=True)


def _lines(records: Iterable[Mapping[str, Any]]) -> str:
    """JSON with a record a line, sorted, so that differences are easy to read."""
    return "[\n" + ",\n".join(json.dumps(record) for record in sorted(records, key=key_of)) + "\n]\n"


if __name__ == "__main__":
    sys.exit(main())
