"""Actor and critic of a learner in two processes, as on two devices: [Hou2023, Fig. 3]; [StoneSachdev, IV-D] for A3C.

This process has the critics, a child the policy; both compute with the same weights in shared memory, and each takes
the steps of its own optimizers. In a gradient step the child is sent states and answers with actions (of A3C, with
logits); then it is sent dLoss/dActions and follows them. It computes the policy's actions while the critics are
trained; A3C's policy comes first, so the child follows while the critic is trained. A child that is killed leaves its
step half taken; a run that resumes takes the next step due, so A3C leaves out the n records of that step.
"""

import contextlib
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...replay.block import Handle, Memory, allocate
from ..errors import ProcessLost, TrainingError
from ..learner import Phase, Vectors
from ..learners.torch_learner.base import Rows, TorchLearner
from ..parallel.children import ConnectedChild
from ..workload import Workload

ACT, FOLLOW, COUNT = "act", "follow", "count"


class SplitLearner(TorchLearner):
    """A learner of an actor-critic algorithm whose policy is in a child process."""

    def __init__(self, workload: Workload, **options: Any) -> None:
        super().__init__(workload, **options)
        own = self.vectors()
        sizes = [len(each) for each in own]
        memory = allocate(4 * sum(sizes), True)
        shared = _vectors(memory, sizes)
        for numbers, each in zip(shared, own, strict=True):
            numbers[:] = each
        super().place(shared)
        self._shared = memory.handle(), sizes
        self._child: ConnectedChild | None = None  # begun with the first gradient step
        self._is_asked = False  # whether the child computes the policy's actions, which are not fetched yet
        self._is_following = False  # whether the child takes the policy's step, and has not answered yet
        self._actions: tuple[Tensor, ...] = ()

    def place(self, vectors: Vectors) -> None:
        """Raise TrainingError: its memory is the child's too."""
        raise TrainingError("a learner of --split shares its weights with no other; leave it out, or --learners")

    @property
    def pids(self) -> tuple[int, ...]:
        """The child's process number, once there is one."""
        return (self._child.pid,) if self._child else ()

    def close(self) -> None:
        """End the child; the next gradient step would begin another."""
        if self._child:
            self._child.close()
            self._child, self._is_following = None, False

    def _begin(self) -> ConnectedChild:
        """Begin the child, with the weights, moments and counts that there are."""
        given = type(self).__mro__[2], self.workload, *self._shared, self._moments()[2], torch.get_num_threads()
        self._child = ConnectedChild("policy", _serve, *given)
        return self._child

    def gradients(self, phase: Phase, rows: Rows) -> Any:
        """The critics' gradients as ever; of the policy dLoss/dActions, and dLoss/dLog density where it has one."""
        with self._asking():
            if phase.network != "policy":
                return super().gradients(phase._replace(loss=lambda rows: self._losing(phase, rows)), rows)
            loss, _ = phase.loss(rows)
            return torch.autograd.grad(loss, self._actions), loss.detach(), None

    def follow(self, phase: Phase, gradients: tuple[Tensor, ...]) -> None:
        """Take the optimizer's step, or let the child take the policy's."""
        if phase.network != "policy":
            return super().follow(phase, gradients)
        self._send(FOLLOW, [part.numpy() for part in gradients])
        self._is_following = True
        for state in self.optimizers["policy"].state.values():
            state["step"] += 1

    def finish(self) -> None:
        """Count the step once the child has taken the policy's, whose weights may be read from then on."""
        self._await_step()
        super().finish()

    def _set_updates(self, updates: Mapping[str, int]) -> None:
        super()._set_updates(updates)
        if self._child:
            self._ask(COUNT, dict(updates))

    def _losing(self, phase: Phase, rows: Rows) -> Any:
        """The critics' loss; before its gradient is derived, the child begins with the policy's actions."""
        lost, order = phase.loss(rows), [network for network, _ in self.phases()]
        if "policy" in order[order.index(phase.network) :] and phase.network == "critic":
            inputs = [rows["observation"], *([rows["noise"]] if self.workload.traits.samples_by == "normal" else [])]
            self._send(ACT, False, True, [part.numpy() for part in inputs])
            self._is_asked = True
        return lost

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Let losses ask the child for actions."""
        parts = [(part, part["policy"]) for part in (self.networks, self.targets) if "policy" in part]
        try:
            for part, _ in parts:
                part["policy"] = _Remote(self, part is self.targets)
            yield
        finally:
            for part, policy in parts:
                part["policy"] = policy

    def _acted(self, is_target: bool, inputs: tuple[Tensor, ...]) -> Any:
        """Actions of states by the child; where gradients are wanted, leaves that collect them."""
        is_wanted = torch.is_grad_enabled()
        if not (is_wanted and self._is_asked):
            self._send(ACT, is_target, is_wanted, [part.numpy() for part in inputs])
        self._is_asked = self._is_asked and not is_wanted
        outputs = tuple(torch.from_numpy(one).requires_grad_(is_wanted) for one in self._answer())
        self._actions = outputs if is_wanted else self._actions
        return outputs if len(outputs) > 1 else outputs[0]

    def _ask(self, *what: Any) -> Any:
        self._send(*what)
        return self._answer()

    def _await_step(self) -> None:
        if self._is_following:
            self._answer()
            self._is_following = False

    def _send(self, *what: Any) -> None:
        self._await_step()
        with _living():
            (self._child or self._begin()).pipe.send(what)

    def _answer(self) -> Any:
        assert self._child is not None  # it was sent something
        with _living():
            return self._child.pipe.recv()


class _Remote(nn.Module):
    """Stands for the policy, or its target, that the child has."""

    def __init__(self, learner: SplitLearner, is_target: bool) -> None:
        super().__init__()
        self._learner, self._is_target = (learner,), is_target  # in a tuple: no part of this module

    def forward(self, *inputs: Tensor) -> Any:
        return self._learner[0]._acted(self._is_target, inputs)


@contextlib.contextmanager
def _living() -> Iterator[None]:
    """Raise ProcessLost where the child has ended."""
    try:
        yield
    except (OSError, EOFError):
        raise ProcessLost("the process of the policy was ended") from None


def _vectors(memory: Memory, sizes: list[int]) -> Vectors:
    starts = np.cumsum([0, *sizes])
    return Vectors(*(memory.view(4 * int(at), (size,), np.float32) for at, size in zip(starts, sizes, strict=False)))


def _serve(
    kind: type[TorchLearner],
    workload: Workload,
    handle: Handle,
    sizes: list[int],
    updates: dict[str, int],
    threads: int,
    other: Connection,
) -> None:
    """Act by the policy and train it, as is asked for, until the parent has closed its end, or has ended."""
    torch.set_num_threads(threads)
    learner = kind(workload)
    learner.place(_vectors(handle.attach(), sizes))
    learner._set_updates(updates)
    actions: tuple[Tensor, ...] = ()
    with contextlib.suppress(EOFError, OSError):
        while True:
            what, *given = other.recv()
            answer: Any = None
            if what == ACT:
                is_target, is_wanted, inputs = given
                part = learner.targets if is_target else learner.networks
                with torch.set_grad_enabled(is_wanted):
                    acted = part["policy"](*map(torch.from_numpy, inputs))
                acted = acted if isinstance(acted, tuple) else (acted,)
                actions = acted if is_wanted else actions
                answer = [one.detach().numpy() for one in acted]
            elif what == FOLLOW:
                parameters = tuple(learner.networks["policy"].parameters())
                along = [torch.from_numpy(one) for one in given[0]]
                learner.follow(Phase("policy"), torch.autograd.grad(actions, parameters, along))
            else:
                learner._set_updates(given[0])
            other.send(answer)
