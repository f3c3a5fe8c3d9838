"""Stands in for CuPy where there is no GPU: arrays that refuse to be NumPy's unasked, kernels run by the emulator.

It holds those names of CuPy that the suite uses, and passes kernel arguments by CuPy's rules: device arrays by address,
NumPy arrays only if they have one element (by value), NumPy's and Python's numbers by value. Between ``begin_capture``
and ``end_capture`` kernels are noted, not run.
"""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from impls.sumtree.cuda import emulation
from impls.sumtree.cuda.program import Constants


class DeviceArray:
    """An array on a device that is not there."""

    def __init__(self, held: np.ndarray[Any, Any]) -> None:
        self.held = held

    def __array__(self, *how: Any, **more: Any) -> np.ndarray[Any, Any]:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getattr__(self, name: str) -> Any:
        if name in ("size", "ndim", "dtype", "nbytes", "shape", "__cuda_array_interface__"):
            return getattr(self.held, name.replace("cuda_", ""))
        raise AttributeError(name)

    def get(self) -> np.ndarray[Any, Any]:
        return self.held.copy()

    def view(self, dtype: Any) -> "DeviceArray":
        return DeviceArray(self.held.view(dtype))

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.held.ctypes.data)

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
        launch = self._kernels[name]

        def kernel(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            passed = [_passed(argument) for argument in arguments]
            stream = Stream.current
            if stream is None or stream.captured is None:
                launch(*grid, *block, *passed)
            else:
                stream.captured.append(lambda: launch(*grid, *block, *passed))

        return kernel


def compile_using_nvrtc(source: str, options: tuple[str, ...]) -> tuple[bytes, None]:
    return f"{' '.join(options)}\0{source}".encode(), None


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

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking
        self.captured: list[Callable[[], None]] | None = None
        self.awaited: list[Stream | None] = []

    def __enter__(self) -> "Stream":
        Stream.current = self
        return self

    def __exit__(self, *error: Any) -> None:
        Stream.current = None

    def is_capturing(self) -> bool:
        return self.captured is not None

    def record(self) -> Event:
        event = Event()
        event.stream = self
        return event

    def wait_event(self, event: Event) -> None:
        """What the event marks has passed."""
        self.awaited.append(event.stream)

    def synchronize(self) -> None:
        """All of it has run."""

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> Any:
        captured, self.captured = self.captured, None

        def launch(stream: Stream) -> None:
            assert stream is Stream.current is self  # as the events around it
            for one in captured or ():
                one()

        return SimpleNamespace(launch=launch)


def _passed(argument: Any) -> Any:
    if isinstance(argument, DeviceArray):
        return argument.held
    if isinstance(argument, np.ndarray) and argument.size != 1:
        raise TypeError("Only numpy.ndarrays of size one can be passed by value.")
    return argument


class CUDARuntimeError(RuntimeError):
    """What CuPy raises of the CUDA runtime."""


def asarray(values: Any) -> DeviceArray:
    return values if isinstance(values, DeviceArray) else DeviceArray(np.array(values))


def array(values: DeviceArray, dtype: Any) -> DeviceArray:
    return DeviceArray(np.array(values.held, dtype))


def ascontiguousarray(values: DeviceArray, dtype: Any) -> DeviceArray:
    return DeviceArray(np.ascontiguousarray(values.held, dtype))


def module(devices: int | str = 1) -> Any:
    """The module; ``devices`` as text is the error that counting them raises."""

    def device_count() -> int:
        if isinstance(devices, str):
            raise CUDARuntimeError(devices)
        return devices

    runtime = SimpleNamespace(
        getDeviceCount=device_count, CUDARuntimeError=CUDARuntimeError, deviceSynchronize=lambda: None
    )
    default = Stream(non_blocking=True)
    cuda = SimpleNamespace(
        runtime=runtime,
        compiler=SimpleNamespace(
            CompileException=type("CompileException", (Exception,), {}), compile_using_nvrtc=compile_using_nvrtc
        ),
        function=SimpleNamespace(Module=Module),
        Device=lambda: SimpleNamespace(id=0),
        Event=Event,
        Stream=Stream,
        get_current_stream=lambda: Stream.current or default,
        get_elapsed_time=get_elapsed_time,
    )
    makers = {name: _making(getattr(np, name)) for name in ("zeros", "empty", "full")}
    return SimpleNamespace(
        ndarray=DeviceArray, array=array, asarray=asarray, ascontiguousarray=ascontiguousarray, cuda=cuda, **makers
    )


def _making(maker: Any) -> Any:
    return lambda *arguments: DeviceArray(maker(*arguments))
