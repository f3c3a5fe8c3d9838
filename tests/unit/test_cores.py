"""Which processors a process may use, in trees of files as Linux writes them: affinity, quotas, siblings."""

import math
import os

import pytest

from dse import machines, platforms
from dse.platforms import PlatformError, files, probe
from dse.platforms.files import to_toml
from impls import cores
from tests.system.test_probe import FOUND, HERE, SAMPLES


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Make a made-up system of the texts of files, by path, on which a process may run on so many CPUs."""

    def make(files, cpus):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setattr(cores, "ROOT", tmp_path)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus), raising=False)

    return make


def siblings(*lists):
    """The files of each CPU: the hardware threads of its core, and ids that are not unique."""
    folder = "sys/devices/system/cpu/cpu{}/topology/{}"
    told = {folder.format(cpu, "thread_siblings_list"): listed for cpu, listed in enumerate(lists)}
    return told | {
        folder.format(cpu, name): 0 for cpu in range(len(lists)) for name in ("core_id", "physical_package_id")
    }


@pytest.mark.parametrize(
    ("lists", "cpus", "expected"),
    [
        (["0,3", "1,4", "2,5"] * 2, range(6), 3),
        (["0", "1", "2", "3", "4", "5"], range(6), 6),  # clusters or dies whose cores have the same ids
        (["0,2", "1,3"] * 2, {1, 3}, 1),
        ([], range(5), 5),  # nothing is told
    ],
)
def test_hardware_threads_of_a_core_count_once(system, lists, cpus, expected):
    system(siblings(*lists), cpus)
    assert cores.count_cores() == expected
    assert cores.allowed_cpus() == tuple(sorted(cpus))
    assert cores.count_allowed() == len(cpus)


SECOND = {"proc/self/cgroup": "0::/batch/job7"}
FIRST = {"proc/self/cgroup": "7:memory:/x\n3:cpu,cpuacct:/docker/abc\n0::/unified"}
GROUP = "sys/fs/cgroup/cpu,cpuacct/"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (SECOND | {"sys/fs/cgroup/batch/job7/cpu.max": "300000 100000"}, 3),
        (
            SECOND | {"sys/fs/cgroup/batch/job7/cpu.max": "max 100000", "sys/fs/cgroup/batch/cpu.max": "250000 100000"},
            2,
        ),
        (SECOND | {"sys/fs/cgroup/batch/job7/cpu.max": "50000 100000"}, 1),
        (SECOND | {"sys/fs/cgroup/cpu.max": "400000 100000"}, 4),  # seen from inside of a container
        (FIRST | {f"{GROUP}docker/abc/cpu.cfs_{name}_us": n for name, n in (("quota", 20000), ("period", 10000))}, 2),
        (FIRST | {f"{GROUP}cpu.cfs_{name}_us": n for name, n in (("quota", 60000), ("period", 10000))}, 6),
        ({}, 8),
    ],
)
def test_a_quota_bounds_the_threads_and_the_cores(system, files, expected):
    system(files, range(8))
    assert cores.count_allowed() == cores.count_cores() == expected


V1, V2 = "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
NESTED = {"proc/self/cgroup": "9:name=systemd:/y\n7:memory:/a/b\n0::/"}
BELOW = {"proc/self/cgroup": "0::/batch/job7", "proc/meminfo": "MemFree: 1 kB\nMemAvailable:   8 kB"}


@pytest.mark.parametrize(
    ("files", "limit", "free"),
    [
        ({}, 1 << 60, math.inf),
        (BELOW | {f"{V2}memory.max": 5000}, 5000, 5000),  # seen from inside of a container
        (BELOW | {f"{V2}batch/job7/memory.max": 3000, f"{V2}batch/memory.high": 4000}, 3000, 3000),
        (BELOW | {f"{V2}batch/memory.max": 4000, f"{V2}batch/memory.current": 3500}, 4000, 500),  # used by other jobs
        (
            BELOW | {f"{V2}memory.max": 100, f"{V2}memory.current": 90, f"{V2}memory.stat": "anon 4\ninactive_file 5"},
            100,
            15,
        ),
        (
            NESTED
            | {f"{V1}a/b/memory.{name}": n for name, n in (("limit_in_bytes", 700), ("usage_in_bytes", 300))}
            | {f"{V1}a/b/memory.stat": "inactive_file 1\ntotal_inactive_file 20"},
            700,
            420,
        ),
        (  # a container that sees its own group as the top, in which a job has one
            NESTED
            | {"proc/self/mountinfo": "35 31 0:32 /a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"}
            | {f"{V1}b/memory.limit_in_bytes": 600, f"{V1}memory.limit_in_bytes": 800},
            *(600, 600),
        ),
        (NESTED | {f"{V1}c/memory.limit_in_bytes": 5, "sys/fs/cgroup/a/b/memory.max": 5}, 1 << 60, math.inf),  # others'
    ],
)
def test_each_control_group_bounds_the_memory(system, monkeypatch, files, limit, free):
    system(files, {0})
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 30)
    assert cores.memory_limit() == limit
    assert cores.free_bytes() == free


def described(threads):
    """The platform of a machine of so many hardware threads, of this machine's key."""
    here = {**HERE, "key": platforms.fingerprint()["key"], "cores": threads}
    return probe.describe(here, FOUND, threads, SAMPLES)


def test_this_machine_has_the_cores_the_process_may_use(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "count_cores", lambda: 4)
    path = files.find_own_file(tmp_path)
    path.parent.mkdir()
    path.write_text(to_toml(described(8)))
    monkeypatch.setattr(files, "count_cores", lambda: 3)
    monkeypatch.setattr(files, "count_allowed", lambda: 5)
    for platform, expected in (
        (platforms.load("this", tmp_path), (3, 5)),
        (machines.platform("this", tmp_path, str(platforms.fingerprint()["key"]))[0], (3, 5)),
        (platforms.load(path), (4, 8)),
    ):
        cpu = platform.device("cpu")
        assert (cpu.cores.value, cpu.threads.value) == expected
    monkeypatch.setattr(files, "count_allowed", lambda: 64)
    assert platforms.load("this", tmp_path).device("cpu").threads.value == 8


def test_a_probe_of_a_part_warns_and_keeps_a_file_of_more(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(probe, "fingerprint", lambda: {"cores": 8, "gpus": []})
    monkeypatch.setattr(probe, "count_allowed", lambda: 2)
    monkeypatch.setattr(probe, "probe", lambda tell: described(2))
    path = tmp_path / "platform.toml"
    for _ in range(2):  # a file of as little may be replaced
        probe.write_probe(path)
        told = capsys.readouterr().err
        assert all(words in told for words in ("warning", "2 of the machine's 8"))
    path.write_text(before := to_toml(described(8)))
    with pytest.raises(PlatformError, match=r"with 8 .* 2 of the machine's 8 .* --out"):
        probe.write_probe(path)
    assert path.read_text() == before
    monkeypatch.setattr(probe, "count_allowed", lambda: 8)
    probe.write_probe(path)
    assert "warning" not in capsys.readouterr().err
    assert path.read_text() != before
