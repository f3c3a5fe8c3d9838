"""Write a design as C++ for high-level synthesis: the kernel of an RMM, its parameters filled in, and a host program.

[Zhang2023, section VI-C and Fig. 8]: templates that the chosen parameters fill. A call of the kernel samples, updates
or retrieves, whatever the ports of a design's memories. The learner's parameters are written too, for a kernel of a
user's own: none comes with this.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from impls.files import refusing
from impls.fpga import cycles
from impls.fpga.learner import Learner

from .rmm_search import Rmm

TEMPLATES = Path(__file__).with_name("templates")
WORD_BITS = 64  # a sum over all banks is a word of the host


def write_hls(folder: Path, rmm: Rmm, learner: Learner, batch: int) -> str:
    """Write a kernel, its host and its parameters into a folder, which is made; return the line that tries them.

    ValueError, and nothing is written, where a file of such a name is there, the folder cannot be made, or a sum of all
    leaves is no word of 64 bits.
    """
    bits = rmm.design.leaf_bits + (rmm.design.capacity - 1).bit_length()
    if bits > WORD_BITS:
        raise ValueError(f"a sum of all leaves has {bits} bits, and a host's word {WORD_BITS}; lower --leaf-bits")
    texts = {path.name: path.read_text() for path in sorted(TEMPLATES.iterdir())}
    texts["parameters.hpp"] = "\n".join(_list_parameters(rmm, learner, batch)) + "\n"
    files = {folder / name: text for name, text in texts.items()}
    if taken := [path for path in files if path.exists()]:
        raise ValueError(f"{taken[0]} is there already; name another folder, or remove it")
    with refusing(folder, ValueError, "name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text)
    place = shlex.quote(str(folder))
    tried = f"echo update 1 0 1 sample 1 0 total | {place}/host"
    return f"g++ -std=c++17 -O2 -o {place}/host {place}/host.cpp {place}/rmm.cpp && {tried}"


def _list_parameters(rmm: Rmm, learner: Learner, batch: int) -> Iterator[str]:
    """Yield the lines of ``parameters.hpp``: of the tree, of its pipelines, and of the learner."""
    design, stages = rmm.design, ", ".join(map(str, learner.stages))
    yield "// Written by `python -m dse fpga --emit hls`: the parameters of a design."
    yield f"// Its memories are {design.ports}. A call of the kernel samples or updates, never both at once."
    yield "#pragma once"
    numbers = {
        "CAPACITY": (design.capacity, "leaves"),
        "FANOUT": (design.fanout, "K"),
        "BANKS": (design.banks, "S"),
        "BANK_CAPACITY": (design.bank_capacity, "leaves of a bank"),
        "LEVELS": (design.levels, "below the root of a bank"),
        "LEAF_BITS": (design.leaf_bits, "of an unsigned leaf"),
        "BATCH": (batch, "B"),
        "QUEUE": (rmm.queue, "elements that a bank's queue holds"),
        "QUEUE_ROWS": (-(-rmm.queue // design.banks), "of S lanes"),
        "SIBLINGS_AT_ONCE": (design.fanout if design.micro == "wide" else 1, f"micro-architecture {design.micro}"),
        "INTERVAL": (cycles.interval(design, "sample"), "cycles between two samples of a bank"),
        "CLOCK_MHZ": (round(design.clock_hz / 1e6), "assumed by the model"),
        "PIPELINES": (learner.pipelines, "DP of the learner"),
        "UPDATE_UNITS": (learner.update_units, "of the learner"),
    }
    yield from (f"constexpr unsigned long long {name} = {value};  // {what}" for name, (value, what) in numbers.items())
    yield f"constexpr bool INTERLEAVED = {str(design.banking == 'interleaved').lower()};  // else contiguous banks"
    yield f"constexpr unsigned SIZES[] = {_list_numbers(design.sizes)};  // nodes of each level of a bank, leaves first"
    yield f"constexpr unsigned WIDTHS[] = {_list_numbers(design.widths)};  // bits of a node of each level"
    yield f"constexpr unsigned UNITS[] = {_list_numbers(learner.units)};  // of {stages}"


def _list_numbers(numbers: Sequence[Any]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"
