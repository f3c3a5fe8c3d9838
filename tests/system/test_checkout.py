"""What the user's environment and settings do to what git, pip and make are asked: nothing."""

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import compare, workers
from dse import platforms
from dse.platforms import checkout
from impls import files
from tests.committed import ROOT
from tests.repositories import commit, git


def repository(folder, **texts):
    """A repository with a commit of these files; returns its folder and the commit."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder, commit(folder)


@pytest.fixture
def ours(tmp_path):
    """A repository whose last commit is of results alone, after one of code."""
    folder, _ = repository(tmp_path / "ours", code="x = 1\n")
    _, head = repository(folder, **{"results/kept": "1\n"})
    files.warn_once.cache_clear()
    return SimpleNamespace(folder=folder, head=head)


def test_a_hook_of_another_repository_does_not_lend_its_commit(ours, tmp_path, monkeypatch):
    other, _ = repository(tmp_path / "other", file="not ours")
    for name, value in (("DIR", ".git"), ("WORK_TREE", "."), ("INDEX_FILE", ".git/index"), ("LITERAL_PATHSPECS", "1")):
        monkeypatch.setenv(f"GIT_{name}", str(other / value) if value != "1" else value)
    assert platforms.commit(ours.folder) == (ours.head, False)
    assert compare.resolve("HEAD", ours.folder) == ours.head
    with checkout.files_at(ours.folder, "HEAD") as files:
        assert "code" in files.getnames()


MONITOR = "#!/bin/sh\nprintf 'token\\0'\n"  # of files; it says that none was changed


def test_what_a_user_has_set_of_git_changes_no_answer(ours, tmp_path, monkeypatch):
    (tmp_path / "monitor").write_text(MONITOR)
    (tmp_path / "monitor").chmod(0o755)
    settings = {"core.fsmonitor": str(tmp_path / "monitor"), "color.ui": "always", "diff.external": "false"}
    settings |= {"status.branch": "true", "status.showUntrackedFiles": "all", "log.showSignature": "true"}
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for number, (name, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    git(ours.folder, "status")  # which has git keep what the monitor says
    (ours.folder / "not-tracked").write_text("")
    assert platforms.commit(ours.folder) == (ours.head, False)
    (ours.folder / "code").write_text("x = 3\n")
    assert platforms.commit(ours.folder) == (ours.head, True)


def test_settings_of_git_that_say_what_may_be_read_are_kept(ours, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(ours.folder))
    assert checkout.git(ours.folder, "config", "--get", "safe.directory") == str(ours.folder)


def test_who_cannot_tell_a_commit_says_why_once(ours, tmp_path, monkeypatch, capsys):
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{ours.folder}", str(shallow))
    assert platforms.commit(shallow) == (ours.head, False)
    with pytest.raises(ValueError, match=r"'HEAD~1'.*unshallow"):
        compare.resolve("HEAD~1", shallow)
    ignored = ours.folder / "environment"  # such as site-packages within a user's own repository
    ignored.mkdir()
    assert platforms.commit(ignored, is_told=False) == (None, None)
    assert capsys.readouterr().err == ""
    assert platforms.commit(ignored) == (None, None)
    assert "environment" in capsys.readouterr().err
    with pytest.raises(ValueError, match="'HEAD'"):
        compare.resolve("HEAD", ignored)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for _ in range(2):
        assert platforms.commit(ours.folder) == (None, None)
    assert capsys.readouterr().err.count("install") == 1
    with pytest.raises(ValueError, match=r"'HEAD'.*git.*install"):
        compare.resolve("HEAD", ours.folder)


# Environments of Python


def test_pip_is_told_where_packages_come_from_not_where_they_go(monkeypatch):
    ran = []
    monkeypatch.setattr(workers, "quietly", lambda command, env: ran.append((command, env)))
    away = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_NO_DEPS")
    kept = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "PIP_FIND_LINKS", "PIP_CERT", "HTTPS_PROXY")
    for name in (*away, *kept):
        monkeypatch.setenv(name, "theirs")
    workers.install_into(Path("a/python"), "a-package", PIP_CONSTRAINT="versions")
    ((command, env),) = ran
    assert not env.keys() & set(away)
    assert {env[name] for name in kept} == {"theirs"}
    assert env["PIP_CONSTRAINT"] == "versions"
    assert command[:2] == ["a/python", "-I"]  # nor what lies in the working folder
    assert command[-1] == "a-package"
    own, other = workers.environment(Path(sys.executable)), workers.environment(Path("a/python"), [ROOT / "dse"])
    assert (own["PYTHONPATH"], own["PYTHONHOME"]) == (f"{ROOT}{os.pathsep}theirs", "theirs")
    assert (other["PYTHONPATH"], other.get("PYTHONHOME")) == (str(ROOT / "dse"), None)


@pytest.fixture
def made(ours, monkeypatch):
    """Installs that write a file as slowly as pip; returns the list of their names."""
    names = []

    def install(name, python, source):
        assert (source / "code").exists()
        names.append(name)
        with (python.parent.parent / "written").open("a") as file:
            for _ in range(4):
                file.write(name)
                time.sleep(0.02)

    monkeypatch.setattr(compare, "_install", install)
    monkeypatch.setattr(compare.venv, "create", lambda folder, **_: folder.mkdir())
    return names


def test_of_two_compares_one_installs_a_commit_and_one_waits(ours, made, capsys):
    with ThreadPoolExecutor(2) as pool:
        both = [one.python for one in pool.map(lambda _: compare.install("HEAD", ours.folder), range(2))]
    assert [(python.parent.parent / "written").read_text() for python in both] == ["HEAD" * 4] * 2
    assert made == ["HEAD"]
    assert "waits" in capsys.readouterr().err


def test_an_unfinished_or_anothers_environment_is_made_anew(ours, made, monkeypatch):
    install = compare._install

    def fails(name, python, source):
        install(name, python, source)
        raise compare.BrokenCommitError("it installs, but cannot be imported")

    monkeypatch.setattr(compare, "_install", fails)
    with pytest.raises(compare.BrokenCommitError):
        compare.install("HEAD", ours.folder)
    monkeypatch.setattr(compare, "_install", install)
    first = compare.install("HEAD", ours.folder).python
    assert (first.parent.parent / "written").read_text() == "HEAD" * 4
    assert compare.install("HEAD", ours.folder).python == first
    monkeypatch.setattr(compare.sys, "version", "4.0")
    assert compare.install("HEAD", ours.folder).python != first
    assert made == ["HEAD"] * 3


def test_what_keeps_a_commit_from_being_made_is_a_sentence(ours, monkeypatch):
    monkeypatch.setattr(compare, "files_at", lambda *_: checkout.files_at(ours.folder, "0" * 40))
    with pytest.raises(compare.BrokenCommitError, match=r"HEAD cannot be installed: .*0000"):
        compare.install("HEAD", ours.folder)
    (ours.folder / ".compare").rename(ours.folder / "away")
    (ours.folder / ".compare").write_text("no folder")
    with pytest.raises(compare.BrokenCommitError, match="HEAD cannot be installed"):
        compare.install("HEAD", ours.folder)


@pytest.mark.parametrize("kind", ["link", "copy"])
def test_a_copied_checkout_times_its_own_suite(kind, tmp_path):
    there = tmp_path / "another" / "benchmarks"
    there.mkdir(parents=True)
    link = compare.suite(tmp_path / "one") / "benchmarks"
    assert not link.readlink().is_absolute()
    link.unlink()
    link.symlink_to(there) if kind == "link" else shutil.copytree(there, link)
    assert (compare.suite(tmp_path / "one") / "benchmarks").samefile(ROOT / "benchmarks")
    assert [path.name for path in (tmp_path / "one" / ".compare").iterdir()] == ["suite"]
