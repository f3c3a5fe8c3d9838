"""Models of a platform alone: every number of its file moves an answer, the law of a step by hand, and the table."""

import dataclasses
import json

import pytest

from dse import platforms
from dse.__main__ import main
from dse.mapping.build import build
from dse.platforms import Device, Memory, Platform, PlatformError, Quantity, leaves
from dse.platforms.platform import Cache
from dse.solver.problem import ProblemError
from dse.times import laws
from dse.times.door import Times
from dse.times.tree_times import Question
from dse.times.trees import choose
from impls.training import load
from tests.solver_cases import MODES

SIZES = 100, 10_000, 1_000_000, 50_000_000
TREES = [Question(capacity, batch, threads=4) for capacity in SIZES for batch in (1, 4096)]
WORKLOADS = [load(name) for name in ("cartpole_dqn", "hopper_sac", "pong_dqn")]
FACTORS = (100, 0.01, 0.4, 3)


def number(value):
    return Quantity(value=value, origin="datasheet", note="made up")


def everything():
    """A platform with every number a file can state."""
    memory = {
        field.name: number(value)
        for field, value in zip(
            dataclasses.fields(Memory), (1 << 34, 2e10, 1e-7, 1e-8, 1e10, 1.1e10, 6e-9, 1.9e10, 1.8e10), strict=True
        )
    }
    caches = tuple(
        Cache(
            name=name,
            shared_by=number(2 if name == "L1" else 8),
            **memory
            | {
                "size_bytes": number(size),
                "latency_seconds": number(latency),
                "gather_seconds": number(latency / 8),
                "gather_all_cores_seconds": number(latency / 30),
                "copy_bytes_per_s": number(1e2 / latency),
                "triad_bytes_per_s": number(0.9e2 / latency),
                "copy_all_cores_bytes_per_s": number(3e2 / latency),
                "triad_all_cores_bytes_per_s": number(2.7e2 / latency),
            },
        )
        for name, size, latency in (("L1", 1 << 15, 1e-9), ("L2", 1 << 20, 5e-9), ("L3", 1 << 25, 2e-8))
    )
    cpu = Device(
        name="cpu",
        kind="cpu",
        cores=number(4),
        threads=number(8),
        clock_hz=number(3e9),
        peak_fp32_ops_per_s=number(4e11),
        power_watts=number(100),
        caches=caches,
        memory=Memory(**memory),
    )
    return Platform(name="everything", devices=(cpu,))


def answer(platform, asked):
    """The options that the solver has for a workload, or the trees for a question; what cannot be, as a sentence."""
    try:
        if isinstance(asked, Question):
            return choose(platform, asked)
        return build(Times(platform, asked, None, None, {})).problems
    except (PlatformError, ProblemError) as error:
        return str(error)


ANSWERS = {}  # of every platform and question: the changed ones are all compared with the same


def answer_once(platform, asked):
    key = platform, asked
    if key not in ANSWERS:
        ANSWERS[key] = answer(platform, asked)
    return ANSWERS[key]


def differs(platform, *others):
    """Whether some answer of the platform is another than that of one of the others."""
    every = [*TREES, *WORKLOADS]
    return any(answer_once(platform, asked) != answer(other, asked) for asked in every for other in others)


def changed(thing, path, field, factor):
    """The platform with one number multiplied: counts stay whole."""
    value = getattr(thing, field.rpartition(".")[2], None)
    if not path:
        scaled = (value.value or 100) * factor
        scaled = max(1, round(scaled)) if isinstance(value.value, int) else scaled
        return dataclasses.replace(thing, **{field: dataclasses.replace(value, value=scaled)})
    (key, place), rest = path[0], path[1:]
    parts = getattr(thing, key)
    if place is None:
        return dataclasses.replace(thing, **{key: changed(parts, rest, field, factor)})
    new = tuple(changed(one, rest, field, factor) if n == place else one for n, one in enumerate(parts))
    return dataclasses.replace(thing, **{key: new})


def numbers(thing, path=()):
    """(where, field) of every number that is set and not documentation."""
    for field in dataclasses.fields(thing):
        value, shape = getattr(thing, field.name), field.metadata["shape"]
        if isinstance(value, Quantity):
            if not field.metadata["documentation"]:
                yield path, field.name
        elif shape == "table" and value is not None:
            yield from numbers(value, (*path, (field.name, None)))
        elif shape == "tables":
            for place, part in enumerate(value):
                yield from numbers(part, (*path, (field.name, place)))


def lean():
    """The same platform without what its models prefer, so that what stands for it counts."""
    preferred = {"bandwidth_bytes_per_s": None, "gather_seconds": None}
    (cpu,) = everything().devices
    caches = tuple(dataclasses.replace(cache, **preferred) for cache in cpu.caches)
    cpu = dataclasses.replace(cpu, caches=caches, memory=dataclasses.replace(cpu.memory, **preferred))
    return Platform(name="lean", devices=(cpu,))


PLATFORMS = {name: platforms.load(name) for name in platforms.names()}
PLATFORMS |= {"everything": everything(), "lean": lean()}
KEYS = [(name, path, field) for name, platform in PLATFORMS.items() for path, field in numbers(platform)]


def table_of(name, path):
    """The kind of the device, and the table in it, that a path leads to."""
    kind = PLATFORMS[name].devices[path[0][1]].kind if path and path[0][0] == "devices" else ""
    return (kind, *(table for table, _ in path[1:] or path))


