"""Claims of documents: each rule's verdicts, the rows that state them, and the values that they are judged by."""

import dataclasses
import math

import numpy as np
import pytest

from dse.records import RecordError
from reports.claims import VERDICTS, judge_claims, quoted
from reports.claims.entropy import gain_entropy
from reports.claims.judge import Finding, Part, PooledError, judge
from reports.claims.models import lose_time
from reports.claims.printed import calculate
from reports.claims.rows import Row, find_fault, read_rows
from tests.made import alter, make_timed
from tests.unit.judging import QUOTED, ROWS, judge_one

UNTESTED, BEST = "not testable here", "zhang2021.k16_is_best"
INSERTION, SAMPLING, SUBLINEAR = (
    f"zhang2021.{name}" for name in ("insertion_falls_with_k", "sampling_has_a_minimum", "sublinear_in_capacity")
)


def make_row(rule="within", **fields):
    return Row(
        **{"id": "a.b", "paper": "", "place": "", "text": "", "rule": rule, "compute": "printed.count_bytes", **fields}
    )


def read_part(text):
    """A part of its value and both ends of its interval, with what else it has: "1.5 1 2 share=0.4"."""
    numbers = [float(word) for word in text.split() if "=" not in word]
    more = dict(word.split("=") for word in text.split() if "=" in word)
    part = Part("", *numbers, is_guard="guard" in more)
    return dataclasses.replace(part, **{name: float(more[name]) for name in more if name != "guard"})


def decide(row, parts, used=()):
    found = Finding([read_part(text) for text in parts.split(";")], {}, used)
    return judge(row, found, quoted.Quoted({}, {})).verdict


# Rules

ABOUT_TWO = {"bound": 2.0, "tolerance": 0.1}


RULES = [  # a rule, its fields, values with their intervals, and the verdict
    ("within", ABOUT_TWO, "2.0 1.8 2.2", "adds up"),
    ("within", ABOUT_TWO, "2.0 1.7 2.2", UNTESTED),
    ("within", ABOUT_TWO, "2.0 1.8 2.3", UNTESTED),
    ("within", ABOUT_TWO, "3.0 2.3 4.0", "refuted"),
    ("within", ABOUT_TWO, "1.0 0.5 1.7", "refuted"),
    ("within", {"bound": 2.0, "digits": 0.5}, "2.4 2.4 2.4", "adds up"),
    ("within", {"bound": {"least": 2, "most": 5}}, "3.0 2.0 5.0", "adds up"),
    ("within", {"bound": {"least": 2, "most": 5}}, "1.0 0.9 1.1", "refuted"),
    ("within", {"digits": 0.1}, "7.0 7.0 7.0 printed=7.05; 1.0 1.0 1.0 printed=1.0", "adds up"),
    ("within", {"digits": 0.1}, "7.0 7.0 7.0 printed=7.05; 1.0 1.0 1.0 printed=1.2", "refuted"),
    ("at_least", {}, "1.5 1.0 2.0", "adds up"),
    ("at_least", {}, "1.5 0.9 2.0", UNTESTED),
    ("at_least", {}, "0.5 0.4 0.9", "refuted"),
    ("at_most", {}, "0.5 0.4 1.0", "adds up"),
    ("at_most", {}, "0.5 0.4 1.1", UNTESTED),
    ("at_most", {}, "1.5 1.1 2.0", "refuted"),
    ("above", {}, "1.5 1.0 2.0", UNTESTED),
    ("above", {}, "1.5 1.1 inf", "adds up"),
    ("above", {}, "0.5 0.1 1.0", UNTESTED),
    ("above", {}, "0.5 0.1 0.9", "refuted"),
    ("below", {}, "0.5 0.1 1.0", UNTESTED),
    ("below", {}, "0.5 0.1 0.9", "adds up"),
    ("below", {}, "2.0 1.1 inf", "refuted"),
    ("above", {}, "1.5 1.1 2.0; 1.0 0.9 1.1", UNTESTED),
    ("above", {}, "1.5 1.1 2.0; 0.5 0.4 0.6", "refuted"),
    ("above", {"joined": "any"}, "1.5 1.1 2.0; 0.5 0.4 0.6", "adds up"),
    ("above", {"joined": "any"}, "0.5 0.4 0.6; 1.0 0.9 1.1", UNTESTED),
    ("above", {"joined": "any"}, "0.5 0.4 0.6", "refuted"),
    ("above", {"joined": "readings"}, "1.5 1.1 2.0; 0.5 0.4 0.6", UNTESTED),
    ("above", {"joined": "readings"}, "0.5 0.4 0.6; 0.5 0.4 0.6", "refuted"),
    ("above", {}, "1.5 1.1 2.0; 1 0.9 1.1 guard=1", "adds up"),
    ("above", {}, "1.5 1.1 2.0; 0.5 0.4 0.6 guard=1", "refuted"),
    ("above", {"refutes_only": True}, "1.5 1.1 2.0", UNTESTED),
    ("above", {"refutes_only": True}, "0.5 0.4 0.6", "refuted"),
    ("above", {"chosen": True}, "1.5 1.1 2.0", "consistent"),
    ("linear", {}, "1.0 0.9 1.1", "adds up"),
    ("above", {}, "1.5 1.1 2.0 guard=1", UNTESTED),
    ("linear", {}, "0.95 0.85 1.1", "adds up"),
    ("linear", {}, "1.0 0.7 1.1", UNTESTED),
    ("linear", {}, "0.98 0.96 0.98", "adds up"),
    ("linear", {}, "0.7 0.6 0.98", UNTESTED),
    ("linear", {}, "0.7 0.6 0.78", "refuted"),
    ("linear", {}, "1.0 0.9 1.1 share=0.4", "refuted"),
    ("linear", {}, "1.0 0.9 1.1 share=0.5", "adds up"),
    ("sublinear", {}, "0.7 0.6 0.78", "adds up"),
    ("sublinear", {}, "0.9 0.7 0.98", UNTESTED),
    ("sublinear", {}, "1.0 0.7 1.1", UNTESTED),
    ("sublinear", {}, "1.0 0.9 1.1", "refuted"),
]


