"""Imported by the server that children are forked from: has the kernels of every shared strategy ready for them."""

from impls.replay.registry import strategy_class

from .compile_replays import TRIALS, USUAL, compile_one
from .replay_stress import STEPPED

for _case in USUAL + TRIALS:
    if strategy_class(_case[0]).processes and (_case in USUAL or _case[0] in STEPPED):
        compile_one(*_case)
