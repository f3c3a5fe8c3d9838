"""Tests of the published mapping algorithm: its four faults with figures, its storage step, and its losses."""

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from dse.estimate import Estimate, Evidence
from dse.solver.problem import PARTS, Option, Part, Problem, ProblemError
from dse.solver.solve import Solution, solve
from reports.claims.greedy_mapping import (
    ACTORS,
    LEARNER,
    RMM,
    VARIANTS,
    DeviceTable,
    dissertation,
    joint,
    learner_first,
    measured_together,
    printed,
    printed_storage,
    recomputed,
    step_seconds,
    traffic_words,
)
from reports.claims.mapping_loss import DEVICES, losses, random_tables, ratios


def table(learner: tuple[float, ...], rmm: tuple[float, ...], **more) -> DeviceTable:
    """Make a table of seconds on CPU, GPU and FPGA."""
    rows = {(LEARNER, device): taken for device, taken in zip(DEVICES, learner, strict=True)}
    return DeviceTable(rows | {(RMM, device): taken for device, taken in zip(DEVICES, rmm, strict=True)}, **more)


def random_table(seed: int, **more) -> DeviceTable:
    """Sample times over two decades."""
    learner, rmm = random_tables(1, seed)
    return table(tuple(learner[0]), tuple(rmm[0]), **more)


def storage_words(device: Mapping[str, str], words: Mapping[str, int], storage: str) -> int:
    """Count the words a step to or from a data storage: those of the primitives that are elsewhere."""
    return sum(amount for primitive, amount in words.items() if device[primitive] != storage)


def best_storage(device: Mapping[str, str], words: Mapping[str, int]) -> tuple[str, int]:
    """Find the device of a primitive where the fewest words cross, the first of equals by name, and how many."""
    chosen = min(sorted(set(device.values())), key=lambda storage: storage_words(device, words, storage))
    return chosen, storage_words(device, words, chosen)


def table_problem(table: DeviceTable) -> Problem:
    """Pose the simple model of Learner and RMM as a ``Problem``: ``training_hz`` is one over ``step_seconds``.

    The RMM is the sampling part. The three others take no time to speak of, on a device of their own. Two batches are
    at most in two places, so with D = 3 the loop never binds.
    """
    nothing = min(table.seconds.values()) * 1e-9
    options: dict[Part, tuple[Option, ...]] = {part: (_option(part, "beside", "beside", nothing),) for part in PARTS}
    slowdown: dict[tuple[Part, Part, str], float] = {}
    parts: dict[str, Part] = {LEARNER: "learner", RMM: "sampling"}
    at_once = {device for device in table.devices if measured_together(table, (LEARNER, RMM), device)}
    for primitive, other in ((LEARNER, RMM), (RMM, LEARNER)):
        part = parts[primitive]
        chosen = []
        for device in table.devices:
            engine = device if device in table.shared - at_once else f"{device}.{part}"
            chosen.append(_option(part, device, engine, table.seconds[primitive, device]))
            if device in at_once:
                beside = table.together[primitive, other, device]
                slowdown[part, parts[other], device] = beside / table.seconds[primitive, device]
        options[part] = tuple(chosen)
    return Problem(options, {}, depths=(3,), slowdown=slowdown)


def _option(part: Part, device: str, engine: str, seconds: float) -> Option:
    time = Estimate(seconds, seconds, seconds, Evidence(f"{part} on {device}", "modeled"))
    return Option(part, device, device, engine, time)


@pytest.mark.parametrize(
    ("variant", "learner", "rmm", "chosen", "taken", "best", "least", "loss"),
    [
        (printed, (10, 1, 4), (5, 0.2, 0.5), "GPU GPU", 1.2, "GPU FPGA", 1.0, 0.17),
        (recomputed, (10, 1, 4), (0.9, 0.2, 1.5), "GPU GPU", 1.2, "GPU CPU", 1.0, 0.17),
        (dissertation, (10, 1, 4), (1.2, 0.6, 1.1), "GPU GPU", 1.6, "GPU FPGA", 1.1, 0.31),
        (learner_first, (9, 1.0, 1.05), (5, 0.9, 4), "GPU GPU", 1.9, "FPGA GPU", 1.05, 0.45),
    ],
    ids=["nothing heeds the removal", "the test forgets the CPU", "the test is too strict", "the learner never moves"],
)
def test_every_reading_but_the_joint_one_has_a_counter_example(
    variant, learner, rmm, chosen, taken, best, least, loss
) -> None:
    given = table(learner, rmm)
    greedy, optimum = variant(given), joint(given)
    assert " ".join(greedy.device.values()) == chosen
    assert " ".join(optimum.device.values()) == best
    assert greedy.seconds == pytest.approx(taken) and optimum.seconds == pytest.approx(least)
    assert round(1 - optimum.seconds / greedy.seconds, 2) == loss
    later = list(VARIANTS.values())[list(VARIANTS.values()).index(variant) + 1 :]
    assert all(other(given).seconds <= greedy.seconds for other in later)


