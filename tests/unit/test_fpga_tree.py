"""The FPGA's twin: its format, bit for bit; what its hardware takes is told by laws, which have tests of their own."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import impls
from dse.times.laws import step_of
from impls.fpga import cycles
from impls.fpga import learner as laws
from impls.fpga.design import PORTS, Design
from impls.fpga.learner import Learner, longest, resources, stage_cycles, units_for
from impls.fpga.model import OPS, Link, ledger
from impls.fpga.network import Gemm, Layer, parse
from impls.fpga.passes import stages
from impls.sumtree.oracle import Oracle
from impls.training import load
from impls.training.weights import networks, step_macs
from reports.sections.fpga import make_link
from tests.learning import change

LINK = Link(lambda nbytes: 1e-9 * nbytes, lambda nbytes: 2e-9 * nbytes)


def leaves_of(tree):
    """Leaves as whole quanta, in Python integers."""
    return [int(p / tree.rounded(tree.smallest_priority)[()]) for p in tree.get(np.arange(tree.capacity))]


@given(data=st.data())
def test_sums_and_draws_are_those_of_integers(data):
    capacity, fanout = data.draw(st.integers(1, 60)), data.draw(st.sampled_from([2, 3, 16]))
    leaf_bits = data.draw(st.integers(1, 53))
    fraction_bits = data.draw(st.integers(0, leaf_bits))
    tree = impls.make(
        "fpga", capacity, fanout=fanout, dtype="float64", leaf_bits=leaf_bits, fraction_bits=fraction_bits
    )
    quanta = data.draw(st.lists(st.integers(0, 2**leaf_bits - 1), min_size=capacity, max_size=capacity))
    tree.update(np.arange(capacity), np.array(quanta, float) / 2**fraction_bits)
    assert leaves_of(tree) == quanta
    assert tree.total() == sum(quanta) / 2**fraction_bits
    assert tree.check() == 0.0
    ends = np.cumsum(np.array(quanta, object))
    for end in ends[:-1]:
        mass = int(end) / 2**fraction_bits
        if mass < tree.total() and int(mass * 2**fraction_bits) == end:
            assert tree.prefix_sum_index(mass)[0] == next(i for i, e in enumerate(ends) if e > end)


def test_indices_equal_the_oracles_for_priorities_that_fit():
    rng = np.random.default_rng(0)
    tree, oracle = impls.make("fpga", 5000, fanout=8, leaf_bits=18, fraction_bits=6), Oracle(5000)
    values = rng.integers(0, 2**18, 5000) / 2**6
    tree.update(np.arange(5000), values)
    oracle.update(np.arange(5000), values)
    mass = np.concatenate([rng.random(20_000) * oracle.total(), oracle.leaves.cumsum()[:-1]])
    assert np.array_equal(tree.prefix_sum_index(mass), oracle.prefix_sum_index(mass))


@pytest.mark.parametrize(
    ("rounding", "stored", "smallest"),
    [
        ("nearest", [0.0, 0.25, 0.25, 0.5], np.nextafter(np.float32(0.125), np.float32(1))),
        ("down", [0.0, 0.0, 0.25, 0.25], 0.25),
        ("up", [0.25, 0.25, 0.5, 0.5], np.finfo(np.float32).smallest_subnormal),
    ],
)
def test_rounding_and_the_smallest_priority_that_can_be_drawn(rounding, stored, smallest):
    tree = impls.make("fpga", 4, leaf_bits=6, fraction_bits=2, rounding=rounding)
    tree.update(np.arange(4), [0.125, 0.126, 0.3, 0.375])
    assert tree.get(np.arange(4)).tolist() == stored
    assert tree.smallest_priority == smallest
    tree.update(np.arange(4), 0.0)
    tree.update(2, smallest)
    assert tree.sample([0.0, 0.99])[0].tolist() == [2, 2]
    below = np.nextafter(np.float32(smallest), np.float32(0))
    tree.update(2, below)
    with pytest.raises(RuntimeError, match="nothing to sample"):
        tree.sample(0.5)


def test_what_exceeds_the_format_is_refused_with_its_bound():
    tree = impls.make("fpga", 10, leaf_bits=8, fraction_bits=4)
    assert tree.largest_priority == 255 / 16
    tree.update(3, 255 / 16)
    with pytest.raises(ValueError, match=r"priority 16\.0 at position 1 is outside \[0, 15\.9375\]"):
        tree.update([3, 4], [1.0, 16.0])
    assert tree.get([3, 4]).tolist() == [255 / 16, 0.0]
    assert impls.make("fpga", 10, leaf_bits=53, fraction_bits=0).largest_priority == 2.0**53 - 2**29  # a float32
    assert impls.make("fpga", 10, leaf_bits=53, fraction_bits=0, dtype="float64").largest_priority == 2.0**53 - 1


NO_HARDWARE = (
    ({"leaf_bits": 0}, "leaf_bits must be at least 1"),
    ({"leaf_bits": 54}, "leaf_bits must be at most 53"),
    ({"fraction_bits": -1}, "fraction_bits must be at least 0"),
    ({"fraction_bits": 127}, "fraction_bits must be at most 126"),
    ({"rounding": "near"}, "'nearest'"),
    ({"micro": "wode"}, "'wide'"),
    ({"ports": "dul"}, "'dual'"),
    ({"banks": 0}, "banks must be at least 1"),
    ({"banks": 1001}, "1001 banks"),
    ({"banking": "striped"}, "'contiguous', 'interleaved'"),
    ({"clock_hz": 0}, "clock_hz must be above 0"),
    ({"law": "printed"}, "'rtl', 'published', 'pearl'"),
)


def test_options_that_make_no_hardware_are_refused():
    for options, fact in NO_HARDWARE:
        with pytest.raises(ValueError, match=fact):
            impls.make("fpga", 1000, **options)
    tree = impls.make("fpga", 10)
    for op, batch, fact in (("smaple", 4, "'sample'"), ("sample", -4, "at least 0"), ("upload", 4, "link=")):
        with pytest.raises(ValueError, match=fact):
            tree.modeled_seconds(op, batch)


def test_every_operation_has_a_time_that_grows_with_the_batch():
    for op, law in itertools.product(OPS, ("rtl", "published", "pearl")):
        tree = impls.make("fpga", 5000, law=law, link=LINK)
        tree.update(np.arange(5000), 1.0)
        short, long = tree.modeled_seconds(op, 32), tree.modeled_seconds(op, 4096)
        assert 0 < short <= long < 1e-3
        assert tree.ledger(op, 32).seconds == short
        assert tree.modeled_seconds(op, 0) in (0.0, 5e-9)
        flat = op == "total" or (law == "pearl" and op in ("update", "insert", "get"))
        assert (short == long) == flat, (op, law)


def test_times_follow_the_leaves_there_are():
    """A buffer a tenth full keeps one contiguous bank in ten busy, interleaved ones all."""
    seconds = {}
    for banking in ("contiguous", "interleaved"):
        tree = impls.make("fpga", 32_000, banking=banking)
        tree.update(np.arange(3200), 1.0)
        seconds[banking] = tree.modeled_seconds("sample", 1024)
        tree.update(np.arange(32_000), 1.0)
        assert tree.ledger("sample", 1024).busiest == pytest.approx(44, abs=2)
    assert seconds["contiguous"] > 5 * seconds["interleaved"]


ONE_BANK = Design(4096, 2, 18, "scan")
U200_LINK = make_link()


def test_one_bank_takes_what_the_law_says():
    for micro, batch in itertools.product(("scan", "wide"), (1, 32, 1000)):
        design = Design(4096, 4, 18, micro)
        for op in ("sample", "update", "get"):
            assert ledger(design, op, batch).cycles == cycles.count_cycles(design, op, batch)
        found = ledger(design, "sample", batch)
        assert (found.busiest, found.cycles) == (batch, sum(spent for _, spent in found.entries))


def test_a_step_is_its_parts_one_after_the_other():
    design = Design(4096, 16, banks=8)
    parts = sum(ledger(design, op, 64).cycles for op in ("sample", "update"))
    assert ledger(design, "step", 64).cycles == pytest.approx(parts)
    assert ledger(design, "draw", 64) != ledger(design, "step", 64)
    assert ledger(design, "step", 64).seconds == pytest.approx(parts / design.clock_hz)


def test_a_step_that_overlaps_is_the_larger_of_its_sides():
    for micro, banks in (("wide", 1), ("scan", 1), ("scan", 8)):
        turns, dual, copied = (Design(4096, 8, 18, micro, banks, ports=ports) for ports in PORTS)
        spent = {op: ledger(dual, op, 64).cycles for op in ("sample", "update", "step")}
        longest = max(spent["sample"], spent["update"])
        assert spent["step"] == pytest.approx(longest, rel=1e-9 if banks == 1 else 0.1)
        assert spent["step"] >= longest - 1e-9
        assert ledger(turns, "step", 64).cycles >= ledger(copied, "step", 64).cycles
        assert ledger(dual, "sample", 64) == ledger(turns, "sample", 64)
        assert ledger(dual, "update", 64).cycles > ledger(copied, "update", 64).cycles
        assert ledger(copied, "update", 64) == ledger(turns, "update", 64)


def test_seed_3s_example_of_small_batches():
    """B = 32, one bank, K = 2, 2^20 leaves: 64 cycles printed, 122 taken."""
    design = Design(1 << 20, 2, 17, "scan")
    assert ledger(design, "sample", 32, law="published").cycles == 64
    assert ledger(design, "sample", 32).cycles == 122
    assert ledger(design, "sample", 32, law="pearl").cycles == 2 * 2 * (32 + 20)
    assert ledger(design, "update", 32, law="pearl").cycles == ledger(design, "update", 999, law="pearl").cycles == 40


def test_the_busiest_bank_of_random_draws():
    """Multinomial loads; the design notes' figures for 2^20 leaves on 32 banks."""
    design = Design(1 << 20, 2, 17, "scan", 32)
    for batch, mean in ((256, 14.4), (1024, 44), (16_384, 560)):
        assert ledger(design, "sample", batch).busiest == pytest.approx(mean, rel=0.03)
    assert ledger(design, "sample", 1024) == ledger(design, "sample", 1024)  # seeded
    tenth = np.where(np.arange(32) < 3.2, 1.0, 0.0)
    assert ledger(design, "sample", 1024, tenth).busiest > 200


