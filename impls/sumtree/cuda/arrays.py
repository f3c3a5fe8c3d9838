"""Arrays on the tree's device, of whichever library: where a batch lies and of what type it is, and new arrays.

A batch is (address, type of its numbers, B, what holds its memory). A kernel reads it where it lies, on the stream that
is current for its library, so nothing is copied and nobody waits. Results are arrays of the library that the batch is
of.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arguments import to_numpy
from .program import NARROW, WIDE, Device

Batch = tuple[int, int, int, Any]
_CUDA = 2  # DLPack's number of such devices


class NativeArrays:
    """Arrays of the device's own module: CuPy's, or NumPy's where the kernels are emulated."""

    def __init__(self, device: Device, leaf: np.dtype[Any]) -> None:
        self._device, self._arrays, self._leaf = device, device.arrays, leaf
        self._int64 = np.dtype(np.int64)
        self._indices = {np.dtype(np.int64): WIDE, np.dtype(np.int32): NARROW}
        self._reals = {np.dtype(np.float64): WIDE, np.dtype(np.float32): NARROW}
        self._other_indices = frozenset(map(np.dtype, ("int8", "int16", "uint8", "uint16", "uint32")))
        self.stream = device.current_stream

    def take_indices(self, values: Any) -> Batch | None:
        """The indices ``[B]``; None if they are no such integers."""
        return self._take(values, self._indices, self._other_indices, np.int64)

    def take_reals(self, values: Any) -> Batch | None:
        """The real numbers ``[B]``; None if they are none."""
        return self._take(values, self._reals, frozenset({np.dtype(np.float16)}), np.float32)

    def _take(self, values: Any, types: Mapping[Any, int], others: frozenset[Any], wider: Any) -> Batch | None:
        kind = types.get(values.dtype)
        if kind is None:
            if values.dtype not in others:
                return None
            values = self._arrays.array(values, wider)
            kind = types[values.dtype]
        if values.ndim != 1:
            return None
        if not values.flags.c_contiguous:
            values = self._arrays.ascontiguousarray(values)
        return self._device.address(values), kind, values.size, values

    def see(self, values: Any) -> Any:
        """The native array that shares the memory."""
        return values

    def make_indices(self, size: int) -> tuple[Any, int]:
        """(int64 ``[size]`` with any values, its address)"""
        made = self._arrays.empty(size, self._int64)
        return made, self._device.address(made)

    def make_priorities(self, size: int) -> tuple[Any, int]:
        """(an array ``[size]`` of the leaves' dtype with any values, its address)"""
        made = self._arrays.empty(size, self._leaf)
        return made, self._device.address(made)


class ForeignArrays(NativeArrays):
    """Arrays of other libraries on the device, which CuPy sees without a copy; results are CuPy's."""

    def __init__(self, device: Device, leaf: np.dtype[Any], by_dlpack: bool) -> None:
        super().__init__(device, leaf)
        self._seen_as = device.arrays.from_dlpack if by_dlpack else device.arrays.asarray

    def see(self, values: Any) -> Any:
        """The native array that shares the memory."""
        return self._seen_as(values)

    def _take(self, values: Any, types: Mapping[Any, int], others: frozenset[Any], wider: Any) -> Batch | None:
        return super()._take(self.see(values), types, others, wider)


class TorchArrays:
    """Tensors of torch on the device, on torch's current stream; gradients are left behind."""

    def __init__(self, torch: Any, device: Device, leaf: np.dtype[Any]) -> None:
        where = torch.device(device.name)
        self._number = -1 if where.index is None else where.index
        self._indices, self._reals = (
            {torch.int64: WIDE, torch.int32: NARROW},
            {torch.float64: WIDE, torch.float32: NARROW},
        )
        self._wider = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
        self._wider |= dict.fromkeys((torch.uint8, torch.int8, torch.int16), torch.int64)
        self._index = torch.empty(0, dtype=torch.int64, device=where)
        self._priority = torch.empty(0, dtype=getattr(torch, leaf.name), device=where)
        self._torch, self._stream_of = torch, getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def stream(self) -> int:
        """The stream that is current for torch."""
        if self._number < 0:
            return 0
        if self._stream_of is not None:
            return int(self._stream_of(self._number))
        return int(self._torch.cuda.current_stream(self._number).cuda_stream)

    def take_indices(self, values: Any) -> Batch | None:
        """The indices ``[B]``; None if they are no such integers, or elsewhere."""
        return self._take(values, self._indices)

    def take_reals(self, values: Any) -> Batch | None:
        """The real numbers ``[B]``; None if they are none, or elsewhere."""
        return self._take(values, self._reals)

    def _take(self, values: Any, types: Mapping[Any, int]) -> Batch | None:
        if values.dim() != 1 or values.get_device() != self._number:
            return None
        kind = types.get(values.dtype)
        if kind is None:
            wider = self._wider.get(values.dtype)
            if wider not in types:
                return None
            values, kind = values.detach().to(wider), types[wider]
        if not values.is_contiguous():
            values = values.detach().contiguous()
        return values.data_ptr(), kind, values.numel(), values

    def see(self, values: Any) -> Any:
        """The tensor itself."""
        return values

    def make_indices(self, size: int) -> tuple[Any, int]:
        """(int64 ``[size]`` with any values, its address)"""
        made = self._index.new_empty(size)
        return made, made.data_ptr()

    def make_priorities(self, size: int) -> tuple[Any, int]:
        """(a tensor ``[size]`` of the leaves' dtype with any values, its address)"""
        made = self._priority.new_empty(size)
        return made, made.data_ptr()

    def convert(self, array: Any) -> Any:
        """A tensor that shares the memory of a native array."""
        return self._torch.from_dlpack(array)


Arrays = NativeArrays | TorchArrays


class Libraries:
    """Finds whose arrays a batch is: by its class, of which each is looked at once."""

    def __init__(self, device: Device, leaf: np.dtype[Any]) -> None:
        self._device, self._leaf = device, leaf
        self.native = NativeArrays(device, leaf)
        self._known: dict[type, Arrays | None] = {device.arrays.ndarray: self.native}
        self._torch: TorchArrays | None = None

    def find(self, values: Any) -> Arrays | None:
        """The library of a batch; None for what lies in host memory."""
        try:
            return self._known[type(values)]
        except KeyError:
            return self._look_at(values)

    def _look_at(self, values: Any) -> Arrays | None:
        kind, torch = type(values), sys.modules.get("torch")
        if issubclass(kind, self._device.arrays.ndarray):
            self._known[kind] = self.native
        elif torch is not None and issubclass(kind, torch.Tensor):
            self._known[kind] = self._torch = self._torch or TorchArrays(torch, self._device, self._leaf)
        elif self._device.arrays is not np and kind is not np.ndarray:  # an object of some classes may be on any device
            by_dlpack = not hasattr(values, "__cuda_array_interface__")
            if by_dlpack and not (hasattr(values, "__dlpack_device__") and values.__dlpack_device__()[0] == _CUDA):
                return None
            return ForeignArrays(self._device, self._leaf, by_dlpack)
        return self._known.setdefault(kind, None)

    def convert(self, like: Any, *results: Any) -> tuple[Any, ...]:
        """Native results in the library of ``like``."""
        library = self.find(like)
        return tuple(map(library.convert, results)) if isinstance(library, TorchArrays) else results

    def copy_to_host(self, values: Any) -> Any:
        """Device arrays as NumPy's, for checks on the host; other values unchanged."""
        library = self.find(values)
        return values if library is None else to_numpy(library.see(values))
