"""Processes of a test's own: a Python with some words, or one that has a module imported and forks for each call.

Imports take longer than most calls do. Such a call runs in a child of a process with one thread, no tree and no kernel,
which is as good as a process of its own.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback

from tests.committed import ROOT

UNCOVERED = {"COVERAGE_PROCESS_START": "", "COVERAGE_PROCESS_CONFIG": ""}
"""Variables of a process without coverage: it may write no large file, or a thread of it ends it at any moment."""


def run_python(*words, folder=ROOT, exit_code=0, seconds=600, **environment):
    """Run Python with these words in a process that must end with the exit code; return what came of it."""
    how = {"cwd": folder, "env": os.environ | environment, "timeout": seconds}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **how)
    assert done.returncode == exit_code, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done


class Nursery:
    """Runs expressions that may use the names of a module, each in a process of its own; started by the first call."""

    def __init__(self, module):
        self._module, self._server = module, None

    def run(self, call, seconds):
        """What a call printed. AssertionError where it failed, TimeoutError where it took more than so many seconds."""
        server = self._started()
        with tempfile.NamedTemporaryFile() as printed:
            server.stdin.write(json.dumps([call, printed.name]).encode() + b"\n")
            child = int(server.stdout.readline())
            is_done, _, _ = select.select([server.stdout], [], [], seconds)
            if not is_done:
                os.kill(child, signal.SIGKILL)
            code, said = int(server.stdout.readline()), printed.read().decode(errors="replace")
        if not is_done:
            raise TimeoutError(f"{call} takes more than {seconds} s: {said[-4000:]}")
        assert code == 0, (code, said[-6000:])
        return said

    def _started(self):
        if self._server is None:
            code = f"import {self._module} as module; from tests.nursery import serve; serve(module)"
            command = [sys.executable, "-W", "ignore", "-c", code]
            # Without buffers, so that what is there to read is what select sees.
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
            self._server = subprocess.Popen(command, cwd=ROOT, **pipes)
            atexit.register(self._ended)
        return self._server

    def _ended(self):
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()


def serve(module):
    """Fork for each line of stdin, ``[call, file to print to]``; print the child's number, and its exit code."""
    for line in sys.stdin:
        call, path = json.loads(line)
        if (child := os.fork()) == 0:
            _run(call, path, vars(module))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(call, path, names):
    """Run a call in the child that was forked for it, as ``python -c`` would, and end."""
    # A process that a shell started in the background ignores Ctrl-C, and so would this one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code, printed = 0, os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    try:
        eval(call, names)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
