"""The libraries that are timed beside ours: what a file of one states, and how they are installed."""

import json

import pytest

import impls
from benchmarks import install
from benchmarks.libraries import base
from benchmarks.libraries.base import Buffer, Host, Loop, Tree

VERSIONS = {line.partition("==")[0].lower().replace("_", "-") for line in install.CONSTRAINTS.read_text().splitlines()}


def normal(requirement):
    return requirement.partition("[")[0].lower().replace("_", "-")


@pytest.mark.parametrize("role", [Tree, Buffer, Loop, Host])
def test_every_role_names_distributions_whose_version_is_fixed(role):
    for name, kind in base.roles(role).items():
        assert (name, kind.__doc__ is None) == (kind.name, False)
        assert {normal(need) for need in (kind.package, *kind.alone, *kind.needs)} <= VERSIONS, name


def test_a_plug_in_times_the_tree_of_its_kind():
    ((tree, _),) = base.hosts()["sb3"].methods(base.PYTHON)
    assert isinstance(impls.make("python", 4), tree)


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


def test_hosts_come_with_what_the_plug_ins_tests_need_and_without_rays(asked):
    assert install.main(["--hosts", "torchrl", "sb3"]) == 0
    everything = [word for words in asked if isinstance(words, tuple) for word in words]
    assert {"--editable", "sb3-contrib", "tensordict", *install.TESTS} <= set(everything)
    assert "ray" not in everything


def test_without_a_build_of_torch_for_cpus_the_rest_is_installed(asked, monkeypatch, capsys):
    gpu = json.dumps({"install": [{"metadata": {"requires_dist": ["nvidia-cublas"]}}]})
    monkeypatch.setattr(install, "pip", lambda *words, constraints: gpu)
    assert install.main(["tianshou"]) == 0
    assert "GPU build" in capsys.readouterr().out.splitlines()[0]
