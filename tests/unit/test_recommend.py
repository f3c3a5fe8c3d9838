"""Recommendations from hand-written records whose truth is known."""

import dataclasses
import itertools
import json
import math
import random

import pytest

import impls
from benchmarks.cases import Case
from benchmarks.presets import groups
from dse import __main__ as cli
from dse import platforms, stats
from dse.drift import USUAL
from dse.race_trees import find_tree
from dse.records import RecordError, Writer
from dse.times.tree_times import Configuration, Question, Table
from dse.tree import answer
from tests.committed import RESULTS
from tests.made import alter
from tests.system.test_records import measurement

SHIPPED = RESULTS / "d7dae63b89"
OPS = ("draw", "update")
CAPACITIES, BATCHES, FANOUTS = (1_000, 30_000, 1_000_000), (32, 512, 8_192), (4, 8, 16, 64)
MACHINE = {"key": "here", "cpu": "a processor", "cores": 2, "caches": {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20}}


def seconds(contestant, op, capacity, fanout, batch, threads=1):
    """A truth with laws that the cost model lacks: latencies that grow smoothly with the bytes of a level, no lines, an
    update at half a draw, two threads at 0.6 of one; O(N) for flat."""
    if contestant == "flat":
        return 1e-9 * capacity if op == "draw" else 2e-9 * batch
    time, level_bytes = 1e-6, 4.0 * capacity
    while level_bytes > 4:
        overlapped = min(batch, 4 + batch / 8)
        time += batch * (2e-9 + 0.25e-9 * fanout) + overlapped * 40e-9 * level_bytes / (level_bytes + (16 << 20))
        level_bytes /= fanout
    time *= 1.0 if op == "draw" else 0.5
    return time if threads == 1 or op == "update" else 0.6 * time + 20e-6


def records(width=0.01, threads=(1, 2)):
    trees = [*(("numba", fanout, used) for fanout in FANOUTS for used in threads), ("flat", 16, 1)]
    for op, capacity, batch, (contestant, fanout, used) in itertools.product(OPS, CAPACITIES, BATCHES, trees):
        time = seconds(contestant, op, capacity, fanout, batch, used)
        cell = {"contestant": contestant, "op": op, "capacity": capacity, "fanout": fanout, "batch": batch}
        ends = {"low_seconds": time * (1 - width / 2), "high_seconds": time * (1 + width / 2)}
        times = {"samples_seconds": (time,) * 11, "median_seconds": time, **ends}
        yield measurement(**cell, threads=used, **times, machine=MACHINE, commit="0123456789abcdef")


def taking(time, record, **fields):
    """The record with another time, and its interval in proportion."""
    ends = {name: getattr(record, name) * time / record.seconds for name in ("low_seconds", "high_seconds")}
    return alter(record, median_seconds=time, **ends, **fields)


def write(folder, found, name="quick.jsonl"):
    with Writer(folder / "here" / name) as writer:
        for record in found:
            writer.append(record)
    return folder


def ask(folder, **question):
    return find_tree(results=folder, **({"capacity": 1_000_000, "batch": 512, "machine": "here"} | question))


def test_a_disturbed_run_leaves_answers_as_they_are(tmp_path):
    quiet = [*records(), *sentinels()]
    before = ask(write(tmp_path, quiet))
    rng, later = random.Random(1), {"utc": "2026-03-01T00:00:00+00:00", "command": "make demo"}
    loud = [taking(one.seconds * rng.uniform(1, 8), one, **later) for one in quiet]
    loud += [taking(2 * one.seconds, one, primitive="sum_tree_again") for one in loud if one.primitive == "sum_tree"]
    assert ask(write(tmp_path, loud, "brief.jsonl")) == before
    stable = [alter(one, command="another") for one in loud if not one.primitive.endswith("_again")]
    write(tmp_path, stable, "more.jsonl")
    assert ask(tmp_path) != before  # which nothing shows to be disturbed