def test_fresh_insertions_fall_on_one_contiguous_bank():
    there = {banking: Design(1 << 20, 2, banks=32, banking=banking) for banking in ("contiguous", "interleaved")}
    assert ledger(there["contiguous"], "insert", 1024).busiest == 1024
    assert ledger(there["interleaved"], "insert", 1024).busiest == 32
    assert ledger(Design(10, 2, banks=2), "insert", 25).busiest == 15  # round and round


def test_the_link_is_a_row_of_its_own():
    up, down = (ledger(ONE_BANK, op, 1000, link=U200_LINK) for op in ("upload", "download"))
    assert up.cycles == down.cycles == 0
    assert up.seconds == pytest.approx(13.6e-6 + 8000 / 7.45e9)
    assert down.seconds == pytest.approx(13e-6 + 8000 / 12.1e9)
    assert U200_LINK.to_device_seconds(0) + U200_LINK.from_device_seconds(0) > 26e-6
    free = Link(lambda nbytes: nbytes / 1e9, lambda nbytes: nbytes / 1e9)
    assert ledger(ONE_BANK, "upload", 1000, link=free).seconds == 8e-6
    assert ledger(ONE_BANK, "sample", 1000, link=free) == ledger(ONE_BANK, "sample", 1000)


FRACTION_BITS = 7


