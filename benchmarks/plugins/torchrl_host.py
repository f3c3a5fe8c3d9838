"""torchrl: its prioritized sampler, whose trees are C++, and ours in its place."""

import sys
from collections.abc import Iterable
from typing import Any

from impls import training
from impls.training.workload import Workload

from ..loops.trainer import TorchTrainer, Trainer, size_of
from ..peers import torchrl_peer
from ..replay.buffers import ALPHA, BETA, EPSILON
from ..replay.torchrl_buffer import ERROR
from ..replay.torchrl_buffer import Torchrl as Buffers
from .host import OURS, Host, Methods

THEIRS = "theirs"
METHODS = ("__getitem__", "__setitem__", "at", "update", "query", "scan_lower_bound")


class _Buffer(Buffers):
    def _allocate(self, seed: int, **options: Any) -> None:
        self._buffer = _made(options["kind"], self.capacity, 1, alpha=ALPHA, beta=BETA, eps=EPSILON)
        import torch  # noqa: PLC0415  # once torchrl's extension is in its place
        from tensordict import TensorDict  # noqa: PLC0415

        torch.manual_seed(seed)
        self._torch, self._dict = torch, TensorDict


class Torchrl(Host):
    """``TensorDictReplayBuffer`` with ``PrioritizedSampler`` on a ``LazyTensorStorage``; DQN by ``DQNLoss``."""

    package, module, plugin = "torchrl", "torchrl", "torchrl"
    buffers = _Buffer
    kinds = (THEIRS, OURS)
    limits = ("environment and acting are a plain loop, not torchrl's collector",)

    def trainer(self, task: str, kind: str, seed: int) -> Trainer:
        return _Dqn(training.load(task), seed, kind)

    def trees(self) -> Iterable[Methods]:
        extension = torchrl_peer.extension()
        names = [f"{which}SegmentTreeFp32" for which in ("Sum", "Min")]
        kinds = [getattr(extension, name) for name in names]
        return [(kind, [name for name in METHODS if hasattr(kind, name)]) for kind in kinds]


def _made(kind: str, capacity: int, batch: int, **priorities: float) -> Any:
    """Return a buffer of a kind. ImportError where the host's trees do not load."""
    sys.modules.setdefault("ray", None)  # type: ignore[arg-type]  # it imports what is there of Ray's services
    if kind == THEIRS:
        sys.modules.setdefault("torchrl._torchrl", torchrl_peer.extension())
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


class _Dqn(TorchTrainer):
    """Double DQN by torchrl's loss and target updater."""

    packages = ("torchrl", "torch", "numpy", "gymnasium")

    def __init__(self, workload: Workload, seed: int, kind: str) -> None:
        self._kind = kind
        super().__init__(workload, 1, seed)

    def _prepare(self) -> None:
        learner, replay = self.workload.learner, self.workload.replay
        self._buffer = _made(self._kind, replay.capacity, learner.batch, alpha=replay.alpha, beta=replay.beta)
        import numpy as np  # noqa: PLC0415
        import torch  # noqa: PLC0415
        from tensordict import TensorDict  # noqa: PLC0415
        from torchrl.modules import MLP, QValueActor  # noqa: PLC0415
        from torchrl.objectives import DQNLoss, SoftUpdate  # noqa: PLC0415

        self._torch, self._dict, self._rng = torch, TensorDict, np.random.default_rng(self.seed)
        choices = self.workload.action.choices
        self._network = MLP(
            in_features=self.workload.observation.shape[0],
            out_features=choices,
            num_cells=list(self.workload.network.hidden),
            activation_class=torch.nn.ReLU,
        )
        actor = QValueActor(self._network, in_keys=["observation"], action_space="categorical")
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
                action = int(self._network(observation).argmax())
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

    @property
    def weights(self) -> int:
        return size_of(self._network.parameters())
