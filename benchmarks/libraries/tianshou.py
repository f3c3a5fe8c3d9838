"""tianshou: binary float64 trees in numba, recomputed; its buffers take one transition an environment and call."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from . import base, rows
from .base import OURS, Methods

NAMES = {
    "observation": "obs",
    "next_observation": "obs_next",
    "action": "act",
    "reward": "rew",
    "terminated": "terminated",
}
ENVIRONMENTS = 64
THEIRS, SWAPPED = "theirs", "ours, tree alone"
METHODS = ("__getitem__", "__setitem__", "reduce", "get_prefix_sum_idx")


class _Tianshou:
    package = "tianshou"
    needs = (
        *("deepdiff", "gymnasium", "h5py", "matplotlib", "numba", "overrides", "pandas", "pettingzoo"),
        *("sensai-utils", "tensorboard", "torch", "tqdm"),
    )


class Tree(_Tianshou, base.Tree):
    """``SegmentTree`` of tianshou, by its vector calls."""

    source = ("tianshou", "data/utils/segtree.py", "SegmentTree")
    rule = "smallest i with p_0 + .. + p_i >= mass"
    limits = ("overwrites the prefix values of a call", "memory doubles past a power of two")

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.get_prefix_sum_idx(uniforms * tree.reduce())
        return indices, tree[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.get_prefix_sum_idx(mass.copy())

    def total(self) -> float:
        return float(self._tree.reduce())


class Buffer(_Tianshou, base.Buffer):
    """``PrioritizedReplayBuffer``, which takes one transition a call."""

    limits = ("several rows are as many calls", "epsilon is float32's smallest difference from 1")

    def _allocate(self, seed: int) -> None:
        from tianshou.data import Batch, PrioritizedReplayBuffer  # noqa: PLC0415  # optional

        np.random.seed(seed)  # noqa: NPY002  # its source of random numbers
        self._batch = Batch
        self._buffer: Any = PrioritizedReplayBuffer(self.capacity, alpha=base.ALPHA, beta=base.BETA)

    def insert(self, placed: Any) -> None:
        for record in placed:
            self._buffer.add(record)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_weight(sampled[1], errors)

    def records(self, sampled: Any) -> rows.Rows:
        return {ours: np.asarray(getattr(sampled[0], theirs)) for ours, theirs in NAMES.items()}

    def weights(self, sampled: Any) -> Any:
        return sampled[0].weight

    def place(self, records: rows.Rows) -> Any:
        return [
            self._renamed({name: array[at] for name, array in records.items()}) for at in range(len(records["reward"]))
        ]

    def _renamed(self, records: rows.Rows) -> Any:
        fields = {NAMES[name]: value for name, value in records.items()}
        return self._batch(**fields, truncated=np.zeros_like(fields["terminated"]))

    def fill(self) -> None:
        """Add what makes it allocate, then write every record in place: a call each would take a minute."""
        count = getattr(self._buffer, "buffer_num", 1)
        self.insert(self.place(rows.made(np.arange(count))))
        records = rows.made(np.arange(self.capacity))
        for name, array in records.items():
            getattr(self._buffer._meta, NAMES[name])[:] = array
        self._buffer._meta.done[:] = records["terminated"]
        for part in getattr(self._buffer, "buffers", [self._buffer]):
            part._size, part._insertion_idx = part.maxsize, 0
        if count > 1:
            self._buffer._lengths[:] = self.capacity // count
        self._buffer.init_weight(np.arange(self.capacity))


class VectorBuffer(Buffer):
    """``PrioritizedVectorReplayBuffer`` of 64 environments, which takes a transition of each by one call."""

    name = "tianshou_vector"
    limits = (f"a ring of its own for each of {ENVIRONMENTS} environments", *Buffer.limits[1:])

    def _allocate(self, seed: int) -> None:
        from tianshou.data import Batch, PrioritizedVectorReplayBuffer  # noqa: PLC0415  # optional

        np.random.seed(seed)  # noqa: NPY002  # its source of random numbers
        self._batch = Batch
        self.capacity -= self.capacity % ENVIRONMENTS
        self._buffer = PrioritizedVectorReplayBuffer(self.capacity, ENVIRONMENTS, alpha=base.ALPHA, beta=base.BETA)

    def insert(self, placed: Any) -> None:
        for records, environments in placed:
            self._buffer.add(records, environments)

    def place(self, records: rows.Rows) -> Any:
        count = len(records["reward"])
        parts = [slice(first, first + ENVIRONMENTS) for first in range(0, count, ENVIRONMENTS)]
        chunks = [{name: array[part] for name, array in records.items()} for part in parts]
        return [(self._renamed(chunk), np.arange(len(chunk["reward"]))) for chunk in chunks]


class Loop(_Tianshou, base.TorchLoop):
    """``DQN`` or ``SAC`` on ``PrioritizedVectorReplayBuffer``; environments are stepped in turn by one process."""

    beside = ("torch", "numba", "numpy", "gymnasium")
    environments = (1, 8)
    limits = (
        "copies its target network every 1 / tau gradient steps",
        "does not clip gradients",
        "its Huber loss leaves importance weights out",
    )
    sac_limits = ("beta stays as it begins",)

    def _prepare(self) -> None:
        from tianshou.data import Collector  # noqa: PLC0415  # optional
        from tianshou.env import DummyVectorEnv  # noqa: PLC0415
        from tianshou.utils.torch_utils import policy_within_training_step  # noqa: PLC0415

        replay = self.workload.replay
        environments = DummyVectorEnv([self.environment] * self.count)
        made = self._dqn if self.workload.algorithm == "dqn" else self._sac
        self._algorithm = made(environments.action_space[0])
        self._buffer = self._buffer_kind()(replay.capacity, self.count, alpha=replay.alpha, beta=replay.beta)
        self._collector = Collector(self._algorithm.policy, environments, self._buffer)
        self._collector.reset()
        self._algorithm.train()
        self._training = policy_within_training_step

    def _dqn(self, space: Any) -> Any:
        from tianshou.algorithm import DQN  # noqa: PLC0415
        from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: PLC0415
        from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: PLC0415
        from tianshou.utils.net.common import Net  # noqa: PLC0415

        learner = self.workload.learner
        self.policy = Net(
            state_shape=self.workload.observation.shape,
            action_shape=self.workload.action.choices,
            hidden_sizes=self.workload.network.hidden,
        )
        policy = DiscreteQLearningPolicy(
            model=self.policy, action_space=space, eps_training=self.workload.exploration.end
        )
        return DQN(
            policy=policy,
            optim=AdamOptimizerFactory(lr=learner.learning_rate),
            gamma=learner.gamma,
            target_update_freq=round(1 / learner.tau),
            is_double=learner.double,
            huber_loss_delta=1.0 if learner.loss == "huber" else None,
        )

    def _sac(self, space: Any) -> Any:
        from tianshou.algorithm import SAC  # noqa: PLC0415
        from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy  # noqa: PLC0415
        from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: PLC0415
        from tianshou.utils.net.common import Net  # noqa: PLC0415
        from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic  # noqa: PLC0415

        learner, size = self.workload.learner, self.workload.action_size
        sizes = {"state_shape": self.workload.observation.shape, "hidden_sizes": self.workload.network.hidden}
        self.policy = ContinuousActorProbabilistic(
            preprocess_net=Net(**sizes), action_shape=size, unbounded=True, conditioned_sigma=True
        )
        critics = [ContinuousCritic(preprocess_net=Net(**sizes, action_shape=size, concat=True)) for _ in range(2)]
        adam = AdamOptimizerFactory(lr=learner.learning_rate)
        return SAC(
            policy=SACPolicy(actor=self.policy, action_space=space),
            policy_optim=adam,
            critic=critics[0],
            critic_optim=adam,
            critic2=critics[1],
            tau=learner.tau,
            gamma=learner.gamma,
            alpha=AutoAlpha(-float(size), 0.0, adam),
        )

    def _buffer_kind(self) -> Any:
        from tianshou.data import PrioritizedVectorReplayBuffer  # noqa: PLC0415

        return PrioritizedVectorReplayBuffer

    def turn(self) -> None:
        with self._training(self._algorithm.policy):
            at_random = self.steps < self.workload.exploration.random_steps
            self.steps += self._collector.collect(n_step=self.count, random=at_random).n_collected_steps
            if self.steps >= self.workload.learner.learning_starts:
                for _ in range(self.count):
                    self._algorithm.update(self._buffer, self.workload.learner.batch)

    def _means(self, observations: Any) -> Any:
        return self.policy(observations)[0][0]


class _HostBuffer(Buffer):
    def _allocate(self, seed: int, **options: Any) -> None:
        super()._allocate(seed)
        how = {"alpha": base.ALPHA, "beta": base.BETA}
        if options["kind"] == OURS:
            from impls.plugins.tianshou import PrioritizedReplayBuffer  # noqa: PLC0415

            self._buffer = PrioritizedReplayBuffer(self.capacity, **how)
        elif options["kind"] == SWAPPED:
            self._buffer = _swapped("PrioritizedReplayBuffer")(self.capacity, **how)


def _swapped(name: str) -> Any:
    """Return a maker of the host's own buffer, on our tree."""

    def make(*sizes: int, **how: Any) -> Any:
        from tianshou import data  # noqa: PLC0415

        from impls.plugins import tianshou as plugin  # noqa: PLC0415

        plugin.install()
        try:
            return getattr(data, name)(*sizes, **how)
        finally:
            plugin.uninstall()

    return make


class _Ours(Loop):
    def _buffer_kind(self) -> Any:
        from impls.plugins.tianshou import PrioritizedVectorReplayBuffer  # noqa: PLC0415

        return PrioritizedVectorReplayBuffer


class _Swapped(Loop):
    def _buffer_kind(self) -> Any:
        return _swapped("PrioritizedVectorReplayBuffer")


class Host(_Tianshou, base.Host):
    """``PrioritizedReplayBuffer`` and, in training, ``PrioritizedVectorReplayBuffer``."""

    module = "tianshou"
    buffers = _HostBuffer
    kinds = (THEIRS, OURS, SWAPPED)
    loops = (Loop, _Ours, _Swapped)

    def trees(self) -> Iterable[Methods]:
        from tianshou.data import SegmentTree  # noqa: PLC0415  # optional

        return [(SegmentTree, METHODS)]
