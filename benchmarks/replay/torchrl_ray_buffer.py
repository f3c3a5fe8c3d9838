"""torchrl's prioritized buffer as an actor of a Ray cluster."""

from functools import partial
from typing import Any

from impls.cluster.connection import connect

from .buffers import ALPHA, BETA, EPSILON
from .torchrl_buffer import ERROR, Torchrl, load_extension


class TorchrlRay(Torchrl):
    """``RayReplayBuffer``, whose transport it chooses itself; every call waits for its actor."""

    name = "torchrl_ray"
    needs = (*Torchrl.needs, "ray")
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
            storage=partial(LazyTensorStorage, self.capacity),
            sampler=partial(PrioritizedSampler, self.capacity, alpha=ALPHA, beta=BETA, eps=EPSILON),
            priority_key=ERROR,
            batch_size=1,
        )

    def update(self, sampled: Any, errors: Any) -> None:
        sampled[ERROR] = errors
        self._buffer.update_tensordict_priority(sampled)
