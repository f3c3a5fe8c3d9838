"""Tests of claims that few of our own runs can answer: the papers' arithmetic, and what is listed as not run."""

import dataclasses
import re

import pytest

from dse import learning_runs
from dse.records import RecordError, read_folder
from impls.training import arrangement
from impls.training.settings import load
from impls.training.workload import identity
from reports.claims import (
    claims,
    dissertation_claims,
    hou_claims,
    mappings,
    quoted,
    state_claims,
    stone_claims,
    system_claims,
    transport_claims,
)
from reports.claims.claims import VERDICTS, Claim
from tests.committed import COMMITTED
from tests.made import alter
from tests.printed import but
from tests.system.test_records import measurement

AVERAGE, SAVED, MAGNITUDE, FRAMES, QUEUE, _, APART = range(7)
REPLAY, PASSES, AVERAGES, POINTS, PARALLEL, HORIZON, BANKS = range(7)


def cell(**fields):
    return measurement(**({"low_seconds": None, "high_seconds": None} | fields))


def twins(primitive, factor=1.01, count=12):
    again = f"{primitive}_again"
    return [
        cell(primitive=name, op="made up", batch=n, median_seconds=time)
        for n in range(1, count + 1)
        for name, time in ((primitive, 1e-6), (again, factor * 1e-6))
    ]


# All papers


@pytest.fixture(scope="module")
def shipped():
    """The records of the machine with the most kinds of them."""
    return read_folder(COMMITTED, "8fb834d50a")


@pytest.fixture(scope="module")
def everything(shipped):
    return {paper: claims.judged(paper, shipped, COMMITTED) for paper in claims.papers()}


def test_claims_have_rule_and_power_and_are_judged_once(everything):
    """Confirmed is only what was run: arithmetic on printed numbers, and counts and laws of our own, add up."""
    assert list(everything) == ["[Hou2023]", "[StoneSachdev]", "[Zhang2021]", "[Zhang2022]", "[Zhang2023]"]
    for judged in everything.values():
        assert len({claim.text for claim in judged}) == len(judged)
        for claim in judged:
            assert claim.verdict in VERDICTS
            assert all(getattr(claim, field.name) for field in dataclasses.fields(Claim))
            assert len(claim.rule) > 20
            is_computed = claim.power.startswith((claims.EXACT, "the computing is exact"))
            assert claim.verdict != ("confirmed" if is_computed else "adds up"), claim.text
            assert not (is_computed and "confirmed if" in claim.rule), claim.text
            if claim.evidence.startswith("not run: "):
                assert claim.verdict == "not testable here"
                assert "; it would take " in claim.evidence
                assert claim.power == "none: nothing was run"
            if claim.verdict == "consistent":  # how many others would pass by chance
                assert "chosen" in claim.rule, claim.text
                assert "would have passed" in claim.power or "passes" in claim.power, claim.text
    assert {claim.verdict for judged in everything.values() for claim in judged} >= {"consistent", "not testable here"}
    assert sum("Fig. 11)" in claim.text for claim in everything["[Zhang2021]"]) == 1


def words_held(records):
    """The words for what the records hold runs of to a return: registered names, and whether there were several."""
    runs = [one.options for one in records if one.primitive == learning_runs.PRIMITIVE and one.median_seconds]
    named = {str(run[kind]) for run in runs for kind in ("arrangement", "sync", "transport")}
    held = named & {*arrangement.NAMES, *arrangement.SYNCS, *arrangement.TRANSPORTS}
    held |= {load(run["workload"]).algorithm for run in runs}
    held |= {"learners"} if any(run["learners"] > 1 for run in runs) else set()
    return held | ({"process", "processes"} if any(run["arrangement"] != "serial" for run in runs) else set())


def denied(claim, held):
    """The words of ``held`` in what a claim says was not run, or what it would take."""
    said, _, _ = claim.evidence.partition(claims.BESIDE)
    return {*re.findall(r"[\w-]+", said.lower())} & held if said.startswith("not run: ") else set()


def test_no_claim_denies_what_the_records_hold(shipped, everything):
    held = words_held([*shipped, *read_folder(COMMITTED, "635af1acbb")])
    assert {*arrangement.SYNCS, "apart", "pipelined", "shared", "dqn", "learners", "processes"} <= held
    for claim in (claim for judged in everything.values() for claim in judged):
        assert not denied(claim, held), claim.evidence


