"""Imported by the server that children are forked from: has the kernels of every shared strategy ready for them."""

from impls.replay import make, strategies
from impls.replay.registry import strategy_class

from .replay_stress import PLAIN, STEPPED

for _name in strategies():
    if strategy_class(_name).processes:
        for _trial in (False, True) if _name in STEPPED else (False,):
            make(64, PLAIN, alpha=0.6, epsilon=1e-3, strategy=_name, fanout=4 if _trial else 16, trial=_trial).close()
