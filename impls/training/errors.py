"""What goes wrong in training, each as a sentence for whoever started it."""


class TrainingError(Exception):
    """Training cannot begin or go on; the message says why, and what to do."""


class WorkloadError(TrainingError):
    """A workload cannot be used; the message has a sentence for each reason, a line each."""
