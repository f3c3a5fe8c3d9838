"""What matrix products bound: the share of a compiled gradient step that they take, from records of a profile."""

from collections.abc import Sequence
from dataclasses import dataclass

from impls.training.weights import step_macs

from ..records import Measurement, in_order
from .workloads import workloads


@dataclass(frozen=True)
class ProductBound:
    """A gradient step of B records, and how many products of [H, H] and [H, B] it takes, each in ``product_seconds``.

    Narrow first and last layers count by their multiply-adds, as if they were as fast.
    """

    workload: str
    learner: str
    batch: int
    step_seconds: float
    product_seconds: float
    products: float

    @property
    def share(self) -> float:
        """The share of the step that products take: no step of the same kernel is faster than that part."""
        return self.products * self.product_seconds / self.step_seconds


def product_bounds(measurements: Sequence[Measurement]) -> list[ProductBound]:
    """Return the bound of each workload whose product was timed, by its newest records."""
    newest: dict[tuple[str, str, str, str, int], Measurement] = {}
    for record in in_order(measurements):
        if record.primitive == "training" and record.median_seconds and record.threads == 1:
            name, own, learner = (str(record.options.get(one)) for one in ("workload", "identity", "learner"))
            newest[name, own, learner, record.contestant, record.batch] = record
    bounds, told = [], workloads(newest.values())
    for (workload, own, learner, contestant, batch), product in sorted(newest.items()):
        step, known = newest.get((workload, own, learner, "learner", batch)), told.get((workload, own))
        if contestant == "product" and step and known:
            products = step_macs(known) / known.network.hidden[-1] ** 2
            bounds.append(ProductBound(workload, learner, batch, step.seconds, product.seconds, products))
    return bounds