@pytest.mark.parametrize(
    ("evidence", "would", "words"),
    [
        ("one process trains here", "several seeds", {"process"}),
        ("nothing trained", "processes that train one network, which nothing here has", {"processes"}),
        ("no learners were trained beside each other to a return", "hours", {"learners"}),
        ("no run updates without locks", "hogwild", {"hogwild"}),
        ("no queue carried a run to its return", "a parameter server, and actor-learners", set()),
    ],
)
def test_a_claim_that_denies_them_would_be_found(shipped, evidence, would, words):
    claim = claims.not_run("It is so.", evidence, would, beside="two learners by hogwild")
    assert denied(claim, words_held(shipped)) == words
    assert claim.evidence.endswith("two learners by hogwild")


@pytest.mark.parametrize("paper", ["[Zhang2022]"])
def test_claims_about_several_learners_tell_what_ran(everything, paper):
    told = [claim.evidence for claim in everything[paper] if claims.BESIDE in claim.evidence]
    assert told
    for sync in ("synchronous", "lock", "hogwild"):
        assert all(re.search(rf"{sync}: [45] of 5 solved after .*, scaling factor 0\.\d+ \[", one) for one in told)


def test_growth_with_the_batch_is_judged_by_the_series_with_the_most_batches(everything):
    replay = everything["[Zhang2022]"][REPLAY]
    assert replay.verdict != "not testable here"
    assert "2 series from n = 1 to 32,768" in replay.evidence


def test_the_chance_of_a_number_that_has_nothing_to_do_with_ours():
    """Log-uniform within a factor of 2 either way: 0.9 to 1.1 is a share ln(1.1 / 0.9) / ln 4."""
    assert "14.5% of cases" in claims.within(0.1)
    assert "0.7% of cases" in claims.within(0.005)


def test_nothing_quoted_leaves_out_what_only_quotes_can_answer():
    with pytest.raises(RecordError, match="no number named"):
        hou_claims.verdicts([], quoted.NOTHING)
    for module in (stone_claims, dissertation_claims):
        assert {claim.verdict for claim in module.verdicts([], quoted.NOTHING)} - {"confirmed", "refuted"}


# [Hou2023]


@pytest.mark.parametrize(
    ("place", "verdict", "parts"),
    [
        (AVERAGE, "refuted", ("mean 406.6, printed 487.9, which is their sum over 5.00", "5,125.2", "6,150.3")),
        (SAVED, "consistent", ("that of all is 72.7", "go from 68.2 to 81.5", "Pendulum 89.7", "Ant 28.8", "be 90 %")),
        (MAGNITUDE, "refuted", ("experience sampling 1.04x", "network update frames 8.22x")),
        (FRAMES, "refuted", ("9 of 11 rows agree", "exchanged they are 0.99x and 0.93x")),
        (QUEUE, "consistent", ("0.200 Hz at 5,000, 0.055 Hz at 20,000",)),
    ],
)
def test_tables_are_held_against_each_other(found, place, verdict, parts):
    claim = hou_claims.verdicts([], found)[place]
    assert claim.verdict == verdict
    for part in parts:
        assert part in claim.evidence


OTHERS_SAMPLED = [f"hou2023__table_2__{name}__sampled" for name in ("rllib_apex_4096", "rlpyt_128", "rlpyt_512")]


@pytest.mark.parametrize(
    ("place", "numbers", "verdict"),
    [
        (
            AVERAGE,
            {"hou2023__table_1__spreeze__average": 406.6, "hou2023__table_1__rllib__average": 5125.2},
            "adds up",
        ),
        (AVERAGE, {"hou2023__table_1__spreeze__average": 406.6}, "refuted"),
        (SAVED, {"hou2023__time_save__percent": 60}, "refuted"),
        (MAGNITUDE, dict.fromkeys(OTHERS_SAMPLED, 4_000), "adds up"),
        (MAGNITUDE, dict.fromkeys(OTHERS_SAMPLED[:-1], 4_000), "refuted"),
        (
            FRAMES,
            {"hou2023__table_2__acme_256__batch": 8_192, "hou2023__table_2__acme_8192__batch": 256},
            "adds up",
        ),
        (QUEUE, {"hou2023__queue__queue_hz": 0.1}, "refuted"),
    ],
)
def test_another_number_printed_turns_the_verdict(found, place, numbers, verdict):
    assert hou_claims.verdicts([], but(found, **numbers))[place].verdict == verdict


