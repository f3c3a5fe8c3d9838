"""Estimates from a platform alone: known answers by hand, and every key of a platform file moves one."""

import dataclasses
import json

import pytest

from dse import platforms
from dse.__main__ import main
from dse.platforms import Cache, Device, Link, Memory, Platform, Quantity, leaves
from dse.times.estimates import Asked, rows

WORKLOADS = [  # from L1 to memory: leaves, batches, weights; first those that most numbers move
    Asked(capacity=20_000_000, batch=256, record_bytes=200_000, network="mlp:64-2048-2048-1"),
    Asked(batch=1, network="mlp:64-2048-2048-1"),  # weights are moved for a single sample
    Asked(batch=1, network="mlp:64-512-512-1"),
    Asked(capacity=1_000, batch=32, record_bytes=16, network="mlp:4-8-1"),
    Asked(capacity=3_000_000, fanout=64, batch=1_024, record_bytes=8_000, network="mlp:64-512-512-1"),
    Asked(capacity=100_000, batch=1_000, network="mlp:15-128-128-1"),
]
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
    assert found["cpu", "gradient step"].value == pytest.approx(max(step, 12 * 49 / 2e10))
    assert found["cpu", "energy of a gradient step"].value == pytest.approx(100 * found["cpu", "gradient step"].value)


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
    assert "uram: have 640, need 1,900" in found["fpga", "gradient step"].note


def test_the_command(capsys):
    assert main(["platform", "estimate", "h200", "--batch", "64"]) == 0
    out = capsys.readouterr().out
    assert "sample a batch, one core" in out
    assert "assumed" in out
    assert main(["platform", "estimate", "h200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["asked"]["batch"] == 256
    for bad, said in ((["--network", "mpl:4-8-1"], "mpl:4-8-1"), (["--batch", "0"], "batch must be at least 1, not 0")):
        assert main(["platform", "estimate", "h200", *bad]) == 2
        assert said in capsys.readouterr().err
