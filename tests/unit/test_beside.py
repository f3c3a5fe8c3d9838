"""Arrangements predicted from runs whose parts were timed beside each other, from made-up records of two cores."""

import dataclasses
import functools

import pytest

from benchmarks.cases import Case
from benchmarks.timing import Timing
from benchmarks.topics.profile import concurrent_parts as cells
from benchmarks.topics.profile.cells import PRESETS, shape_run
from dse.answers.emit import why_not_run
from dse.mapping.processes import can_run
from dse.mapping.question import ask, find_mapping
from dse.solver.problem import ProblemError
from dse.times.whole import TimedRun, crowded, nearest, timed
from impls.training import identity, load
from impls.training.arrangement import Arrangement
from impls.training.weights import layout_of
from tests.profiled import NOISE, folder, stamp
from tests.unit.test_profiled_answers import PLATFORM, records

CARTPOLE = load("cartpole_dqn")
LEARNER, TURN, KEEPER = 4e-4, 1e-4, 5e-5
SLOWER = 1.25
HAND_OVER = 2e-5
TOGETHER = {"synchronous": 2.5, "lock": 1.6, "hogwild": 1.7, "local": 1.8}  # of a step of one, by two learners


def made(**changes):
    values = {"implementation": "dense", "policy": "dense", "actors": 1, "environments": 1, "batch": 64}
    values |= {"learner": LEARNER, "turn": TURN, "beside": (LEARNER * SLOWER, TURN * SLOWER), "keeper": 0.0}
    return TimedRun(**{"arrangement": "apart", **values, "kept": 0.0, "interval": 1, "told": "", **changes})


RUN = made()


def seconds(cell):
    """Made-up seconds of a cell of a run: both sides a quarter slower beside each other, and a hand-over."""
    options = cell.options
    learner = LEARNER * (2 if options["learner"] == "torch" else 1)
    turn, processes = TURN * options["environments"] ** 0.5, 2 + (options["arrangement"] == "pipelined")
    slower = SLOWER if options["actors"] + processes - 1 <= 2 else 1.6
    keeper = KEEPER if options["arrangement"] == "pipelined" else 0.0
    run = made(learner=learner, turn=turn, beside=(learner * slower, turn * slower), keeper=keeper)
    run = dataclasses.replace(run, actors=options["actors"], environments=options["environments"])
    crowd = run.actors if options["actors"] + processes - 1 > 2 else 0
    kept = max(run.sides(learner, turn / run.environments / run.actors, keeper, crowd)) + HAND_OVER
    kept *= TOGETHER[options["sync"]] if options["learners"] > 1 else 1
    return {
        "rate": kept if options["ratio"] == "kept" else learner * slower,
        "learner step": learner,
        "actor turn": turn,
        "keeper step": KEEPER,
        "actor period": turn * slower,
        "learner alone": learner,
        "actor alone": turn,
    }[cell.op]


def beside_records(change=lambda cell, spent: spent):
    groups = cells.groups(CARTPOLE, PRESETS["quick"], 2, ["torch", "dense"])
    return [
        stamp(cells.PRIMITIVE).timed(
            cell, Timing(tuple(change(cell, seconds(cell)) * one for one in NOISE), 1), utc="2030-01-01T00:00:00+00:00"
        )
        for group in groups
        for cell in group
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("beside"), [*records(), *beside_records()])


@functools.cache
def _answer(results, fix):
    return find_mapping(results / PLATFORM, "cartpole_dqn", results=results, fix=dict(fix))


def answer(results, **fix):
    return _answer(results, tuple(fix.items()))


# The law


