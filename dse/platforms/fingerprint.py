"""Name what a number was measured on and by: the machine, its software, the commit and the command."""

import functools
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from impls.cores import memory_limit, read_text

PACKAGES = ("numpy", "numba", "llvmlite", "fanout", "cupy-cuda13x", "torch", "torchrl", "gymnasium")
PROCESSOR = {  # facts of a processor, and what /proc/cpuinfo calls them on x86 and on ARM
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "stepping": ("stepping", "CPU revision"),
}
VECTOR_SETS = (
    *("sse4_2", "avx", "fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"),
    *("neon", "asimd", "sve", "sve2"),
)
"""Vector instructions that tell one generation of processors from another, by the names that Linux has for them.

Other flags are no part of a machine's key: a new kernel shows new ones of the same processor.
"""

COMPILED_FOR = {
    "compiled_for": "NUMBA_CPU_NAME",
    "compiled_with": "NUMBA_CPU_FEATURES",
    "optimized": "NUMBA_OPT",
    "bounds_checked": "NUMBA_BOUNDSCHECK",
    "with_avx": "NUMBA_ENABLE_AVX",
    "loops_vectorized": "NUMBA_LOOP_VECTORIZE",
    "slp_vectorized": "NUMBA_SLP_VECTORIZE",
}
"""Facts that are stated where numba is set to compile for another processor or in another way, and these settings."""


def where(machine: str | None) -> str:
    """Begin advice to measure on a machine: with its name, but for the machine that asks."""
    return "" if machine == fingerprint()["key"] else f"on machine {machine} "


@functools.cache
def fingerprint() -> Mapping[str, Any]:
    """Describe this machine and its software.

    ``key`` hashes all facts of ``processor``, the cores, the caches and, only where they are set, those of
    ``COMPILED_FOR``: other compiled code has other times.
    """
    identity = {
        **processor(read_text("/proc/cpuinfo")),
        "cores": os.cpu_count() or 1,
        "caches": _caches(),
        **{fact: os.environ[name] for fact, name in COMPILED_FOR.items() if name in os.environ},
    }
    return {
        "key": key_of(identity),
        **identity,
        "memory_bytes": int(limit) if math.isfinite(limit := memory_limit()) else None,
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "gpus": query_gpus("name,driver_version,memory.total"),
    }


def key_of(identity: Mapping[str, Any]) -> str:
    """Hash a processor with its cores and caches to ten hexadecimal digits, whatever the order of the facts."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]


def identity_of(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a record's machine that its key is the hash of."""
    names = (*PROCESSOR, "vector_sets", "cpu", "cores", "caches", *COMPILED_FOR)
    return {name: machine[name] for name in names if name in machine}


def processor(cpuinfo: str) -> dict[str, Any]:
    """Read facts of the first processor in the text of /proc/cpuinfo: those of ``PROCESSOR``, ``vector_sets``, ``cpu``.

    ``cpu`` is its name. Other facts that the text lacks are None, as all are on a system without that file.
    """
    lines = (line.partition(":") for line in cpuinfo.strip().partition("\n\n")[0].splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    facts = {fact: next((values[name] for name in names if name in values), None) for fact, names in PROCESSOR.items()}
    flags = values.get("flags", values.get("Features"))
    return {
        **facts,
        "vector_sets": None if flags is None else [name for name in VECTOR_SETS if name in flags.split()],
        "cpu": values.get("model name") or platform.processor() or platform.machine(),
    }


def data_caches() -> Iterator[tuple[str, Path]]:
    """Yield (level, such as "L1"; the folder in which the system describes it) of each data cache that a core sees."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if read_text(index / "type") != "Instruction":
            yield f"L{read_text(index / 'level')}", index


def _caches() -> dict[str, int]:
    """Read the bytes of the data caches one core sees, by level; empty where the system says nothing."""
    sizes = ((level, re.fullmatch(r"(\d+)([KM])", read_text(index / "size"))) for level, index in data_caches())
    return {level: int(size[1]) * {"K": 1 << 10, "M": 1 << 20}[size[2]] for level, size in sizes if size}


def query_gpus(fields: str, form: str = "csv,noheader") -> list[str]:
    """List fields of each GPU, a line each, as its driver's own tool prints them; empty without one."""
    query = ["nvidia-smi", f"--query-gpu={fields}", f"--format={form}"]
    try:
        printed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in printed.splitlines() if line.strip()]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
