"""Buffers of the plainest kind, one of them right, for tests of the command replay; as a module that is run, its worker
or, with words, the command itself, which both know them."""

import sys
import threading

import numpy as np

from benchmarks import __main__ as cli
from benchmarks.libraries import base, rows
from benchmarks.topics.replay import command, worker
from dse.platforms import checkout

MODULE = "tests.oracles.naive_replay"


class Naive(base.Buffer):
    """A buffer of the plainest kind, which tells what was done to it."""

    name = "naive"

    def _allocate(self, seed, **options):
        self.rng = np.random.default_rng(seed)
        self.stored, self.priorities = rows.LAYOUT.allocate(self.capacity), np.zeros(self.capacity)
        self.written, self.learned, self.lock = 0, 0, threading.Lock()

    def insert(self, placed):
        with self.lock:
            slots = (self.written + np.arange(len(placed["reward"]))) % self.capacity
            for name, array in placed.items():
                self.stored[name][slots] = array
            self.priorities[slots] = 1.0
            self.written += len(slots)

    def sample(self, batch):
        with self.lock:
            slots = self.rng.choice(self.capacity, batch, p=self.priorities / self.priorities.sum())
            self.learned += 1
            return {name: array[slots] for name, array in self.stored.items()}, slots

    def update(self, sampled, errors):
        with self.lock:
            self.priorities[sampled[1]] = (np.abs(errors) + base.EPSILON) ** base.ALPHA

    def records(self, sampled):
        return sampled[0]

    def weights(self, sampled):
        return self.priorities[sampled[1]] ** -base.BETA


class Torn(Naive):
    """Gives back some records with another's action."""

    name = "torn"

    def records(self, sampled):
        return {**sampled[0], "action": np.roll(sampled[0]["action"], 1, axis=0)}


class Uniform(Naive):
    """Does not care about priorities."""

    name = "uniform"

    def update(self, sampled, errors):
        return


class Weightless(Naive):
    """Gives weights of 0."""

    name = "weightless"

    def weights(self, sampled):
        return np.zeros(len(sampled[1]))


class Raising(Naive):
    """Cannot be sampled."""

    name = "raising"

    def sample(self, batch):
        raise RuntimeError("no")


KINDS = (Naive, Torn, Uniform, Weightless, Raising)


def main():
    """Answer requests or, with words, measure."""
    base.roles(base.Buffer).update({kind.name: kind for kind in KINDS})
    if len(sys.argv) == 1:
        return worker.serve(worker._Session())
    command.ReplayBuffers.module = MODULE
    checkout.read_load = lambda: 0.0  # whatever runs beside the test
    return cli.main(["run", "replay", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
