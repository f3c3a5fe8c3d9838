"""Which tree on a platform that need not be there: an answer from models of its numbers, where no record tells."""

from dataclasses import replace
from pathlib import Path

from impls.checks import one_of

from . import platforms
from .platforms import Platform
from .times.platform_trees import ModeledChoice, choose
from .times.tree_times import Question
from .tree import check, unusual


def recommend_modeled(
    platform: str | Path | Platform,
    capacity: int,
    batch: int,
    updates_per_sample: float = 1.0,
    threads: int | None = None,
    dtype: str = "float32",
    distribution: str = "uniform",
) -> ModeledChoice:
    """The tree to choose on a platform that need not be there, by models of its numbers alone.

    ``threads`` bounds the threads (default: the cores of its first processor). PlatformError where there is no such
    platform, or no tree fits it; ValueError for a question out of bounds, or priorities that no model knows.
    """
    machine = platform if isinstance(platform, Platform) else platforms.load(platform)
    processor = next((device for device in machine.devices if device.kind == "cpu"), None)
    if processor is None:
        raise platforms.PlatformError(f"platform {machine.name!r} has no processor to hand batches over; add a cpu")
    cores = int(processor.cores.value) if processor.cores else 1
    question = Question(capacity, batch, updates_per_sample, cores if threads is None else threads, dtype, distribution)
    check(question)
    one_of("distribution", distribution, ("uniform",))
    answered = choose(machine, question)
    more = [f"{threads} threads are allowed, and {machine.name} has {cores} cores"] * (question.threads > cores)
    return replace(answered, notes=(*unusual(question), *more, *answered.notes))
