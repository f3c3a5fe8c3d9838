"""A user's story: six devices and a table of times out of a paper, typed into two files, asked, explained, changed."""

import json
import re

import pytest

from dse.__main__ import main
from dse.platforms import load

PLATFORM = """\
name = "rack"
origin = "datasheet"
note = "the makers' data sheets"
[[device]]
name = "cpu0"
kind = "cpu"
cores = 32
memory = { size_gib = 128, bandwidth_gb_per_s = 150 }
[[device]]
name = "cpu1"
kind = "cpu"
cores = 16
memory = { size_gib = 64, bandwidth_gb_per_s = 80 }
"""
GPU = """
[[device]]
name = "{0}"
kind = "gpu"
multiprocessors = {1}
clock_mhz = 1500
peak_fp32_tops = {2}
launch_us = 5
memory = {{ size_gib = 24, bandwidth_gb_per_s = 600 }}
"""
FPGA = """
[[device]]
name = "{0}"
kind = "fpga"
clock_mhz = 200
memory = {{ size_gib = 32, bandwidth_gb_per_s = 77 }}
[[device.slice]]
name = "SLR0"
lut = 390_000
ff = 780_000
bram36 = 720
uram = 320
dsp = 2_280
"""
LINK = """
[[link]]
from = "cpu0"
to = "{0}"
hops = 1
alpha_us = 5
beta_gb_per_s = 12
back_alpha_us = 5
back_beta_gb_per_s = 12
"""
TIMES = """\
device, actors_us, sampling_us, updating_us, storage_us, learner_us, batch, source, factor
cpu0,          20,          80,          60,         50,       4000,   256, quoted, 1.1
cpu1,            ,          90,          70,         55,       5000,   256, quoted, 1.1
gpu0,            ,          30,          20,         20,        690,   256, quoted, 1.1
gpu1,            ,          35,          25,         20,        950,   256, quoted, 1.1
fpga0,           ,           2,           2,         10,        300,   256, quoted, 1.1
fpga1,           ,           3,           3,         12,        380,   256, quoted, 1.1
"""
MINUTE = 60  # lines: of answer and explanation together, what one reads in a minute


@pytest.fixture
def asked(tmp_path, capsys):
    """Asks a command about the platform, with a table of times; gives back the text."""
    extra = [GPU.format("gpu0", 80, 30), GPU.format("gpu1", 40, 12), FPGA.format("fpga0"), FPGA.format("fpga1")]
    links = [LINK.format(name) for name in ("cpu1", "gpu0", "gpu1", "fpga0", "fpga1")]
    platform, times = tmp_path / "rack.toml", tmp_path / "times.csv"
    platform.write_text("".join([PLATFORM, *extra, *links]))

    def ask(command, table=TIMES, *more):
        times.write_text(table)
        system = ["--platform", str(platform), "--workload", "hopper_ddpg", "--times", str(times)]
        code = main([command, *system, *more])
        text, errors = capsys.readouterr()
        assert (code, errors) == (0, "")
        return text

    ask.platform = platform
    return ask


def test_the_platform_file_has_six_devices(asked):
    assert [device.kind for device in load(str(asked.platform)).devices] == ["cpu", "cpu", "gpu", "gpu", "fpga", "fpga"]


def test_the_answer_begins_with_the_choice_and_a_line_to_paste(asked):
    """The learner of 300 us is the fastest, and nothing else takes as long: about 3,333 gradient steps a second."""
    lines = asked("recommend").splitlines()
    assert re.search(r"learner\b.*\bfpga0\b", lines[0]), lines[0]
    rate = re.search(r"about (\d[\d,.]*\d)", lines[0])
    assert rate, lines[0]
    assert 3333 / 1.2 < float(rate[1].replace(",", "")) < 3333 * 1.2
    assert re.search(r"python -m |impls\.make\(", " ".join(lines[1:4])), "a line to paste stands right below"


def test_the_reason_is_what_binds(asked):
    text = asked("recommend")
    assert re.search(r"bound by .*(learner|fpga0)", text)
    assert "learner" in asked("explain", TIMES, "--config", "learner=gpu0").splitlines()[0]


def test_what_is_answered_is_what_was_typed(asked):
    answer = json.loads(asked("recommend", TIMES, "--json"))
    typed = {row.split(",")[0]: [cell.strip() for cell in row.split(",")] for row in TIMES.splitlines()}
    columns = [name.strip() for name in TIMES.splitlines()[0].split(",")]
    for part in answer["parts"]:
        cell = typed[part["device"]][columns.index(f"{part['part']}_us")]
        if part["part"] != "actors":  # those are of as many processes as are chosen
            assert part["seconds"] == pytest.approx(float(cell) * 1e-6), part["part"]
            assert part["source"] == "quoted"
    learner = next(part for part in answer["parts"] if part["part"] == "learner")
    assert (learner["device"], learner["low"], learner["high"]) == (
        "fpga0",
        *map(pytest.approx, (300e-6 / 1.1, 330e-6)),
    )


def test_one_number_changed_changes_the_answer_as_it_should(asked):
    """The first GPU at 100 us instead of 690 is the fastest; the bound triples with it, and explanations turn."""
    before, after = (json.loads(asked("recommend", table, "--json")) for table in (TIMES, TIMES.replace("690", "100")))
    learners = [next(part for part in answer["parts"] if part["part"] == "learner") for answer in (before, after)]
    assert [learner["device"] for learner in learners] == ["fpga0", "gpu0"]
    assert after["value"] > 2 * before["value"]
    assert re.search(r"learner\b.*\bgpu0\b", asked("recommend", TIMES.replace("690", "100")).splitlines()[0])
    lost = asked("explain", TIMES.replace("690", "100"), "--config", "learner=fpga0")
    assert "loses" in lost
    assert "fpga0" in lost.splitlines()[0]


def test_answer_and_explanation_are_read_in_a_minute(asked):
    whole = asked("recommend") + asked("explain", TIMES, "--config", "learner=gpu0")
    assert len(whole.splitlines()) < MINUTE
    assert all(len(line) <= 120 for line in asked("explain", TIMES, "--config", "learner=gpu0").splitlines())


def test_a_wrong_cell_is_named_by_its_line(asked, tmp_path, capsys):
    times = tmp_path / "wrong.csv"
    times.write_text(TIMES.replace("690", "-690"))
    system = ["--platform", str(asked.platform), "--workload", "hopper_ddpg", "--times", str(times)]
    assert main(["recommend", *system]) != 0
    assert re.search(r"wrong\.csv:4\b", "".join(capsys.readouterr()))
