"""Tests of platform files: the shipped ones, the sentences about bad ones, and that nothing ever is a traceback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse import platforms
from dse.estimate import SUREST_FIRST
from dse.platforms import PlatformError, Quantity, leaves, load
from dse.platforms.files import parse, path_of, to_toml
from dse.platforms.quantities import ORIGINS, SOURCE_OF, UNITS, from_si, readable, to_si
from reports.sections.fpga import make_link

SHIPPED = platforms.names()
U200_LINK = make_link()
GOOD = """\
name = "mine"
origin = "datasheet"
note = "the maker's data sheet"

[[device]]
name = "cpu"
kind = "cpu"
cores = 8
[[device.cache]]
name = "L1"
size_kib = 32
[device.memory]
size_gib = 32
bandwidth_gb_per_s = { value = 51.2, origin = "assumed", note = "two channels" }

[[device]]
name = "card"
kind = "fpga"
clock_mhz = 200
[[device.slice]]
name = "SLR0"
lut = 1000
ff = 2000
bram36 = 10
uram = 0
dsp = 20

[[link]]
from = "cpu"
to = "card"
hops = 1
alpha_us = 10
beta_gb_per_s = 8
back_alpha_us = 0
back_beta_gb_per_s = 4
"""


def shipped_text(name):
    return path_of(name).read_text()


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_file_loads_and_every_number_says_where_it_comes_from(name):
    assert parse(shipped_text(name), name)[1] == []
    platform = load(name)
    assert platform.name == name
    numbers = [leaf.value for leaf in leaves(platform) if isinstance(leaf.value, Quantity)]
    assert len(numbers) >= 25
    assert all(number.origin in ORIGINS and number.note for number in numbers)
    assert set(SOURCE_OF) == set(ORIGINS)
    assert set(SOURCE_OF.values()) <= set(SUREST_FIRST)
    assert shipped_text(name).startswith("# ")


def test_the_shipped_platforms_are_there():
    assert {"u200", "h200", "edge"} <= set(SHIPPED)


def test_the_seeds_platform_is_as_printed_and_corrected_where_it_cannot_be():
    platform = load("u200")
    cpu, gpu, fpga = platform.devices
    assert (cpu.cores.value, cpu.threads.value) == (28, 56)
    assert "printed as 56" in cpu.cores.note
    assert cpu.memory.bandwidth_bytes_per_s == Quantity(
        value=89e9, origin="paper", note="Table IV; six channels of one socket have 115.2"
    )
    assert (gpu.memory.bandwidth_bytes_per_s.value, gpu.peak_fp32_ops_per_s.value) == (550e9, 12.15e12)
    assert "GDDR5X" in gpu.memory.size_bytes.note
    assert (fpga.clock_hz.value, fpga.clock_hz.origin) == (200e6, "assumed")
    assert [part.usable() for part in fpga.slices] == [
        {"lut": 388_160, "ff": 776_320, "bram36": 720, "uram": 320, "dsp": 2280},
        {"lut": 205_440, "ff": 410_880, "bram36": 420, "uram": 160, "dsp": 1320},
        {"lut": 385_440, "ff": 770_880, "bram36": 720, "uram": 320, "dsp": 2280},
    ]
    totals = {name: sum(getattr(part, name).value for part in fpga.slices) for name in ("lut", "ff", "bram36", "dsp")}
    assert totals == {"lut": 1_182_240, "ff": 2_364_480, "bram36": 2160, "dsp": 6840}
    (link,) = (link for link in platform.links if link.target == "fpga")
    assert (link.nominal_bytes_per_s.value, link.nominal_bytes_per_s.origin) == (16e9, "paper")
    assert (link.alpha_seconds.value, link.alpha_seconds.origin) == (13.6e-6, "paper")
    assert (link.beta_bytes_per_s.value, link.back_beta_bytes_per_s.value) == (7.45e9, 12.1e9)
    assert link.seconds(1e6) == U200_LINK.to_device_seconds(10**6)
    assert link.seconds(1e6, back=True) == U200_LINK.from_device_seconds(10**6)


def test_units_are_converted_at_the_door():
    platform, found = parse(GOOD, "mine.toml")
    assert not found
    cpu, card = platform.devices
    assert cpu.caches[0].size_bytes.value == 32 * 1024
    assert cpu.memory.size_bytes == Quantity(value=32 * 2**30, origin="datasheet", note="the maker's data sheet")
    assert cpu.memory.bandwidth_bytes_per_s == Quantity(value=51.2e9, origin="assumed", note="two channels")
    assert card.clock_hz.value == 200e6
    assert platform.links[0].alpha_seconds.value == 10e-6


@given(st.sampled_from([(kind, unit) for kind, units in UNITS.items() for unit in units]), st.floats(1e-12, 1e12))
def test_a_number_survives_its_unit(pair, value):
    kind, unit = pair
    si = to_si(value, unit)
    assert from_si(si, unit) == pytest.approx(value, rel=1e-15)
    digits, shown = readable("x" + kind, si)
    assert to_si(float(digits), shown) == pytest.approx(si, rel=1e-5)


def test_transfers_take_alpha_and_beta_of_their_direction_and_every_hop():
    platform, _ = parse(GOOD, "mine.toml")
    assert platform.transfer_seconds("cpu", "card", 8e9) == pytest.approx(1 + 10e-6)
    assert platform.transfer_seconds("card", "cpu", 8e9) == 2.0
    assert platform.transfer_seconds("cpu", "cpu", 8e9) == 0.0
    twice, _ = parse(GOOD.replace("hops = 1", "hops = 2"), "mine.toml")
    assert twice.transfer_seconds("card", "cpu", 8e9) == 4.0
    u200 = load("u200")
    through_the_host = u200.transfer_seconds("gpu", "cpu", 1e6) + u200.transfer_seconds("cpu", "fpga", 1e6)
    assert u200.transfer_seconds("gpu", "fpga", 1e6) == through_the_host


def test_this_machine_is_read_from_its_probe_or_says_how_to_probe_it(tmp_path):
    with pytest.raises(PlatformError, match=r"has not been probed.*python -m dse platform probe"):
        load("this", tmp_path)
    key = platforms.fingerprint()["key"]
    path = tmp_path / key / "platform.toml"
    path.parent.mkdir()
    path.write_text(GOOD.replace('name = "mine"', f'name = "mine"\nmachine_key = "{key}"', 1))
    assert load("this", tmp_path).machine_key == key
    path.write_text(GOOD.replace('name = "mine"', 'name = "mine"\nmachine_key = "other"', 1))
    with pytest.raises(PlatformError, match=f"was probed on machine other, this one is {key}"):
        load("this", tmp_path)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_written_reads_back_the_same(name):
    assert parse(to_toml(load(name)), "again") == (load(name), [])


def test_every_key_can_be_walked_and_says_whether_an_estimate_may_rest_on_it():
    found = {leaf.path: leaf for leaf in leaves(load("u200"))}
    assert len(found) == len(list(leaves(load("u200"))))
    assert found["device.cpu.memory.bandwidth"].value.value == 89e9
    assert found["device.fpga.slice.SLR1.shell.dsp"].value.value == 960
    assert found["link.cpu-fpga.back_alpha"].field == "back_alpha_seconds"
    assert not found["device.fpga.clock"].documentation
    assert {path for path, leaf in found.items() if leaf.documentation} >= {"name", "title", "device.gpu.process_nm"}