def test_a_verdict_follows_from_intervals_and_bounds():
    for rule, fields, parts, verdict in RULES:
        assert decide(make_row(rule, **fields), parts) == verdict, (rule, fields, parts)


def test_what_records_hold_is_confirmed_and_arithmetic_adds_up():
    record = make_timed(1.0, primitive="p", contestant="", op="", capacity=1, batch=1)
    assert decide(make_row("above"), "1.5 1.1 2", used=[record]) == "confirmed"
    for count, more in ((7, ""), (9, "2 more in between")):  # the part that decides, and six others
        parts = Finding([Part.exact(f"part {at}", 2.0 + at) for at in range(count)])
        told = judge(make_row("above"), parts, quoted.Quoted({}, {})).evidence
        assert (told.count("part "), told.startswith("computed: part 0 2;")) == (7, True)
        assert ("in between" in told, more in told) == (bool(more), True)
    row = make_row("above", measure="sweep")
    absent = judge(row, None, quoted.Quoted({}, {}))
    assert (absent.verdict, absent.value, "python -m benchmarks sweep" in absent.evidence) == (UNTESTED, None, True)


INVALID = [
    *({"rule": rule} for rule in ("around", "not_run")),
    {"joined": "some", "tolerance": 0.1},
    {"rule": "above", "compute": ""},
    {},
    {"tolerance": 0.9},
    {"bound": {"least": 1, "most": 1000}},
    {"rule": "at_least", "bound": 0.0},
    {"rule": "at_most", "bound": 1.0, "unit": "share"},
    {"text": 3, "tolerance": 0.1},
]


def test_a_rule_that_cannot_fail_and_a_row_that_lacks_a_part_err():
    assert [fields for fields in INVALID if not find_fault(make_row(**fields))] == []
    assert not find_fault(make_row(tolerance=0.1))


def test_every_rule_can_fail_and_can_hold(found):
    for row in (row for row in ROWS.values() if row.rule != "not_run"):
        least, most = row.find_bounds(found)
        values = [0.0, *np.geomspace(1e-9, 1e12, 400), *(end for end in (least, most, 1.0) if math.isfinite(end))]
        given = {judge(row, Finding([Part.exact("", float(value))]), found).verdict for value in values}
        holds = UNTESTED if row.refutes_only else "consistent" if row.chosen else "adds up"
        assert given >= {"refuted", holds}, row.id


