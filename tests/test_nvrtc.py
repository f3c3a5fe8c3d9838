"""The kernels' text compiles for GPUs."""

import pytest

from impls.sumtree.cuda import nvrtc, program
from impls.sumtree.cuda.program import Constants

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("constants", ALL_KINDS, ids=lambda kind: "-".join(kind.definitions()).replace("-D", ""))
def test_the_text_compiles_for(architecture, constants):
    cubin = nvrtc.compile_for(architecture, constants)
    assert cubin.startswith(b"\x7fELF")
    for name in program.kernel_names(program.kernel_text()):
        assert f".text.{name}".encode() in cubin


def test_what_does_not_compile_says_where(monkeypatch):
    text = program.kernel_text()
    monkeypatch.setattr(program, "kernel_text", lambda: text + "\n__global__ void broken() { return 1; }")
    with pytest.raises(RuntimeError, match=r"do not compile for sm_90.*return value"):
        nvrtc.compile_for("sm_90", ALL_KINDS[0])
