"""Estimates from a platform alone: known answers by hand, and every key of a platform file moves one."""

import dataclasses
import json

import pytest

from dse import platforms
from dse.__main__ import main
from dse.mapping.build import build
from dse.platforms import Cache, Device, Link, Memory, Platform, Quantity, leaves
from dse.times import analytic, hardware
from dse.times.estimates import MODELED, Asked, rows
from dse.times.parts import Parts
from impls.training import load, timed_names
from tests.matrix import matrix

WORKLOADS = [  # from L1 to memory: leaves, batches, weights; first those that most numbers move
    Asked(capacity=20_000_000, batch=256, record_bytes=200_000, network="mlp:64-2048-2048-1"),
    Asked(batch=1, network="mlp:64-2048-2048-1"),  # weights are moved for a single sample
    Asked(batch=1, network="mlp:64-512-512-1"),
    Asked(capacity=1_000, batch=32, record_bytes=16, network="mlp:4-8-1"),
    Asked(capacity=3_000_000, fanout=64, batch=1_024, record_bytes=8_000, network="mlp:64-512-512-1"),
    Asked(capacity=100_000, batch=1_000, network="mlp:15-128-128-1"),
]
FACTORS = (100, 0.01, 0.4, 3)
ALONE = "gradient step of the network alone, bare hardware"


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


ROWS = {}  # of every platform and workload that was asked for: the changed ones are all compared with the same


def rows_of(platform, asked):
    key = platform, asked
    if key not in ROWS:
        ROWS[key] = rows(platform, asked)
    return ROWS[key]


def differs(platform, *others):
    """Whether some estimate of the platform is another than that of one of the others."""
    return any(rows_of(platform, asked) != rows(other, asked) for asked in WORKLOADS for other in others)


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


PLATFORMS = {name: platforms.load(name) for name in platforms.names()} | {"everything": everything()}
KEYS = [(name, path, field) for name, platform in PLATFORMS.items() for path, field in numbers(platform)]


@pytest.mark.parametrize(("name", "path", "field"), KEYS, ids=lambda part: str(part).replace(" ", "")[:60])
def test_every_number_of_a_platform_moves_an_estimate(name, path, field):
    platform = PLATFORMS[name]
    if path and path[0][0] == "devices":  # estimates of other devices would only take their time
        platform = dataclasses.replace(platform, devices=(platform.devices[path[0][1]],), links=())
        path = (("devices", 0), *path[1:])
    assert differs(platform, *(changed(platform, path, field, factor) for factor in FACTORS))


def test_the_walk_meets_every_key_that_is_no_documentation():
    for name, platform in PLATFORMS.items():
        stated = [leaf for leaf in leaves(platform) if isinstance(leaf.value, Quantity) and not leaf.documentation]
        assert len(stated) == sum(key[0] == name for key in KEYS)


def test_texts_that_are_no_documentation_move_estimates_too():
    u200 = PLATFORMS["u200"]
    names = {leaf.field for leaf in leaves(u200) if isinstance(leaf.value, str) and not leaf.documentation}
    assert names == {"kind", "source", "target"}
    ends = dataclasses.replace(u200.links[1], source="gpu")
    assert differs(dataclasses.replace(u200, links=(u200.links[0], ends)), u200)
    devices = [dataclasses.replace(one, kind="cpu") if one.kind == "gpu" else one for one in u200.devices]
    assert differs(dataclasses.replace(u200, devices=tuple(devices)), u200)


def by_name(found):
    return {(row.device, row.what): row for row in found}


def test_known_answers():
    found = by_name(rows(everything(), Asked(capacity=256, fanout=16, batch=10, record_bytes=100, network="mlp:4-8-1")))
    arithmetic = (6 + 16 / 8) / 3e9
    # 16 inner sums take two lines, 16 leaves one; all of it lies in L1
    assert found["cpu", "sample one leaf"].value == pytest.approx(3 * 1e-9 + 2 * arithmetic)
    assert found["cpu", "sample a batch, one core"].value == pytest.approx(10 * (3 * 1e-9 / 8 + 2 * arithmetic))
    assert found["cpu", "copy a batch, one core"].value == pytest.approx(2 * 10 * 100 / 1e11)
    assert found["cpu", "apply a gradient, all cores"].value == pytest.approx(12 * 49 / 2.7e11)
    step = 2 * 3 * 40 * 10 / 4e11
    assert found["cpu", ALONE].value == pytest.approx(max(step, 12 * 49 / 2e10))
    assert found["cpu", f"energy of a {ALONE}"].value == pytest.approx(100 * found["cpu", ALONE].value)


def test_links_are_told_each_way():
    ends = [Device(name=name, kind="cpu", cores=number(1), memory=Memory(size_bytes=number(1e9))) for name in "ab"]
    one = {"hops": number(1), "alpha_seconds": number(1e-6), "beta_bytes_per_s": number(1e9)}
    link = Link(source="a", target="b", **one, back_alpha_seconds=number(3e-6), back_beta_bytes_per_s=number(2e9))
    found = by_name(rows(Platform(name="two", devices=tuple(ends), links=(link,)), Asked(batch=10, record_bytes=100)))
    assert found["a", "send a batch to b"].value == pytest.approx(1e-6 + 1e-6)
    assert found["b", "send a batch to a"].value == pytest.approx(3e-6 + 0.5e-6)