CLAIMS = ["[[claim]]", 'paper = "a"\n[[claim]]\nid = "b"\nwords = 1', "x ="]
UNREADABLE = ["x = ", 'source = "a"\n[t]\nx = 1', 'place = "a"\n[t]\nx = 1']
UNREADABLE += [f'source = "a"\nplace = "b"\nx = {value}' for value in ('"1"', "true")]


def test_every_quoted_number_has_a_place_and_is_found(found, tmp_path):
    assert all(": " in found.where(name) and math.isfinite(number) for name, number in found.numbers.items())
    assert found["seed3.table_vi.rmm.lut"] == 181_000
    assert found.where("seed3.build.clock_mhz").startswith("build notes")
    assert found.table("alveo_u200.shell_202110.slr1")["uram"] == 160
    with pytest.raises(RecordError, match=r"did you mean seed3\.table_vi\.rmm\.dsp\?"):
        found["seed3.table_vi.rmm.dps"]
    with pytest.raises(RecordError, match="nothing is quoted here"):
        quoted.read(tmp_path)
    (tmp_path / "claims").mkdir()
    for name, texts, read in (("claims/mine.toml", CLAIMS, read_rows), ("other.toml", UNREADABLE, quoted.read)):
        for text in texts:
            (tmp_path / name).write_text(text)
            with pytest.raises(RecordError, match=(tmp_path / name).stem):
                read(tmp_path)


# Values by arithmetic and by models


WORKED_OUT = {
    "hou2023.time_saved": 72.7,
    "hou2023.whole_queues": 1.025,
    "zhang2023.sampling_cycles": 122 / 64,
    "zhang2023.update_cycles": 53 / 32,
    "zhang2023.even_banks": 1.79,
    "zhang2023.rmm_memory": 4.5,
    "zhang2023.on_chip_memory": 43.2,
    "zhang2023.cartpole_macs": 6 * 8 + 8 * 8 + 8,
    "zhang2023.pong_macs": 2.967e6,
    "zhang2023.dqn_memory": 19.2,
    "zhang2023.hopper_throughput": 9.126,
    "zhang2023.sampling_over_gpu": 90,
    "zhang2023.pong_curve": 1.4125,
    "zhang2022.eq_5_3": 0.78125,
    "zhang2022.storage_rule": 6,
    "zhang2023.storage_rule": 10,
}


OTHERS = [f"hou2023__table_2__{name}__sampled" for name in ("rllib_apex_4096", "rlpyt_128", "rlpyt_512")]


PRINTED = [
    ("hou2023.average_seconds", {"hou2023__table_1__spreeze__average": 406.6}, "refuted"),
    ("hou2023.order_of_magnitude", dict.fromkeys(OTHERS, 4_000), "adds up"),
    ("hou2023.order_of_magnitude", dict.fromkeys(OTHERS[:-1], 4_000), "refuted"),
    ("hou2023.loss_is_time", {"hou2023__table_3__rows__QS5000__loss": 30}, "refuted"),
    ("zhang2022.two_learners", {"zhang2022__data_parallel__factor__2": 0.5}, "refuted"),
    ("zhang2023.percentages", {"seed3__table_vi__ddpg_percent__lut": 61}, "adds up"),
    ("zhang2023.sampling_over_gpu", {"seed3__fig_12__sampling_speed_up": 13.9}, "adds up"),
    ("zhang2023.hopper_macs", {"seed3_learner__table_iii__hopper__macs": 69_600}, "adds up"),
    ("zhang2023.dqn_memory", {"seed3__table_vi__dqn__sram_mb": 23.0}, UNTESTED),
    ("zhang2023.pong_curve", {"seed3_learner__table_vii__pong__gps_per_watt": 0.18}, UNTESTED),
    ("zhang2023.over_baselines", {"seed3_mapping__table_v__cartpole_ddpg__256__G-G-G": 100.0}, "refuted"),
]


