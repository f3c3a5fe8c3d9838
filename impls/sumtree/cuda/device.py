"""Run the kernels on a GPU, through CuPy."""

import functools
from typing import Any

from . import program
from .program import Constants, Launch


@functools.cache
def why_not() -> str | None:
    """None if there is CuPy and a device here, else one sentence saying what is missing."""
    try:
        import cupy  # noqa: PLC0415  # heavy, and only here
    except ModuleNotFoundError as error:
        return f"Implementation 'cupy' needs the module {error.name!r}, which is not installed."
    except ImportError as error:
        return f"Implementation 'cupy' needs CuPy, which does not load: {_first_line(error.__cause__ or error)}."
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            return None
        problem = "none is visible"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        problem = _first_line(error)
    return f"Implementation 'cupy' needs a CUDA device, and there is none here: {problem}."


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


class CudaDevice:
    """CuPy's current device, stream and memory pool. Kernels are compiled at their first use in a process."""

    def __init__(self) -> None:
        import cupy  # noqa: PLC0415  # heavy, and only here

        self.arrays: Any = cupy
        self._id = int(cupy.cuda.Device().id)
        self.name = f"cuda:{self._id}"
        self._last_stream: Any = None

    def load(self, constants: Constants) -> dict[str, Launch]:
        """The kernels by name."""
        return load_text(program.kernel_text(), constants, self._id)

    def address(self, array: Any) -> int:
        """Address of the array's first byte."""
        return int(array.data.ptr)

    def follow(self) -> None:
        """Make what is enqueued next begin after what was enqueued before on another stream."""
        stream = self.arrays.cuda.get_current_stream()
        if self._last_stream not in (None, stream) and not stream.is_capturing():
            stream.wait_event(self._last_stream.record())
        self._last_stream = stream

    def synchronize(self) -> None:
        """Wait for the current stream."""
        self.arrays.cuda.get_current_stream().synchronize()


@functools.cache
def load_text(text: str, constants: Constants, device: int) -> dict[str, Launch]:
    """The kernels of a text by name, for a device. RuntimeError with the compiler's words if it does not compile.

    CuPy's own modules are compiled with float32 subnormals flushed to 0, which would lose the smallest priorities.
    """
    import cupy  # noqa: PLC0415  # heavy, and only here

    try:
        binary, _ = cupy.cuda.compiler.compile_using_nvrtc(text, constants.flags())
    except cupy.cuda.compiler.CompileException as error:
        raise RuntimeError(f"the kernels do not compile: {error}") from error
    module = cupy.cuda.function.Module()
    module.load(binary)
    return {name: _launcher(module.get_function(name)) for name in program.kernel_names(text)}


def _launcher(kernel: Any) -> Launch:
    def launch(blocks: int, threads: int, *arguments: Any) -> None:
        kernel((blocks,), (threads,), arguments)

    return launch