@pytest.mark.parametrize(
    ("capacity", "fanout", "banks", "micro"),
    [(1, 2, 1, "scan"), (300, 3, 1, "wide"), (97, 4, 2, "scan"), (256, 16, 4, "wide")],
)
def test_the_twin_and_the_hardware_agree_bit_for_bit(capacity, fanout, banks, micro):
    """The same batches, the same leaves and sums, in the simulated hardware."""
    pytest.importorskip("amaranth", reason="amaranth is not installed; it comes with the extra rtl")
    from tests.oracles.rtl.simulate import simulate  # noqa: PLC0415  # only where there is amaranth

    options = {"leaf_bits": 18, "fraction_bits": FRACTION_BITS, "micro": micro, "banks": banks, "banking": "contiguous"}
    tree = impls.make("fpga", capacity, fanout=fanout, dtype="float64", **options)
    rng = np.random.default_rng(capacity)
    indices = np.append(rng.integers(0, capacity, 100), np.full(3, capacity - 1))
    priorities = rng.random(indices.size) * (rng.random(indices.size) < 0.8) * tree.largest_priority + 1e-9
    tree.update(indices, priorities)
    masses = rng.random(64) * tree.total()

    quanta = np.rint(tree.rounded(priorities) * 2**FRACTION_BITS).astype(int).tolist()
    updates = list(zip(indices.tolist(), quanta, strict=True))
    run = simulate(tree.design, updates=updates, masses=np.floor(masses * 2**FRACTION_BITS).astype(int).tolist())
    assert list(run.leaves) == tree.prefix_sum_index(masses).tolist()
    assert sum(bank[-1][0] for bank in run.tree) == tree.total() * 2**FRACTION_BITS
    if banks == 1:
        levels = zip(run.tree[0], tree._levels, strict=True)
        assert all(list(held) == twin[: len(held)].tolist() for held, twin in levels)