def test_values_worked_out_hold_and_others_turn_the_verdict(found):
    for name, value in WORKED_OUT.items():
        assert judge_one(name, [], found).value == pytest.approx(value, rel=2e-3), name
    for name, numbers, verdict in PRINTED:
        assert judge_one(name, [], found, **numbers).verdict == verdict, (name, numbers)


def test_expressions_are_arithmetic_on_quoted_numbers(found):
    assert calculate("max(1, seed3.rmm.banks) * (2 - 1) / mean(1, 3)", found) == 16
    for wrong in ("__import__('os')", "2 ** 3", "seed3.rmm.bank", "[1]"):
        with pytest.raises(RecordError):
            calculate(wrong, found)


def test_readings_of_the_mapping_algorithm_lose_as_a_loop_finds():
    times = 10 ** np.random.default_rng(1).uniform(0, 2, (2, 200, 3))
    ratios = lose_time(*times)
    for place, (first, second) in enumerate(zip(*times, strict=True)):
        step = {
            (a, b): first[a] + second[b] if a == b == 1 else max(first[a], second[b])
            for a in range(3)
            for b in range(3)
        }
        chosen, best = int(first.argmin()), min(step.values())
        late = step[chosen, int(second.argmin())] / best
        freed = [b for b in range(3) if not (chosen == b == 1 and second[2] <= first[1])]
        heeded = step[chosen, min(freed, key=lambda b: second[b])] / best
        after = min(step[chosen, b] for b in range(3)) / best
        expected = {"as printed": late, "heeded, FPGA tested": heeded, "learner first, then the best RMM": after}
        assert {name: ratios[name][place] for name in expected} == pytest.approx(expected)


def test_gains_of_entropy_are_those_of_fitting_datasets_again():
    rng = np.random.default_rng(5)
    counts, widths = np.array([40.0, 90.0, 300.0]), rng.uniform(0.5, 2.0, (3, 2))
    data = [rng.normal(1.0, width, (int(count), 2)) for count, width in zip(counts, widths, strict=True)]
    far, states = rng.normal(0.0, 2.0, (6, 2)), np.array([0, 1, 2, 0, 1, 2])
    fitted = np.array([records.std(0) for records in data])

    def entropy(records, shares):
        of_actions = [np.log(part.std(0) * np.sqrt(2 * np.pi * np.e)).sum() for part in records]
        return sum(share * (each - np.log(share)) for share, each in zip(shares, of_actions, strict=True))

    for is_counted in (False, True):
        gains = gain_entropy(counts, fitted, states, far, is_counted)
        for gain, state, step in zip(gains, states, far, strict=True):
            added = [np.vstack((part, part.mean(0) + step * part.std(0))) if at == state else part
                     for at, part in enumerate(data)]  # fmt: skip
            shares = np.array([len(part) for part in added]) / 431 if is_counted else counts / 430
            assert gain == pytest.approx(430 * (entropy(added, shares) - entropy(data, counts / 430)), abs=1e-9)
    far_out = gain_entropy(np.array([1e6]), np.ones((1, 1)), np.zeros(3, int), np.array([[0.0], [1.0], [3.0]]), False)
    assert far_out == pytest.approx([-0.5, 0.0, 4.0], abs=1e-4)  # Lemma 3.2.2 has 0, 1/2 and 9/2


# Records


def time_cell(seconds, primitive="sum_tree", op="draw", **fields):
    cell = {"contestant": "numba", "capacity": 1000, "batch": 256, "low_seconds": None, "high_seconds": None}
    return make_timed(seconds, primitive=primitive, op=op, **{**cell, **fields})


def make_twins(primitive="sum_tree", factor=1.02, count=20, **fields):
    """A/A pairs of a run whose noise floor is ln(factor)."""
    return [
        time_cell(seconds, name, "get", capacity=n, **fields)
        for n in range(1, count + 1)
        for name, seconds in ((primitive, 1e-6), (f"{primitive}_again", factor * 1e-6))
    ]


def make_peers(library, times, factor=1.01):
    """A run of our tree and a library's, whose samples take ``times`` microseconds by N."""
    found = [
        time_cell(share * seconds * 1e-6, "peer", op, contestant=name, capacity=n, batch=128, dtype=dtype)
        for n, theirs in times.items()
        for name, seconds, dtype in (("numba", 1.0, "float32"), (library, theirs, "float64"))
        for op, share in (("draw", 0.75), ("update", 0.25))
    ]
    return [*found, *make_twins("peer", factor)]


