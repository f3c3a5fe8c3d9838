"""The kernels' text: it is walked on the host, where the emulator promises what the hardware does.

NVRTC compiles it for GPUs without a driver, and the tree is walked on a real device where there is one.
"""

import re

import numpy as np
import pytest

import impls
from benchmarks.cases import Case, prepare
from benchmarks.topics import gpu
from impls.sumtree.cuda import emulation, program
from impls.sumtree.cuda.program import CALL, TREE, Constants
from tests.contestants import placing, walk
from tests.matrix import matrix

emulated = pytest.mark.skipif(emulation.why_not() is not None, reason=str(emulation.why_not()))
no_device = impls.why_not("cupy")


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


@emulated
def test_a_barrier_orders_what_its_absence_does_not():
    body = "__shared__ int held[256]; int t = threadIdx.x; held[t] = t + out[t]; {} out[t] = held[255 - t];"
    for salt in (1000, 2000):  # in ascending and in descending order
        want = 255 - np.arange(256) + salt
        for barrier in (True, False):
            text = body.format("__syncthreads();" if barrier else "")
            assert np.array_equal(run(text, threads=256, out=np.full(256, salt)), want) == barrier


# The text compiles for GPUs

SHAPES_OF_GROUPS = [(0, 1, False), (0, 8, False), (2, 1, False), (16, 1, True), (16, 4, True), (64, 32, True)]
KINDS = [
    Constants(leaf, fanout, lanes, delta, packed)
    for leaf in ("float", "double")
    for fanout, lanes, packed in SHAPES_OF_GROUPS
    for delta in (False, True)
]


def compiled(text, architecture, constants):
    """(machine code, what the compiler says) of a text for an architecture."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

    def done(answer):
        assert answer[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS, answer[0]
        return answer[1] if len(answer) > 1 else None

    made = done(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    flags = [f"--gpu-architecture={architecture}", *constants.flags()]
    (status,) = nvrtc.nvrtcCompileProgram(made, len(flags), [flag.encode() for flag in flags])
    said = bytearray(done(nvrtc.nvrtcGetProgramLogSize(made)))
    done(nvrtc.nvrtcGetProgramLog(made, said))
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return b"", said.decode()
    cubin = bytearray(done(nvrtc.nvrtcGetCUBINSize(made)))
    done(nvrtc.nvrtcGetCUBIN(made, cubin))
    done(nvrtc.nvrtcDestroyProgram(made))
    return bytes(cubin), said.rstrip(b"\0").decode()


def named(constants):
    return "-".join(constants.flags()[1:]).replace("-D", "")


@pytest.mark.parametrize("constants", matrix(KINDS, brief=lambda kind: kind.packed == kind.delta), ids=named)
def test_the_text_compiles_for_devices(constants):
    text, architecture = program.kernel_text(), "sm_90" if constants.leaf == "float" else "sm_80"
    cubin, said = compiled(text, architecture, constants)
    assert cubin.startswith(b"\x7fELF"), said
    assert said == ""  # not a warning either
    for name in program.kernel_names(text):
        assert f".text.{name}".encode() in cubin


# A real device


def on_a_device(test):
    """The test, which needs a device."""
    return pytest.mark.gpu(pytest.mark.skipif(no_device is not None, reason=str(no_device))(test))


@on_a_device
@pytest.mark.parametrize("placed", [True, False], ids=["device", "host"])
@pytest.mark.parametrize(("capacity", "fanout"), [(1, 2), (257, 16), (1000, 7), (5000, 64), (100_000, 16)])
def test_walk_on_a_device(capacity, fanout, placed):
    for options in (
        {},
        {"propagate": "delta"},
        {"lanes": 1, "fused": False},
        {"lanes": 32, "fused": False},
        {"lanes": 16, "fused": True, "aligned": False},
    ):
        tree = impls.make("cupy", capacity, fanout=fanout, **options)
        exact = "propagate" not in options
        walk(placing(tree) if placed else tree, seed=capacity, steps=200, integers=False, exact=exact)


@on_a_device
@pytest.mark.parametrize("fused", [True, False])
def test_large_batches_give_the_oracles_sums(fused):
    rng = np.random.default_rng(3)
    device, host = impls.make("cupy", 1_000_000, fused=fused), impls.make("numpy", 1_000_000)
    for _ in range(20):
        indices, values = rng.integers(0, 1_000_000, 65_536), rng.integers(0, 100, 65_536)
        device.update(indices, values)
        host.update(indices, values)
    uniforms = rng.random(65_536)
    assert device.check() == 0.0
    assert device.total() == host.total()
    assert np.array_equal(impls.to_numpy(device.sample(uniforms)[0]), host.sample(uniforms)[0])


@on_a_device
def test_a_device_keeps_tiny_priorities_and_names_refusals():
    tree = impls.make("cupy", 10)
    tree.update([4], [1e-40])  # subnormal
    assert impls.to_numpy(tree.get([4])).tolist() == [float(np.float32(1e-40))]
    assert impls.to_numpy(tree.sample([0.5])[0]).tolist() == [4]
    tree.update(np.arange(10), np.arange(10.0))
    with pytest.raises(ValueError, match="nan at position 1"):
        tree.update(tree.place(np.array([1, 2])), tree.place(np.array([1.0, np.nan])))
    assert (tree.total(), tree.check()) == (45.0, 0.0)
    unchecked = impls.make("cupy", 10, validate=False)
    assert impls.to_numpy(unchecked.sample(tree.place(np.array([0.5])))[0]).tolist() == [-1]
    with pytest.raises(RuntimeError, match="nothing to sample"):
        unchecked.synchronize()


@on_a_device
@pytest.mark.parametrize("op", ["draw", "update"])
def test_a_captured_graph_is_as_right_as_its_calls(op):
    prepared = prepare(Case("cupy", op, 10_000, 256, options={"validate": False}))
    clock = gpu.GraphClock(prepared.call, 64)
    assert clock.sample() > 0
    assert prepared.tree.check() == 0.0
