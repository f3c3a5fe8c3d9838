"""A user's story: six devices and a table of times out of a paper, typed into two files, asked, explained, changed."""

import contextlib
import functools
import io
import json
import re

import pytest

from dse.__main__ import main
from dse.platforms import load

PLATFORM = """
name = "rack"
origin = "datasheet"
note = "the makers' data sheets"
device = [
  { name = "cpu0", kind = "cpu", cores = 32, memory = { size_gib = 128, bandwidth_gb_per_s = 150 } },
  { name = "cpu1", kind = "cpu", cores = 16, memory = { size_gib = 64, bandwidth_gb_per_s = 80 } },
GPUS
FPGAS
]
link = [
LINKS
]
"""
GPU = """{{ name = "{}", kind = "gpu", multiprocessors = {}, clock_mhz = 1500, peak_fp32_tops = {}, launch_us = 5,
  memory = {{ size_gib = 24, bandwidth_gb_per_s = 600 }} }},"""
FPGA = """{{ name = "{}", kind = "fpga", clock_mhz = 200, memory = {{ size_gib = 32, bandwidth_gb_per_s = 77 }},
  slice = [{{ name = "SLR0", lut = 390_000, ff = 780_000, bram36 = 720, uram = 320, dsp = 2_280 }}] }},"""
LINK = """{{ from = "cpu0", to = "{}", hops = 1, alpha_us = 5, beta_gb_per_s = 12, back_alpha_us = 5,
  back_beta_gb_per_s = 12 }},"""
TYPED = {
    "actors": {"cpu0": 20},
    "sampling": {"cpu0": 80, "cpu1": 90, "gpu0": 30, "gpu1": 35, "fpga0": 2, "fpga1": 3},
    "updating": {"cpu0": 60, "cpu1": 70, "gpu0": 20, "gpu1": 25, "fpga0": 2, "fpga1": 3},
    "storage": {"cpu0": 50, "cpu1": 55, "gpu0": 20, "gpu1": 20, "fpga0": 10, "fpga1": 12},
    "learner": {"cpu0": 4000, "cpu1": 5000, "gpu0": 690, "gpu1": 950, "fpga0": 300, "fpga1": 380},
}
BATCH = {part: "" if part == "actors" else "256" for part in TYPED}
ROWS = [f"{part}, {at}, {BATCH[part]}, {us}, quoted, 1.1" for part, by in TYPED.items() for at, us in by.items()]
TIMES = "\n".join(["part, device, batch, us, source, factor", *ROWS])
CHANGED = TIMES.replace("690", "100")
MINUTE = 60  # lines: of answer and explanation together, what one reads in a minute


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the platform file."""
    made = tmp_path_factory.mktemp("story")
    text = PLATFORM.replace("GPUS", GPU.format("gpu0", 80, 30) + GPU.format("gpu1", 40, 12))
    text = text.replace("FPGAS", FPGA.format("fpga0") + FPGA.format("fpga1"))
    links = "".join(map(LINK.format, ("cpu1", "gpu0", "gpu1", "fpga0", "fpga1")))
    (made / "rack.toml").write_text(re.sub(r",\n +(?!\{)", ", ", text.replace("LINKS", links)))
    return made


@pytest.fixture(scope="module")
def ask(folder):
    """Asks a command about the platform, with a table of times, where nothing was measured; gives back the text."""

    @functools.cache
    def asked(command, table=TIMES, *more):
        times = folder / "times.csv"
        times.write_text(table)
        with contextlib.redirect_stdout(io.StringIO()) as text:
            assert main([command, *system(folder, times), *more]) == 0
        return text.getvalue()

    return asked


def system(folder, times):
    files = ["--platform", str(folder / "rack.toml"), "--times", str(times), "--results", str(folder)]
    return [*files, "--workload", "hopper_ddpg"]


def rate(text):
    """The number in the first line."""
    stated = re.search(r"about (\d[\d,.]*\d)", text.splitlines()[0])
    assert stated, text.splitlines()[0]
    return float(stated[1].replace(",", ""))


def test_the_answer_begins_with_the_choice_and_a_line_to_paste(ask, folder):
    """The learner of 300 us is the fastest, and nothing else takes as long: about 3,333 gradient steps/s."""
    kinds = [device.kind for device in load(str(folder / "rack.toml")).devices]
    assert kinds == ["cpu", "cpu", "gpu", "gpu", "fpga", "fpga"]
    lines = ask("recommend").splitlines()
    assert re.search(r"learner\b.*\bfpga0\b", lines[0]), lines[0]
    assert 3333 / 1.2 < rate(ask("recommend")) < 3333 * 1.2
    assert re.search(r"python -m |impls\.make\(", " ".join(lines[1:4])), "a line to paste stands right below"
    assert len(lines) + len(ask("explain", TIMES, "--config", "learner=gpu0").splitlines()) < MINUTE


def test_the_reason_is_what_binds(ask):
    answer = json.loads(ask("recommend", TIMES, "--json"))
    assert answer["choice"]["bottleneck"]["devices"] == ["fpga0"]
    explained = json.loads(ask("explain", TIMES, "--config", "learner=gpu0", "--json"))
    told = {note["kind"]: note for note in explained["notes"]}["part_takes"]
    assert explained["choice"]["loss"] > 0
    assert (told["part"], told["device"], told["time"]["value"]) == ("learner", "gpu0", pytest.approx(690e-6))


def test_what_is_answered_is_what_was_typed(ask):
    answer = json.loads(ask("recommend", TIMES, "--json"))
    parts = {row["part"]: row for row in answer["rows"] if row.get("part", "actors") != "actors"}
    for name in ("sampling", "updating", "storage", "learner"):
        seconds = TYPED[name][parts[name]["device"]] * 1e-6
        assert (parts[name]["value"], parts[name]["source"]) == (pytest.approx(seconds), "quoted")
    learner = parts["learner"]
    assert learner["device"] == "fpga0"
    assert [learner["low"], learner["high"]] == pytest.approx([300e-6 / 1.1, 330e-6])


def test_one_number_changed_changes_the_answer_as_it_should(ask):
    """The first GPU at 100 us instead of 690 is the fastest, and the rate grows with it."""
    before, after = ask("recommend"), ask("recommend", CHANGED)
    assert re.search(r"learner\b.*\bgpu0\b", after.splitlines()[0]), after.splitlines()[0]
    assert rate(after) > 2 * rate(before)


def test_a_wrong_cell_is_named_by_its_line(folder, capsys):
    times = folder / "wrong.csv"
    times.write_text(TIMES.replace("690", "-690"))
    assert main(["recommend", *system(folder, times)]) != 0
    assert re.search(r"wrong\.csv:23\b", "".join(capsys.readouterr()))