def sentinels():
    """Sentinels of two runs, a little apart."""
    for command, time in (("first", 1e-3), ("second", 1.1e-3)):
        one = measurement(primitive="sentinel", machine=MACHINE, commit="0123456789abcdef", command=command)
        yield taking(time, one, utc=f"2026-01-0{len(command) - 4}T00:00:00+00:00")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("results"), records())


def true_step(configuration, capacity, batch, rate=1.0):
    arguments = (capacity, configuration.fanout, batch, configuration.threads)
    return seconds(configuration.contestant, "draw", *arguments) + rate * seconds(
        configuration.contestant, "update", *arguments
    )


def test_measured_cells_give_the_best_measured_tree(folder):
    every = [Configuration("numba", k, t) for k in FANOUTS for t in (1, 2)] + [Configuration("flat", 16, 1)]
    for asked in itertools.product(CAPACITIES, BATCHES, (0.0, 1.0, 4.0)):
        given = ask(folder, **dict(zip(("capacity", "batch", "updates_per_sample"), asked, strict=True)))
        best = min(true_step(configuration, *asked) for configuration in every)
        assert given.choice.time.source == "measured", asked
        assert given.choice.seconds == pytest.approx(true_step(given.choice.configuration, *asked)), asked
        assert given.choice.seconds <= best * 1.02, asked
        assert given.choice.time.low < given.choice.seconds < given.choice.time.high, asked
        assert given.runner_up.configuration != given.choice.configuration, asked
        cells = {(cell["op"], cell["capacity"], cell["batch"]) for cell in given.rests_on}
        assert cells == {(op, *asked[:2]) for op in OPS}, asked


def test_between_cells_the_answer_is_interpolated_and_close(folder):
    for capacity, batch in ((5_000, 100), (200_000, 2_000), (70_000, 8_192)):
        time = (choice := ask(folder, capacity=capacity, batch=batch).choice).time
        chosen = true_step(choice.configuration, capacity, batch)
        best = min(true_step(Configuration("numba", k, 1), capacity, batch) for k in FANOUTS)
        assert (time.source, chosen <= 1.05 * best) == ("interpolated", True), (capacity, batch)
        assert time.low < chosen < time.high, (capacity, batch)


def test_outside_of_what_was_measured_it_says_so(folder):
    given = ask(folder, capacity=50_000_000, batch=512, threads=1)
    assert given.choice.time.source == "extrapolated"
    assert [note.values["outside"] for note in given.notes if note.kind == "outside_of_measured"] == [50.0]


def test_no_model_beats_what_was_measured_around_the_question(tmp_path):
    found = DEFAULT
    rival = [
        taking(r.seconds / 10, r, options={"layout": "plain"})
        for r in found
        if r.batch == 512 and r.capacity < 1_000_000
    ]
    given = ask(write(tmp_path, [*found, *rival]), batch=512)
    assert (given.choice.time.source, given.choice.configuration.options) == ("measured", ())


def test_threads_are_bounded_and_a_tie_takes_fewer(folder, tmp_path):
    big = {"capacity": 1_000_000, "batch": 8_192, "updates_per_sample": 0.0}
    assert ask(folder, threads=2, **big).choice.configuration.threads == 2
    assert ask(folder, threads=1, **big).choice.configuration.threads == 1
    small = ask(folder, threads=2, **(big | {"batch": 8_191}))  # which is the calling thread's alone
    assert {one.configuration.threads for one in (small.choice, *small.ties)} == {1}
    equal = [dataclasses.replace(r, threads=2) for r in records(threads=(1,)) if r.contestant == "numba"]
    tied = ask(write(tmp_path, [*records(threads=(1,)), *equal]), **big)
    assert tied.choice.configuration.threads == 1
    assert any(tie.configuration.threads == 2 for tie in tied.ties)


