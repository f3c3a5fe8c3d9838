"""Tests of the probe of a machine: its numbers from samples, its samples, and that it finds the same thing twice."""

import sys
from types import SimpleNamespace

import pytest

from dse.platforms import memory, probe
from dse.platforms.files import parse, to_toml
from dse.platforms.probe import Level

HERE = {"key": "0123456789", "cpu": "A  processor", "cores": 2, "packages": {"numba": "1.0"}}
FOUND = [Level("L1", 32 << 10, 1, 16 << 10, 16 << 10), Level("memory", 8 << 30, 2, 64 << 20, 32 << 20)]
SAMPLES = {
    ("L1", "latency_seconds"): [[5e8, 5e8], [5e8, 5e8]],
    ("L1", "copy_bytes_per_s"): [[2e11, 2e11], [2.2e11, 2.2e11]],
    ("memory", "gather_seconds"): [[1e8, 1e8], [1e8, 1e8]],
    ("memory", "triad_all_cores_bytes_per_s"): [[3.33333333e10, 3.33333333e10], [3.33333333e10, 3.33333333e10]],
}


def test_samples_become_medians_with_their_spread():
    platform = probe.describe(HERE, FOUND, 2, SAMPLES)
    assert parse(to_toml(platform), "again") == (platform, [])
    (device,) = platform.devices
    assert (platform.machine_key, device.model, device.threads.value) == ("0123456789", "A processor", 2)
    (cache,) = device.caches
    assert (cache.name, cache.size_bytes.value, cache.shared_by.value) == ("L1", 32 << 10, 1)
    assert (cache.latency_seconds.value, cache.latency_seconds.spread) == (2e-9, probe.LEAST_SPREAD)
    assert cache.latency_seconds.origin == "measured"
    assert cache.copy_bytes_per_s.value == 2.1e11
    assert cache.copy_bytes_per_s.spread > 0.05
    assert device.memory.gather_seconds.value == 1e-8
    assert device.memory.triad_all_cores_bytes_per_s.value == 3.333e10
    assert "4 rounds" in device.memory.gather_seconds.note
    steady = [[1.0] * 20] * 4
    assert probe.spread_of(steady) == probe.LEAST_SPREAD
    assert probe.spread_of([*steady, [1.2] * 20]) >= 0.2
    assert probe.spread_of([[0.9, 1.0, 1.1] * 10] * 4) >= 0.1


def test_shared_caches_are_worked_on_in_parts(monkeypatch):
    monkeypatch.setattr(probe, "_shared_by", lambda level, threads: {"L1": 2, "L3": 99}[level])
    found = probe.levels({"L1": 1 << 15, "L3": 1 << 25}, 1 << 36, threads=8)
    assert found == [
        Level("L1", 1 << 15, 2, 1 << 14, 1 << 13),
        Level("L3", 1 << 25, 8, 1 << 24, 1 << 21),
        Level("memory", 1 << 36, 8, 1 << 27, 1 << 24),
    ]
    assert probe.levels({}, 1 << 30, threads=1) == [Level("memory", 1 << 30, 1, 1 << 25, 1 << 25)]


def test_each_gpu_that_torch_can_use_becomes_a_device(monkeypatch, tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="GPUs are probed by torch")
    monkeypatch.setattr(probe, "GPU_SECONDS", 0.01)
    samples = probe.sample_gpu(torch.device("cpu"), lambda: None, side=16, nbytes=1 << 12)  # stands in for a GPU
    for blocks in samples.values():
        assert len(blocks) == probe.BLOCKS
        assert min(map(len, blocks)) >= 2
    samples[("link", "alpha_seconds")] = [[1e5, 1e5]]
    facts = SimpleNamespace(name="A GPU", multi_processor_count=132, L2_cache_size=60 << 20, total_memory=140 << 30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
    monkeypatch.setattr(probe, "sample_gpu", lambda device, wait, nbytes: samples)
    monkeypatch.setattr(probe, "query_gpus", lambda fields, form: ["1980, 700.00", "1980, [N/A]"])
    monkeypatch.setattr(probe, "fingerprint", lambda: {"gpus": ["A GPU", "A GPU"], "cores": 1})
    monkeypatch.setattr(probe, "probe", lambda tell: probe.describe(HERE, FOUND, 2, SAMPLES))
    path = tmp_path / "platform.toml"
    written = probe.write_probe(path)
    assert parse(path.read_text(), "it")[0] == written
    _, gpu, other = written.devices
    assert (gpu.clock_hz.value, gpu.power_watts.value, other.power_watts) == (1.98e9, 700, None)
    assert (gpu.kind, gpu.multiprocessors.value, gpu.memory.size_bytes.value) == ("gpu", 132, 140 << 30)
    assert gpu.peak_fp32_ops_per_s.origin == "measured"
    assert [link.target for link in written.links] == [gpu.name, other.name] == ["gpu0", "gpu1"]
    assert written.links[0].alpha_seconds.value == 1e-5

    def fill(*_, **__):
        raise RuntimeError("no room")

    monkeypatch.setattr(probe, "sample_gpu", fill)
    assert list(probe.gpus()) == [] and "no room" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", None)
    assert list(probe.gpus()) == [] and "torch" in capsys.readouterr().err


def test_every_cell_is_sampled_and_progress_told(monkeypatch):
    pytest.importorskip("numba")
    told = []
    small = [Level("L1", 1 << 15, 1, 1 << 14, 1 << 14), Level("memory", 1 << 30, 2, 1 << 20, 1 << 19)]
    samples = probe.measure(small, 2, seconds=0.1, tell=told.append)
    assert {name for level, name in samples if level == "L1"} == {
        "latency_seconds",
        *("gather_seconds", "copy_bytes_per_s", "triad_bytes_per_s"),
        *("gather_all_cores_seconds", "copy_all_cores_bytes_per_s", "triad_all_cores_bytes_per_s"),
    }
    assert all(len(blocks) == probe.BLOCKS and min(map(len, blocks)) >= 2 for blocks in samples.values())
    assert told[-1].strip() == "100%"
    for module in (memory, probe):
        monkeypatch.setattr(module, "compiled", lambda: False)
    samples = probe.measure(small[1:], 1, seconds=0.1)
    assert {name for _, name in samples} == {"gather_seconds", "copy_bytes_per_s"}
    assert "NumPy" in probe.describe(HERE, small[1:], 1, samples).devices[0].memory.copy_bytes_per_s.note


def test_works_do_what_they_are_counted_for():
    pytest.importorskip("numba")
    reads, streams = memory.memory_reads(1 << 16, 1000), memory.memory_streams(1 << 20)
    amounts = {name: work.amount for name, work in (reads | streams).items()}
    assert amounts == {"gather": 1000, "chase": 1000, "copy": 1 << 20, "triad": pytest.approx(1 << 20, rel=1e-4)}
    lines = (1 << 16) // memory.LINE
    chase = memory.memory_reads(1 << 16, 1)["chase"].call
    assert len({int(chase(0, steps)) for steps in range(lines)}) == lines  # one cycle over every line
    assert chase(0, lines) == chase(0, 0)
    assert chase(1, 0) == chase(0, 1)