CAPACITIES = (1 << 10, 1 << 14, 1 << 17, 1 << 20)


def test_times_of_two_runs_are_not_divided_nor_methods_pooled(found):
    records = make_peers("tianshou", dict.fromkeys(CAPACITIES, 4.0))
    torn = [alter(one, command="later") if one.contestant == "tianshou" else one for one in records]
    assert judge_one("zhang2021.four_times_tianshou", torn, found).value is None
    twice = [dataclasses.replace(one, fanout=64, utc="2026-02-02") for one in records if one.contestant == "numba"]
    assert judge_one("zhang2021.four_times_tianshou", [*records, *twice], found).verdict == "confirmed"  # it names K
    twice = [dataclasses.replace(one, fanout=64) for one in records if one.contestant == "tianshou"]
    with pytest.raises(PooledError, match="fanout"):
        judge_one("zhang2021.four_times_tianshou", [*records, *twice], found)
    judged = {one.id: one for one in judge_claims([*records, *twice], QUOTED.parent)}["zhang2021.four_times_tianshou"]
    assert (judged.verdict, judged.value, "fanout" in judged.evidence) == (UNTESTED, None, True)


def test_without_twins_or_samples_there_is_no_verdict(found):
    records = [one for one in make_peers("tianshou", dict.fromkeys(CAPACITIES, 4.0)) if one.primitive == "peer"]
    assert judge_one("zhang2021.four_times_tianshou", records, found).verdict == UNTESTED
    wide = [alter(one, low_seconds=one.seconds / 1.01, high_seconds=one.seconds * 1.01) for one in records]
    assert judge_one("zhang2021.four_times_tianshou", wide, found).verdict == "confirmed"


def make_locks(lazy, threads=4):
    times = {"global": 60.0, "two_lock_lazy": lazy, "none": 10.0}
    shape = {"capacity": 1_000_000, "threads": threads, "machine": {"cores": 4}}
    return [
        time_cell(1e-6 * us, "replay_threads", "run", options={"work_seconds": 0.0, "strategy": name}, **shape)
        for name, us in times.items()
    ]


def test_locks_are_judged_where_each_thread_has_a_core(found):
    others = [*make_locks(59, threads=8), *make_locks(59, threads=2)]  # without a core each, or too few
    twins = make_twins("replay_threads")
    for lazy, verdict in ((20, "confirmed"), (58, "refuted"), (10, "refuted"), (30, UNTESTED)):
        records = [*make_locks(lazy), *others, *twins]
        assert judge_one("zhang2021.locks_over_global", records, found).verdict == verdict, lazy
    assert judge_one("zhang2021.locks_over_global", [*others, *twins], found).value is None


def test_the_machine_with_the_newest_complete_cells_judges():
    def make_plugins(gain, utc, key, tasks):
        shape = {"primitive": "plugin", "contestant": "rllib", "op": "step", "capacity": 1, "batch": 64}
        return [
            make_timed(seconds, **shape, utc=utc, options={"task": task, "kind": kind}, machine={"key": key})
            for task in tasks
            for kind, seconds in (("theirs", gain), ("ours", 1.0))
        ]

    both = ("cartpole_dqn", "pendulum_sac")
    old, new = make_plugins(1.5, "2026-01-01", "old", both), make_plugins(1.1, "2026-02-01", "new", both)
    partial = make_plugins(1.5, "2026-03-01", "partial", both[:1])
    judged = {one.id: one for one in judge_claims([*old, *new, *partial], QUOTED.parent)}
    plugged = judged["zhang2021.plugged_into_rllib"]
    assert (plugged.verdict, plugged.value, "new" in plugged.evidence) == ("refuted", pytest.approx(1.1), True)
    assert (plugged.printed, plugged.unit, plugged.paper) == ("1.19 to 1.75", "x", "[Zhang2021]")
    assert list(judged) == list(ROWS)
    assert {one.verdict for one in judged.values()} <= set(VERDICTS)
    assert all(one.evidence and one.rule for one in judged.values())


# Times over K and growth