def test_the_noise_floor_of_the_run_enters(tmp_path):
    again = [taking(1.2 * r.seconds, r, primitive="sum_tree_again") for r in records() if r.fanout == 16]
    given = ask(write(tmp_path, [*records(), *again]))
    assert given.noise_floor == pytest.approx(math.log(1.2))
    assert given.choice.time.high / given.choice.seconds > 1.1


REFUSED = (
    ({"dtype": "float64"}, r"no draws and updates of float64 .*: python -m bench"),
    ({"distribution": "foo"}, "'foo' .* only with uniform; .* --help"),
    ({"dtype": "float16"}, "'float32', 'float64', not 'float16'"),
    ({"machine": "there"}, "only of here"),
    ({"capacity": 0}, "at least 1, not 0"),
    ({"batch": -1}, "at least 1, not -1"),
    ({"threads": 0}, "at least 1, not 0"),
    ({"updates_per_sample": -1.0}, "0 to 1,000,000, not -1"),
)


def test_what_cannot_be_answered_is_refused_with_a_remedy(folder, tmp_path):
    for question, facts in REFUSED:
        with pytest.raises((RecordError, ValueError), match=facts):
            ask(folder, **question)
    with pytest.raises(RecordError, match="no records here"):
        ask(tmp_path)
    times = dict.fromkeys(("low_seconds", "high_seconds")) | {"samples_seconds": (), "median_seconds": 1e-9}
    modeled = [measurement(source="modeled", op=op, machine=MACHINE, **times) for op in OPS]
    with pytest.raises(RecordError, match="no measured time"):
        ask(write(tmp_path, modeled))


# Beyond what was measured


def test_a_variant_of_one_batch_borrows_the_defaults_call():
    """Measured at one B alone, a tenth faster there than the default: nothing tells its cost of a call."""
    rivals = [taking(0.9 * r.seconds, r, options={"propagate": "delta"}) for r in DEFAULT if r.batch == 512]
    table = Table([*DEFAULT, *rivals])
    for batch in (1, 3, 31, 100_000):
        question = Question(1_000_000, batch)
        rival = table.step(Configuration("numba", 16, 1, (("propagate", "delta"),)), question)
        default = table.step(SIXTEEN, question)
        assert rival.seconds / default.seconds == pytest.approx(0.9, rel=0.05)
        assert rival.time.source == "extrapolated"
        assert rival.own_sigma > 1.5 * default.own_sigma
        assert default.seconds == pytest.approx(true_step(SIXTEEN, 1_000_000, batch), rel=0.5)
        # It was measured at a B, the default around this one or nearer to it: the far guess is not to win.
        assert answer(table, question).choice.configuration.options == ()


def test_too_few_cells_answer_for_themselves_alone(tmp_path):
    one_batch = [r for r in DEFAULT if r.batch == 512]
    smoke = [r for r in one_batch if r.fanout in (4, 16) and r.capacity != 30_000]
    few = ({"capacity": 10_000}, {"capacity": 10_000_000}, {"capacity": 1_000, "batch": 100})
    cases = ((smoke, {"capacity": 1_000}, few, "at least 6"), (one_batch, {}, ({"batch": 1},), "two values of N"))
    for number, (found, known, unknown, facts) in enumerate(cases):
        folder = write(tmp_path / str(number), found)
        assert ask(folder, **known).choice.time.source == "measured"
        for question in unknown:
            with pytest.raises(RecordError, match=facts):
                ask(folder, **question)


def test_intervals_widen_with_the_distance_from_the_cells(folder):
    answers = [ask(folder, capacity=n, threads=1).choice for n in (10**6, 3 * 10**6, 10**7, 10**8, 10**9, 10**12)]
    widths = [choice.time.high / choice.time.low for choice in answers]
    assert widths == sorted(widths)
    assert widths[0] == pytest.approx(math.exp(2 * math.hypot(stats.Z * answers[0].sigma, USUAL.common, USUAL.own)))
    assert widths[3] > 4
    assert widths[5] > 1_000
    assert answers[0].distance == 0
    assert answers[3].distance == pytest.approx(math.log(100))


