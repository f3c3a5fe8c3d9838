"""A prioritized replay in one file, in the shape of those that ``impls/plugins/cleanrl.md`` tells how to edit.

A test reads it as text, edits it by that page, and compares both. N must be a power of two for the tree below.
"""

import collections

import numpy as np

Batch = collections.namedtuple("Batch", ["observations", "rewards", "indices", "weights"])


class SumSegmentTree:
    """Sums of N leaves in one array: the root at 0, the children of i at 2i + 1 and 2i + 2."""

    def __init__(self, capacity):
        self.first = capacity - 1
        self.nodes = np.zeros(2 * capacity - 1)

    def update(self, idx, value):
        node = self.first + idx
        self.nodes[node] = value
        while node:
            node = (node - 1) // 2
            self.nodes[node] = self.nodes[2 * node + 1] + self.nodes[2 * node + 2]

    def retrieve(self, mass):
        node = 0
        while node < self.first:
            node = 2 * node + 1
            if mass > self.nodes[node]:
                mass -= self.nodes[node]
                node += 1
        return node - self.first


class MinSegmentTree:
    """What such files keep and never ask."""

    def __init__(self, capacity):
        self.leaves = np.full(capacity, np.inf)

    def update(self, idx, value):
        self.leaves[idx] = value


class PrioritizedReplayBuffer:
    """Rows of one environment, and their priorities."""

    def __init__(self, capacity, alpha=0.6, beta=0.4, eps=1e-6):
        self.capacity = capacity
        self.alpha = alpha
        self.beta = beta
        self.eps = eps
        self.observations = np.zeros((capacity, 2), np.float32)
        self.rewards = np.zeros(capacity, np.float32)
        self.pos = 0
        self.size = 0
        self.max_priority = 1.0
        self.sum_tree = SumSegmentTree(capacity)
        self.min_tree = MinSegmentTree(capacity)

    def add(self, obs, reward):
        idx = self.pos
        self.observations[idx] = obs
        self.rewards[idx] = reward

        priority = self.max_priority**self.alpha
        self.sum_tree.update(idx, priority)
        self.min_tree.update(idx, priority)

        self.pos = (self.pos + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        indices = []
        p_total = self.sum_tree.nodes[0]
        segment = p_total / batch_size
        for j in range(batch_size):
            mass = np.random.uniform(segment * j, segment * (j + 1))  # noqa: NPY002  # what such files draw from
            indices.append(self.sum_tree.retrieve(mass))

        found = {"observations": self.observations[indices], "rewards": self.rewards[indices]}
        probs = np.array([self.sum_tree.nodes[self.sum_tree.first + idx] for idx in indices])
        weights = (self.size * probs / p_total) ** -self.beta
        weights = weights / weights.max()
        found["weights"] = weights
        found["indices"] = indices
        return Batch(**found)

    def update_priorities(self, indices, priorities):
        priorities = np.abs(priorities) + self.eps
        self.max_priority = max(self.max_priority, priorities.max())

        for idx, size in zip(indices, priorities, strict=True):
            priority = size**self.alpha
            self.sum_tree.update(idx, priority)
            self.min_tree.update(idx, priority)


def train(steps, batch_size=16, capacity=64):
    """Add a row per step and learn from a batch; return the replay and the batches."""
    rb = PrioritizedReplayBuffer(capacity)
    batches = []
    for step in range(steps):
        rb.beta = min(1.0, 0.4 + 0.6 * step / steps)
        rb.add(np.array([step, -step]), step)
        data = rb.sample(batch_size)
        batches.append(data)
        rb.update_priorities(data.indices, np.sin(data.rewards.astype(float)))
    return rb, batches