@pytest.mark.parametrize("seed", range(100))
def test_greedy_is_never_better_than_joint_and_the_simple_model_is_an_instance_of_ours(seed: int) -> None:
    given = random_table(seed)
    optimum = joint(given)
    assert all(variant(given).seconds >= optimum.seconds for variant in VARIANTS.values())
    answer = solve(table_problem(given), "training", 0.0)
    assert isinstance(answer, Solution)
    assert answer.best == 1 / optimum.seconds
    assert step_seconds(given, {LEARNER: answer.choice.learner.device, RMM: answer.choice.sampling.device}) == (
        optimum.seconds
    )


@pytest.mark.parametrize("seed", range(30))
def test_times_measured_together_take_the_place_of_taking_turns(seed: int) -> None:
    random = np.random.default_rng(seed)
    alone = random_table(seed)
    together = {
        (one, other, device): alone.seconds[one, device] * random.uniform(1, 3)
        for device in DEVICES[: random.integers(1, 4)]
        for one, other in ((LEARNER, RMM), (RMM, LEARNER))
    }
    given = DeviceTable(alone.seconds, together=together)
    on_cpu = dict.fromkeys((LEARNER, RMM), "CPU")
    assert step_seconds(given, on_cpu) == max(together[LEARNER, RMM, "CPU"], together[RMM, LEARNER, "CPU"])
    answer = solve(table_problem(given), "training", 0.0)
    assert isinstance(answer, Solution)
    assert answer.best == pytest.approx(1 / joint(given).seconds, rel=1e-12)


def test_any_number_of_primitives_and_devices() -> None:
    random = np.random.default_rng(5)
    primitives, devices = ("Learner", "RMM", "Encoder"), ("GPU", "NPU", "CPU", "DSP")
    given = DeviceTable(
        {pair: float(random.integers(1, 9)) for pair in itertools.product(primitives, devices)},
        shared=frozenset({"GPU", "NPU"}),
    )
    optimum = joint(given)
    assert optimum.evaluations == len(devices) ** len(primitives)
    for chosen in itertools.product(devices, repeat=len(primitives)):
        assert step_seconds(given, dict(zip(primitives, chosen, strict=True))) >= optimum.seconds


def test_without_sharing_greedy_is_optimal() -> None:
    for seed in range(200):
        given = random_table(seed, shared=frozenset())
        assert printed(given).seconds == joint(given).seconds


def test_a_table_has_every_time() -> None:
    with pytest.raises(ProblemError, match="RMM on GPU must take a time above 0, not 0"):
        table((1, 2, 3), (1, 0, 3))
    with pytest.raises(ProblemError, match="RMM on GPU must take a time above 0, not None"):
        DeviceTable({(LEARNER, "CPU"): 1.0, (LEARNER, "GPU"): 1.0, (RMM, "CPU"): 1.0})


def test_the_storage_step_charges_what_does_not_move() -> None:
    words = traffic_words(batch=17, actors=16, record=10)
    device = {LEARNER: "GPU", RMM: "CPU", ACTORS: "CPU"}
    assert printed_storage(device, words) == ("GPU", 177)
    assert 17 + 170 == 187  # what it believes of the actors' device
    assert storage_words(device, words, "GPU") == 177
    assert best_storage(device, words) == ("CPU", 170)


def test_as_printed_the_storage_is_the_learners_whenever_a_batch_is_larger_than_the_number_of_actors() -> None:
    device = {LEARNER: "GPU", RMM: "FPGA", ACTORS: "CPU"}
    for batch, actors, record in itertools.product((1, 15, 16, 17, 64), (1, 16, 32), (1, 2, 10, 1000)):
        chosen, _ = printed_storage(device, traffic_words(batch, actors, record))
        if batch > actors:
            assert chosen == "GPU"
        elif batch < actors and record > 1:
            assert chosen == "CPU"


def test_the_loss_of_the_vectorized_variants_is_that_of_the_plain_ones() -> None:
    learner, rmm = random_tables(500, seed=3)
    vectorized = ratios(learner, rmm)
    for place in range(len(learner)):
        given = table(tuple(learner[place]), tuple(rmm[place]))
        best = joint(given).seconds
        for name, variant in VARIANTS.items():
            assert vectorized[name][place] == variant(given).seconds / best


def test_losses_over_random_tables_are_those_known() -> None:
    """Losses are near 7.4, 6.0, 5.1 and 3.7 % and 1.31 times, found with another random seed over as many tables.

    Two such shares differ by a normal number of standard deviation sqrt(2 p (1 - p) / n); 4 of them happen by chance
    once in 16,000 times. The other share is rounded to 0.1 %, the mean to 0.01. Losses of tables that lose have a
    standard deviation of 0.22.
    """
    found = losses()
    for loss, share in zip(found, (0.074, 0.060, 0.051, 0.037), strict=True):
        assert abs(loss.share - share) < 4 * np.sqrt(2 * share * (1 - share) / loss.tables) + 0.0005
        assert 1.9 < loss.worst < 2  # 2 is the supremum; of 200,000 tables 33 (last variant) to 98 lose more than 1.9
    first = found[0]
    assert abs(first.mean - 1.31) < 4 * 0.22 * np.sqrt(2 / first.suboptimal) + 0.005
