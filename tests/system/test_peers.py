"""Other libraries: what each states, how it is made and installed, and checks that find what is wrong with a tree."""

import json
import sys

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import accuracy, install
from benchmarks.cases import Case
from benchmarks.libraries import base
from benchmarks.libraries.base import Buffer, Host, Loop, Tree
from benchmarks.topics import peers as peers_command
from benchmarks.workers import ROOT, Untimed, Worker, WorkerError
from dse import records
from dse.accuracy import ACCURACY_FILE, CHECKS, read
from impls.sumtree.oracle import Oracle


class Honest(base.Tree):
    """A naive float64 tree in the clothes of a library."""

    package, rule = "honest", "smallest i with p_0 + .. + p_i > mass"

    def _allocate(self):
        self.oracle = Oracle(self.slots, self.dtype.name)

    def update(self, indices, priorities):
        self.oracle.leaves[indices] = priorities

    def get(self, indices):
        return self.oracle.get(indices)

    def sample(self, uniforms):
        indices = self.prefix_sum_index(np.minimum(uniforms * self.total(), np.nextafter(self.total(), 0)))
        return indices, self.get(indices)

    def prefix_sum_index(self, mass):
        if (mass >= self.total()).any():
            raise ValueError("mass")
        return self.oracle.prefix_sum_index(mass)

    def total(self):
        return self.oracle.total()


class AtLeast(Honest):
    """By >= instead of >, and answering whatever it is asked."""

    def prefix_sum_index(self, mass):
        return np.searchsorted(self.oracle.leaves.cumsum(), mass, side="left")


class FirstWins(Honest):
    """Of equal indices the first wins."""

    def update(self, indices, priorities):
        super().update(indices[::-1], priorities[::-1])


class Drifting(Honest):
    """Every update leaves some of itself in the root."""

    left_over = 0.0

    def update(self, indices, priorities):
        self.left_over += 1e-6 * float(np.sum(priorities))
        super().update(indices, priorities)

    def total(self):
        return super().total() + self.left_over


class Shifted(Honest):
    """One leaf too far, at times beyond the last."""

    def prefix_sum_index(self, mass):
        return super().prefix_sum_index(mass) + 1


@pytest.fixture
def few(monkeypatch):
    for name, value in {"TARGETS": 500, "LEAVES": 2_000, "DRAWS": 20_000, "PART": 1_000, "UPDATES": 4_000}.items():
        monkeypatch.setattr(accuracy, name, value)


def findings(kind):
    found = accuracy.checks(lambda name, capacity, dtype: kind(capacity, dtype), "made-up", "float64", seed=0)
    assert [one["check"] for one in found] == list(CHECKS)
    return {one["check"]: one["value"] for one in found}


@pytest.mark.usefixtures("few")
def test_the_checks_find_what_is_wrong_and_nothing_else():
    honest = findings(Honest)
    assert honest.pop("drift") < 1e-9
    assert set(honest.values()) == {0}
    liars = (AtLeast, FirstWins, Drifting, Shifted)
    wrong = {kind: {check for check, value in findings(kind).items() if value > 1e-9} for kind in liars}
    assert wrong[AtLeast] == {"zero_leaf_at_0", "at_total"}
    assert wrong[FirstWins] == {"duplicates"}
    assert "drift" in wrong[Drifting]
    assert {"wrong_leaf", "zero_leaf"} <= wrong[Shifted]


def test_a_library_that_is_not_here_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "editable" not in repr(finder)])
    with pytest.raises(RuntimeError, match="cpprb needs the module 'cpprb', which is not installed; try: make peers"):
        base.make_tree("cpprb", 8)
    with pytest.raises(ValueError, match="tianshou has float64 sums"):
        base.make_tree("tianshou", 8, dtype="float32")


def test_a_worker_prepares_samples_and_dies_with_a_reason():
    with Worker(sys.executable, [ROOT]) as worker:
        assert 0 < worker.prepare(case=Case("numpy", "draw", 100, 8), seed=0).sample() < 1
        refused = worker.prepare(case=Case("numpy", "draw", 100, 8, threads=2), seed=0)
        assert refused == Untimed("skipped", "NumpyTree works on one thread: threads must be 1, not 2")
        assert worker.ask("versions", packages=["numpy", "no-such-package"]) == {"numpy": np.__version__}
        worker._process.kill()
        with pytest.raises(WorkerError, match="ended by SIGKILL"):
            worker.ask("forget")


