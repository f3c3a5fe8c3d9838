"""The kernels' text, run on the host: its mutants are caught, and the emulator promises what the hardware does."""

import re

import numpy as np
import pytest

from impls.sumtree.cuda import emulation, program
from impls.sumtree.cuda.program import CALL, TREE, Constants
from tests.contestants import make
from tests.matrix import matrix
from tests.walk import walk

pytestmark = pytest.mark.skipif(emulation.why_not() is not None, reason=str(emulation.why_not()))


def test_the_tree_is_passed_as_the_text_declares_it():
    text = program.kernel_text()
    for name, dtype in (("Tree", TREE), ("Call", CALL)):
        fields = re.search(rf"struct {name} \{{(.*?)\n\n", text, re.DOTALL)[1]
        declared = re.findall(r"(\w+)(?:\[MOST_LEVELS\])?[,;]", re.sub(r"//.*", "", fields))
        assert tuple(declared) == dtype.names
    assert f"MOST_LEVELS = {program.MOST_LEVELS}" in text
    assert TREE.itemsize == 8 * (len(TREE.names) - 1 + program.MOST_LEVELS)
    words = dict(re.findall(r"([A-Z_]+) = (\d)\b", " ".join(re.findall(r"constexpr int (.*?);", text))))
    shared = (
        "TOLD WHY POSITION INDEX VALUE BOUND TOTAL WIDE NARROW SCALAR BAD_INDEX BAD_PRIORITY BAD_UNIFORM BAD_MASS EMPTY"
    )
    assert {name: int(words[name]) for name in shared.split()} == {
        name: getattr(program, name) for name in shared.split()
    }
    assert f"__launch_bounds__({program.FUSED_THREADS})" in text


# Mutants: bugs put into the text, each of which the walks must notice

USUAL = {"no guard past the last child", "the first duplicate wins", "a sum that nobody waits for"}

MUTANTS = {
    "no barrier between claims and writes": ("    __syncthreads();\n", ""),
    "remainder taken from the wrong lane": ("tile.shuffle(start, winner)", "tile.shuffle(start, 0)"),
    "unguarded last child": ("mine + k < width ? static_cast<double>(children[mine + k]) : 0.0", "children[mine + k]"),
    "the first duplicate wins": ("int(i) + 1", "0x7fffffff - int(i)"),
    "an interval closed at its end": ("end > mass", "end >= mass"),
    "children without a sum are entered": ("if (held[k] > 0.0) {", "{"),
    "no guard past the last child": ("last = first + holder * HELD + tile.shuffle(positive, holder)", "last = 0"),
    "claims are never given back": ("    tree.claims[leaf] = 0;\n", ""),
    "a sum that nobody waits for": ("if (tile.shuffle(others, 0) != 0) return;", ""),
    "a prefix sum short of one lane": ("if (lane >= step) through", "if (lane > step) through"),
    "chunks forget what lies left of them": ("left = tile.shuffle(end, LANES - 1)", "left = 0.0"),
    "written though refused": ("if (__syncthreads_or(bad)) return;", "__syncthreads_or(bad);"),
    "deltas left out of the root": ("atomicAdd(&tree.sum(level, node), change)", "if (level < tree.height) $"),
    "deltas of duplicates": ("    if (tree.claims[leaf] != int(i) + 1) return false;\n", ""),
}
SHAPES = ((300, 16, 4), (300, 3, 8), (1000, 64, 8), (100, 2, 4), (1000, 20, 2))  # N, K, lanes


def battery():
    """Walks over every way an update is launched, and a refusal; what is wrong with the kernels raises."""
    for capacity, fanout, lanes in SHAPES:
        for options in ({"fused": True}, {"fused": False}, {"fused": False, "propagate": "delta"}):
            tree = make("cupy", capacity, fanout=fanout, lanes=lanes, **options)
            walk(tree, seed=fanout, steps=25, integers=True, exact=True)
            tree.update(np.arange(capacity), np.arange(capacity, dtype=float))
            with np.testing.assert_raises(ValueError):
                tree.update(np.array([1, 2]), np.array([9.0, np.nan]))
            assert tree.total() == capacity * (capacity - 1) / 2
    tree = make("cupy", 16, fanout=4, dtype="float64")
    tree.update(np.array([0, 5]), np.array([1.5 * 2.0**-52, 1 + 2 * 2.0**-52]))
    assert tree.prefix_sum_index(np.nextafter(tree.total(), 0)).tolist() == [5]  # past it, by rounding above it


def test_the_text_itself_passes():
    battery()


@pytest.mark.parametrize("bug", matrix(MUTANTS, brief=USUAL.__contains__))
def test_a_mutant_is_caught(monkeypatch, bug):
    right, wrong = MUTANTS[bug]
    text = program.kernel_text()
    assert right in text
    monkeypatch.setattr(program, "kernel_text", lambda: text.replace(right, wrong.replace("$", right)))
    with pytest.raises((AssertionError, RuntimeError, ValueError, IndexError)):
        battery()


