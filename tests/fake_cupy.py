"""Stands in for CuPy where there is no GPU: arrays that refuse to be NumPy's unasked, kernels run by the emulator.

It holds those names of CuPy that the suite uses, and passes kernel arguments by CuPy's rules: device arrays by address,
NumPy arrays only if they have one element (by value), NumPy's and Python's numbers by value. Between ``begin_capture``
and ``end_capture`` kernels are noted, not run.
"""

import time
from collections.abc import Callable
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

    def __getitem__(self, where: slice) -> "DeviceArray":
        return DeviceArray(self.held[where])

    def __setitem__(self, where: slice, values: Any) -> None:
        self.held[where] = values.held if isinstance(values, DeviceArray) else values


class RawModule:
    """Kernels of a text, compiled with -D flags."""

    def __init__(self, code: str, options: tuple[str, ...]) -> None:
        values = dict(option[2:].split("=") for option in options if option.startswith("-D"))
        numbers = (int(values[name]) for name in ("FANOUT", "LANES"))
        flags = (values[name] == "1" for name in ("DELTA", "PACKED"))
        self._kernels = emulation.load_text(code, Constants(values["LEAF"], *numbers, *flags))

    def get_function(self, name: str) -> Any:
        launch = self._kernels[name]

        def kernel(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            passed = [_passed(argument) for argument in arguments]
            if Stream.captured is None:
                launch(*grid, *block, *passed)
            else:
                Stream.captured.append(lambda: launch(*grid, *block, *passed))

        return kernel

    def compile(self) -> None:
        """Nothing: the emulator has done it."""


class Event:
    """A moment."""

    def record(self, stream: Any = None) -> None:
        self.seconds = time.perf_counter()

    def synchronize(self) -> None:
        """It has passed."""


class Stream:
    """Runs what it is given at once, or captures it."""

    captured: list[Callable[[], None]] | None = None

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing to leave."""

    def synchronize(self) -> None:
        """All of it has run."""

    def begin_capture(self) -> None:
        Stream.captured = []

    def end_capture(self) -> Any:
        captured, Stream.captured = Stream.captured, None
        return SimpleNamespace(launch=lambda stream: [one() for one in captured or ()])


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


def ascontiguousarray(values: DeviceArray, dtype: Any) -> DeviceArray:
    return DeviceArray(np.ascontiguousarray(values.held, dtype))


def module(devices: int | str = 1) -> Any:
    """The module; ``devices`` as text is the error that counting them raises."""

    def device_count() -> int:
        if isinstance(devices, str):
            raise CUDARuntimeError(devices)
        return devices

    runtime = SimpleNamespace(getDeviceCount=device_count, CUDARuntimeError=CUDARuntimeError)
    stream = SimpleNamespace(synchronize=lambda: None)
    cuda = SimpleNamespace(
        runtime=runtime,
        compiler=SimpleNamespace(CompileException=type("CompileException", (Exception,), {})),
        Device=lambda: SimpleNamespace(id=0),
        Event=Event,
        Stream=Stream,
        get_current_stream=lambda: stream,
        get_elapsed_time=lambda begin, end: 1e3 * (end.seconds - begin.seconds),
    )
    makers = {name: _making(getattr(np, name)) for name in ("zeros", "empty", "full")}
    return SimpleNamespace(
        ndarray=DeviceArray,
        asarray=asarray,
        ascontiguousarray=ascontiguousarray,
        RawModule=RawModule,
        cuda=cuda,
        **makers,
    )


def _making(maker: Any) -> Any:
    return lambda *arguments: DeviceArray(maker(*arguments))