def test_the_command_writes_records_checks_and_reasons(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers_command, "SAMPLE_SECONDS", 0.001)
    arguments = ["peers", "--python", sys.executable, "--results", str(tmp_path), "--budget", "0", "--json"]
    cells = ["--contestants", "numpy,cpprb", "--capacity", "500", "--batches", "1,20", "--capacities", "64"]
    assert command.main([*arguments, *cells, "--no-accuracy"]) == 0
    (path,) = tmp_path.glob("*/peers.jsonl")
    found = records.read_file(path)
    shapes = {(one.op, one.capacity, one.batch, one.primitive) for one in found if one.contestant == "numpy"}
    assert shapes == {
        (op, capacity, batch, primitive)
        for op in ("draw", "update")
        for capacity, batch in ((500, 1), (500, 20), (64, 128))
        for primitive in ("peer", "peer_again")
    } | {("draw", 500, peers_command.SHARED_BATCH, "peer_shared")}
    assert {one.threads for one in found if one.primitive == "peer_shared"} == {1, 2}
    absent = [one for one in found if one.contestant == "cpprb"]
    assert {one.status for one in absent} == {"skipped"}
    assert "make peers" in absent[0].reason
    assert "cpprb" in str(json.loads(capsys.readouterr().out)["skipped_by_reason"])
    assert command.main([*arguments, *cells, "--no-accuracy", "--dry-run"]) == 0
    assert ", 14 of them cached" in capsys.readouterr().err
    assert {one.machine["packages"]["numpy"] for one in found if one.contestant == "numpy"} == {np.__version__}
    assert not path.with_name(ACCURACY_FILE).exists()
    assert command.main([*arguments, "--contestants", "cpprb", *cells[2:]]) == 2  # nothing has a time
    assert read(path.with_name(ACCURACY_FILE)) == []
    with pytest.raises(records.RecordError, match="cannot be read"):
        read(tmp_path / ACCURACY_FILE)
    (tmp_path / ACCURACY_FILE).write_text('[{"contestant": "numba"}]')  # of another version
    with pytest.raises(records.RecordError, match="make peers"):
        read(tmp_path / ACCURACY_FILE)


# How they are installed


VERSIONS = {line.partition("==")[0].lower().replace("_", "-") for line in install.CONSTRAINTS.read_text().splitlines()}


def normal(requirement):
    return requirement.partition("[")[0].lower().replace("_", "-")


def test_every_role_names_distributions_whose_version_is_fixed():
    for name, kind in (one for role in (Tree, Buffer, Loop, Host) for one in base.roles(role).items()):
        assert {normal(need) for need in (kind.package, *kind.alone, *kind.needs)} <= VERSIONS, name


@pytest.fixture
def asked(monkeypatch):
    """Words that pip is asked for, and code that is run to see that a role is there: nothing is installed."""
    words = []

    def pip(*arguments, constraints):
        words.append(arguments)
        if "sumtree" in arguments:
            raise install.LeftOutError("no such version")
        return json.dumps({"install": [{"metadata": {}}]})

    def run(code):
        words.append(code)
        if "sumtree" in code or "VectorBuffer" in code:
            raise install.LeftOutError("it does not load")

    monkeypatch.setattr(install, "pip", pip)
    monkeypatch.setattr(install, "check_runs", run)
    return words


def test_each_role_of_a_library_is_there_or_left_out_by_itself(asked, capsys):
    assert install.main(["tianshou", "sumtree"]) == 0
    assert asked[1] == ("torch",)
    assert ("--no-deps", "tianshou") in asked
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "sumtree: no such version",
        "sumtree: a tree is left out, it does not load",
        "tianshou: a tree",
        "tianshou: a buffer",
        "tianshou_vector: a buffer is left out, it does not load",
        "tianshou: a training loop",
    ]
    assert install.main(["sumtree"]) == 1
    asked.clear()
    assert install.main(["--hosts", "torchrl", "sb3"]) == 0
    everything = {word for words in asked if isinstance(words, tuple) for word in words}
    assert {"--editable", "sb3-contrib", "tensordict", *install.TESTS} <= everything and "ray" not in everything


def test_without_a_build_of_torch_for_cpus_the_rest_is_installed(asked, monkeypatch, capsys):
    gpu = json.dumps({"install": [{"metadata": {"requires_dist": ["nvidia-cublas"]}}]})
    monkeypatch.setattr(install, "pip", lambda *words, constraints: gpu)
    assert install.main(["tianshou"]) == 0
    assert "GPU build" in capsys.readouterr().out.splitlines()[0]