def test_what_does_not_fit_says_so():
    found = by_name(rows(PLATFORMS["u200"], Asked(network="pong", record_bytes=56_448, batch=32)))
    assert found["gpu", "gather a batch of records"].note == "56.4 GB of records do not fit 12.9 GB"
    assert "uram: have 800, need 1,900" in found["fpga", ALONE].note  # a learner has all slices, as in `recommend`


# One answer, by one roofline


def seconds_of(what, estimates):
    """Seconds of the rows of that name, by device, where something fits."""
    return {row.device: row.value for row in estimates if row.what == what and row.value}


@pytest.mark.parametrize(
    ("platform", "name", "batch"),
    matrix(
        platforms.names(), timed_names(), [32, 256], brief=lambda *one: "cartpole_dqn" in one or {"u200", 256} < {*one}
    ),
)
def test_a_gradient_step_is_what_recommend_takes_where_nothing_is_measured(platform, name, batch):
    """To the last digit, by the fastest option of a device; so both put the devices in the same order."""
    platform, workload = PLATFORMS[platform], load(name)
    workload = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=batch))
    estimates = rows(platform, Asked.of(workload))
    fastest = {}
    for option in build(Parts(platform, workload, None, None, {})).problems["pipelined"].options["learner"]:
        fastest[option.device] = min(option.seconds, fastest.get(option.device, option.seconds))
    assert seconds_of(MODELED, estimates) == fastest
    bare = seconds_of("gradient step, bare hardware", estimates)
    for device, seconds in fastest.items():  # an FPGA has no framework
        assert seconds == bare[device] if platform.device(device).kind == "fpga" else seconds > bare[device]


def test_another_batch_than_the_workloads_is_asked_of_its_own_shape():
    asked = dataclasses.replace(Asked.of(load("pong_dqn")), batch=64)
    workload = load("pong_dqn")
    same = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=64))
    assert rows(PLATFORMS["h200"], asked) == rows(PLATFORMS["h200"], Asked.of(same))
    assert asked.batch_bytes == 64 * 5 * 7062  # stacks of frames are gathered out of records of one frame


def test_what_nothing_can_train_says_why():
    gpu = dataclasses.replace(PLATFORMS["u200"], devices=PLATFORMS["u200"].devices[1:2], links=())
    alone = by_name(rows(gpu, Asked.of(load("hopper_ddpg"))))
    assert alone["gpu", "gradient step, bare hardware"].value
    assert (alone["gpu", MODELED].value, alone["gpu", MODELED].note[:12]) == (None, "no processor")
    pixels = by_name(rows(PLATFORMS["u200"], Asked.of(load("pong_dqn"))))
    assert (pixels["fpga", MODELED].value, pixels["fpga", MODELED].note) == (None, "nothing fits")


def test_the_roofline_by_hand():
    """max(framework, launches) + max(operations / peak, bytes / bandwidth), with the origins of all of them."""
    device = dataclasses.replace(everything().devices[0], kind="gpu", launch_seconds=number(1e-5), cores=None)
    work = hardware.Work(macs=1000, nbytes=2_000_000, launches=9)
    for batch, worked in ((1, 2e6 / 1e9), (10_000, 2 * 1000 * 10_000 / 1e9)):
        for framework, waited in ((1e-6, 9e-5), (1e-3, 1e-3)):
            rate = hardware.Known(1e9, frozenset(["paper"]))
            step = hardware.roofline(device, work, batch, rate, rate, hardware.assumed(framework))
            assert step.value == pytest.approx(waited + worked)
            assert step.origins == {"paper", "datasheet", "assumed"}


def test_values_carry_the_origins_of_what_they_are_made_of():
    paper, ours = hardware.Known(6.0, frozenset(["paper"])), hardware.assumed(2.0)
    for made, value in ((paper + ours, 8), (paper * ours, 12), (paper / ours, 3), (hardware.longer(ours, paper), 6)):
        assert (made.value, made.origins) == (value, {"paper", "assumed"})
    assert (3 * paper, 12 / paper) == (hardware.Known(18.0, paper.origins), hardware.Known(2.0, paper.origins))
    assert hardware.stated(None, 4.0) == hardware.Known(4.0, frozenset())


def test_the_work_of_an_algorithm_is_more_than_that_of_its_network_alone():
    for name in timed_names():
        alone = hardware.work_alone(analytic.network_of(load(name))[0])
        assert all(whole >= part for whole, part in zip(analytic.work_of(load(name))[:2], alone[:2], strict=True))


def test_the_command_says_which_scope_its_rows_have(capsys):
    def said(*words):
        assert main(["platform", "estimate", "u200", *words]) == 0
        return capsys.readouterr().out

    alone = said("--network", "hopper")
    assert ("gradient step of the network alone, bare hardware" in alone, MODELED in alone) == (True, False)
    both = said("--workload", "hopper_ddpg", "--batch", "64")
    for words in ("gradient step, bare hardware", MODELED, "--workload hopper_ddpg --fix batch=64", "Not checked here"):
        assert words in both
    given = json.loads(said("--json", "--fanout", "8"))
    assert [given["asked"][name] for name in ("workload", "fanout", "batch")] == ["hopper_ddpg", 8, 256]
    assert {row["device"] for row in given["estimates"] if row["what"] == MODELED} == {"cpu", "gpu", "fpga"}
