"""Runs a host's own tests with our classes in the place of the host's, which the plug-in's install() puts there.

    python -m tests.host_suites --host tianshou --tests DIR [--broken] [-- PYTEST'S OPTIONS]

DIR are the tests of the host's repository, at the version that is installed: wheels do not ship them. With --broken our
trees draw one leaf too far right, and a suite that looks at draws must fail. Exit code: 0 if the tests pass; with
--broken, if some of them fail.
"""

import argparse
import contextlib
import importlib
import os
import sys
import time
from pathlib import Path

import pytest

from tests.plugin_hosts import broken

HOSTS = ("tianshou", "torchrl", "rllib")  # Stable-Baselines3 has no prioritized replay that tests could be of


def main(arguments: list[str] | None = None) -> int:
    """Run the tests of a folder or a file; return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.host_suites", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", required=True, choices=HOSTS)
    parser.add_argument("--tests", required=True, type=Path, help="folder or file of the host's own tests")
    parser.add_argument("--broken", action="store_true", help="trees that are off by one leaf: some test must fail")
    parser.add_argument("pytest", nargs="*", help="after --: pytest's options, such as -k prioritized")
    options = parser.parse_args(arguments)
    if not options.tests.exists():
        parser.error(
            f"no folder {options.tests}; get the host's repository at the installed version and name its tests"
        )
    try:
        plugin = importlib.import_module(f"impls.plugins.{options.host}")
    except ImportError as error:
        parser.error(str(error))
    tests, begin = options.tests.resolve(), time.monotonic()
    with contextlib.ExitStack() as stack:
        if options.broken:
            stack.enter_context(broken())
        plugin.install()
        stack.callback(plugin.uninstall)
        stack.callback(os.chdir, Path.cwd())
        os.chdir(tests if tests.is_dir() else tests.parent)  # so that no option of ours is taken for the host's
        code = int(pytest.main([str(tests), "-q", "-p", "no:cacheprovider", *options.pytest]))
    failed = code == pytest.ExitCode.TESTS_FAILED
    good = failed if options.broken else code == pytest.ExitCode.OK
    what = "off by one leaf" if options.broken else "ours"
    found = {pytest.ExitCode.OK: "all tests pass", pytest.ExitCode.TESTS_FAILED: "some tests fail"}
    said = found.get(pytest.ExitCode(code), f"pytest ended with {code}")
    seconds, right = time.monotonic() - begin, "as it should be" if good else "not as it should be"
    print(f"{options.host}, trees {what}: {said}, {right} ({seconds:.0f} s)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
