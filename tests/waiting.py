"""Waits for what other processes and threads do."""

import time

PATIENCE_SECONDS = 100.0  # until a test gives up on what does not go on


def until(condition):
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)
