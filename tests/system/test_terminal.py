"""What all commands share: counts as people write them, output whose reader has gone, progress without a terminal."""

import argparse
import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.workers import Worker, WorkerFaultError
from dse import __main__ as dse_main
from dse.__main__ import main as ask
from dse.answers import tune
from dse.stats import geometric_mean
from impls import exits, terminal
from impls.terminal import Progress, amount, answering, count
from impls.training.interrupts import Interrupted
from tests.committed import DATA, ROOT
from tests.nursery import run_python

COUNTS = {10**6: "1000000 1_000_000 1e6 1E+6 1M 1m", 5 * 10**6: "5M", 10_000: "10k", 2 * 10**9: "2G", 2500: "2.5k"}
COUNTS |= {1500: "1.5e3", 500_000: ".5M", 300_000: "300,000", 1_234_567: "1,234,567.0", 0: "0", -3: "-3"}
COUNTS |= {10**18: "1e18", 10**18 - 1: "999999999999999999"}


REFUSED = {
    "1.5|1e-1|2.5|1.0001k||k|1kk|1 k|ten|nan|inf|0x10|1,00|1000,000|,000|1,0000": "1000000",
    "1e19|1e999|-1e19|1e18k|" + "9" * 5_000: "1e",
}


def test_a_count_is_taken_as_people_write_it_and_no_other():
    for number, texts in COUNTS.items():
        for text in (*texts.split(), f" {texts.split()[0]} "):
            assert (type(count(text)), count(text)) == (int, number)
    assert [amount(word) for word in ("0", "2.5", "1e3")] == [0.0, 2.5, 1000.0]
    refused = {(count, text): fact for texts, fact in REFUSED.items() for text in texts.split("|")}
    refused |= dict.fromkeys(((amount, text) for text in ("-1", "nan", "inf", "1e999", "9" * 400)), "0")
    for (read, text), fact in refused.items():
        with pytest.raises(argparse.ArgumentTypeError, match=fact) as refusal:
            read(text)
        assert read is amount or len(str(refusal.value)) < 160


# A reader that goes away


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("benchmarks list | head -1", 0, "machine ", ""),
        ("impls.training keys >&-", 0, "", ""),
        ("benchmarks --help | sleep 0", 0, "", ""),  # before the interpreter's last flush
        pytest.param(
            *("dse platform list >/dev/full", 2, "", "the output cannot be written (No space left on device)"),
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device"),
        ),
    ],
)
def test_output_without_a_reader_ends_a_command_in_silence(words, code, out, err):
    shell = ["bash", "-c", f"set -o pipefail; {sys.executable} -m {words}"]
    done = subprocess.run(shell, cwd=DATA, capture_output=True, text=True, check=False)
    assert (done.returncode, bool(done.stderr)) == (code, bool(err))
    assert done.stdout.startswith(out) and err in done.stderr and "Traceback" not in done.stderr


# What nobody foresaw

ENTRIES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for folder in exits.OURS
    for path in (ROOT / folder).rglob("*.py")
    if "\nif __name__ == " in path.read_text(encoding="utf-8") and not path.stem.endswith(("worker", "trainer"))
)
ENDS = [
    (BrokenPipeError("a worker has died"), 70),  # which is no pipe of the readers'
    (ValueError("odd"), 70),
    (ImportError("no batched", name="itertools"), 70),
    (ModuleNotFoundError("No module named 'impls.odd'", name="impls.odd"), 70),
    (ModuleNotFoundError("No module named 'yaml'", name="yaml"), 2),
    (MemoryError("for 8 GiB"), 2),
    (OSError(errno.EMFILE, "Too many open files"), 2),
]


SIGNALS = {"interrupted": (KeyboardInterrupt(), 130), "SIGTERM": (Interrupted(signal.SIGTERM), 143)}


def end_by(error):
    """The exit code of a command that raises an error."""

    def main():
        raise error

    return answering(main)


def test_only_a_fault_of_ours_ends_a_command_by_70(capsys):
    for error, code in ENDS:
        assert end_by(error) == code, error
        said = capsys.readouterr().err
        assert str(error) in said.splitlines()[-1]
        assert ("please report it" in said) == ("Traceback" in said) == (code == 70)
    for name, (signalled, code) in SIGNALS.items():
        assert end_by(signalled) == code
        said = capsys.readouterr().err
        assert name in said and "Traceback" not in said


