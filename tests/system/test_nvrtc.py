"""The kernels' text compiles for GPUs: NVRTC needs no driver."""

import pytest

from impls.sumtree.cuda import program
from impls.sumtree.cuda.program import Constants
from tests.matrix import matrix

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

ARCHITECTURES = ("sm_80", "sm_90")
ALL_KINDS = [
    Constants(leaf, fanout, lanes, delta, packed)
    for leaf in ("float", "double")
    for fanout, lanes, packed in (
        (0, 1, False),
        (0, 8, False),
        (2, 1, False),
        (16, 1, True),
        (16, 4, True),
        (64, 32, True),
    )
    for delta in (False, True)
]


def compiled(text, architecture, constants):
    """(machine code, what the compiler says) of a text for an architecture."""

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


def named(value):
    return value if isinstance(value, str) else "-".join(value.flags()[1:]).replace("-D", "")


@pytest.mark.parametrize(
    ("constants", "architecture"),
    matrix(
        ALL_KINDS, ARCHITECTURES, brief=lambda kind, architecture: (kind.leaf == "float") == (architecture == "sm_90")
    ),
    ids=named,
)
def test_the_text_compiles_for(architecture, constants):
    text = program.kernel_text()
    cubin, said = compiled(text, architecture, constants)
    assert cubin.startswith(b"\x7fELF"), said
    assert said == ""  # not a warning either
    for name in program.kernel_names(text):
        assert f".text.{name}".encode() in cubin


def test_what_does_not_compile_is_noticed():
    text = program.kernel_text() + "\n__global__ void broken() { return 1; }"
    cubin, said = compiled(text, "sm_90", ALL_KINDS[0])
    assert (cubin, "return value" in said) == (b"", True)
