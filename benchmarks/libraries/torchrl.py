"""torchrl: binary trees in C++ and CUDA, float32 or float64, recomputed; buffers of tensors."""

import functools
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from impls.cluster.connection import connect
from impls.files import cache_folder, make_private

from . import base, rows
from .base import OURS, Methods

COMPILED = "compiled"  # the folder next to its sources
ERROR = "td_error"
THEIRS = "theirs"
METHODS = ("__getitem__", "__setitem__", "at", "update", "query", "scan_lower_bound")


class _Torchrl:
    package = "torchrl"
    alone = ("tensordict",)
    needs = (
        *("cloudpickle", "hoptorch", "importlib_metadata", "ninja", "orjson", "packaging", "pyvers", "setuptools"),
        "torch",
    )


class Tree(_Torchrl, base.Tree):
    """``SumSegmentTree`` of torchrl by NumPy arrays, which it takes faster than tensors."""

    rule = "smallest i with p_0 + .. + p_i >= mass"
    dtypes = ("float32", "float64")
    limits = ("indices are not checked", "accepts NaN and negative priorities", "memory doubles at a power of two")

    def _allocate(self) -> None:
        kind = "SumSegmentTreeFp32" if self.dtype == np.float32 else "SumSegmentTreeFp64"
        self._tree = getattr(extension(), kind)(self.slots)

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        return array.astype(self.dtype) if array.dtype.kind == "f" else array

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.scan_lower_bound(uniforms * self.dtype.type(tree.query(0, self.slots)))
        return indices, tree[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.scan_lower_bound(mass)

    def total(self) -> float:
        return float(self._tree.query(0, self.slots))

    @classmethod
    def after_install(cls) -> None:
        """Compile the sources that torchrl ships against the installed torch, where its own binary does not load."""
        try:
            extension()
        except ModuleNotFoundError:
            raise
        except ImportError:
            from torch.utils import cpp_extension  # noqa: PLC0415  # heavy, and only here

            built = folder() / COMPILED
            built.mkdir(exist_ok=True)
            sources = [str(folder() / "csrc" / name) for name in ("pybind.cpp", "utils.cpp")]
            cpp_extension.load("_torchrl", sources, build_directory=str(built), extra_cflags=["-O3"])


def folder() -> Path:
    """Return torchrl's folder without importing it. ModuleNotFoundError if it is not installed."""
    package = importlib.util.find_spec("torchrl")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'torchrl'", name="torchrl")
    return Path(package.submodule_search_locations[0])


def extension() -> ModuleType:
    """Load torchrl's extension as it was compiled here, or else as it was installed. ImportError if neither loads."""
    import torch  # noqa: F401, PLC0415  # its libraries must be loaded first

    problem = "there is none"
    for file in [*(folder() / COMPILED).glob("_torchrl*.so"), *folder().glob("_torchrl*.so")]:
        spec = importlib.util.spec_from_file_location("_torchrl", file)
        if spec is None or spec.loader is None:
            continue
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        except ImportError as error:
            problem = str(error).rpartition("/")[2]
    raise ImportError(f"its extension does not fit the installed torch ({problem})")


class CudaTree(Tree):
    """``CudaSumSegmentTree`` of torchrl, by tensors on the device."""

    name = "torchrl_cuda"
    limits = ("an update writes leaves in one thread and recomputes the whole tree", "indices are not checked")
    device = "cuda"
    needs_install = False

    @classmethod
    def after_install(cls) -> None:
        """Compile the CUDA sources that torchrl ships."""
        _cuda_extension()

    def _allocate(self) -> None:
        import torch  # noqa: PLC0415  # heavy, and only here

        if not torch.cuda.is_available():
            raise RuntimeError("torchrl_cuda needs a CUDA device that torch sees")
        self._torch = torch
        kind = "CudaSumSegmentTreeFp32" if self.dtype == np.float32 else "CudaSumSegmentTreeFp64"
        self._tree = getattr(_cuda_extension(), kind)(self.slots, torch.device("cuda"))
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
def _cuda_extension() -> Any:
    """Compile torchrl's extension with its CUDA trees against the installed torch: minutes, once a version.

    ImportError with one line if it does not compile.
    """
    import torch  # noqa: PLC0415  # heavy, and only here
    from torch.utils import cpp_extension  # noqa: PLC0415

    sources = [str(folder() / "csrc" / name) for name in ("pybind.cpp", "utils.cpp", "cuda_segment_tree.cu")]
    name = f"torchrl-{importlib.metadata.version('torchrl')}-torch-{torch.__version__}"
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


def load_extension() -> None:
    """Give torchrl its tree as it was compiled here, in a process that has not imported torchrl yet."""
    sys.modules.setdefault("torchrl._torchrl", extension())


class Buffer(_Torchrl, base.Buffer):
    """``TensorDictPrioritizedReplayBuffer`` on a ``LazyTensorStorage``, its tree compiled for the installed torch."""

    limits = ("a sample fetches its records as tensors",)
    dtype = "float32"

    def _allocate(self, seed: int) -> None:
        load_extension()
        sys.modules.setdefault("ray", None)  # type: ignore[arg-type]  # it imports what is there of Ray's services
        from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer  # noqa: PLC0415

        self._use_torch(seed)
        kind = {"alpha": base.ALPHA, "beta": base.BETA, "eps": base.EPSILON, "priority_key": ERROR}
        storage = LazyTensorStorage(self.capacity)
        self._buffer = TensorDictPrioritizedReplayBuffer(storage=storage, batch_size=1, **kind)

    def _use_torch(self, seed: int) -> None:
        import torch  # noqa: PLC0415  # heavy, and optional
        from tensordict import TensorDict  # noqa: PLC0415

        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self._torch, self._dict = torch, TensorDict

    def insert(self, placed: Any) -> None:
        self._buffer.extend(placed)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priority(sampled["index"], errors)

    def records(self, sampled: Any) -> rows.Rows:
        return {name: sampled[name].numpy() for name in rows.LAYOUT.fields}

    def weights(self, sampled: Any) -> Any:
        key = "priority_weight" if "priority_weight" in sampled.keys() else "_weight"  # no mapping
        return sampled[key].numpy()

    def place(self, records: rows.Rows) -> Any:
        tensors = {name: self._torch.from_numpy(np.ascontiguousarray(array)) for name, array in records.items()}
        return self._dict(tensors, batch_size=[len(records["reward"])])

    def place_errors(self, errors: Any) -> Any:
        return self._torch.from_numpy(errors)


class RayBuffer(Buffer):
    """``RayReplayBuffer``, whose transport it chooses itself; every call waits for its actor."""

    name = "torchrl_ray"
    needs = (*Buffer.needs, "ray")
    clustered = True

    def _allocate(self, seed: int) -> None:
        load_extension()
        connect("local", runtime_env={"worker_process_setup_hook": f"{load_extension.__module__}.load_extension"})
        from torchrl.data import LazyTensorStorage, RayReplayBuffer, TensorDictReplayBuffer  # noqa: PLC0415
        from torchrl.data.replay_buffers.samplers import PrioritizedSampler  # noqa: PLC0415

        self._use_torch(seed)
        self._buffer = RayReplayBuffer(
            replay_buffer_cls=TensorDictReplayBuffer,
            remote_config={"num_cpus": 0.1},
            storage=functools.partial(LazyTensorStorage, self.capacity),
            sampler=functools.partial(
                PrioritizedSampler, self.capacity, alpha=base.ALPHA, beta=base.BETA, eps=base.EPSILON
            ),
            priority_key=ERROR,
            batch_size=1,
        )

    def update(self, sampled: Any, errors: Any) -> None:
        sampled[ERROR] = errors
        self._buffer.update_tensordict_priority(sampled)


def _made(kind: str, capacity: int, batch: int, **priorities: float) -> Any:
    """Return a buffer of a kind. ImportError where the host's trees do not load."""
    sys.modules.setdefault("ray", None)  # type: ignore[arg-type]  # it imports what is there of Ray's services
    if kind == THEIRS:
        load_extension()
    import torch  # noqa: PLC0415  # heavy, and optional
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer  # noqa: PLC0415
    from torchrl.data.replay_buffers.samplers import PrioritizedSampler as sampler  # noqa: PLC0415

    torch.set_num_threads(1)
    if kind == OURS:
        from impls.plugins.torchrl import FanoutSampler as sampler  # noqa: PLC0415
    return TensorDictReplayBuffer(
        storage=LazyTensorStorage(capacity),
        sampler=sampler(capacity, **priorities),
        batch_size=batch,
        priority_key=ERROR,
    )


class _HostBuffer(Buffer):
    def _allocate(self, seed: int, **options: Any) -> None:
        self._buffer = _made(options["kind"], self.capacity, 1, alpha=base.ALPHA, beta=base.BETA, eps=base.EPSILON)
        self._use_torch(seed)


class _Loop(_Torchrl, base.TorchLoop):
    """Double DQN by torchrl's loss and target updater."""

    kind = THEIRS

    def _prepare(self) -> None:
        learner, replay = self.workload.learner, self.workload.replay
        self._buffer = _made(self.kind, replay.capacity, learner.batch, alpha=replay.alpha, beta=replay.beta)
        import torch  # noqa: PLC0415
        from tensordict import TensorDict  # noqa: PLC0415
        from torchrl.modules import MLP, QValueActor  # noqa: PLC0415
        from torchrl.objectives import DQNLoss, SoftUpdate  # noqa: PLC0415

        self._torch, self._dict, self._rng = torch, TensorDict, np.random.default_rng(self.seed)
        choices = self.workload.action.choices
        self.policy = MLP(
            in_features=self.workload.observation.shape[0],
            out_features=choices,
            num_cells=list(self.workload.network.hidden),
            activation_class=torch.nn.ReLU,
        )
        actor = QValueActor(self.policy, in_keys=["observation"], action_space="categorical")
        self._loss = DQNLoss(
            actor, loss_function="smooth_l1", delay_value=True, double_dqn=learner.double, action_space="categorical",
            reduction="none",
        )  # fmt: skip
        self._loss.make_value_estimator(gamma=learner.gamma)
        self._target = SoftUpdate(self._loss, tau=learner.tau)
        self._optimizer = torch.optim.Adam(self._loss.parameters(), lr=learner.learning_rate)
        self._environment = self.environment()
        self._observation = self._environment.reset(seed=self.seed)[0]

    def turn(self) -> None:
        torch, learner = self._torch, self.workload.learner
        observation = torch.as_tensor(self._observation)
        if self._rng.random() < self.workload.exploration.end:
            action = int(self._rng.integers(self.workload.action.choices))
        else:
            with torch.no_grad():
                action = int(self.policy(observation).argmax())
        following, reward, terminated, truncated, _ = self._environment.step(action)
        done = terminated or truncated
        outcome = {
            "observation": torch.as_tensor(following),
            "reward": torch.tensor([float(reward)]),
            "terminated": torch.tensor([terminated]),
            "done": torch.tensor([done]),
        }
        self._buffer.add(self._dict({"observation": observation, "action": torch.tensor(action), "next": outcome}))
        self._observation = self._environment.reset()[0] if done else following
        self.steps += 1
        if self.steps > learner.learning_starts:
            self._learn()

    def _learn(self) -> None:
        batch = self._buffer.sample()
        weights = batch["priority_weight"]
        self._optimizer.zero_grad()
        losses = self._loss(batch)["loss"]  # writes the errors into the batch
        (losses.reshape(-1) * weights.reshape(-1)).mean().backward()
        self._optimizer.step()
        self._target.step()
        self._buffer.update_tensordict_priority(batch)


class _OnOurs(_Loop):
    kind = OURS


class Host(_Torchrl, base.Host):
    """``TensorDictReplayBuffer`` with ``PrioritizedSampler`` on a ``LazyTensorStorage``; DQN by ``DQNLoss``."""

    module = "torchrl"
    buffers = _HostBuffer
    kinds = (THEIRS, OURS)
    loops = (_Loop, _OnOurs)
    limits = ("environment and acting are a plain loop, not torchrl's collector",)

    def trees(self) -> Iterable[Methods]:
        names = [f"{which}SegmentTreeFp32" for which in ("Sum", "Min")]
        kinds = [getattr(extension(), name) for name in names]
        return [(kind, [name for name in METHODS if hasattr(kind, name)]) for kind in kinds]
