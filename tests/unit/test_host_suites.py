"""The script that runs a host's own tests: ours are in its place meanwhile, and a broken tree must be noticed."""

from types import SimpleNamespace

import pytest

import impls
from tests import host_suites


@pytest.fixture
def suite(monkeypatch, tmp_path):
    """Called with pytest's answer and options: the exit code, and what the host's tests would have found."""

    def ran(answer, *options):
        installed, found = [], {}
        plugin = SimpleNamespace(install=lambda: installed.append("ours"), uninstall=installed.clear)

        def main(words):
            tree = impls.make("python", 2)
            tree.update([0], 1.0)
            found.update(installed=list(installed), drawn=int(tree.sample([0.5])[0][0]), words=words)
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(host_suites, "importlib", SimpleNamespace(import_module=lambda name: plugin))
            patch.setattr(pytest, "main", main)
            code = host_suites.main(["--host", "tianshou", "--tests", str(tmp_path), *options])
        assert installed == []
        return code, found

    return ran


@pytest.mark.parametrize(("answer", "code", "said"), [(0, 0, "all tests pass"), (1, 1, "some tests fail"), (5, 1, "5")])
def test_ours_is_in_the_hosts_place_while_its_tests_run(suite, capsys, tmp_path, answer, code, said):
    outcome, found = suite(answer, "--", "-k", "prioritized")
    assert outcome == code
    assert (found["installed"], found["drawn"]) == (["ours"], 0)
    assert (found["words"][0], found["words"][-2:]) == (str(tmp_path), ["-k", "prioritized"])
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "code"), [(0, 1), (1, 0), (2, 1)])
def test_with_broken_trees_the_hosts_tests_must_fail(suite, answer, code):
    outcome, found = suite(answer, "--broken")
    assert (outcome, found["drawn"]) == (code, 1)
    assert suite(0)[1]["drawn"] == 0


def test_a_missing_folder_or_host_is_one_sentence(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit):
        host_suites.main(["--host", "tianshou", "--tests", str(tmp_path / "none")])
    assert "get the host's repository" in capsys.readouterr().err

    def missing(name):
        raise ModuleNotFoundError("this plug-in works with tianshou; install one by: pip install tianshou")

    monkeypatch.setattr(host_suites, "importlib", SimpleNamespace(import_module=missing))
    with pytest.raises(SystemExit):
        host_suites.main(["--host", "tianshou", "--tests", str(tmp_path)])
    assert "install one by" in capsys.readouterr().err