def memory_floor():
    """Random reads at 2 and 80 ns out of the caches, at 30 and 150 ns out of memory."""
    for megabytes, (kind, nanoseconds) in itertools.product((1, 8, 64), (("gather", (2, 30)), ("chase", (80, 150)))):
        read = {"primitive": "memory", "contestant": kind, "op": "read", "batch": 1_000, "machine": MACHINE}
        time = nanoseconds[megabytes > 32] * 1e-6
        times = dict.fromkeys(("median_seconds", "low_seconds", "high_seconds"), time)
        yield measurement(capacity=megabytes << 14, samples_seconds=(time,) * 11, **read, **times)


def test_memory_costs_what_the_floor_says_beyond_the_cells(tmp_path):
    table, bare = Table([*records(), *memory_floor()]), Table(records())
    assert table.floor == pytest.approx({"line": 28e-9, "wait": 70e-9})
    assert bare.floor == {}
    told, untold = (one.call(Configuration("numba", 16, 1), "draw", Question(10**8, 512)) for one in (table, bare))
    assert told.seconds > untold.seconds + 512 * 28e-9
    assert table.step(Configuration("flat", 16, 1), Question(2_000, 40))  # which has no lines
    inside = Question(10**5, 512)
    told, untold = (one.call(Configuration("numba", 16, 1), "draw", inside) for one in (table, bare))
    assert told.seconds == pytest.approx(untold.seconds)


def test_what_does_not_fit_the_memory_is_refused(tmp_path):
    """Records tell the memory, or else the probe of the machine."""
    write(tmp_path, [alter(r, machine=MACHINE | {"memory_bytes": 24e9}) for r in records()])
    assert ask(tmp_path, capacity=10**9).choice.time.source == "extrapolated"
    with pytest.raises(RecordError, match=r"10,000,000,000 .* 40.0 GB, and .* 24.0 GB"):
        ask(tmp_path, capacity=10**10)
    with pytest.raises(RecordError, match=r"1,000,000,000 .* 28.0 GB, and .* 24.0 GB"):
        ask(tmp_path, batch=10**9)
    write(tmp_path / "probed", records())
    (tmp_path / "probed" / "here" / "platform.toml").write_text((SHIPPED / "platform.toml").read_text())
    with pytest.raises(RecordError, match=r"25\.\d GB of memory"):
        ask(tmp_path / "probed", capacity=10**12)


def test_what_fits_is_all_that_is_chosen_from(tmp_path):
    found = [alter(r, machine=MACHINE | {"memory_bytes": 4.2e9}) for r in records()]
    assert ask(write(tmp_path, found), capacity=10**9).choice.configuration.contestant == "flat"


def words(folder, batch=512):
    return f"recommend --capacity 1000000 --batch {batch} --machine here --results {folder}".split()


