"""A design as C++ for high-level synthesis, compiled and run as a simulation: bit for bit the functional twin."""

import json
import shutil
import subprocess

import numpy as np
import pytest

import impls
from dse.__main__ import main
from dse.fpga.hls import write_hls
from dse.fpga.rmm_search import Rmm
from impls.fpga.design import Design
from impls.fpga.learner import Learner
from impls.fpga.network import parse

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="found no g++")
LEARNER = Learner(parse("cartpole"), 1, (1,) * 9, 1)
DESIGNS = [Design(1, 2), Design(97, 4, 18, "scan", 2, "contiguous"), Design(1000, 16, 18, "wide", 4, "interleaved")]


def compile_host(folder):
    """The program of a folder; a warning is an error, but for the pragmas of the vendor's tools."""
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fsanitize=address,undefined"]
    sources = [str(folder / name) for name in ("host.cpp", "rmm.cpp")]
    subprocess.run(["g++", *flags, "-o", str(folder / "host"), *sources], check=True, timeout=120)
    return folder / "host"


def ask(host, text, code=0):
    """Lines of numbers that a host answers a text with."""
    done = subprocess.run([host], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()] if code == 0 else done.stderr


def write_request(kind, *columns):
    rows = list(zip(*columns, strict=True))
    return f"{kind} {len(rows)} {' '.join(str(int(number)) for row in rows for number in row)}\n"


@pytest.fixture(scope="module", params=DESIGNS, ids=lambda design: f"{design.capacity}-{design.micro}-{design.banks}")
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hls") / "new"
    write_hls(folder, Rmm(request.param, 64, False), LEARNER, batch=50)
    return request.param, compile_host(folder)


def test_the_kernel_is_the_functional_twin(written):
    design, host = written
    options = {"leaf_bits": design.leaf_bits, "fraction_bits": 0, "banks": design.banks}
    twin = impls.make("fpga", design.capacity, fanout=design.fanout, dtype="float64", **options)
    order = sorted(range(design.capacity), key=design.bank_of)  # of leaves in hardware, the twin's place by place
    rng, text, expected = np.random.default_rng(design.capacity), "", []
    for size in (1, 49, 50, 130):
        leaves = rng.integers(0, design.capacity, size)
        values = rng.integers(0, 1 << design.leaf_bits, size) * (rng.random(size) < 0.7)
        values[0] = max(1, values[0])
        leaves[1:] = np.where(leaves[1:] == leaves[0], (leaves[0] + 1) % design.capacity, leaves[1:])
        if design.capacity == 1:
            values[-1] = 7
        text += write_request("update", leaves, values)
        twin.update([order.index(leaf) for leaf in leaves], values.astype(float))
        total = int(twin.total())
        masses = np.unique([0, total - 1, *rng.integers(0, total, size)])
        places, priorities = twin.prefix_sum_index(masses.astype(float)), twin.get(np.arange(design.capacity))
        text += write_request("sample", masses) + write_request("get", leaves) + "total\n"
        expected += [(order[place], int(priorities[place])) for place in places]
        expected += [(int(leaf), int(priorities[order.index(leaf)])) for leaf in leaves] + [(total,)]
    assert ask(host, text) == expected


BOUNDS = (
    ("update 1 {capacity} 1\n", "{capacity}"),
    ("update 2 0 1 0 {most}\n", "2^{bits}"),
    ("update 1 0 1\nsample 2 0 1\n", "total, 1"),
    ("get 1 {capacity}\n", "{capacity}"),
    ("sample 1 0\n", "total, 0"),
    ("draw 1 0\n", "update, sample, get"),
    ("get 2 0\n", "whole numbers"),
)


def test_what_is_out_of_bounds_is_refused_with_the_bound(written):
    design, host = written
    named = {"capacity": design.capacity, "bits": design.leaf_bits, "most": 1 << design.leaf_bits}
    for text, bound in BOUNDS:
        assert bound.format(**named) in ask(host, text.format(**named), code=2)


def test_the_command_writes_what_runs_and_never_over_files(tmp_path, capsys):
    words = "fpga --network cartpole --batch 32 --capacity 5000 --emit".split()
    hls = [*words, "hls", str(tmp_path / "a")]
    assert main([*hls, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    parameters = (tmp_path / "a" / "parameters.hpp").read_text()
    assert f"FANOUT = {answer['choice']['rmm']['fanout']};" in parameters
    assert f"PIPELINES = {answer['choice']['learner']['pipelines']};" in parameters
    tried = subprocess.run(answer["paste"][0], shell=True, capture_output=True, text=True, check=True, timeout=60)
    assert tried.stdout.split() == ["0", "1", "1"]
    (tmp_path / "a" / "parameters.hpp").write_text("mine")
    assert main(hls) == main([*words, "toml", str(tmp_path / "b")]) == 2
    assert (tmp_path / "a" / "parameters.hpp").read_text() == "mine"
    assert not (tmp_path / "b").exists()