@pytest.mark.parametrize(("slower", "verdict"), [(8.0, "confirmed"), (0.5, "refuted"), (1.0, "not testable here")])
def test_pendulum_is_solved_sooner_if_every_library_takes_longer(found, slower, verdict):
    kinds = {"serial": 2.0, "rllib": 30.0, "sb3": 2.0 * slower, "tianshou": 20.0}
    runs = [
        cell(
            primitive="training run", median_seconds=1e-3,
            options={"workload": "pendulum_sac", "kind": kind, "seed": seed, "learners": 1},
            metrics={"points": [[500, 400, solved, -150.0]], "solved_at": -200.0, "test_mean": None},
        )
        for kind, solved in kinds.items()
        for seed in range(5)
    ]  # fmt: skip
    (claim,) = (one for one in hou_claims.verdicts(runs, found) if one.text.startswith("Pendulum takes 16.3 s"))
    assert claim.verdict == verdict
    assert "rllib to ours: 15.00x" in claim.evidence
    (claim,) = (one for one in hou_claims.verdicts(runs[:5], found) if one.text.startswith("Pendulum takes 16.3 s"))
    assert "--only serial,libraries --workload pendulum_sac" in claim.evidence


# [StoneSachdev]


def shared(contestant, one, two, **fields):
    return [
        cell(primitive="peer_shared", contestant=contestant, threads=threads, median_seconds=seconds, **fields)
        for threads, seconds in ((1, one), (2, two))
    ]


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0.6e-6, "refuted"), (1.0e-6, "confirmed"), (1.5e-6, "confirmed"), (0.99e-6, "confirmed")]
)
def test_threads_share_a_core_unless_one_implementation_gains(seconds, verdict):
    found = [*shared("python", 1e-3, 1.02e-3), *shared("numba", 1e-6, seconds), *twins("peer")]
    claim = stone_claims.verdicts(found)[0]
    assert claim.verdict == verdict
    assert "Pure Python: 0.98x" in claim.evidence
    assert "where no thread helps one is refuted in at most 5% of cases" in claim.power


def test_a_gain_within_the_noise_is_none_and_its_own_interval_counts():
    gain = shared("numba", 1e-6, 0.8e-6)
    assert stone_claims.verdicts([*gain, *twins("peer")])[0].verdict == "refuted"
    assert stone_claims.verdicts([*gain, *twins("peer", 1.3)])[0].verdict == "confirmed"
    wide = [dataclasses.replace(one, low_seconds=one.seconds / 2, high_seconds=one.seconds * 2) for one in gain]
    assert stone_claims.verdicts([*wide, *twins("peer")])[0].verdict == "confirmed"
    assert stone_claims.verdicts(gain)[0].verdict == "not testable here"  # how noisy is not known


def test_many_implementations_are_one_family():
    """A gain that one test would call clear is none among forty."""
    one, several = shared("numba", 1e-6, 0.966e-6), [shared(f"library {i}", 1e-6, 1e-6) for i in range(39)]
    noise = twins("peer", 1.03, 40)
    assert stone_claims.verdicts([*one, *noise])[0].verdict == "refuted"
    assert stone_claims.verdicts([*one, *noise, *(each for pair in several for each in pair)])[0].verdict == "confirmed"


# [Zhang2022]


def over_batches(law, **fields):
    return [cell(batch=batch, median_seconds=law(batch), **fields) for batch in (1, 32, 256, 2_048, 16_384)]


FORWARD = {"primitive": "training", "contestant": "forward", "op": "act", "options": {"workload": "cartpole_dqn"}}


@pytest.mark.parametrize(
    ("law", "verdict"),
    [
        (lambda batch: 30e-6 + 0.4e-6 * batch, "confirmed"),
        (lambda batch: max(60e-6, 0.4e-6 * batch), "confirmed"),
        (lambda batch: 1e-6 * batch**0.5, "refuted"),
        (lambda batch: 30e-6, "refuted"),
    ],
)
def test_times_over_the_batch(law, verdict):
    passes = [*over_batches(law, **FORWARD), *twins("training", 1.1)]
    assert dissertation_claims.verdicts(passes)[PASSES].verdict == verdict
    of_models = FORWARD | {"contestant": "weights", "op": "average"}
    averages = [
        cell(**of_models | {"options": {"workload": "cartpole_dqn", "models": one.batch}}, median_seconds=one.seconds)
        for one in passes[:-24]
    ]
    judged = dissertation_claims.verdicts([*averages, *passes[-24:]])
    assert (judged[AVERAGES].verdict, judged[PASSES].verdict) == (verdict, "not testable here")
    tree = [one for op in ("draw", "update") for one in over_batches(law, op=op, capacity=1_000_000)]
    assert dissertation_claims.verdicts([*tree, *twins("sum_tree", 1.1)])[REPLAY].verdict == verdict


