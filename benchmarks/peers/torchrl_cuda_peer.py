"""torchrl's segment tree on a GPU, from the CUDA sources that its wheel ships."""

import functools
from typing import Any

import numpy as np

from impls.files import cache_folder, make_private

from .torchrl_peer import Torchrl, folder


class TorchrlCuda(Torchrl):
    """``CudaSumSegmentTree`` of torchrl, by tensors on the device."""

    limits = ("an update writes leaves in one thread and recomputes the whole tree", "indices are not checked")
    device = "cuda"

    @classmethod
    def after_install(cls) -> None:
        """Compile the CUDA sources that torchrl ships."""
        _extension()

    def _allocate(self) -> None:
        import torch  # noqa: PLC0415  # heavy, and only here

        if not torch.cuda.is_available():
            raise RuntimeError("torchrl_cuda needs a CUDA device that torch sees")
        self._torch = torch
        kind = "CudaSumSegmentTreeFp32" if self.dtype == np.float32 else "CudaSumSegmentTreeFp64"
        self._tree = getattr(_extension(), kind)(self.slots, torch.device("cuda"))
        # Of two elements: torchrl takes a tensor of one for a number, and fetches it from the device.
        self._ends = torch.zeros(2, dtype=torch.int64, device="cuda"), torch.full((2,), self.slots, device="cuda")

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        return self._torch.as_tensor(super().place(array), device="cuda")

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.scan_lower_bound(uniforms * tree.query(*self._ends)[:1])
        return indices, tree[indices]

    def total(self) -> float:
        return float(self._tree.query(*self._ends)[0])

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()


@functools.cache
def _extension() -> Any:
    """Compile torchrl's extension with its CUDA trees against the installed torch: minutes, once a version.

    ImportError with one line if it does not compile.
    """
    import torch  # noqa: PLC0415  # heavy, and only here
    from torch.utils import cpp_extension  # noqa: PLC0415

    sources = [str(folder() / "csrc" / name) for name in ("pybind.cpp", "utils.cpp", "cuda_segment_tree.cu")]
    name = f"torchrl-{TorchrlCuda.version}-torch-{torch.__version__}"
    built = make_private(cache_folder("torchrl") / name)  # what lies there is run
    (built / "lock").unlink(missing_ok=True)  # of a build that was killed: the next would wait for it for ever
    try:
        return cpp_extension.load(
            "_torchrl",
            sources,
            build_directory=str(built),
            extra_cflags=["-O3", "-DWITH_CUDA"],
            extra_cuda_cflags=["-O3"],
            with_cuda=True,
        )
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "error" in line.lower()]
        raise ImportError(f"its CUDA sources do not compile ({(lines or ['no compiler'])[0].strip()})") from error
