"""The laws of the learner: stages counted, arrays against all arrays, resources that rise with units, ledgers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.times.laws import step_of
from impls.fpga import learner as laws
from impls.fpga.learner import Learner, ledger, longest, resources, stage_cycles, units_for
from impls.fpga.network import Gemm, parse
from impls.fpga.passes import stages
from impls.training import load
from impls.training.weights import networks, step_macs
from tests.learning import change

SIDES = st.integers(1, 12)
GEMMS = st.builds(Gemm, SIDES, SIDES, SIDES)


def least(network, pipelines=1, update_units=1, **options):
    return Learner(network, pipelines, (1,) * len(stages(network)), update_units, **options)


@pytest.mark.parametrize("name", ["cartpole", "pong"])
def test_three_stages_a_layer(name):
    network = parse(name)
    kinds = [stage.kind for stage in stages(network)]
    layers = len(network.layers)
    assert len(kinds) == 3 * layers
    assert [kinds.count(kind) for kind in ("FW", "LOSS", "BW", "WA")] == [layers, 1, layers - 1, layers]
    assert [str(stage) for stage in stages(parse("mlp:2-3-1"))] == ["FW 1", "FW 2", "LOSS", "BW 2", "WA 2", "WA 1"]
    passes = sum(stage.gemm.macs for stage in stages(network) if stage.kind in ("FW", "WA"))
    assert passes == 2 * network.macs


ROUNDS = {"cartpole_dqn": 9, "cartpole_spo_dqn": 9, "cartpole_ddpg": 14, "hopper_td3": 14, "hopper_sac": 14}
"""Rounds of the longest chain, of 3 layers: of actor-critics policy, critic, back to the actions, policy back."""


@pytest.mark.parametrize("name", ROUNDS)
def test_stages_do_the_multiply_adds_of_a_whole_gradient_step(name):
    workload = change(load(name), policy_delay=1)
    step = step_of(workload)
    assert sum(stage.gemm.macs for stage in stages(step) if stage.kind != "LOSS") == step_macs(workload)
    assert step.parameters == sum(size.parameters for size in networks(workload).values())
    assert longest(step) == ROUNDS[name]


@pytest.mark.parametrize(("block", "pace"), [(1, 24), (2, 24), (4, 40), (8, 80)])
def test_a_block_waits_for_its_weights_or_its_stages(block, pace):
    """12 weights at half a word a cycle, and stages of 10, 2 and 10 cycles."""
    learner = least(parse("mlp:5-2"), update_units=12, streamed=1, block=block, bytes_per_s=400e6)
    told = ledger(learner, 13)
    assert dict(told.entries)["samples of a pipeline"] == -(-13 // block) * pace
    assert dict(told.entries)["fill of the pipeline"] == 2 * pace
    assert dict(told.entries)["weight update"] == 48  # a word in and a word out for each weight
    assert ("weights" in told.bottleneck) == (pace == 24)


def test_an_update_moves_no_less_where_more_is_streamed():
    """The critic's first layer lies in stages of two sizes: the policy's gradient takes actions alone."""
    network = step_of(load("hopper_ddpg"))
    moved = [laws.stream_cycles(network, count, 200e6, 1e9)[1] for count in range(len(laws.streamable(network)) + 1)]
    assert moved == sorted(moved)


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
    told = ledger(learner, 16384)
    weights = sum(-(-2 * layer.parameters // 4) for layer in network.layers)
    assert told.cycles == (8192 + 9 - 1) * 16 + weights
    assert told.bottleneck == "FW 1"
    assert told.seconds == told.cycles / 200e6
    assert ledger(learner, 3).entries[0] == ("samples of a pipeline", 2 * 16)  # ceil(3 / 2)
    assert dict(ledger(least(network), 3).entries)["reduction over pipelines"] == 0


@given(st.data())
def test_more_of_anything_never_needs_less(data):
    """What bisection rests on."""
    network = parse(data.draw(st.sampled_from(["mlp:40-60-3", "conv:2x9x9-4k3s2-80-2"])))
    numbers = st.integers(1, 300)
    units = data.draw(st.lists(numbers, min_size=6 if "mlp" in network.name else 9, max_size=9).filter(
        lambda held: len(held) == len(stages(network))))  # fmt: skip
    grown = [one + data.draw(st.integers(0, 300)) for one in units]
    pipelines, updates, uram = data.draw(st.integers(1, 5)), data.draw(numbers), data.draw(st.integers(0, 6))
    less = resources(Learner(network, pipelines, tuple(units), updates, uram=uram))
    more = Learner(network, pipelines + 1, tuple(grown), updates + data.draw(st.integers(0, 300)), uram=uram)
    for name in ("lut", "ff", "dsp", "sram_bits"):
        assert getattr(resources(more), name) >= getattr(less, name)
    same = resources(Learner(network, pipelines, tuple(grown), updates, uram=uram))
    for name in ("bram36", "uram"):
        assert getattr(same, name) >= getattr(less, name)


@pytest.mark.parametrize(
    ("words", "ports", "uram", "expected"),
    [
        (137, 4, True, ("lutram", 4)),
        (137, 2, True, ("lutram", 3)),
        (3, 50, True, ("lutram", 3)),
        (1023, 1, True, ("lutram", 16)),
        (1024, 1, True, ("bram36", 1)),
        (1025, 1, True, ("bram36", 2)),
        (8192, 1, True, ("uram", 1)),
        (8193, 5, True, ("uram", 3)),
        (8193, 5, False, ("bram36", 9)),
    ],
)
def test_a_buffer_lies_in_the_largest_primitive_it_fills(words, ports, uram, expected):
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pipelines": 0}, "pipelines must be at least 1"),
        ({"update_units": 0}, "update_units must be at least 1"),
        ({"units": (1, 1)}, "units must be 3 numbers of at least 1 .FW 1, LOSS, WA 1."),
        ({"units": (1, 0, 1)}, "units must be 3"),
        ({"fill": "none"}, "fill must be"),
        ({"clock_hz": 0.0}, "clock_hz must be above 0"),
        ({"streamed": -1}, "streamed must be at least 0"),
        ({"streamed": 1}, "bytes_per_s above 0, not 0"),
    ],
)
def test_what_cannot_be_built(options, said):
    good = {"network": parse("mlp:2-3"), "pipelines": 1, "units": (1, 1, 1), "update_units": 1}
    with pytest.raises(ValueError, match=said):
        Learner(**good | options)
