"""sbx's DQN: Stable-Baselines3's loop with a compiled gradient step of JAX."""

from . import base
from .sb3 import Learned


class Loop(Learned, base.Loop):
    """``DQN`` of sbx, which samples uniformly."""

    package = "sbx-rl"
    beside = ("stable-baselines3", "jax", "torch", "numpy", "gymnasium")
    needs = (
        *("cloudpickle", "flax", "gymnasium", "jax", "matplotlib", "numpy", "optax", "pandas", "rich"),
        *("tfp-nightly", "torch", "tqdm"),
    )
    alone = ("stable-baselines3",)
    replay = "uniform"
    limits = ("not double: one pass of the network less", "does not clip gradients")

    def _prepare(self) -> None:
        import sbx  # noqa: PLC0415  # optional

        hidden = self.workload.network.hidden
        if len(hidden) != 2 or hidden[0] != hidden[1]:
            raise NotImplementedError(f"two hidden layers of one size alone, not {hidden}")
        self._start(sbx.DQN, policy_kwargs={"net_arch": list(hidden)})

    @property
    def updates(self) -> int:
        return int(self._model._n_updates)

    @property
    def weights(self) -> int:
        import jax  # noqa: PLC0415

        return sum(leaf.size for leaf in jax.tree.leaves(self._model.policy.qf_state.params))