FANOUTS, OWN = (2, 4, 8, 16, 32, 64, 128), {"layout": "plain", "propagate": "delta"}
FALLING = (11.5, 4.3, 3.7, 3.3, 3.2, 3.15, 3.0)
RISING = (11.5, 4.3, 3.7, 3.3, 3.6, 4.0, 4.4)
VALLEY = (9.6, 7.3, 7.1, 7.2, 9.5, 17.4, 33.8)
FLAT = (1.0,) * 7
AHEAD = (5, 4, 3.5, 3, 3.5, 4, 5)


def over_fanouts(times, capacities=(10_000, 100_000), options=OWN, **fields):
    return [
        time_cell(seconds * 1e-6, op=op, fanout=k, capacity=n, options=options, **fields)
        for op in ("draw", "update")
        for n in capacities
        for k, seconds in zip(FANOUTS, times, strict=False)
    ]


CURVES = [  # a claim about K, times over K, the noise of the run, and the verdict
    (INSERTION, FALLING, 1.02, "confirmed"),
    (INSERTION, RISING, 1.02, "refuted"),
    (INSERTION, RISING, 2.0, "confirmed"),  # 30 % are no clear rise there
    (INSERTION, FLAT, 1.02, UNTESTED),
    (INSERTION, FALLING[:6], 1.02, UNTESTED),  # six K are no curve
    (SAMPLING, VALLEY, 1.02, "confirmed"),
    (SAMPLING, (9.6, 8, 7, 6, 5, 4, 3), 1.02, "refuted"),
    (SAMPLING, (9, 6, 4, 4, 4, 4, 4), 1.02, UNTESTED),  # a valley is below both ends
    (BEST, AHEAD, 1.02, "confirmed"),
    (BEST, VALLEY, 1.005, "refuted"),
    (BEST, FLAT, 1.02, UNTESTED),
]
RATIOS = [  # times of a library over N, of ours, the noise of the run, and the verdict
    ((4, 4, 4, 4), 1.01, "confirmed"),
    ((5.2, 5.2, 5.2, 5.2), 1.01, "refuted"),
    ((3.0, 3.0, 3.0, 3.0), 1.01, "refuted"),
    ((4, 4, 4, 4), 1.8, UNTESTED),
    ((1, 4, 4, 16), 1.01, UNTESTED),  # ratios that differ from N to N
]
QUEUES = [(1e-6, 2e-4, "confirmed"), (1e-6, 5e-5, "refuted"), (1.8e-4, 2e-4, "refuted"), (None, 2e-4, UNTESTED)]


def test_claims_about_times_can_go_each_way(found):
    for name, times, noise, verdict in CURVES:
        curve = [*over_fanouts(times), *make_twins(factor=noise)]
        assert judge_one(name, curve, found).verdict == verdict, (name, times)
    for times, noise, verdict in RATIOS:
        peers = make_peers("tianshou", dict(zip(CAPACITIES, times, strict=True)), noise)
        assert judge_one("zhang2021.four_times_tianshou", peers, found).verdict == verdict, times
    for shared, queue, verdict in QUEUES:
        systems = [*(make_system("shared", shared) if shared else []), *make_system("queue 500", queue)]
        assert judge_one("hou2023.shared_memory_is_free", systems, found).verdict == verdict, (shared, queue)


def test_a_curve_is_of_the_papers_own_tree_and_of_one_run(found):
    quiet = make_twins()
    for options in ({}, {"layout": "plain"}, {"propagate": "delta"}):
        assert judge_one(INSERTION, [*over_fanouts(RISING, options=options), *quiet], found).value is None
    halves = [alter(one, command="later") if one.fanout > 16 else one for one in over_fanouts(FALLING)]
    assert judge_one(INSERTION, [*halves, *quiet], found).value is None
    assert judge_one(INSERTION, over_fanouts(RISING), found).value is None  # no time was measured twice
    torn = [dataclasses.replace(one, status="unstable") if one.fanout == 64 else one for one in over_fanouts(RISING)]
    assert judge_one(INSERTION, [*torn, *quiet], found).value is None
    mixed = [*over_fanouts(FALLING, (10_000,)), *over_fanouts(FLAT, (100_000,))]
    assert judge_one(INSERTION, [*mixed, *quiet], found).verdict == UNTESTED  # every series must fall