def test_a_series_of_which_a_later_run_replaced_cells_is_judged_with_drift():
    """Linear growth whose last times are of another run of a faster hour: alone they look slower than they are."""
    replay = {"primitive": "replay_batches", "contestant": "replay", "capacity": 1_000_000}

    def series(factor, **fields):
        cells = [
            one for op in ("sample", "update") for one in over_batches(lambda batch: 1e-7 * batch, op=op, **replay)
        ]
        return [
            alter(one, median_seconds=one.seconds / factor, **fields) if one.batch > 2_000 else one for one in cells
        ]

    def judged(found):
        return dissertation_claims.verdicts([*found, *twins("replay_batches", 1.02)])[REPLAY]

    assert judged(series(1.0)).verdict == "confirmed"
    assert judged(series(1.2)).verdict == "refuted"  # in one run it is slower growth
    assert judged(series(1.2, commit="another")).verdict != "refuted"
    assert judged([one for one in series(1.0) if one.op == "sample"]).verdict == "not testable here"


def test_scaling_factors_are_arithmetic(found):
    judged = dissertation_claims.verdicts([], found)
    assert [judged[place].verdict for place in (REPLAY, PASSES)] == ["not testable here"] * 2
    assert [judged[place].verdict for place in (POINTS, PARALLEL, HORIZON)] == ["adds up", "refuted", "adds up"]
    assert "1.25 / 2 = 0.625, printed 0.63; 1.34 / 4 = 0.335, printed 0.34" in judged[POINTS].evidence
    assert "give 0.781 for two learners, Eq. 5.3 gives 0.625" in judged[PARALLEL].evidence
    assert judged[BANKS].verdict == "refuted"
    assert "0.5 with 2, not 1e-06" in judged[BANKS].evidence
    wrong = but(found, zhang2022__data_parallel__factor__4=0.33)
    assert dissertation_claims.verdicts([], wrong)[POINTS].verdict == "refuted"
    assert dissertation_claims.verdicts([], quoted.NOTHING)[POINTS].verdict == "not testable here"


def test_the_seconds_of_a_step_are_told_by_the_size_of_the_state():
    def steps(name, learner_seconds):
        options = {"workload": name, "identity": identity(load(name))}
        shape = {"primitive": "training", "threads": 1, "options": options, "op": "step"}
        batch = load(name).learner.batch
        yield cell(**shape, contestant="actor", batch=1, median_seconds=1e-4)
        yield cell(**shape, contestant="learner", batch=batch, median_seconds=learner_seconds)

    (none,) = state_claims.verdicts([*steps("cartpole_dqn", 1e-3)])
    assert none.verdict == "not testable here"
    for hopper, verdict in ((5e-3, "confirmed"), (2.1e-3, "not testable here"), (1e-3, "refuted")):
        small, large = steps("cartpole_dqn", 2e-3), steps("hopper_ddpg", hopper)
        (claim,) = state_claims.verdicts([*small, *large])
        assert claim.verdict == verdict
    assert "4: cartpole_dqn 2.10 ms; 11: hopper_ddpg 1.10 ms" in claim.evidence


# Table V with and without learners' times that its tables state


def test_agreement_counts_pairs_and_mappings_apart(monkeypatch, found):
    answers = iter(["F-F-F", "F-F-C", "G-C-G", *["F-F-F"] * 8])
    asked = []
    monkeypatch.setattr(mappings, "problem_of", lambda *how: (asked.append(how), None))
    monkeypatch.setattr(mappings, "solve", lambda *_, **__: Answer())
    monkeypatch.setattr(mappings, "letters", lambda _: next(answers))
    counted = mappings.agreement(found, COMMITTED, pinned_too=False)
    # Published: F-F-F five times, G-C-G twice, G-F-G, G-C-G twice, G-C-C.
    assert counted == mappings.Agreement(pairs=4, mappings=3, rows=11)
    assert {how[-1] for how in asked} == {False}


class Answer:
    choice = None


def test_without_pins_every_learner_is_modeled(found):
    problems = [mappings.problem_of(found, COMMITTED, "pong_dqn", 256, pinned)[0] for pinned in (True, False)]
    sources = [{option.time.source for option in problem.options["learner"]} for problem in problems]
    assert "quoted" in sources[0]
    assert "quoted" not in sources[1]