SIDES = st.integers(1, 12)
GEMMS = st.builds(Gemm, SIDES, SIDES, SIDES)


def least(network, pipelines=1, update_units=1, **options):
    return Learner(network, pipelines, (1,) * len(stages(network)), update_units, **options)


ROUNDS = {"cartpole_dqn": 9, "cartpole_spo_dqn": 9, "cartpole_ddpg": 14, "hopper_td3": 14, "hopper_sac": 14}
"""Rounds of the longest chain, of 3 layers: of actor-critics policy, critic, back to the actions, policy back."""


def test_stages_do_the_multiply_adds_of_a_gradient_step():
    for name, rounds in ROUNDS.items():
        workload = change(load(name), policy_delay=1)
        step = step_of(workload)
        assert sum(stage.gemm.macs for stage in stages(step) if stage.kind != "LOSS") == step_macs(workload), name
        assert step.parameters == sum(size.parameters for size in networks(workload).values()), name
        assert longest(step) == rounds, name


def test_a_block_waits_for_its_weights_or_its_stages():
    """12 weights at half a word a cycle, and stages of 10, 2 and 10 cycles."""
    for block, pace in ((1, 24), (2, 24), (4, 40), (8, 80)):
        told = laws.ledger(least(parse("mlp:5-2"), update_units=12, streamed=1, block=block, bytes_per_s=400e6), 13)
        assert dict(told.entries)["samples of a pipeline"] == -(-13 // block) * pace
        assert dict(told.entries)["fill of the pipeline"] == 2 * pace
        assert dict(told.entries)["weight update"] == 48  # a word in and a word out for each weight
        assert ("weights" in told.bottleneck) == (pace == 24)


@given(GEMMS, st.integers(1, 200))
def test_systolic_arrays_are_the_best_of_all(gemm, units):
    rows, columns, depth = gemm
    every = [
        -(-rows // r) * -(-columns // c) * (2 * r + c + depth - 2)
        for r in range(1, rows + 1)
        for c in range(1, columns + 1)
        if r * c <= units
    ]
    assert stage_cycles(gemm, units, "systolic") == min(every)
    assert stage_cycles(gemm, units, "systolic") >= stage_cycles(gemm, units)


@given(GEMMS, st.integers(1, 3000), st.sampled_from(laws.FILLS))
def test_units_are_the_fewest_for_their_cycles(gemm, cycles, fill):
    units = units_for(gemm, cycles, fill)
    if units is None:
        assert stage_cycles(gemm, gemm.macs, fill) > cycles
        return
    assert stage_cycles(gemm, units, fill) <= cycles
    assert units == 1 or stage_cycles(gemm, units - 1, fill) > cycles


def test_a_ledger_is_the_published_law():
    network = parse("cartpole")
    units = (3, 4, 1, 1, 1, 4, 1, 4, 3)
    learner = Learner(network, 2, units, 4)
    assert learner.stage_cycles == (16, 16, 8, 1, 8, 16, 8, 16, 16)
    told = laws.ledger(learner, 16384)
    weights = sum(-(-2 * layer.parameters // 4) for layer in network.layers)
    assert told.cycles == (8192 + 9 - 1) * 16 + weights
    assert told.bottleneck == "FW 1"
    assert told.seconds == told.cycles / 200e6
    assert laws.ledger(learner, 3).entries[0] == ("samples of a pipeline", 2 * 16)  # ceil(3 / 2)
    assert dict(laws.ledger(least(network), 3).entries)["reduction over pipelines"] == 0


BUFFERS = {
    (137, 4, True): ("lutram", 4),
    (137, 2, True): ("lutram", 3),
    (1023, 1, True): ("lutram", 16),
    (1024, 1, True): ("bram36", 1),
    (1025, 1, True): ("bram36", 2),
    (8192, 1, True): ("uram", 1),
    (8193, 5, True): ("uram", 3),
    (8193, 5, False): ("bram36", 9),
}


def test_a_buffer_lies_in_the_largest_primitive_it_fills():
    for (words, ports, uram), expected in BUFFERS.items():
        assert laws.blocks(words, ports, uram) == expected


def test_memory_of_a_network_of_one_layer_by_hand():
    learner = least(parse("mlp:5-2"), pipelines=3, update_units=7)
    weights, inputs, gradients = 5 * 2 + 2, 5 * 4, 2 * 2  # inputs lie from before FW to WA, gradients from LOSS to WA
    words = 3 * (2 * weights + inputs + gradients) + weights
    needed = resources(learner)
    assert needed.sram_bits == 32 * words
    assert needed.dsp == 5 * (3 * 3 + 7)
    assert needed.lut == 713 * 16 + 40 * (3 * (7 + 7 + 1 + 1) + 7)


def test_the_largest_buffers_go_to_ultraram_first():
    network = parse("hopper")
    needed = [resources(least(network, uram=number)) for number in range(4)]
    assert [one.uram for one in needed] == [0, 9, 18, 27]  # 65,792 words each
    assert [one.bram36 for one in needed] == [14 + 65 * left for left in (3, 2, 1, 0)]
    assert resources(least(network)) == needed[3]
    streamed = resources(least(network, streamed=1, bytes_per_s=1e9))
    assert needed[3].sram_bits - streamed.sram_bits == 32 * (256 * 257 - 2 * 1024)  # but for two bursts


IMPOSSIBLE = (
    *({name: value} for name, value in (("pipelines", 0), ("update_units", 0), ("streamed", -1), ("clock_hz", 0.0))),
    *({"units": units} for units in ((1, 1), (1, 0, 1))),
    {"fill": "none"},
)


def test_what_cannot_be_built():
    good = {"network": parse("mlp:2-3"), "pipelines": 1, "units": (1, 1, 1), "update_units": 1}
    for options in IMPOSSIBLE:
        with pytest.raises(ValueError, match=f"^{next(iter(options))} must be"):
            Learner(**good | options)
    with pytest.raises(ValueError, match="bytes_per_s above 0, not 0"):
        Learner(**good, streamed=1)


KNOWN = {
    "cartpole": (137, 120),
    "hopper": (70_145, 69_632),
    "pong": (4_800_166, 18_713_600),
    "nature": (1_687_206, 9_346_048),
    "mnih2013": (677_686, 2_967_040),
}


def test_named_networks_have_their_known_counts():
    for name, (parameters, macs) in KNOWN.items():
        network = parse(name)
        assert (network.parameters, network.macs) == (parameters, macs), name
    shapes = [(layer.channels, layer.height, layer.width) for layer in parse("pong").layers]
    assert shapes == [
        (4, 84, 84),
        (32, 22, 22),
        (64, 12, 12),
        (9216, 1, 1),
        (512, 1, 1),
    ]  # the dissertation's table 5.1
    assert parse("conv:2x5x5-3k3-7").layers[1] == Layer(3 * 3 * 3, 7)


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3),
    st.integers(0, 2),
)  # fmt: skip
def test_a_convolution_is_the_product_its_gemm_says(channels, filters, height, width, kernel, stride, padding):
    """Every product is counted by walking over the image."""
    if kernel > min(height, width) + 2 * padding:
        with pytest.raises(ValueError, match="larger than"):
            Layer(channels, filters, height, width, kernel, stride, padding)
        return
    layer = Layer(channels, filters, height, width, kernel, stride, padding)
    rows = range(0, height + 2 * padding - kernel + 1, stride)
    columns = range(0, width + 2 * padding - kernel + 1, stride)
    assert layer.image == (len(rows), len(columns))
    positions = len(rows) * len(columns)
    weights = np.zeros((filters, channels, kernel, kernel))
    for product in (layer.forward, layer.backward, layer.weight_gradient):
        assert product.macs == positions * weights.size
    assert layer.parameters == weights.size + filters
    assert layer.forward.rows * layer.forward.columns == layer.outputs
    assert layer.weight_gradient.rows * layer.weight_gradient.columns == weights.size


UNREADABLE = {
    "cartpol": "cartpole",
    "rnn:6-8": "'rnn:6-8'",
    "mlp:6": "no layers",
    "mlp:6-x-1": "'x'",
    "mlp:6-0-1": "'0'",
    "mlp:6-99999999-1": "1 to 9,999,999",
    "mlp:6-32k3-1": "'32k3'",
    "conv:84x84-32k8-1": "'84x84'",
    "conv:1x4x4-3k8-1": "8 is larger than its 4 x 4",
    "conv:1x4x4-3k2s0-1": "stride must be at least 1, not 0",
    "conv:0x4x4-3": "channels must be at least 1",
}


def test_what_cannot_be_read_is_told_in_a_sentence():
    for text, fact in UNREADABLE.items():
        with pytest.raises(ValueError, match=fact):
            parse(text)
