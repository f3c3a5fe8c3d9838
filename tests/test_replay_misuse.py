"""What a replay says to misuse: one clear sentence, with nothing written, and never a crash."""

import impls.replay
from impls.replay import Layout, make

PLAIN = Layout((3,), "float32", choices=4)
PRIORITIES = {"alpha": 0.6, "epsilon": 1e-3}


def test_names_of_strategies_can_be_asked_after_one_was_used():
    make(4, PLAIN, **PRIORITIES).close()
    assert "two_lock_checked" in impls.replay.strategies()
