"""Build learners for figures: that of [Zhang2023] by its printed numbers, the exploration's own, and curves over B."""

import functools
from dataclasses import dataclass, replace

from dse.fpga import Slice, pool
from dse.fpga.learner_search import LearnerPoint, Problem, fastest
from impls.fpga import learner
from impls.fpga.learner import Learner, stages, units_for
from impls.fpga.network import Network, parse
from impls.fpga.resources import Budget

from .quoted import Quoted

SHELL = "alveo_u200.shell_202110"
"""The shell that leaves these slices, as in ``rmm_points``."""
SLICES = ("slr0", "slr1", "slr2")
LEARNERS = ("slr0", "slr2")
"""Slices of the published learner: the RMM is in the third."""


def slices(quoted: Quoted) -> tuple[Slice, ...]:
    """List the slices of the Alveo U200, less its shell."""
    resources = {name: quoted.table(f"{SHELL}.{name}") for name in SLICES}
    return tuple(
        Slice(name, Budget(**{kind: int(amount) for kind, amount in each.items()})) for name, each in resources.items()
    )


def published_slices(quoted: Quoted) -> Budget:
    """Pool what the learner of [Zhang2023] may use: all but the RMM's slice."""
    return pool([part for part in slices(quoted) if part.name in LEARNERS])


def balanced(network: Network, pipelines: int, cycles: int) -> Learner:
    """Build a learner with the fewest units for N cycles a stage; the update has as many as the largest stage."""
    units = tuple(units for stage in stages(network) if (units := units_for(stage.gemm, cycles)))
    return Learner(network, pipelines, units, max(units))


def published_cycles(quoted: Quoted) -> float:
    """Compute the cycles of CartPole's step in Table VII, at the clock of the build notes."""
    row = quoted.table("seed3.table_vii.cartpole")
    return 1e6 * quoted["seed3.build.clock_mhz"] / (row["watts"] * row["gps_per_watt"])


def published(quoted: Quoted) -> Learner:
    """Build CartPole's learner with the printed DP and the cycles a stage that Table VII's time implies."""
    network = parse("cartpole")
    pipelines = int(quoted["seed3.table_vi.parameters.data_parallel"])
    passes = quoted["seed3.table_vii.cartpole.batch"] / pipelines + len(stages(network)) - 1
    clock = 1e6 * quoted["seed3.build.clock_mhz"]
    return replace(balanced(network, pipelines, round(published_cycles(quoted) / passes)), clock_hz=clock)


@functools.cache
def best(network: Network, batch: int, budget: Budget, pipelines: int | None = None) -> LearnerPoint:
    """Find the exploration's own learner, with whatever number of pipelines is best, or with that one."""
    return fastest(Problem(network, batch, budget, pipelines=pipelines))[0]


def seconds(point: LearnerPoint, batch: int) -> float:
    """Compute the seconds of a gradient step."""
    return learner.ledger(point.design, batch).seconds


def powers(first: int, last: int) -> list[int]:
    """List the batches of a curve: from one to the other, doubling."""
    return [first << power for power in range((last // first).bit_length())]


def curve(network: Network, batches: list[int], budget: Budget) -> dict[int, float]:
    """Compute the seconds of a gradient step by batch, each with the best learner for it."""
    return {batch: seconds(best(network, batch, budget), batch) for batch in batches}


LEARNED = {"cartpole": 16_384, "hopper": 16_384, "mnih2013": 256}
"""Networks of [Zhang2023], and the largest batch it trains each on."""
FIRST_BATCH = 8


@dataclass(frozen=True)
class Curve:
    """Seconds of a gradient step by batch."""

    network: str
    macs: int
    seconds: dict[int, float]


def curves(quoted: Quoted) -> list[Curve]:
    """Compute the curve of each network with the best learner for every batch, in the published slices."""
    budget = published_slices(quoted)
    results = []
    for name, last in LEARNED.items():
        network = parse(name)
        results.append(Curve(name, network.macs, curve(network, powers(FIRST_BATCH, last), budget)))
    return results


def published_curve(quoted: Quoted) -> Curve:
    """Compute the curve of the published CartPole design, the same for every batch."""
    design, batches = published(quoted), powers(FIRST_BATCH, LEARNED["cartpole"])
    times = {batch: learner.ledger(design, batch).seconds for batch in batches}
    return Curve("cartpole", design.network.macs, times)
