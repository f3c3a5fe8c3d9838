"""Arrays on the tree's device, of whichever library: where a batch lies and of what type it is, and new arrays.

A batch is (address, type of its numbers, B, what holds its memory). A kernel reads it where it lies, on the stream that
is current for its library, so nothing is copied and nobody waits. Results are arrays of the library that the batch is
of.
"""

import sys
from typing import Any

import numpy as np

from ..arguments import to_numpy
from .device import CudaDevice
from .emulation import HostDevice
from .program import NARROW, WIDE

Device = CudaDevice | HostDevice
"""A device that runs kernels, and its memory; ``arrays`` is its array module, CuPy or NumPy."""
Batch = tuple[int, int, int, Any]
INDEX = np.dtype(np.int64)
_CUDA = 2  # DLPack's number of such devices


class NativeArrays:
    """Arrays of the device's own module: CuPy's, or NumPy's where the kernels are emulated."""

    def __init__(self, device: Device) -> None:
        self._device, self._arrays = device, device.arrays
        self._types = {
            True: {INDEX: WIDE, np.dtype("int32"): NARROW},
            False: {np.dtype("float64"): WIDE, np.dtype("float32"): NARROW},
        }
        others = ("int8", "int16", "uint8", "uint16", "uint32")
        self._wider = {np.dtype(name): INDEX for name in others} | {np.dtype("float16"): np.dtype("float32")}
        self.stream = device.current_stream

    def take(self, values: Any, is_index: bool) -> Batch | None:
        """The batch of indices, or of real numbers; None if the values are no such batch."""
        types, dtype = self._types[is_index], values.dtype
        if dtype not in types:
            dtype = self._wider.get(dtype)
            if dtype not in types:
                return None
            values = self._arrays.array(values, dtype)
        if values.ndim != 1:
            return None
        if not values.flags.c_contiguous:
            values = self._arrays.ascontiguousarray(values)
        return self._device.address(values), types[dtype], values.size, values

    def make(self, size: int, dtype: np.dtype[Any]) -> tuple[Any, int]:
        """(an array ``[size]`` with any values, its address)"""
        made = self._arrays.empty(size, dtype)
        return made, self._device.address(made)


class ForeignArrays(NativeArrays):
    """Arrays of other libraries on the device, which CuPy sees without a copy; results are CuPy's."""

    def __init__(self, device: Device, by_dlpack: bool) -> None:
        super().__init__(device)
        self.see = device.arrays.from_dlpack if by_dlpack else device.arrays.asarray

    def take(self, values: Any, is_index: bool) -> Batch | None:
        """The batch as CuPy sees it; None if the values are no such batch."""
        return super().take(self.see(values), is_index)


class TorchArrays:
    """Tensors of torch on the device, on torch's current stream; gradients are left behind."""

    def __init__(self, torch: Any, device: Device) -> None:
        where = torch.device(device.name)
        self._torch, self._number = torch, -1 if where.index is None else where.index
        self._types = {
            True: {torch.int64: WIDE, torch.int32: NARROW},
            False: {torch.float64: WIDE, torch.float32: NARROW},
        }
        self._wider = dict.fromkeys((torch.uint8, torch.int8, torch.int16), torch.int64)
        self._wider |= dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)
        dtypes = ("int64", "float32", "float64")
        self._empty = {np.dtype(name): torch.empty(0, dtype=getattr(torch, name), device=where) for name in dtypes}
        self._stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def stream(self) -> int:
        """The stream that is current for torch."""
        if self._number < 0:
            return 0
        if self._stream_of is not None:
            return int(self._stream_of(self._number))
        return int(self._torch.cuda.current_stream(self._number).cuda_stream)

    def take(self, values: Any, is_index: bool) -> Batch | None:
        """The batch of indices, or of real numbers; None if the values are no such batch, or elsewhere."""
        if values.dim() != 1 or values.get_device() != self._number or values.is_meta:
            return None
        types, dtype = self._types[is_index], values.dtype
        if dtype not in types:
            dtype = self._wider.get(dtype)
            if dtype not in types:
                return None
            values = values.detach().to(dtype)
        if not values.is_contiguous() or values.is_neg():
            values = values.detach().contiguous().resolve_neg()
        return values.data_ptr(), types[dtype], values.numel(), values

    def make(self, size: int, dtype: np.dtype[Any]) -> tuple[Any, int]:
        """(a tensor ``[size]`` with any values, its address)"""
        made = self._empty[dtype].new_empty(size)
        return made, made.data_ptr()

    def convert(self, array: Any) -> Any:
        """A tensor that shares the memory of a native array."""
        return self._torch.from_dlpack(array)


Arrays = NativeArrays | TorchArrays


class Libraries:
    """Finds whose arrays a batch is, by its class."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.native = NativeArrays(device)
        self._known: dict[type, Arrays | None] = {device.arrays.ndarray: self.native}

    def find(self, values: Any) -> Arrays | None:
        """The library of a batch; None for what lies in host memory."""
        try:
            return self._known[type(values)]
        except KeyError:
            return self._look_at(values)

    def _look_at(self, values: Any) -> Arrays | None:
        kind, torch = type(values), sys.modules.get("torch")
        if torch is not None and issubclass(kind, torch.Tensor):
            is_here = self._device.name == "cpu" or torch.cuda.is_available()
            known = (self._known.get(torch.Tensor) or TorchArrays(torch, self._device)) if is_here else None
            self._known[torch.Tensor] = self._known[kind] = known
        elif self._device.arrays is not np and kind is not np.ndarray:  # an object of some classes may be on any device
            by_dlpack = not hasattr(values, "__cuda_array_interface__")
            if by_dlpack and not (hasattr(values, "__dlpack_device__") and values.__dlpack_device__()[0] == _CUDA):
                return None
            return ForeignArrays(self._device, by_dlpack)
        return self._known.setdefault(kind, self.native if issubclass(kind, self._device.arrays.ndarray) else None)

    def convert(self, like: Any, *results: Any) -> tuple[Any, ...]:
        """Native results in the library of ``like``."""
        library = self.find(like)
        return tuple(map(library.convert, results)) if isinstance(library, TorchArrays) else results

    def copy_to_host(self, values: Any) -> Any:
        """Device arrays as NumPy's, for checks on the host; other values unchanged."""
        library = self.find(values)
        if isinstance(library, ForeignArrays):
            values = library.see(values)
        return values if library is None else to_numpy(values)
