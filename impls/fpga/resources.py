"""Resources of an RMM on a device: memory primitives and flip-flops counted, look-up tables from fitted terms.

A part (``sampler``, ``updater``, ``bank``, ``dispatcher``, ``rmm``) is what ``rtl/`` builds under that name. Counts are
those of Yosys before placement; look-up tables are the sum of the part's terms, each times its coefficient in
``coefficients.py``, and of those that serve as memory. No part needs a DSP block.

Memories take the primitives of an UltraScale+ device that are cheapest by the costs of Yosys 0.70, in bits of
flip-flops. A kind of primitive is ``depth`` words deep at a width of ``width`` bits; a memory is cut into pieces of
that depth, whose words are laid side by side, each begun on a new *byte* where it is written alone.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache

from .coefficients import LUTS
from .design import Design

MULTIPLEXER = 0.5
"""Cost of choosing one more piece, per bit read or per write enable."""
SEPARATE_PORT = 2
"""Cost of a read port of its own."""
HOLDING_PORT = 8
"""Cost of the ports of a dual block RAM: the port that writes reads at the same time, so a register holds its word."""


@dataclass(frozen=True)
class Primitive:
    """A configuration of a primitive; ``each`` is its cost, or that of a full one where it is ``shared`` by the bit."""

    name: str
    depth: int
    width: int
    byte: int
    each: int
    shared: bool = False


def block_ram(name: str, bits: int, widest: int, each: int) -> list[Primitive]:
    """Configurations of a block RAM: as deep as it is narrow; every 8 bits have a ninth, used from width 9 up.

    The widest has both ports of the block for one to read and one to write; each alone has half of it.
    """
    widths = [(bits // data, data if data < 8 else data * 9 // 8) for data in (1, 2, 4, 8, 16, 32, 64)]
    return [Primitive(name, depth, width, min(width, 9), each) for depth, width in widths if width <= widest]


DISTRIBUTED = (Primitive("lutram", 32, 14, 14, 16, True), Primitive("lutram", 64, 7, 7, 16, True))
BLOCK = (*block_ram("bram18", 1 << 14, 36, 129), *block_ram("bram36", 1 << 15, 72, 257))
ULTRA = (Primitive("uram", 4096, 72, 8, 1024), Primitive("uram", 4096, 72, 9, 1024))
DEEP_DISTRIBUTED = tuple(Primitive(f"lutram{depth}", depth, 1, 1, depth // 16, True) for depth in (64, 128, 256))
DUAL_DISTRIBUTED = (Primitive("lutram", 32, 8, 8, 16, True), *DEEP_DISTRIBUTED)
DUAL_BLOCK = (*block_ram("bram18", 1 << 14, 18, 129), *block_ram("bram36", 1 << 15, 36, 257))
Kinds = Sequence[tuple[Sequence[Primitive], Sequence[Primitive], int]]
KINDS: Kinds = ((DISTRIBUTED, DUAL_DISTRIBUTED, SEPARATE_PORT), (BLOCK, DUAL_BLOCK, HOLDING_PORT), (ULTRA, ULTRA, 2))
"""Primitives with a port to write and one to read, dual ones, and the cost of the ports of a dual one, by kind."""
LUTS_OF_DISTRIBUTED = {"lutram": 8, "lutram64": 2, "lutram128": 4, "lutram256": 8}


@dataclass(frozen=True)
class Memory:
    """``rows`` of ``words``, each of ``width`` bits and written alone, with a port to write and ``reads`` to read.

    A memory that ``answers_at_once`` has no register behind its read port, which only distributed RAM can do without.
    A second port to read takes a second copy, unless it is ``dual`` and reads by the port that writes, in turn.
    """

    rows: int
    words: int
    width: int
    answers_at_once: bool = False
    reads: int = 1
    dual: bool = False

    @property
    def bits(self) -> int:
        """Number of bits that it holds."""
        return self.rows * self.words * self.width


@dataclass(frozen=True)
class Allocation:
    """``number`` primitives of a kind, or flip-flops, ``"ff"``, a bit each; the memory is cut into ``pieces``.

    ``holds``: whether a register holds the word that the writing port has read.
    """

    primitive: str
    number: int
    pieces: int
    holds: bool = field(default=False, repr=False)


def allocate(memory: Memory, uram: bool, kinds: Kinds = KINDS) -> Allocation:
    """The cheapest primitives, of a device's ``kinds``; ``uram`` says whether Ultra RAM may be used.

    >>> allocate(Memory(65536 // 16, 16, 18), uram=True)
    Allocation(primitive='uram', number=4, pieces=1)
    >>> allocate(Memory(256, 16, 18), uram=True), allocate(Memory(1, 16, 22), uram=True)
    (Allocation(primitive='bram36', number=4, pieces=1), Allocation(primitive='ff', number=352, pieces=1))
    """
    best, chosen = memory.bits, Allocation("ff", memory.bits, 1)
    for separate, dual, holding in kinds[: 1 if memory.answers_at_once else 2 + uram]:
        # Invariant: best is the cost of the chosen allocation, rounded down.
        ways = [(memory.reads, memory.reads * SEPARATE_PORT, primitive) for primitive in separate]
        ways += [(1, holding, primitive) for primitive in dual if memory.dual]
        cost, way = min(((_cost(memory, *way), way) for way in ways), key=lambda priced: priced[0])
        if cost < best:
            best, (copies, port, primitive) = int(cost), way
            number, pieces = copies * _number(memory, primitive), _pieces(memory, primitive)
            chosen = Allocation(primitive.name, number, pieces, port == HOLDING_PORT)
    return chosen


def _pieces(memory: Memory, primitive: Primitive) -> int:
    return -(-memory.rows // primitive.depth)


def _number(memory: Memory, primitive: Primitive) -> int:
    padded = memory.words * -(-memory.width // primitive.byte) * primitive.byte
    return -(-_pieces(memory, primitive) * padded // primitive.width)


def _cost(memory: Memory, copies: int, port: int, primitive: Primitive) -> float:
    pieces, width = _pieces(memory, primitive), memory.words * memory.width
    used = pieces * width / primitive.width if primitive.shared else _number(memory, primitive)
    chosen = memory.reads * (pieces - 1) * width + (pieces * memory.words if pieces > 1 else 0)
    return copies * used * primitive.each + chosen * MULTIPLEXER + port


BATCH = 1024
"""Default for the largest batch, which decides the depth of queues and the width of tags."""


@dataclass(frozen=True)
class Part:
    """``ff`` flip-flops, the number of memory ``primitives`` by name, and ``terms`` of its look-up tables."""

    ff: int
    terms: Mapping[str, int]
    primitives: Mapping[str, int]

    def __add__(self, other: "Part") -> "Part":
        return _total((self, other))

    def times(self, count: int) -> "Part":
        """Cost of several of it."""
        terms, primitives = (
            {name: count * size for name, size in own.items()} for own in (self.terms, self.primitives)
        )
        return Part(count * self.ff, terms, primitives)

    def fitted_luts(self, coefficients: Mapping[str, float] = LUTS) -> float:
        """Look-up tables without those that serve as memory."""
        return sum(coefficients[name] * size for name, size in self.terms.items())

    @property
    def memory_luts(self) -> int:
        """Look-up tables that serve as memory."""
        return sum(luts * self.primitives.get(name, 0) for name, luts in LUTS_OF_DISTRIBUTED.items())


def _total(parts: Iterable[Part]) -> Part:
    """Cost of all parts; terms and primitives that are 0 are omitted."""
    ff, terms, primitives = 0, dict[str, int](), dict[str, int]()
    for part in parts:
        ff += part.ff
        for sums, own in ((terms, part.terms), (primitives, part.primitives)):
            for name, size in own.items():
                if size:
                    sums[name] = sums.get(name, 0) + size
    return Part(ff, terms, primitives)


@dataclass(frozen=True)
class Resources:
    """Resources of a design. Half a block RAM is half a ``bram36``; ``sram_bits`` are those of all nodes."""

    lut: int
    ff: int
    dsp: int
    bram36: float
    uram: int
    sram_bits: int


@dataclass(frozen=True)
class Budget:
    """The available amount of each resource; None: no bound."""

    lut: int | None = None
    ff: int | None = None
    dsp: int | None = None
    bram36: float | None = None
    uram: int | None = None


_BOUNDS = tuple(field.name for field in fields(Budget))


class DoesNotFit(ValueError):
    """A design that needs more than there is; ``exceeded`` has (have, need) of every such resource."""

    def __init__(self, exceeded: Mapping[str, tuple[float, float]], what: str = "it") -> None:
        self.exceeded = dict(exceeded)
        shortages = "; ".join(f"{name}: have {have:,}, need {need:,}" for name, (have, need) in exceeded.items())
        super().__init__(f"{what} does not fit: {shortages}")


@lru_cache(maxsize=4096)  # a search asks for the same designs under many budgets
def resources(design: Design, *, batch: int = BATCH, uram: bool = True) -> Resources:
    """Resources of the whole RMM, for batches of up to ``batch``; ``uram`` says whether Ultra RAM may be used.

    >>> round(resources(Design(1 << 20, fanout=2, leaf_bits=17)).sram_bits / 2**23, 3)  # MiB
    4.5
    """
    part = rmm(design, batch, uram)
    blocks, tree_bits = part.primitives, sum(map(operator.mul, design.sizes, design.widths))
    return Resources(
        lut=round(part.fitted_luts() + part.memory_luts),
        ff=part.ff,
        dsp=0,
        bram36=blocks.get("bram36", 0) + blocks.get("bram18", 0) / 2,
        uram=blocks.get("uram", 0),
        sram_bits=design.banks * tree_bits,
    )


def fits(design: Design, budget: Budget, *, batch: int = BATCH, uram: bool = True) -> Resources:
    """Resources of the design. DoesNotFit, with every shortage, where they exceed the budget."""
    needed = resources(design, batch=batch, uram=uram)
    lacking = exceeded(needed, budget)
    if lacking:
        raise DoesNotFit(lacking)
    return needed


def exceeded(needed: Resources, budget: Budget) -> dict[str, tuple[float, float]]:
    """(have, need) of every resource there is too little of."""
    return {
        name: (have, need)
        for name in _BOUNDS
        if (have := getattr(budget, name)) is not None and (need := getattr(needed, name)) > have
    }


def _bits(values: int) -> int:
    """Bits of a number that distinguishes a given number of values."""
    return (values - 1).bit_length()


def _kept(design: Design, level: int) -> int:
    """Stored bits of a node: for a leaf, those an update brings."""
    return design.widths[level] if level else design.leaf_bits


def _adders(values: int) -> int:
    """Number of adders in ``nodes.prefix_sums`` of a given number of values."""
    if values <= 1:
        return 0
    half = (values + 1) // 2
    return _adders(half) + _adders(values - half) + values - half


def _siblings(design: Design, level: int) -> int:
    """Words of a group that are ever written: fewer than K below the root, where there are fewer nodes."""
    return min(design.fanout, design.sizes[level])


def sampler(design: Design, batch: int = BATCH, uram: bool = True) -> Part:
    """Cost of a stage a level, which registers a sample, its prefix value and its tag twice.

    The last stage has a priority in place of the second prefix value. ``wide`` has K - 1 subtracters, ``scan`` one.
    """
    fanout, tag = design.fanout, _bits(batch)
    ff, terms = 0, Counter[str]()
    for level, width in enumerate(design.widths[1:]):
        above, node = _bits(design.sizes[level + 1]), _bits(design.sizes[level])
        ff += (1 + above + width + tag) + (1 + node + _kept(design, level) + tag)
        if design.micro == "wide":
            terms["siblings subtracted"] += (_siblings(design, level) - 1) * width
            terms["siblings summed"] += _adders(_siblings(design, level) - 1) * design.widths[level]
        else:
            ff += (1 if design.overlaps else 2) * _bits(fanout) + 1
            terms["sibling passed"] += width
        if design.overlaps:
            terms["sibling checked"] += memory_of(design, level).words * _kept(design, level)
        terms["node divided"] += _uneven(fanout) * _bits(fanout) * node
    if design.micro == "wide":
        terms["priority chosen"] = (_siblings(design, 0) - 1) * design.leaf_bits
    return Part(ff, terms, {})


def updater(design: Design, batch: int = BATCH, uram: bool = True) -> Part:
    """Cost of a stage a level, which registers an update and the sum it wrote last.

    A node's number is shifted from stage to stage, and shared, where K is a power of two. The leaves' stage also
    registers whether it is to write, and the tag and the priority of a retrieval. Where a port reads and writes in
    turn, no sum is kept, and the bank knows whose turn it is.
    """
    nodes = [_bits(size) for size in design.sizes[:-1]]
    retrieval = 2 + design.leaf_bits + 2 * _bits(batch)
    changes = design.leaf_bits + design.levels * (design.leaf_bits + 1)
    sums = [_kept(design, level) for level in range(design.levels)]
    ff = retrieval + changes + design.widths[-1] + design.levels + 2 + sum(nodes)
    terms = Counter({"change added": sum(sums), "priority retrieved": design.leaf_bits})
    if design.ports != "dual":
        ff += sum(sums) + nodes[0]
        terms["node compared"] = sum(nodes)
    if _uneven(design.fanout):
        ff += sum(nodes[1:])
        terms["node divided"] += _bits(design.fanout) * sum(nodes)
    if design.micro == "wide":
        for level, width in enumerate(sums):
            terms["word chosen"] += max(0, _siblings(design, level) - 2) * width
            terms["word enabled"] += _siblings(design, level) - 1
    return Part(ff, terms, {})


def bank(design: Design, batch: int = BATCH, uram: bool = True) -> Part:
    """Cost of both pipelines and their memories."""
    memories = (_memory(design, level, uram) for level in range(design.levels))
    turn = Part(int(design.ports == "dual"), {}, {})
    return _total((sampler(design, batch), updater(design, batch), turn, *memories))


def memory_of(design: Design, level: int) -> Memory:
    """The memory of a bank's level."""
    groups, words = design.sizes[level + 1], _siblings(design, level)
    rows, words = (groups, words) if design.micro == "wide" else (groups * design.fanout, 1)
    return Memory(rows, words, _kept(design, level), reads=1 + design.overlaps, dual=design.ports == "dual")


def _memory(design: Design, level: int, uram: bool) -> Part:
    """Cost of a level's memory. Other than block or Ultra RAM has a register behind it; address bits choose a piece."""
    memory = memory_of(design, level)
    used, row = allocate(memory, uram, KINDS), memory.words * memory.width
    read = row if used.primitive in ("ff", *LUTS_OF_DISTRIBUTED) else _bits(used.pieces)
    shared, ff = 0 if design.ports == "copied" else _bits(memory.rows), memory.reads * read + used.holds * row
    return _stored(memory, used, 1) + Part(ff, {"address shared": shared, "word held": used.holds * row}, {})


def _stored(memory: Memory, used: Allocation, copies: int) -> Part:
    """Cost of the cells of ``copies`` memories and of choosing the pieces that are read."""
    terms = {"piece chosen": copies * memory.reads * (used.pieces - 1) * memory.words * memory.width}
    if used.primitive == "ff":
        return Part(copies * used.number, terms, {})
    return Part(0, terms, {used.primitive: copies * used.number})


def dispatcher(design: Design, batch: int = BATCH, uram: bool = True) -> Part:
    """Cost of S (S - 1) comparers and S queues, each S lanes wide; nothing where there is one bank.

    Twice that where samples and updates overlap; the dispatcher of updates needs no starts of banks.
    """
    if not design.overlaps:
        return _dispatcher(design, batch, 2 + _mass(design))
    accesses = _dispatcher(design, batch, 2 + _bits(design.capacity) + design.leaf_bits, sampling=False)
    return _dispatcher(design, batch, _mass(design)) + accesses + Part(design.banks - 1, {}, {})


def _dispatcher(design: Design, batch: int, asked: int, unread: int = 0, sampling: bool = True) -> Part:
    """Cost for requests of ``asked`` bits and a tag; a queue drops ``unread`` upper bits at the end of a row."""
    banks = design.banks
    if banks == 1:
        return Part(0, {}, {})
    request = _bits(batch) + asked
    rows = 1 << _bits(-(-batch // banks))
    queue = Memory(rows, 1, banks * (1 + request) - unread, answers_at_once=True)
    starts = _prefix_widths(banks - 1, design.widths[-1]) if sampling else []
    ff = sum(starts) + banks * (banks + 2 * _bits(rows) + rows.bit_length())
    terms = {
        "start compared": banks * sum(starts),
        "lane merged": banks * banks * (request - unread),
        "lane ordered": banks * banks,
    }
    return _stored(queue, allocate(queue, uram=False, kinds=KINDS), banks) + Part(ff, terms, {})


def _mass(design: Design) -> int:
    """Bits of the sum of all banks, at least as many as a leaf and its value have."""
    return design.widths[-1] + _bits(design.banks)


def _prefix_widths(values: int, width: int) -> list[int]:
    """Widths of ``nodes.prefix_sums`` of a given number of values."""
    if values <= 1:
        return [width] * values
    left, right = _prefix_widths((values + 1) // 2, width), _prefix_widths(values // 2, width)
    return left + [max(left[-1], each) + 1 for each in right]


def rmm(design: Design, batch: int = BATCH, uram: bool = True) -> Part:
    """Cost of S banks behind the dispatcher; a bank subtracts its start and sees the bits of a sum within one bank."""
    unread = _mass(design) - max(design.widths[-1], _bits(design.capacity) + design.leaf_bits)
    join = Part(-_held_once(design, batch), {}, {})
    between = dispatcher(design, batch) if design.overlaps else _dispatcher(design, batch, 2 + _mass(design), unread)
    if design.banks > 1:
        divided = 2 * _bits(design.banks) * _bits(design.capacity) if design.banking == "interleaved" else 0
        subtracted = (1 + design.overlaps) * design.widths[-1]
        terms = {"start subtracted": subtracted, "node divided": _uneven(design.banks) * divided}
        join += Part(0, {name: design.banks * size for name, size in terms.items()}, {})
    return _total((between, join, bank(design, batch, uram).times(design.banks)))


def _held_once(design: Design, batch: int) -> int:
    """Flip-flops that both pipelines of a bank share: the bits of a request which both take as they come.

    A ``wide`` sampler takes a request in every cycle, as the updater does, so that one register a cycle serves both
    tags. The first bank starts at 0 and subtracts nothing: its prefix value shares the bits of a leaf and a value.
    """
    if design.micro == "scan" or design.overlaps:
        return 0
    sample = set(range(design.widths[-1]))
    lead, value = _bits(design.banks) if design.banking == "interleaved" else 0, _bits(design.capacity)
    update = set(range(value, value + design.leaf_bits))
    if design.banking == "contiguous" or not _uneven(design.banks):
        update |= set(range(lead, lead + _bits(design.bank_capacity)))
    return design.banks * 2 * _bits(batch) + len(sample & update)


def _uneven(divisor: int) -> bool:
    """Whether a division is more than wires."""
    return divisor & (divisor - 1) != 0


PARTS: Mapping[str, Callable[[Design, int, bool], Part]] = {
    part.__name__: part for part in (sampler, updater, bank, dispatcher, rmm)
}
