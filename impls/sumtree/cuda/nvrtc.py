"""The kernels compiled for a GPU where there is none: NVRTC needs no driver."""

from typing import Any

from . import program
from .program import Constants


def compile_for(architecture: str, constants: Constants) -> bytes:
    """Machine code (cubin) of the kernels for an architecture such as "sm_90".

    Raises ModuleNotFoundError (cuda-bindings is not installed), RuntimeError (the compiler's own words).
    """
    from cuda.bindings import nvrtc  # noqa: PLC0415  # only here

    def done(answer: tuple[Any, ...]) -> Any:
        if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"NVRTC: {answer[0].name}")
        return answer[1] if len(answer) > 1 else None

    compiled = done(nvrtc.nvrtcCreateProgram(program.kernel_text().encode(), b"kernels.cu", 0, [], []))
    flags = [f"--gpu-architecture={architecture}", "-std=c++17", *constants.definitions()]
    (status,) = nvrtc.nvrtcCompileProgram(compiled, len(flags), [flag.encode() for flag in flags])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytearray(done(nvrtc.nvrtcGetProgramLogSize(compiled)))
        done(nvrtc.nvrtcGetProgramLog(compiled, log))
        raise RuntimeError(f"the kernels do not compile for {architecture}: {log.decode()}")
    cubin = bytearray(done(nvrtc.nvrtcGetCUBINSize(compiled)))
    done(nvrtc.nvrtcGetCUBIN(compiled, cubin))
    done(nvrtc.nvrtcDestroyProgram(compiled))
    return bytes(cubin)