@pytest.mark.parametrize("module", ENTRIES)
def test_a_fault_while_it_is_imported_ends_every_command_by_70(tmp_path, module):
    (tmp_path / "numpy.py").write_text("1 / 0")
    both = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = run_python("-P", "-m", module, folder=tmp_path, exit_code=70, PYTHONPATH=both)
    assert (done.stdout, done.stderr.count("Traceback")) == ("", 1)
    assert f"python -P -m {module}" in done.stderr.splitlines()[-1]


def test_a_value_error_that_we_do_not_raise_is_no_users_mistake(monkeypatch):
    broken = argparse.Namespace(add_to=tune.add_to, run=lambda _: geometric_mean([-1.0]))
    monkeypatch.setitem(dse_main._COMMANDS, "cores", broken)
    with pytest.raises(ValueError, match="math domain error"):
        ask(["cores", "--actors", "1:900", "--learners", "1:400", "--cores", "2"])


def test_a_fault_of_a_worker_is_its_parents_with_its_traceback():
    with Worker(Path(sys.executable)) as worker, pytest.raises(WorkerFaultError, match=r"70: .*nonsense") as raised:
        worker.ask("nonsense")
    assert "Traceback" in raised.value.__notes__[0]


IMPORTED = {
    "python -X dev -m impls.training list": True,
    "python -m dse": True,
    "python -m theirs -m": False,
    "python theirs.py": False,
    "python -m": False,
}


@pytest.mark.parametrize(("words", "is_quiet"), IMPORTED.items())
def test_ctrl_c_while_a_command_is_imported_has_no_traceback(monkeypatch, words, is_quiet):
    monkeypatch.setattr(sys, "orig_argv", words.split())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # so that it is put back
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        exits.until_ready()
        assert (signal.getsignal(signal.SIGINT) is signal.SIG_DFL) == is_quiet
        exits.ready()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        exits.until_ready()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# Progress


class Ticks:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self):
        return self.now


def test_without_a_terminal_a_line_is_shown_now_and_then(capsys, monkeypatch):
    clock = Ticks()
    with Progress(400, "cell", clock=clock) as progress:
        for _ in range(400):
            clock.now += 1.0
            progress.update(1, lambda: f"at {clock.now:g}")
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert len(lines) == 400 / terminal.EVERY_SECONDS // 1
    assert lines[0] == "30 of 400 cells (8%) after 30 s; at 30"
    assert lines[-1] == "390 of 400 cells (98%) after 390 s; at 390"
    for is_shown in (True, False):
        clock.now = 0.0
        progress = Progress(None, "round", bar=False, clock=clock, shown=is_shown)  # whose end is unknown
        progress.update(1, lambda: "here")
        clock.now = 31.0
        progress.update()
        assert capsys.readouterr().err == "2 rounds after 31 s; here\n" * is_shown
    monkeypatch.setattr(sys, "stderr", None)  # as where it was closed before we began
    progress = Progress(2, "cell", clock=clock)
    clock.now = 200.0
    progress.update()


@pytest.mark.parametrize(("columns", "is_bar"), [(0, False), (100, True)])
def test_a_terminal_without_a_size_has_lines_in_place_of_a_bar(monkeypatch, columns, is_bar):
    pty, termios = (pytest.importorskip(name, reason="this system has no terminals") for name in ("pty", "termios"))
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (0 if columns == 0 else 24, columns))
    clock = Ticks()
    with open(theirs, "w", buffering=1) as screen:  # noqa: PTH123  # a descriptor
        monkeypatch.setattr(sys, "stderr", screen)
        with Progress(4, "cell", clock=clock) as progress:
            progress.say("beginning")
            clock.now = 31.0
            progress.update()
        monkeypatch.undo()
    read = b""
    with contextlib.suppress(OSError):  # once all is read, on Linux
        while piece := os.read(ours, 4096):  # which may be less than what was written
            read += piece
    os.close(ours)
    shown = read.decode()
    assert ("1 of 4 cells (25%) after 31 s" in shown) == (not is_bar)
    assert ("beginning" in shown) == (not is_bar)
    assert ("1/4" in shown) == is_bar


def test_letters_that_the_output_has_not_are_escaped(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert answering(lambda: print("Gr\u00f6\u00dfe: 4 GiB") or 0) == 0
    assert written.getvalue() == b"Gr\\xf6\\xdfe: 4 GiB\n"
