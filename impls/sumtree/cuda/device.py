"""Run the kernels on a GPU, through CuPy."""

import functools
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import explain_missing
from . import program
from .program import Constants, Launch


@functools.cache
def why_not() -> str | None:
    """None if there is CuPy and a device here, else one sentence saying what is missing."""
    try:
        import cupy  # noqa: PLC0415  # heavy, and only here
    except ModuleNotFoundError as error:
        return explain_missing("cupy", str(error.name))
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
        self._threads = threading.local()
        self._last_stream: int | None = None
        self._held: list[Any] = []  # the last two streams of CuPy's: they live until others wait for them

    def load(self, constants: Constants) -> dict[str, Launch]:
        """The kernels by name."""
        return load_text(program.kernel_text(), constants, self._id)

    def address(self, array: Any) -> int:
        """Address of the array's first byte. ValueError for an array of another device."""
        data = array.data
        if data.device_id != self._id:
            raise ValueError(f"the array is on cuda:{data.device_id} and the tree on {self.name}: copy it there")
        address: int = data.ptr
        return address

    def enter(self) -> None:
        """Bind the device's context to this thread, once. ValueError where another device is current for it."""
        runtime = self.arrays.cuda.runtime
        if (current := runtime.getDevice()) != self._id:
            raise ValueError(
                f"the current device is cuda:{current} and the tree is on {self.name}: call it within "
                f"cupy.cuda.Device({self._id}) or torch.cuda.device({self._id})"
            )
        if not hasattr(self._threads, "is_bound"):
            runtime.memGetInfo()
            self._threads.is_bound = True

    def current_stream(self) -> int:
        """The stream that is current for CuPy."""
        stream = self.arrays.cuda.get_current_stream()
        address: int = stream.ptr
        if address != self._last_stream:
            self._held = [*self._held[-1:], stream]
        return address

    def follow(self, stream: int) -> None:
        """Make what is enqueued next, on this stream, begin after what was enqueued before on another one."""
        if stream == self._last_stream:
            return
        runtime = self.arrays.cuda.runtime
        if self._last_stream is not None and not runtime.streamIsCapturing(stream):
            event = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
            runtime.eventRecord(event, self._last_stream)
            runtime.streamWaitEvent(stream, event)
            runtime.eventDestroy(event)  # once it has passed
        self._last_stream = stream

    def synchronize(self) -> None:
        """Wait for every stream, of graphs that are replayed too."""
        self.arrays.cuda.runtime.deviceSynchronize()

    def shared_words(self, count: int) -> NDArray[np.int64]:
        """Pinned memory, which has one address for the host and the device."""
        pinned = self.arrays.cuda.alloc_pinned_memory(8 * count)
        words: NDArray[np.int64] = np.frombuffer(pinned, np.int64, count)
        words[:] = 0
        return words


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
    launch = cupy.cuda.driver.launchKernel
    return {name: _launcher(launch, module.get_function(name)) for name in program.kernel_names(text)}


def _launcher(launch_kernel: Any, function: Any) -> Launch:
    address = function.ptr

    def launch(blocks: int, threads: int, stream: int, parameters: int, function: Any = function) -> None:
        launch_kernel(address, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, 0)

    return launch
