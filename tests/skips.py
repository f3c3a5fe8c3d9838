"""Which tests may be skipped, and why; under ``--strict-skips`` any other skip fails the run."""

import re
from typing import Any

import pytest

EXPECTED = {
    r"'cupy' needs the module 'cupy'|'cupy' needs a CUDA device|there is no CUDA device": "GPUs are rare",
    r"^a leaf of .* does not hold": "hardware's formats hold few priorities",
    r"found no g\+\+": "the compiler is the system's, and only the GPU's kernels need it",
    r"^found no Chromium": "a browser is the system's, and only tests of how the page looks need it",
    r"^this system has no |^sends SIGINT$|^needs POSIX|^targets are x86-64$|^there is no /dev/full$|"
    r"could not import '(fcntl|resource)'": "the system is another",
    r"^nextpnr-ecp5 is not installed": "it is 200 MB, and tests take the records of placed designs",
    r"^make peers has not been run$": "others' code takes minutes to install",
    r"^the plug-in '\w+' needs \S+: make plugins installs it$": "make plugins runs these",
}
"""Patterns of a skip's reason, each with why such skips are no loss."""
REMEDY = "install what is missing (make test does), or add the reason to EXPECTED in tests/skips.py"


def is_expected(reason: str) -> bool:
    """Tell whether a skip's reason is one of those that are no loss."""
    return any(re.search(pattern, reason) for pattern in EXPECTED)


class StrictSkips:
    """A plugin that collects unexpected skips, of tests and of whole files, and fails the run at its end."""

    def __init__(self) -> None:
        self.unexpected: dict[str, str] = {}

    def _note(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            reason = reason.removeprefix("Skipped: ")
            if not is_expected(reason):
                self.unexpected[report.nodeid] = reason

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a test that is skipped."""
        self._note(report)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that is skipped."""
        self._note(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        """Fail a run that passed otherwise."""
        if self.unexpected and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name what was skipped, and the remedy."""
        if self.unexpected:
            terminalreporter.section("unexpected skips fail this run", red=True)
            for name, reason in sorted(self.unexpected.items()):
                terminalreporter.line(f"{name}: {reason}")
            terminalreporter.line(REMEDY)
