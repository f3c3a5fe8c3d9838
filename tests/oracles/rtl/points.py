"""The RMMs that are synthesized, to fit and to test the laws of ``resources.py``."""

from collections.abc import Iterator
from dataclasses import dataclass

from impls.fpga.design import Design


@dataclass(frozen=True)
class Point:
    """A ``part`` of a design, for batches of up to ``batch``; ``held_out`` points test the fit and are not in it."""

    part: str
    design: Design
    batch: int = 1024
    uram: bool = False
    held_out: bool = False

    @property
    def tag_bits(self) -> int:
        """Bits that number the samples of a batch."""
        return (self.batch - 1).bit_length()

    def __str__(self) -> str:
        design = self.design
        shape = f"K={design.fanout} N={design.capacity} W={design.leaf_bits} S={design.banks} {design.banking}"
        memory = f"{design.ports} {'uram' if self.uram else 'bram'}"
        return f"{self.part} {design.micro} {shape} B={self.batch} {memory}{' held out' * self.held_out}"


def _designs() -> Iterator[Point]:
    # part, micro, K, N, leaf_bits, S, banking, ports, batch, uram, held out
    for line in TABLE.strip().splitlines():
        part, micro, *numbers, banking, ports, batch, memory, use = line.split()
        fanout, capacity, leaf_bits, banks = map(int, numbers)
        design = Design(capacity, fanout, leaf_bits, micro, banks, banking, ports=ports)
        yield Point(part, design, int(batch), memory == "uram", use == "test")


TABLE = """
sampler    scan  2   1024 24 1 contiguous  shared 1024 bram fit
sampler    scan  8   4096 18 1 contiguous  shared 1024 bram fit
sampler    wide  2   1024 24 1 contiguous  shared 1024 bram fit
sampler    wide  8   4096 18 1 contiguous  shared 1024 bram fit
sampler    wide 16    256 12 1 contiguous  shared  256 bram fit
updater    scan  2   1024 24 1 contiguous  shared 1024 bram fit
updater    scan  8   4096 18 1 contiguous  shared 1024 bram fit
updater    wide  2   1024 24 1 contiguous  shared 1024 bram fit
updater    wide  8   4096 18 1 contiguous  shared 1024 bram fit
updater    wide 16    256 12 1 contiguous  shared  256 bram fit
bank       scan  2    256 18 1 contiguous  shared  256 bram fit
bank       scan  2   4096 12 1 contiguous  shared 1024 bram fit
bank       scan  2  65536 24 1 contiguous  shared 1024 uram fit
bank       scan  3   2187 18 1 contiguous  shared 1024 bram fit
bank       scan  4   1024 18 1 contiguous  shared 1024 bram fit
bank       scan  4  16384 32 1 contiguous  shared 4096 uram fit
bank       scan  8    512 40 1 contiguous  shared 1024 bram fit
bank       scan  8  32768 18 1 contiguous  shared  256 uram fit
bank       scan 16   4096 18 1 contiguous  shared 1024 bram fit
bank       scan 16  65536 12 1 contiguous  shared 1024 bram fit
bank       scan 32   1024 24 1 contiguous  shared 1024 bram fit
bank       wide  2   1024 18 1 contiguous  shared 1024 bram fit
bank       wide  2  16384 32 1 contiguous  shared 1024 uram fit
bank       wide  3    729 24 1 contiguous  shared  256 bram fit
bank       wide  4    256 40 1 contiguous  shared  256 bram fit
bank       wide  4   4096 18 1 contiguous  shared 1024 bram fit
bank       wide  4  65536 24 1 contiguous  shared 1024 uram fit
bank       wide  8    512 32 1 contiguous  shared 1024 bram fit
bank       wide  8  32768 12 1 contiguous  shared 4096 uram fit
bank       wide 16    256 40 1 contiguous  shared 1024 bram fit
bank       wide 16   4096 18 1 contiguous  shared 1024 bram fit
bank       wide 16  65536 18 1 contiguous  shared 1024 uram fit
bank       wide 32     32 12 1 contiguous  shared  256 bram fit
dispatcher wide  4    256 18 2 contiguous  shared  256 bram fit
dispatcher wide  4   4096 18 4 contiguous  shared 1024 bram fit
dispatcher wide 16  65536 24 4 interleaved shared  256 bram fit
dispatcher scan  2   4096 12 8 interleaved shared 1024 bram fit
dispatcher wide 16  65536 18 8 contiguous  shared 4096 bram fit
dispatcher wide 16  65536 18 16 interleaved shared 1024 bram fit
rmm        scan  2    256 18 2 contiguous  shared  256 bram fit
rmm        scan  8   1024 18 4 contiguous  shared 1024 bram fit
rmm        wide  4   1024 18 2 interleaved shared 1024 bram fit
bank       scan  2  16384 18 1 contiguous  shared 1024 bram test
bank       scan  4   4096 24 1 contiguous  shared  256 bram test
bank       scan  8   4096 12 1 contiguous  shared 1024 bram test
bank       scan 16  65536 18 1 contiguous  shared 1024 uram test
bank       wide  2   4096 24 1 contiguous  shared 1024 bram test
bank       wide  4  16384 18 1 contiguous  shared 1024 uram test
bank       wide  8   4096 24 1 contiguous  shared 1024 bram test
bank       wide 16   4096 32 1 contiguous  shared  256 bram test
bank       wide  6   1296 18 1 contiguous  shared 1024 bram test
bank       wide 16  65536 24 1 contiguous  shared 1024 bram test
rmm        scan  2   4096 18 1 contiguous  shared 1024 bram test
rmm        scan  4   1024 24 4 interleaved shared 1024 bram test
rmm        scan  4    300 12 3 interleaved shared  256 bram test
rmm        scan  4    200 18 3 contiguous  shared  256 bram test
rmm        scan  2    130  9 6 contiguous  shared  512 bram test
rmm        wide  4    256 18 1 contiguous  shared  256 bram test
rmm        wide  4   1000 12 3 contiguous  shared  256 bram test
rmm        wide  4   4096 18 4 contiguous  shared 1024 bram test
rmm        wide 16   1024 18 2 contiguous  shared  256 bram test
dispatcher wide 16  65536 12 32 interleaved shared 1024 bram test
bank       scan  2   4096 18 1 contiguous  copied 1024 bram fit
bank       scan  4  16384 18 1 contiguous  dual   1024 uram fit
bank       scan  8   4096 18 1 contiguous  dual   1024 bram fit
bank       wide  2   1024 18 1 contiguous  copied 1024 bram fit
bank       wide  4   4096 18 1 contiguous  dual   1024 bram fit
bank       wide  4  16384 24 1 contiguous  dual   1024 uram fit
bank       wide  8    512 24 1 contiguous  copied 1024 bram fit
bank       wide 16    256 18 1 contiguous  dual    256 bram fit
rmm        scan  2    256 18 2 contiguous  copied  256 bram fit
rmm        wide  4   1024 18 2 interleaved dual   1024 bram fit
rmm        scan  4   1024 18 4 contiguous  dual    256 bram fit
bank       scan  2   1024 24 1 contiguous  dual   1024 bram test
bank       scan  4   4096 24 1 contiguous  copied  256 bram test
bank       wide  4    256 32 1 contiguous  dual    256 bram test
bank       wide  8   4096 18 1 contiguous  dual   1024 uram test
bank       wide  3    729 18 1 contiguous  copied 1024 bram test
rmm        scan  4    300 12 3 interleaved dual    256 bram test
rmm        wide  4    256 18 2 contiguous  copied  256 bram test
"""

POINTS = tuple(_designs())