def test_a_curve_is_judged_by_the_noise_of_its_own_run(found):
    curve, loud, quiet = over_fanouts(RISING, command="own"), make_twins(factor=2.0), make_twins(command="own")
    assert judge_one(INSERTION, [*curve, *loud], found).verdict == "confirmed"
    assert judge_one(INSERTION, [*curve, *loud, *quiet], found).verdict == "refuted"


@pytest.mark.parametrize("name", [INSERTION, SAMPLING, BEST])
def test_a_flat_curve_is_refuted_in_at_most_five_percent(name, found):
    rng, twins = np.random.default_rng(3), make_twins(factor=1.1, count=60)
    sigma, given = math.log(1.1) / 1.96 / math.sqrt(2), []
    for _ in range(60):
        flat = over_fanouts(np.exp(rng.normal(0, sigma, len(FANOUTS))), (10_000,))
        given.append(judge_one(name, [*flat, *twins], found).verdict)
    assert given.count("refuted") + given.count("confirmed") <= 9  # of 60, 5 % each


def over_sizes(law, op, axis="capacity", **fields):
    return [time_cell(law(n), op=op, **{**fields, axis: n}) for n in (1_000, 10_000, 100_000, 1_000_000)]


def linear(n):
    return 14e-6 + 3.8e-9 * n


def logarithmic(n):
    return 1e-6 * math.log2(n)


def test_growth_over_n_is_judged_by_sampling_and_by_updating(found):
    for draw, update, wide, verdict in (
        (logarithmic, logarithmic, 1.1, "confirmed"),
        (lambda n: 1e-6, lambda n: 1e-8 * n**0.5, 1.1, "confirmed"),
        (linear, logarithmic, 1.1, "refuted"),
        (logarithmic, linear, 1.1, "refuted"),
        (logarithmic, lambda n: 1e-6 + 1e-9 * n**0.9, 1.4, UNTESTED),
    ):
        records = [*over_sizes(draw, "draw"), *over_sizes(update, "update"), *make_twins(factor=wide)]
        assert judge_one(SUBLINEAR, records, found).verdict == verdict


@pytest.mark.parametrize(
    ("law", "verdict"), [(linear, "confirmed"), (logarithmic, "refuted"), (lambda n: 1.0, "refuted")]
)
def test_growth_with_the_batch_is_told_from_slower_growth(law, verdict, found):
    records = [
        one for op in ("sample", "update")
        for one in over_sizes(law, op, "batch", primitive="replay_batches", contestant="replay", capacity=1_000_000)
    ]  # fmt: skip
    assert judge_one("zhang2022.replay_is_linear", [*records, *make_twins("replay_batches")], found).verdict == verdict
    assert judge_one("zhang2022.replay_is_linear", records, found).value is None  # no time was measured twice
    torn = [alter(one, command="later") if one.batch > 10_000 else one for one in records]
    assert judge_one("zhang2022.replay_is_linear", [*torn, *make_twins("replay_batches")], found).value is None


# Systems


def make_system(name, transfer, step=1e-3):
    shape = {"primitive": "training transport", "contestant": name, "capacity": 1, "batch": 128}
    shape |= {"options": {"workload": "hopper_td3", "rows": 1}}
    return [make_timed(seconds, op=op, **shape) for op, seconds in (("transfer", transfer), ("gradient step", step))]


def test_filled_queues_are_judged_by_table_3(found):
    names = ("hou2023.loss_is_time", "hou2023.larger_queues")
    for losses, steps, verdicts in (
        ((0.5, 0.2, 0.1), (2.0, 1.25, 1.1), ["confirmed", "confirmed"]),
        ((0.2, 0.2, 0.2), (1.2, 1.1, 1.0), ["refuted", UNTESTED]),
        ((0.1, 0.2, 0.3), (1.11, 1.25, 1.43), ["confirmed", "refuted"]),
    ):
        systems = zip((500, 5_000, 50_000), losses, steps, strict=True)
        records = [one for size, loss, step in systems for one in make_system(f"fill {size}", loss * step, step)]
        assert [judge_one(name, records, found).verdict for name in names] == verdicts