@pytest.mark.parametrize("learner", [1.0, 3.0])
@pytest.mark.parametrize("turns", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("slower", [(1.0, 1.0), (1.3, 1.2), (1.1, 1.6)])
def test_two_that_slow_each_other_down_take_what_playing_them_takes(learner, turns, slower):
    """Each gives the other work at 1 / c of its speed for as long as both are busy, then the slower side is alone."""
    c_l, c_a = slower
    run = made(learner=1.0, turn=1.0, beside=slower)
    both = min(learner * c_l, turns * c_a)
    alone = max(learner - both / c_l, turns - both / c_a)
    assert max(run.sides(learner, turns, 0.0, 0)) == pytest.approx(both + alone)


def test_more_processes_than_cores_share_what_the_cores_did():
    run = made(actors=2, learner=1.0, turn=1.0, beside=(1.5, 1.5))
    assert run.cores == pytest.approx(2.0)
    assert max(run.sides(3.0, 2.0, 0.0, 2)) == pytest.approx((3.0 + 2 * 2.0) / 2)
    assert max(run.sides(3.0, 0.1, 0.0, 2)) == pytest.approx(3.0)  # one process takes its own time at least


def test_the_hand_over_is_what_a_kept_ratio_takes_more_and_never_less_than_nothing():
    longest = max(RUN.sides(LEARNER, TURN, 0.0, 0))
    assert dataclasses.replace(RUN, kept=longest + 3e-5).handoff_seconds(0) == pytest.approx(3e-5)
    assert dataclasses.replace(RUN, kept=longest / 2).handoff_seconds(0) == 0.0


def test_a_run_stands_first_for_its_like_and_is_less_sure_of_others():
    runs = [RUN, made(environments=8), made(actors=2), made(arrangement="pipelined")]
    like, sure = nearest(runs, "apart", "dense", "dense", 1, 8, 2)
    other, less_sure = nearest(runs, "apart", "dense", "torch", 1, 4, 2)
    many, _ = nearest(runs, "apart", "dense", "dense", 2, 8, 2)
    assert (like.environments, other.environments, many.actors) == (8, 8, 2)
    assert less_sure > sure > 1
    assert nearest(runs[:3], "pipelined", "dense", "dense", 1, 1, 2) is None
    assert [crowded("apart", count, 3) for count in (1, 2, 3)] == [False, False, True]


def test_the_latest_record_of_a_run_counts_and_one_without_all_parts_is_none():
    known = beside_records()
    first = timed(known, identity(CARTPOLE))
    assert len(first) == 7
    later = [
        dataclasses.replace(one, median_seconds=9e-4, utc="2031-01-01T00:00:00+00:00")
        for one in known
        if one.op == "learner alone"
    ]
    assert {one.learner for one in timed([*known, *later], identity(CARTPOLE))} == {9e-4}
    assert timed([one for one in known if one.op != "actor alone"], identity(CARTPOLE)) == ()
    assert timed(known, "another") == ()


# Answers


def test_a_run_like_one_that_was_timed_takes_what_that_took(results):
    kept = max(RUN.sides(LEARNER, TURN, 0.0, 0)) + HAND_OVER
    told = answer(results, arrangement="apart", learner_implementation="dense", policy_implementation="dense")
    assert 1 / told.hz == pytest.approx(kept, rel=1e-3)
    assert told.low < told.hz < told.high
    alone = answer(results, arrangement="apart", learner_implementation="torch", policy_implementation="torch")
    assert alone.hz < 0.7 * told.hz


def test_the_update_interval_makes_actors_the_longer_side_and_environments_at_once_help_them(results):
    fix = {"arrangement": "apart", "learner_implementation": "dense", "policy_implementation": "dense"}
    slow = answer(results, **fix, update_interval=64, actor_count=1)
    many = answer(results, **fix, update_interval=64, actor_count=1, environments=8)
    assert slow.bottleneck.values["parts"] == ["actors"]
    c_l, c_a = RUN.slowdowns
    expected = 64 * TURN + LEARNER * c_l * (1 - 1 / c_a) + HAND_OVER
    assert 1 / slow.hz == pytest.approx(expected, rel=0.01)
    assert many.hz > 2 * slow.hz


def test_two_actors_on_two_cores_share_them_with_the_learner(results):
    fix = {"learner_implementation": "dense", "policy_implementation": "dense", "update_interval": 64}
    one, two = (answer(results, arrangement="apart", **fix, actors=count, actor_count=count) for count in (1, 2))
    assert one.hz < two.hz < 2 * one.hz
    assert (two.choice.more["cores"], two.choice.more["cores_there"]) == (3.0, 2.0)
    assert {process.label["cores"] for process in two.processes} == {(0, 1)}


def test_a_keeper_is_a_process_of_its_own_and_samples_one_batch_ahead_at_least(results):
    told = answer(results, arrangement="pipelined", presampled=0)
    assert told.choice.more["depth"] == 1
    assert [process.label["process"] for process in told.processes] == ["learner", "actor", "keeper"]
    assert {process.label["cores"] for process in told.processes} == {(0, 1)}
    assert told.choice.more["strategy"] == Arrangement(name="pipelined").strategy


def test_an_answer_says_its_processes_and_their_cores(results):
    told = answer(results, arrangement="apart")
    assert [(process.label["process"], process.label["cores"]) for process in told.processes] == [
        ("learner", (1,)),
        ("actor", (0,)),
    ]
    assert (told.choice.more["runs_here"], why_not_run(told)) == (True, None)
    serial = answer(results, arrangement="serial")
    assert (serial.choice.more["runs_here"], serial.processes, serial.choice.more["strategy"]) == (True, (), "")


def test_serial_is_the_answer_where_handing_over_costs_more_than_it_gains(tmp_path):
    slow = beside_records(lambda cell, spent: spent + 5e-3 if cell.op == "rate" else spent)
    told = answer(folder(tmp_path, [*records(), *slow]))
    assert told.arrangement == "serial"


def test_only_what_runs_is_offered_on_a_machine_with_records(results, tmp_path):
    """With runs that were timed and without them: trees of numba on one thread, one learner or two."""
    for there in (results, folder(tmp_path, records())):
        for arrangement in ("apart", "pipelined"):
            question = ask(there / PLATFORM, "cartpole_dqn", results=there, fix={"arrangement": arrangement})
            built = question.built()
            for problem in built.problems.values():
                for option in problem.every_option():
                    details = option.details
                    assert details.get("learners", 1) in (1, 2)
                    assert details.get("contestant", "numba") == "numba"
                    assert details.get("threads", 1) == 1 or option.part == "learner"
                    assert not details.get("options")
            assert built.problems


def tree_records():
    """Trees of the made-up machine: numba's by default is the slowest of four that a run could name."""
    shapes = (
        ({}, 1, "numba", 4.0),
        ({"propagate": "delta"}, 1, "numba", 1.0),
        ({}, 2, "numba", 1.0),
        ({}, 1, "numpy", 8.0),
    )
    return [
        stamp("sum_tree").timed(
            Case(name, op, capacity, batch, threads=threads, options=options),
            Timing(tuple(slower * 1e-7 * batch * one for one in NOISE), 10),
            utc="2030-01-01T00:00:00+00:00",
        )
        for options, threads, name, slower in shapes
        for op in ("draw", "update")
        for capacity in (10_000, 100_000, 1_000_000)
        for batch in (1, 64, 256)
    ]


def test_an_answer_runs_where_the_fastest_tree_is_one_that_no_run_has(tmp_path):
    for name, found in (("alone", []), ("beside", beside_records())):
        (tmp_path / name).mkdir()
        there = folder(tmp_path / name, [*records(), *found, *tree_records()])
        for arrangement in (None, "serial", "apart"):
            told = answer(there, **({"arrangement": arrangement} if arrangement else {}))
            (tree,) = (part.more["details"] for part in told.parts if part.label["part"] == "sampling")
            assert why_not_run(told) is None
            assert (tree["contestant"], tree["threads"], tree.get("options")) == ("numba", 1, None)
        with pytest.raises(ProblemError):  # what no run has is no answer even where it is asked for
            answer(there, arrangement="serial", threads=2)


@pytest.mark.slow
def test_modelled_platforms_have_trees_that_nothing_shares():
    question = ask("u200", "hopper_ddpg", fix={"arrangement": "pipelined"})
    (problem,) = question.built().problems.values()
    kinds = {option.details.get("contestant") for pair in problem.trees for option in pair}
    assert len(kinds) > 1
    assert not find_mapping("u200", "hopper_ddpg", fix={"arrangement": "pipelined"}).choice.more["runs_here"]


def test_a_tree_with_options_of_its_own_cannot_be_shared(results):
    from dse.times.trees import trees  # noqa: PLC0415

    parts = ask(results / PLATFORM, "cartpole_dqn", results=results).parts()
    (tree,) = [one for one in trees(parts, parts.cpu) if can_run(one)][:1]
    assert not can_run(dataclasses.replace(tree, details={**tree.details, "options": {"layout": "plain"}}))
    assert not can_run(dataclasses.replace(tree, threads=2), "serial")
    numpy = dataclasses.replace(tree, details={**tree.details, "contestant": "numpy"})
    assert (can_run(numpy), can_run(numpy, "serial")) == (False, True)


# Timing


def test_no_run_is_timed_on_a_single_core_or_with_more_records_than_storage_takes():
    assert cells.groups(CARTPOLE, PRESETS["quick"], 1, ["torch", "dense"]) == []
    assert cells.groups(load("pong_dqn"), PRESETS["quick"], 2, ["torch"]) == []
    more = (300 << 20) // layout_of(CARTPOLE).record_bytes
    large = cells.change_tables(CARTPOLE, {"replay": {"capacity": more}})
    assert [cells.groups(large, PRESETS[name], 2, ["torch"]) for name in ("brief", "quick")] == [[], []]


def test_a_workload_is_timed_from_its_first_step_on_and_without_an_end():
    (group, *_) = cells.groups(CARTPOLE, PRESETS["quick"], 2, ["dense"])
    options = {**group[0].options, "environments": 8, "actors": 2, "presampled": 3}
    shaped = cells.train_at_once(shape_run(CARTPOLE, options)[0])
    assert (shaped.actors.environments, shaped.actors.count, shaped.replay.presampled) == (8, 2, 3)
    assert (shaped.learner.learning_starts, shaped.exploration.random_steps) == (1, 0)
    assert shaped.steps > 1 << 40
    assert shaped.replay.capacity == CARTPOLE.replay.capacity
