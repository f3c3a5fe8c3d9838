"""Imported by the server that children are forked from: has the kernels of every shared strategy ready for them."""

from impls.replay import make, strategies
from impls.replay.registry import strategy_class

from .replay_stress import PLAIN, STEPPED

for _name in (name for name in strategies() if strategy_class(name).processes):
    for _more in ({}, {"fanout": 4, "trial": True})[: 1 + (_name in STEPPED)]:
        with make(64, PLAIN, alpha=0.6, epsilon=1e-3, strategy=_name, **_more) as _replay:
            _replay.retrieve_priorities([])
