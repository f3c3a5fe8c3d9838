"""Imported by the server that children are forked from: has the kernels of every shared strategy ready for them."""

from impls.replay import make, strategies
from impls.replay.registry import strategy_class

from .replay_stress import PLAIN, STEPPED

for _name in (name for name in strategies() if strategy_class(name).processes):
    make(64, PLAIN, alpha=0.6, epsilon=1e-3, strategy=_name).close()
    if _name in STEPPED:
        make(64, PLAIN, alpha=0.6, epsilon=1e-3, strategy=_name, fanout=4, trial=True).close()