GROUPS = {}
for name, path, field in KEYS:
    GROUPS.setdefault((*table_of(name, path), field), []).append((name, path, field))


SHOWN = {("cpu", "devices", "threads"), ("cpu", "caches", "shared_by"), ("cpu", "caches", "bandwidth_bytes_per_s")}
SHOWN |= {("cpu", "caches", f"copy{of}_bytes_per_s") for of in ("", "_all_cores")}
SHOWN |= {("cpu", table, f"triad{of}_bytes_per_s") for table in ("caches", "memory") for of in ("", "_all_cores")}
SHOWN |= {("cpu", table, "gather_all_cores_seconds") for table in ("caches", "memory")}
SHOWN |= {("cpu", "memory", "copy_all_cores_bytes_per_s")}
"""Numbers of a processor that a probe shows, and no model uses."""


@pytest.mark.parametrize("group", GROUPS, ids=".".join)
def test_every_number_moves_an_answer_on_some_platform(group):
    def moves(name, path, field):
        others = (changed(PLATFORMS[name], path, field, factor) for factor in FACTORS)
        return differs(PLATFORMS[name], *others)

    assert any(moves(*key) for key in GROUPS[group]) == (group not in SHOWN)


def test_the_walk_meets_every_key_that_is_no_documentation():
    for name, platform in PLATFORMS.items():
        stated = [leaf for leaf in leaves(platform) if isinstance(leaf.value, Quantity) and not leaf.documentation]
        assert len(stated) == sum(key[0] == name for key in KEYS)


def test_texts_that_are_no_documentation_move_answers_too():
    u200 = PLATFORMS["u200"]
    names = {leaf.field for leaf in leaves(u200) if isinstance(leaf.value, str) and not leaf.documentation}
    assert names == {"kind", "source", "target"}
    ends = dataclasses.replace(u200.links[1], source="gpu")
    assert differs(dataclasses.replace(u200, links=(u200.links[0], ends)), u200)
    devices = [dataclasses.replace(one, kind="cpu") if one.kind == "gpu" else one for one in u200.devices]
    assert differs(dataclasses.replace(u200, devices=tuple(devices)), u200)


def test_the_roofline_by_hand():
    """A framework's own time, and max(operations / peak, bytes / bandwidth)."""
    work = laws.Work(macs=1000, nbytes=2_000_000, operations=9)
    for batch, worked in ((1, 2e6 / 1e9), (10_000, 2 * 1000 * 10_000 / 1e9)):
        assert laws.roofline(work, batch, 1e9, 1e9, 3e-4) == pytest.approx(3e-4 + worked)


def test_calls_of_a_gpu_take_launches_and_what_they_read_and_compute():
    """Two layers of DDPG are 88 + 2 * 42 operations of 3.4 launches each, a draw takes 11 and an update 17.5."""
    host, gpu = (PLATFORMS["u200"].device(name) for name in ("cpu", "gpu"))
    hopper, slow = load("hopper_ddpg"), dataclasses.replace(gpu, launch_seconds=number(1.0))
    for batch in (1, 256):
        work = laws.roofline(laws.work_of(hopper), batch, 12.15e12, 550e9, 0.0)
        assert laws.learner(host, slow, hopper, batch).value == pytest.approx(172 * 3.4 + work)
    draw, update = laws.tree(slow, 10**6, 16, 256, insertions=0.5)
    assert (draw.value, update.value) == (pytest.approx(11.0, rel=1e-4), pytest.approx(1.5 * 17.5, rel=1e-4))
    assert laws.tree(gpu, 10**6, 16, 1 << 20)[0].value > 2 * laws.tree(gpu, 10**6, 16, 256)[0].value


def estimated(capsys, *words):
    """Seconds by part and device of an estimate; None where something lacks."""
    assert main(["platform", "estimate", *words, "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rows"] if "part" in row]
    assert all(("lacks" in row) != ("value" in row) for row in rows)
    return {(row["part"], row["device"]): row.get("value") for row in rows}


@pytest.mark.parametrize(("platform", "name"), [("u200", "hopper_ddpg"), ("edge", "cartpole_dqn")])
def test_the_table_of_primitives_has_the_fastest_option_of_each_part_and_device(capsys, platform, name):
    """To the last digit, as the solver takes it where nothing is measured; of a learner on one device."""
    rows = estimated(capsys, platform, "--workload", name)
    options = build(Times(PLATFORMS[platform], load(name), None, None, {})).problems[MODES["pipelined"]].options
    for part in ("learner", "storage"):
        fastest = {}
        for option in options[part]:
            fastest[option.device] = min(option.seconds, fastest.get(option.device, option.seconds))
        found = {device: seconds for (of, device), seconds in rows.items() if of == part and seconds}
        assert found.keys() >= fastest.keys()
        if part == "learner":
            assert found == fastest
    assert sum(part.startswith("send a batch to ") for part, _ in rows) == 2 * len(PLATFORMS[platform].links)


def test_the_table_has_a_row_where_something_lacks(capsys):
    rows = estimated(capsys, "edge", "--workload", "pong_dqn")
    assert [place for place, seconds in rows.items() if seconds is None] == [("storage", "fpga"), ("learner", "fpga")]
