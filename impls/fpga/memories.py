"""Memory primitives of an UltraScale+ device that a memory takes: the cheapest, by the costs of Yosys 0.70.

Costs are in bits of flip-flops. A kind of primitive is ``depth`` words deep at a width of ``width`` bits; a memory is
cut into pieces of that depth, whose words are laid side by side, each begun on a new *byte* where it is written alone.
"""

from dataclasses import dataclass

MULTIPLEXER = 0.5
"""Cost of choosing one more piece, per bit read or per write enable."""
SEPARATE_PORT = 2
"""Cost of a read port of its own."""


@dataclass(frozen=True)
class Primitive:
    """A configuration of a primitive; ``each`` is its cost, or that of a full one where it is ``shared`` by the bit."""

    name: str
    depth: int
    width: int
    byte: int
    each: int
    shared: bool = False


def _block(name: str, bits: int, widest: int, each: int) -> list[Primitive]:
    """Configurations of a block RAM: as deep as it is narrow; every 8 bits have a ninth, used from width 9 up."""
    widths = [(bits // data, data if data < 8 else data * 9 // 8) for data in (1, 2, 4, 8, 16, 32, 64)]
    return [Primitive(name, depth, width, min(width, 9), each) for depth, width in widths if width <= widest]


DISTRIBUTED = (Primitive("lutram", 32, 14, 14, 16, True), Primitive("lutram", 64, 7, 7, 16, True))
BLOCK = (*_block("bram18", 1 << 14, 36, 129), *_block("bram36", 1 << 15, 72, 257))
ULTRA = (Primitive("uram", 4096, 72, 8, 1024), Primitive("uram", 4096, 72, 9, 1024))
LUTS_OF_DISTRIBUTED = 8


@dataclass(frozen=True)
class Memory:
    """``rows`` of ``words``, each of ``width`` bits and written alone, with one port to write and one to read.

    A memory that ``answers_at_once`` has no register behind its read port, which only distributed RAM can do without.
    """

    rows: int
    words: int
    width: int
    answers_at_once: bool = False

    @property
    def bits(self) -> int:
        """Number of bits that it holds."""
        return self.rows * self.words * self.width


@dataclass(frozen=True)
class Allocation:
    """``number`` primitives of a kind, or flip-flops, ``"ff"``, a bit each; the memory is cut into ``pieces``."""

    primitive: str
    number: int
    pieces: int


def allocate(memory: Memory, uram: bool) -> Allocation:
    """The cheapest primitives; ``uram`` says whether Ultra RAM may be used.

    >>> allocate(Memory(65536 // 16, 16, 18), uram=True)
    Allocation(primitive='uram', number=4, pieces=1)
    >>> allocate(Memory(256, 16, 18), uram=True), allocate(Memory(1, 16, 22), uram=True)
    (Allocation(primitive='bram36', number=4, pieces=1), Allocation(primitive='ff', number=352, pieces=1))
    """
    best, chosen = memory.bits, Allocation("ff", memory.bits, 1)
    for kind in (DISTRIBUTED, *(() if memory.answers_at_once else (BLOCK, *((ULTRA,) if uram else ())))):
        # Invariant: best is the cost of the chosen allocation, rounded down.
        cost, primitive = min(((_cost(memory, each), each) for each in kind), key=lambda priced: priced[0])
        if cost < best:
            best = int(cost)
            chosen = Allocation(primitive.name, _number(memory, primitive), _pieces(memory, primitive))
    return chosen


def _pieces(memory: Memory, primitive: Primitive) -> int:
    return -(-memory.rows // primitive.depth)


def _number(memory: Memory, primitive: Primitive) -> int:
    padded = memory.words * -(-memory.width // primitive.byte) * primitive.byte
    return -(-_pieces(memory, primitive) * padded // primitive.width)


def _cost(memory: Memory, primitive: Primitive) -> float:
    pieces, width = _pieces(memory, primitive), memory.words * memory.width
    used = pieces * width / primitive.width if primitive.shared else _number(memory, primitive)
    chosen = (pieces - 1) * width + (pieces * memory.words if pieces > 1 else 0)
    return used * primitive.each + chosen * MULTIPLEXER + SEPARATE_PORT
