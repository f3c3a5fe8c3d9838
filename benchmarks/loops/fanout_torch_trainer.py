"""This project's serial loop with torch's learner and policy: the loop before others existed."""

from typing import ClassVar

from . import fanout_trainer


class FanoutTorch(fanout_trainer.Fanout):
    """``SerialLoop`` on torch, on one thread."""

    environments = (1,)
    implementation: ClassVar[str | None] = "torch"
