"""Prioritized QR-DQN, which rests on sb3-contrib."""

from sb3_contrib import QRDQN

from .algorithms import PrioritizedAlgorithm


class PrioritizedQRDQN(PrioritizedAlgorithm, QRDQN):
    """sb3-contrib's QR-DQN; |TD error| is that of the mean over the quantiles."""