# The emulator: what the collectives promise

PLAIN = Constants("float", 0, 1, False, False)


def run(body, blocks=1, threads=32, out=None):
    """Runs a kernel ``void kernel(long long* out)`` of the given body."""
    out = np.zeros(blocks * threads, np.int64) if out is None else out
    kernel = emulation.load_text(f'extern "C" __global__ void kernel(long long* out) {{ {body} }}', PLAIN)["kernel"]
    launch(kernel, blocks, threads, out)
    return out


def launch(kernel, blocks, threads, *arrays):
    """Launch a kernel whose parameters are the addresses of these arrays."""
    addresses = np.array([array.ctypes.data for array in arrays], np.uint64)
    places = addresses.ctypes.data + 8 * np.arange(len(arrays), dtype=np.uint64)
    kernel(blocks, threads, 0, places.ctypes.data)


def test_shuffles_and_ballots():
    lane = np.arange(64) % 32
    own = "int t = threadIdx.x, lane = t % 32;"
    shuffled = run(own + "out[t] = __shfl_sync(~0u, t, lane ^ 5, 32);", threads=64)
    assert np.array_equal(shuffled, np.arange(64) ^ 5)
    up = run(own + "out[t] = __shfl_up_sync(~0u, lane, 3, 8);")
    assert np.array_equal(up, np.where(lane[:32] % 8 < 3, lane[:32], lane[:32] - 3))
    flipped = run(own + "out[t] = __shfl_xor_sync(~0u, lane, 2, 4);")
    assert np.array_equal(flipped, lane[:32] ^ 2)
    ballots = run(own + "out[t] = __ballot_sync(~0u, lane % 3 == 0);")
    assert set(ballots) == {sum(1 << bit for bit in range(0, 32, 3))}


def test_groups_of_a_warp_may_part_ways():
    body = (
        "int t = threadIdx.x; unsigned mine = 0xfu << (t / 4 * 4); long long sum = 0;"
        "for (int round = 0; round <= t / 4; ++round) sum += __shfl_sync(mine, t, 0, 4);"
        "out[t] = sum;"
    )
    quad = np.arange(32) // 4
    assert np.array_equal(run(body), quad * 4 * (quad + 1))


def test_a_barrier_orders_what_its_absence_does_not():
    body = "__shared__ int held[256]; int t = threadIdx.x; held[t] = t + out[t]; {} out[t] = held[255 - t];"
    for salt in (1000, 2000):  # in ascending and in descending order
        want = 255 - np.arange(256) + salt
        for barrier in (True, False):
            text = body.format("__syncthreads();" if barrier else "")
            assert np.array_equal(run(text, threads=256, out=np.full(256, salt)), want) == barrier


def test_atomics_between_blocks_lose_nothing():
    blocks, threads, rounds = 64, 32, 200
    cells = np.zeros(4)
    kernel = emulation.load_text(
        'extern "C" __global__ void kernel(double* sum, int* most, int* count) {'
        f"for (int k = 0; k < {rounds}; ++k) {{ atomicAdd(sum, 1.0); atomicAdd(count, 3); atomicSub(count, 1); }}"
        "atomicMax(most, int(blockIdx.x * blockDim.x + threadIdx.x)); }",
        PLAIN,
    )["kernel"]
    most, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    launch(kernel, blocks, threads, cells, most, count)
    assert (cells[0], most[0], count[0]) == (
        blocks * threads * rounds,
        blocks * threads - 1,
        2 * blocks * threads * rounds,
    )


@pytest.mark.parametrize(
    "body",
    [
        "if (threadIdx.x < 5) __syncthreads(); else out[0] = __ballot_sync(~0u, true);",
        "if (threadIdx.x != 3) out[0] = __shfl_sync(~0u, 1, 0, 32);",
        "out[0] = __ballot_sync(1u, true);",
        "out[0] = threadIdx.x % 2 ? __ballot_sync(~0u, true) : __shfl_sync(~0u, 1, 0, 32);",
    ],
    ids=["barrier against ballot", "a lane that ended", "outside its own mask", "ballot against shuffle"],
)
def test_whoever_waits_in_vain_is_told(body):
    with pytest.raises(RuntimeError, match="kernel kernel: threads of a block wait"):
        run(body)
    assert run("out[threadIdx.x] = 7;").tolist() == [7] * 32  # and the next launch is whole again


def test_a_lane_that_is_not_asked_has_nothing_to_give():
    values = run("if (threadIdx.x < 4) out[threadIdx.x] = __shfl_sync(0xfu, 1.0, threadIdx.x + 2, 32) == 1.0;")
    assert values[:4].tolist() == [1, 1, 0, 0]