# Transports


def system(name, transfer, step=1e-3, rows=1, **more):
    more = {"environment step": 1e-4} | more
    options = {"workload": "hopper_td3", "rows": rows}
    return [
        cell(primitive="training transport", contestant=name, op=op, batch=128, options=options, median_seconds=seconds)
        for op, seconds in (("transfer", transfer), ("gradient step", step), *more.items())
    ]


@pytest.mark.parametrize(
    ("shared", "queue", "verdict"),
    [(1e-6, 2e-4, "confirmed"), (1e-6, 0.9e-4, "refuted"), (2e-5, 2e-4, "refuted"), (None, 2e-4, "not testable here")],
)
def test_shared_memory_is_free_and_a_queue_is_not_in_the_median_of_its_systems(found, shared, queue, verdict):
    queues = {
        "queue 500": queue,
        "queue 5000": queue / 4,
        "queue 50": queue * 4,
    }  # neither the least nor the most count
    cells = [one for name, transfer in queues.items() for one in system(name, transfer)]
    cells += system("shared", shared) if shared else []
    claim = transport_claims.verdicts(cells, found)[0]
    assert claim.verdict == verdict
    if shared:
        assert f"{shared * 1e3:.2%} by shared memory" in claim.evidence
        median = f"{queue * 1e3:.1%} in the median of 3 systems (hopper_td3, queue 500, B = 128, 1 rows a hand-over)"
        assert f"by a queue {median}, from {queue * 1e3 / 4:.1%} to {queue * 4e3:.1%}" in claim.evidence
    else:
        assert "python -m benchmarks run transports" in claim.evidence


def test_the_laws_of_table_3_add_up_as_printed(found):
    _, cycle, time, order = transport_claims.verdicts([], found)
    assert [cycle.verdict, time.verdict, order.verdict] == ["adds up", "adds up", "not testable here"]
    assert "8.044, 7.848, 7.94, 2.5% apart" in cycle.evidence
    assert "48.91, 46.55, 48.9, 5.1% apart" in time.evidence
    off = but(found, hou2023__table_3__rows__QS5000__cycle=5.5)
    assert transport_claims.verdicts([], off)[1].verdict == "refuted"


def filled(losses, cycles, steps):
    """Three systems by queues that are filled: shares of time lost, cycles and gradient steps in seconds, by size."""
    sizes = {500: 0.05, 5_000: 0.5, 50_000: 5.0}
    return [
        one
        for (size, cycle), loss, factor, step in zip(sizes.items(), losses, cycles, steps, strict=True)
        for one in system(f"fill {size}", loss * step, step, interval=cycle * factor)
    ]


@pytest.mark.parametrize(
    ("losses", "cycles", "steps", "expected"),
    [
        ((0.5, 0.2, 0.1), (1, 1.05, 1), (2.0, 1.25, 1.1), ("confirmed", "confirmed", "confirmed")),
        ((0.5, 0.2, 0.1), (1, 1.15, 1), (2.0, 1.25, 0.9), ("refuted", "refuted", "confirmed")),
        ((0.2, 0.2, 0.2), (1, 1, 1), (1.2, 1.1, 1.0), ("confirmed", "refuted", "refuted")),
        ((0.5, 0.2, 0.1), (1, 1, 1), (1.1, 1.1, 1.1), ("confirmed", "refuted", "refuted")),
    ],
)
def test_filled_queues_are_judged_by_the_laws_of_table_3(found, losses, cycles, steps, expected):
    judged = transport_claims.verdicts(filled(losses, cycles, steps), found)[1:]
    assert tuple(claim.verdict for claim in judged) == expected
    assert "hopper_td3, fill, B = 128, 1 rows a hand-over, 500, 5,000, 50,000 records" in judged[0].evidence