def told(capsys, *asked):
    """Return what the command prints as JSON."""
    assert cli.main([*asked, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_unchecked_tree_is_chosen_only_where_asked_for(tmp_path, capsys):
    checked = [r for r in DEFAULT if r.fanout == 16]
    write(tmp_path, [*checked, *(taking(r.seconds / 5, r, options={"validate": False}) for r in checked)])
    for more, options in (([], {}), (["--unchecked"], {"validate": False})):
        asked = [*words(tmp_path), "--threads", "1", *more]
        answer = told(capsys, *asked)
        assert (answer["choice"]["options"], "validate=False" in answer["paste"][0]) == (options, bool(more))
        warned = [note["level"] for note in answer["notes"] if note["kind"] == "input_is_unchecked"]
        assert warned == ["warning"] * len(more)
        assert cli.main([*asked, "--emit", "toml"]) == 0
        emitted = capsys.readouterr().out
        assert 'implementation = "numba"' in emitted and ("validate" in emitted) is bool(more)
    assert ask(tmp_path).choice.configuration == SIXTEEN
    assert cli.main([*words(tmp_path)[:5], "--platform", "u200", "--unchecked"]) == 2


def test_records_that_test_answers_are_never_rested_on(tmp_path):
    folder = write(tmp_path, records())
    for primitive in ("question", "answer"):
        later = {"utc": "2026-03-01T00:00:00+00:00", "primitive": primitive}
        write(folder, [taking(1e-9, r, **later) for r in records()], f"{primitive}s-1.jsonl")
    assert ask(folder).choice.seconds > 1e-8


# What single faults in the tables would change


DEFAULT = [r for r in records(threads=(1,)) if r.contestant == "numba"]
SIXTEEN = Configuration("numba", 16, 1)


def test_a_variants_doubt_is_never_less_than_the_defaults():
    rng = random.Random(1)
    noisy = [taking(r.seconds * math.exp(rng.gauss(0, 0.3)), r) for r in DEFAULT]
    rival = [taking(0.9 * r.seconds, r, options={"layout": "plain"}) for r in noisy]
    plain = Configuration("numba", 16, 1, (("layout", "plain"),))
    question = Question(200_000, 2_000)
    found, base = (Table([*noisy, *rival]).step(one, question) for one in (plain, SIXTEEN))
    assert found.sigma >= base.sigma > 0.05


def test_each_fanout_lies_as_far_away_as_its_own_cells():
    found = [r for r in DEFAULT if r.fanout != 64 or r.capacity < 1_000_000]
    step = Table(found).step(Configuration("numba", 64, 1), Question(1_000_000, 500))
    assert step.distance == pytest.approx(math.log(1_000_000 / 30_000))
    assert step.time.source == "extrapolated"


def test_the_cells_named_as_evidence_are_the_nearest():
    cells = Table(DEFAULT).rests_on(SIXTEEN, Question(20_000, 600))
    assert len(cells) == 8
    assert (30_000, 512) in {(cell["capacity"], cell["batch"]) for cell in cells}


def test_a_step_is_as_far_away_as_the_farther_of_its_operations():
    table = Table([r for r in DEFAULT if r.op == "draw" or r.capacity != 1_000_000])
    assert table.step(SIXTEEN, Question(1_000_000, 512, 0.0)).time.source == "measured"
    assert table.step(SIXTEEN, Question(1_000_000, 512, 1.0)).time.source == "extrapolated"


def test_a_probe_is_read_only_where_memory_may_lack(tmp_path):
    write(tmp_path, records())
    (tmp_path / "here" / "platform.toml").write_text("of another version")
    assert ask(tmp_path).choice.time.source == "measured"
    with pytest.raises(platforms.PlatformError, match=r"platform\.toml"):
        ask(tmp_path, capacity=10**9)


def test_a_tie_goes_to_fewer_threads_only_within_two_percent(tmp_path):
    two = [taking(0.96 * r.seconds, r, threads=2) for r in DEFAULT]
    wide = [dataclasses.replace(r, low_seconds=0.9 * r.seconds, high_seconds=1.1 * r.seconds) for r in [*DEFAULT, *two]]
    assert ask(write(tmp_path, wide), batch=8_192).choice.configuration.threads == 2


# Trees on a device


def on_device(op, batch, time, **fields):
    shape = {"contestant": "cupy", "op": op, "capacity": 1_000_000, "fanout": 16, "batch": batch}
    times = {"samples_seconds": (time,) * 11, "median_seconds": time, "low_seconds": time, "high_seconds": time}
    return measurement(**shape, **times, facts={"device": "cuda:0"}, machine=MACHINE, **fields)


def test_a_tree_on_a_device_is_told_with_what_moving_takes(tmp_path):
    cells = [on_device(op, batch, 1e-6) for op in ("draw", "update") for batch in BATCHES]
    moves = [on_device(op, batch, batch * 1e-9) for op in ("upload", "download") for batch in BATCHES]
    write(tmp_path, [*records(), *cells, *moves])
    given = ask(tmp_path)
    assert given.choice.configuration == Configuration("cupy", 16, 1)
    (note,) = given.notes
    moving = {"seconds": pytest.approx(512e-9), "batch": 512, "source": "measured"}
    assert note.values == {"name": "cupy", "device": "cuda:0", "moved": {"there": moving, "back": moving}}


def test_the_memory_floor_of_the_host_tells_nothing_of_a_device():
    cells = [on_device(op, batch, 1e-6 * batch) for op in ("draw", "update") for batch in BATCHES]
    cells += [dataclasses.replace(one, capacity=1_000) for one in cells]
    tables = [Table([*records(), *cells, *floor]) for floor in ((), memory_floor())]
    times = [one.call(Configuration("cupy", 16, 1), "draw", Question(10**8, 512)).seconds for one in tables]
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("contestant", "shape", "plain"),  # N, B, K, threads, options
    [
        ("numba", (1000, 8191, 16, 2, {}), (16, 1, {})),
        ("numba", (1000, 8192, 16, 2, {}), (16, 2, {})),
        ("numba", (1000, 8192, 16, 64, {}), (16, 16, {})),  # a thread each chunk
        ("numba", (1000, 1 << 23, 16, 2, {}), (16, 1, {})),
        ("numba", (1000, 32, 4096, 1, {}), (1024, 1, {})),
        ("numba", (1000, 32, 16, 1, {"layout": "prefix", "propagate": "delta"}), (16, 1, {"propagate": "delta"})),
        ("numba", (1000, 32, 16, 2, {"propagate": "atomic"}), (16, 1, {"propagate": "delta"})),
        ("numba", (1000, 32, 16, 1, {"layout": "plain", "aligned": True}), (16, 1, {"layout": "plain"})),
        ("numba", (16, 32, 16, 1, {"layout": "plain", "aligned": False}), (16, 1, {"aligned": False})),
        ("flat", (1000, 32, 64, 1, {}), (16, 1, {})),
        ("numpy", (1000, 32, 3, 2, {"aligned": True}), (3, 2, {"aligned": True})),  # which it refuses, as it should
    ],
)
def test_configurations_that_run_the_same_code_are_one(contestant, shape, plain):
    assert impls.traits(contestant).runs_as(*shape) == plain
    capacity, batch, fanout, threads, options = shape
    case = Case(contestant, "draw", capacity, batch, fanout, threads, options=options)
    other = dataclasses.replace(case, fanout=plain[0], threads=plain[1], options=plain[2])
    assert groups([case, other]) == [[other]]


def test_no_more_threads_than_the_process_may_use(tmp_path, monkeypatch):
    write(tmp_path, records())
    monkeypatch.setattr("dse.race_trees.count_allowed", lambda: 1)
    for key, expected in (("here", 1), ("elsewhere", 2)):
        monkeypatch.setattr("dse.race_trees.platforms.fingerprint", lambda key=key: {"key": key})
        answered = find_tree(1_000_000, 8_192, results=tmp_path, machine="here")
        assert (answered.question.threads, answered.choice.configuration.threads) == (expected, expected)
        assert find_tree(1_000_000, 8_192, threads=2, results=tmp_path, machine="here").question.threads == 2


def test_a_contestant_without_any_time_says_why(tmp_path):
    nothing = {"median_seconds": None, "low_seconds": None, "high_seconds": None, "samples_seconds": ()}
    skipped = measurement(contestant="cupy", status="skipped", reason="no device.", machine=MACHINE, **nothing)
    failed = measurement(contestant="flat", status="skipped", reason="too long", machine=MACHINE, **nothing)
    write(tmp_path, [*records(), skipped, failed])
    (note,) = ask(tmp_path).notes
    assert (note.kind, note.values) == ("tree_is_untimed", {"name": "cupy", "reason": "no device."})
