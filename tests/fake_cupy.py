"""Stands in for CuPy where there is no GPU: arrays that refuse to be NumPy's unasked, kernels run by the emulator.

It holds those names of CuPy that the suite uses. Streams run what they are given at once, or, where ``Stream.idle`` is
set, not before somebody waits for it: then what another stream was given later has run before. Between
``begin_capture`` and ``end_capture`` kernels are noted, not run. Whoever reads an array waits for the current stream.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from impls.sumtree.cuda import emulation
from impls.sumtree.cuda.program import CALL, TREE, Constants


class DeviceArray:
    """An array on a device that is not there."""

    def __init__(self, held: np.ndarray[Any, Any]) -> None:
        self.held = held
        if Stream.idle or Stream.now().captured is not None:
            KEPT.append(held)

    def __array__(self, *how: Any, **more: Any) -> np.ndarray[Any, Any]:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getattr__(self, name: str) -> Any:
        if name in ("size", "ndim", "dtype", "nbytes", "shape", "flags", "__cuda_array_interface__"):
            return getattr(self.held, name.replace("cuda_", ""))
        raise AttributeError(name)

    def get(self) -> np.ndarray[Any, Any]:
        Stream.now().synchronize()
        return self.held.copy()

    def view(self, dtype: Any) -> "DeviceArray":
        return DeviceArray(self.held.view(dtype))

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.held.ctypes.data, device_id=0)

    def __dlpack__(self, **how: Any) -> Any:
        return self.held.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()

    def __getitem__(self, where: Any) -> "DeviceArray":
        return DeviceArray(self.held[where])

    def __iter__(self) -> Iterator["DeviceArray"]:
        return map(DeviceArray, self.held)

    def __setitem__(self, where: slice, values: Any) -> None:
        self.held[where] = values.held if isinstance(values, DeviceArray) else values


class Module:
    """Compiled kernels, loaded."""

    def load(self, binary: bytes) -> None:
        flags, code = binary.decode().split("\0")
        values = dict(flag[2:].split("=") for flag in flags.split() if flag.startswith("-D"))
        numbers = (int(values[name]) for name in ("FANOUT", "LANES"))
        switches = (values[name] == "1" for name in ("DELTA", "PACKED"))
        self._kernels = emulation.load_text(code, Constants(values["LEAF"], *numbers, *switches))

    def get_function(self, name: str) -> Any:
        return SimpleNamespace(ptr=_listed(self._kernels[name]))


def launch_kernel(function: int, *how: int) -> None:
    """Enqueue a kernel with the values that its two parameters have now: the tree and the call."""
    blocks, _, _, threads, _, _, _, stream, parameters, _ = how
    addresses = np.ctypeslib.as_array((ctypes.c_uint64 * 2).from_address(parameters))
    kinds = zip(addresses.tolist(), (TREE, CALL), strict=True)
    values = [np.frombuffer(ctypes.string_at(address, kind.itemsize), np.uint8).copy() for address, kind in kinds]
    passed = np.array([value.ctypes.data for value in values], np.uint64)

    def run() -> None:
        assert all(value.size for value in values)  # they live as long as their addresses
        LISTED[function](blocks, threads, stream, passed.ctypes.data)

    LISTED[stream].do(run)


def compile_using_nvrtc(source: str, options: tuple[str, ...]) -> tuple[bytes, None]:
    return f"{' '.join(options)}\0{source}".encode(), None


KEPT: list[Any] = []
"""Memory that idle streams and captured calls will use: a device gives none away before they have."""
LISTED: list[Any] = []
"""What has an address in CUDA: streams, the first of which is the default, events and functions."""


def _listed(what: Any) -> int:
    LISTED.append(what)
    return len(LISTED) - 1


class Event:
    """A moment of the current stream: between two of different streams there is no time."""

    def record(self) -> None:
        self.seconds, self.stream = time.perf_counter(), Stream.current

    def synchronize(self) -> None:
        """It has passed."""


def get_elapsed_time(begin: Event, end: Event) -> float:
    assert begin.stream is end.stream
    return 1e3 * (end.seconds - begin.seconds)


class Stream:
    """Runs what it is given at once, or captures it. Only while it is current is anything given to it."""

    current: "Stream | None" = None
    idle = False  # whether streams do nothing before somebody waits for them

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking
        self.captured: list[Callable[[], None]] | None = None
        self.waiting: list[Callable[[], None]] = []
        self.ptr = _listed(self)

    @classmethod
    def now(cls) -> "Stream":
        """The current stream, or the default."""
        default: Stream = LISTED[0]
        return cls.current or default

    def __enter__(self) -> "Stream":
        Stream.current = self
        return self

    def __exit__(self, *error: Any) -> None:
        Stream.current = None

    def do(self, what: Callable[[], None]) -> None:
        """Enqueue a piece of work."""
        if self.captured is not None:
            self.captured.append(what)
            return
        self.waiting.append(what)
        if not Stream.idle:
            self.synchronize()

    def synchronize(self) -> None:
        """Run all of it."""
        while self.waiting:
            self.waiting.pop(0)()

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> Any:
        captured, self.captured = self.captured, None

        def launch(stream: Stream) -> None:
            assert stream is Stream.current is self  # as the events around it
            for work in captured or ():
                work()

        return SimpleNamespace(launch=launch)


class CUDARuntimeError(RuntimeError):
    """What CuPy raises of the CUDA runtime."""


def asarray(values: Any) -> DeviceArray:
    return values if isinstance(values, DeviceArray) else DeviceArray(np.array(values))


def array(values: DeviceArray, dtype: Any) -> DeviceArray:
    return DeviceArray(np.array(values.held, dtype))


def ascontiguousarray(values: DeviceArray) -> DeviceArray:
    return DeviceArray(np.ascontiguousarray(values.held))


def _wait(stream: int, event: int) -> None:
    """Let a stream wait for another, which has as much to do as when the event was recorded."""
    (awaited,) = LISTED[event]
    LISTED[stream].do(LISTED[awaited].synchronize)


def module(devices: int | str = 1) -> Any:
    """The module; ``devices`` as text is the error that counting them raises."""

    def device_count() -> int:
        if isinstance(devices, str):
            raise CUDARuntimeError(devices)
        return devices

    runtime = SimpleNamespace(
        getDeviceCount=device_count,
        CUDARuntimeError=CUDARuntimeError,
        deviceSynchronize=lambda: [stream.synchronize() for stream in LISTED if isinstance(stream, Stream)],
        getDevice=lambda: 0,
        memGetInfo=lambda: (0, 0),
        eventDisableTiming=2,
        eventCreateWithFlags=lambda flags: _listed([]),
        eventRecord=lambda event, stream: LISTED[event].append(stream),
        eventDestroy=lambda event: None,
        streamWaitEvent=_wait,
        streamIsCapturing=lambda stream: LISTED[stream].captured is not None,
    )
    cuda = SimpleNamespace(
        driver=SimpleNamespace(launchKernel=launch_kernel),
        alloc_pinned_memory=bytearray,
        runtime=runtime,
        compiler=SimpleNamespace(
            CompileException=type("CompileException", (Exception,), {}), compile_using_nvrtc=compile_using_nvrtc
        ),
        function=SimpleNamespace(Module=Module),
        Device=lambda: SimpleNamespace(id=0),
        Event=Event,
        Stream=Stream,
        get_current_stream=Stream.now,
        get_elapsed_time=get_elapsed_time,
    )
    makers = {name: _making(getattr(np, name)) for name in ("zeros", "empty", "full")}
    return SimpleNamespace(
        ndarray=DeviceArray, array=array, asarray=asarray, ascontiguousarray=ascontiguousarray, cuda=cuda, **makers
    )


def _making(maker: Any) -> Any:
    return lambda *arguments: DeviceArray(maker(*arguments))


Stream(non_blocking=True)  # the default, whose address is 0