def test_what_a_transfer_loses_is_told_apart_from_its_records(found):
    """0.02 s and 10 us a record: shares of cycles of 100 us a record."""
    losses = [(0.02 + 1e-5 * size) / (1e-4 * size) for size in (500, 5_000, 50_000)]
    order = transport_claims.verdicts(filled(losses, (1, 1, 1), (2.0, 1.25, 1.1)), found)[-1]
    assert "a transfer loses 0.02 s and 10 us a record of the size" in order.evidence
    assert "printed, 5,000, 20,000, 50,000 records" in order.evidence
    assert "a transfer loses 2.05 s and 41.9 us a record" in order.evidence
    two = filled(losses, (1, 1, 1), (2.0, 1.25, 1.1))[: -len(filled(losses, (1, 1, 1), (1, 1, 1))) // 3]
    assert transport_claims.verdicts(two, found)[-1].verdict == "not testable here"


# Whole systems of [Zhang2023]


SCALING, STEADY, HURT, ALIKE, LOOP, UNITS, NEAR = range(7)


def judged(*records):
    return [claim.verdict for claim in system_claims.verdicts(records)]


def threaded(op, one, two, batch=16_384):
    shape = {
        "primitive": "sum_tree",
        "contestant": "numba",
        "op": op,
        "batch": batch,
        "fanout": 16,
        "options": {},
    }
    return [cell(**shape, threads=n, median_seconds=time) for n, time in ((1, one), (2, two))]


@pytest.mark.parametrize(
    ("records", "place", "verdict"),
    [
        (
            threaded("draw", 1.8, 1.0),
            SCALING,
            "confirmed",
        ),
        (
            threaded("draw", 1.2, 1.0),
            SCALING,
            "refuted",
        ),
        (
            threaded("draw", 1.8, 1.0, 256),
            SCALING,
            "not testable here",
        ),
        (
            threaded("draw", 1.8, 1.0)[1:],
            SCALING,
            "not testable here",
        ),
        (
            threaded("update", 1.0, 1.0),
            STEADY,
            "not testable here",
        ),
        (
            threaded("update", 1.5, 1.0),
            STEADY,
            "refuted",
        ),
    ],
)
def test_threads_share_a_batch_of_samples_and_none_of_updates(records, place, verdict):
    assert judged(*records)[place] == verdict


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        (2.0, "confirmed"),
        (1.0, "refuted"),
        (2e3, "refuted"),
    ],
)
def test_rllibs_loop_is_compared_with_ours_by_the_same_library(theirs, verdict):
    times = {
        "fanout": 0.1,
        "fanout_torch": 1.0,
        "rllib": theirs,
    }
    options = {"environments": 1}
    loops = [
        cell(
            primitive="loop_peer",
            op="clean",
            contestant=name,
            options=options,
            median_seconds=seconds,
        )
        for name, seconds in times.items()
    ]
    assert judged(*loops)[LOOP] == verdict
    assert judged(*loops[:2])[LOOP] == "not testable here"
    small = [
        dataclasses.replace(one, batch=7, median_seconds=one.median_seconds ** (one is not loops[2])) for one in loops
    ]
    assert judged(*loops, *small)[LOOP] == "refuted"  # at the other batch it is as fast


@pytest.mark.parametrize(
    ("keeper", "verdict"),
    [
        (0.6, "refuted"),
        (0.01, "confirmed"),
    ],
)
def test_a_keeper_that_waits_more_than_others_needs_no_second_unit(keeper, verdict):
    waited = {"learner-0": 0.2, "actor-0": 0.5, "keeper-0": keeper}
    record = cell(primitive="training arrangement", options={"arrangement": "pipelined"}, median_seconds=1.0)
    record = dataclasses.replace(record, metrics={"report": {"waited": waited}})
    assert judged(record)[UNITS] == verdict
    assert judged()[UNITS] == "not testable here"


def test_random_tables_warrant_no_mapping_within_five_percent():
    assert judged()[NEAR] == "not testable here"
    assert judged()[HURT] == judged()[ALIKE] == "not testable here"


@pytest.mark.parametrize(("many", "verdict"), [(2.0, "confirmed"), (0.5, "refuted")])
def test_batches_ahead_are_judged_by_both_algorithms(monkeypatch, many, verdict):
    """Twice the steps by one of them alone are no verdict."""

    def found(*factors):
        return {
            (task, f"pipelined, D = {depth}"): {
                "sample_efficiency": {
                    seed: learning_runs.Value(1e4 * (factor if depth == 200 else 1)) for seed in range(5)
                }
            }
            for task, factor in zip(system_claims.TASKS, factors, strict=True)
            for depth in (1, 50, 200)
        }

    monkeypatch.setattr(learning_runs, "metrics_of", lambda runs: found(many, many))
    assert judged()[HURT] == verdict
    monkeypatch.setattr(learning_runs, "metrics_of", lambda runs: found(2.0, 1.0))
    assert judged()[HURT] == judged()[ALIKE] == "not testable here"
