"""Errors of training, each a sentence for the user who started it."""


class TrainingError(Exception):
    """Training that cannot begin or continue; the message says why, and what to do."""


class WorkloadError(TrainingError):
    """A workload that cannot be used; the message has a line for each reason."""


class ProcessLost(TrainingError):
    """A process was ended from outside, or an environment failed; records and weights of a run are whole."""
