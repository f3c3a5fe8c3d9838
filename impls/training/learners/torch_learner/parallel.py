"""Learners in parallel as a primitive: sub-gradients of parts of a batch, averaged by a parameter server.

A batch of B rows is cut into L equal parts. Every loss is a mean over rows, so the mean of the parts' gradients is the
gradient of the batch, up to rounding. ``run`` decides how the learners run at once (threads, processes, devices): it
takes L calls and returns their results in order; the default makes them one after the other, which times the work of
each alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from ...learner import Phase, Stepped
from .base import Rows, TorchLearner

Gradients = tuple[Tensor, ...]
Found = tuple[Gradients, Tensor, Tensor | None]
"""Result of ``Learner.gradients``: gradients, loss, TD errors ``[B / L]`` or None."""
Run = Callable[[Sequence[Callable[[], Found]]], list[Found]]


def in_turn(calls: Sequence[Callable[[], Found]]) -> list[Found]:
    """The results of the calls, made one after the other."""
    return [call() for call in calls]


class ParameterServer:
    """A learner's step by L ``workers`` of the same workload; ``server`` keeps the weights and the optimizers.

    After each phase the workers receive the server's weights. ValueError without workers.
    """

    def __init__(self, server: TorchLearner, workers: Sequence[TorchLearner], run: Run = in_turn) -> None:
        if not workers:
            raise ValueError("a parameter server needs at least one worker")
        self._server, self._workers, self._run = server, list(workers), run
        for worker in self._workers:
            worker.load_state_dict(server.state_dict())

    def step(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any]) -> Stepped:
        """Take one gradient step on a batch ``[B, ...]``, as ``Learner.step``. ValueError if L does not divide B."""
        count = len(self._workers)
        if len(weights) % count:
            raise ValueError(f"a batch of {len(weights)} rows cannot be cut into {count} equal parts")
        # The noise is sampled once, for the whole batch, so that the parts see what the batch would have seen.
        parts = cut(self._server.rows(transitions, weights), count)
        losses, errors = dict[str, float](), torch.empty(0)
        for phase in self._server.phases():
            # Invariant: every worker's networks and targets equal the server's.
            results = self._run(
                [_call(worker, phase.network, part) for worker, part in zip(self._workers, parts, strict=True)]
            )
            self._server.follow(phase, average([gradients for gradients, _, _ in results]))
            losses[phase.network] = float(torch.stack([loss for _, loss, _ in results]).mean())
            if results[0][2] is not None:
                errors = torch.cat([part for _, _, part in results if part is not None])
            self._hand_out(phase)
        self._server.finish()
        for worker in self._workers:
            worker.finish()
        return Stepped(errors.abs().cpu().numpy(), losses)

    def _hand_out(self, phase: Phase) -> None:
        weights = self._server.networks[phase.network].state_dict()
        for worker in self._workers:
            worker.networks[phase.network].load_state_dict(weights)


def _call(worker: TorchLearner, network: str, rows: Rows) -> Callable[[], Found]:
    phase = next(phase for phase in worker.phases() if phase.network == network)
    return lambda: worker.gradients(phase, rows)


def cut(rows: Rows, count: int) -> list[Rows]:
    """The rows ``[B, ...]`` in ``count`` equal parts ``[B / count, ...]``, in order."""
    size = len(rows["weights"]) // count
    return [{name: part[at * size : (at + 1) * size] for name, part in rows.items()} for at in range(count)]


def average(gradients: Sequence[Gradients]) -> Gradients:
    """The mean of L gradients, parameter by parameter: what a parameter server does."""
    return tuple(torch.stack(parts).mean(0) for parts in zip(*gradients, strict=True))
