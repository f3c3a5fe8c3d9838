"""Training loops that only count, and what may be wrong with one; as a program, a worker that knows them."""

import os
import sys
import time

from benchmarks.libraries.base import Loop, roles
from benchmarks.topics.loops import worker
from impls.training.weights import networks

MODULE = "tests.oracles.naive_training"


class Naive(Loop):
    """Counts a gradient step for each environment step."""

    package = "numpy"
    needs_install = False
    is_ours = True
    environments = (1, 4)
    limits = ("learns nothing",)
    seconds = 0.0005
    updates = 0

    def _prepare(self):
        self.weights = networks(self.workload)["action_values"].parameters

    def turn(self):
        time.sleep(self.seconds)
        self.steps += self.count
        self.updates += self.count

    weights = 0


class Slow(Naive):
    """Takes about four times as long, and samples uniformly."""

    is_ours = False
    needs_install = True
    environments = (1,)
    replay = "uniform"
    limits = ()
    seconds = 0.002


class Eager(Slow):
    """Takes two gradient steps an environment step."""

    def turn(self):
        super().turn()
        self.updates += 1


class Small(Slow):
    """Has another network."""

    def _prepare(self):
        self.weights = 17


class Raising(Slow):
    """Fails once it is warm."""

    def turn(self):
        super().turn()
        if self.steps > 5:
            raise ArithmeticError("diverged\nand more")


class Dying(Slow):
    """Ends its process once it is warm."""

    def turn(self):
        super().turn()
        if self.steps > 5:
            os._exit(3)


class Absent(Slow):
    """Needs a module that nobody has."""

    def _prepare(self):
        import no_such_module  # noqa: F401, PLC0415


KINDS = {kind.__name__.lower(): kind for kind in (Naive, Slow, Eager, Small, Raising, Dying, Absent)}


if __name__ == "__main__":
    roles(Loop).update(KINDS)
    sys.exit(worker.serve(worker._Session()))
