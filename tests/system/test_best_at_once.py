"""Processes and threads that ask for the best tree at once, as seeds and ranks do: each gets its tree."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dse import race_trees

ROOT = Path(__file__).resolve().parents[2]
BEST = """
import sys, threading, time, dse
def ask():
    print(dse.best(int(sys.argv[1]), 64, seconds=0.2, {}).capacity)
for one in [threading.Thread(target=ask) for _ in range(int(sys.argv[2]))]:
    one.start()
"""
STAYS = "progress=lambda *_: (print('racing', flush=True), time.sleep(600))"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begin a process that asks for the best tree of so many leaves, in an empty cache; nothing is compiled."""
    monkeypatch.setenv("FANOUT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    begun = []

    def start(capacity, more="", threads=1):
        words = [sys.executable, "-c", BEST.format(more), str(capacity), str(threads)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen(words, cwd=ROOT, **pipes))
        return begun[-1]

    yield start
    for one in begun:
        one.kill()
        one.communicate()


def races(folder):
    return sum(len(path.read_text().splitlines()) for path in folder.rglob(race_trees.FILE))


def test_processes_and_threads_that_ask_at_once_each_get_a_tree(begin, tmp_path):
    asked = [begin(900), begin(900, threads=2), begin(800)]
    assert [one.communicate(timeout=120)[0] for one in asked] == ["900\n", "900\n" * 2, "800\n"]
    assert races(tmp_path) == 2  # one of each question


def test_a_killed_race_keeps_no_other_waiting(begin, tmp_path):
    first = begin(900, STAYS)
    assert first.stdout.readline() == "racing\n"
    second = begin(900)
    assert "waiting" in second.stderr.readline()
    first.send_signal(signal.SIGKILL)
    assert second.communicate(timeout=120)[0] == "900\n"
    assert races(tmp_path) == 1
