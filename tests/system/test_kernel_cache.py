"""Kernels compiled once a machine: what ends a process in the middle, fills a disk or edits a file costs time alone."""

import errno
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import pytest

from tests.nursery import UNCOVERED, Nursery, run_python

numba = pytest.importorskip("numba", reason="kernels need numba")
from numba import types  # noqa: E402

import impls  # noqa: E402
from impls import files, replay  # noqa: E402
from impls.files import cache_folder  # noqa: E402
from impls.sumtree import compiling  # noqa: E402
from impls.sumtree.direct_calls import address_of  # noqa: E402
from impls.sumtree.lanes import unsigned_divide  # noqa: E402

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
CALLS = Nursery("tests.system.test_kernel_cache")
KEY, CODE = b"what the code depends on", bytes(range(256)) * 20


def divide(number, divisor):
    return unsigned_divide(number, divisor)


def answers(divisors):
    """(1024 // divisor, whether the code was on disk) of kernels that have the divisor in their code."""
    for divisor in divisors:
        signature = types.int64, types.literal(divisor)
        kernel = compiling.kept_njit(nogil=True)(divide)
        kernel.compile(signature)
        yield kernel.overloads[signature].entry_point(1024, 0), bool(kernel.stats.cache_hits)


def child(call):
    """Run a call in a forked child; returns the exit code, or minus the signal that ended it."""
    sys.stdout.flush()
    if (number := os.fork()) == 0:
        try:
            call()
            sys.stdout.flush()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def alone(call, folder, **environment):
    """What ``call``, an expression that may use this module's names, prints in a process with a cache of its own."""
    return CALLS.run(f"within({environment | {'FANOUT_CACHE_DIR': str(folder)}!r}, lambda: {call})", 120)


def within(environment, call):
    """Call with these variables."""
    os.environ.update(environment)
    tempfile.tempdir = None
    call()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of kernels in a cache of the test's own."""
    monkeypatch.setenv("FANOUT_CACHE_DIR", str(tmp_path / "cache"))
    files.warn_once.cache_clear()
    return cache_folder("kernels")


# Several processes


def race():
    """Two children write kernels for other signatures of one function, each in the middle of the other's writing."""
    replace, (read, write) = Path.replace, os.pipe()

    def late(path, target):
        os.write(write, b".")
        while len(list(target.parent.iterdir())) < 2:  # until the other has written its code aside
            time.sleep(0.001)
        time.sleep(0.05)
        return replace(path, target)

    Path.replace = late
    children = []
    for divisor in (4, 16):
        if (number := os.fork()) == 0:
            list(answers([divisor]))
            os._exit(0)
        children.append(number)
    assert [os.waitpid(number, 0)[1] for number in children] == [0, 0]
    assert len(os.read(read, 9)) == 2
    print(list(answers([4, 16])))


@needs_fork
def test_processes_that_write_at_once_find_each_its_own(tmp_path):
    assert alone("race()", tmp_path) == "[(256, True), (64, True)]\n"


def places(*numbers):
    """Where the kernels are that one function makes for some numbers: each once it is there, then all of them."""
    kernels, signature = [compiling.kept_njit(nogil=True)(made_for(number)) for number in numbers], (types.int64,)
    for kernel in kernels:
        kernel.compile(signature)
        yield address_of(kernel, signature)
    yield from (address_of(kernel, signature) for kernel in kernels)


def test_kernels_of_one_function_have_symbols_of_their_own(tmp_path):
    alone("list(places(1))", tmp_path)  # so that in each of two processes one is the first that is compiled
    first, second, *later = alone("print(*places(2, 1))", tmp_path).split()
    assert first != second and later == [first, second]


def killed():
    """A child is killed as it renames what it has written, and another one as it writes."""

    def end(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def in_the_middle(descriptor, mode):
        os.write(descriptor, b"half")
        end()

    def dies(owner, name, by):
        setattr(owner, name, by)
        list(answers([4]))

    assert child(lambda: dies(Path, "replace", end)) == -signal.SIGKILL
    assert child(lambda: dies(os, "fdopen", in_the_middle)) == -signal.SIGKILL
    for _ in range(2):
        assert child(lambda: print(list(answers([4])))) == 0


@needs_fork
def test_writers_that_are_killed_leave_nothing_that_counts(tmp_path):
    assert alone("killed()", tmp_path) == "[(256, False)]\n[(256, True)]\n"
    left = list((tmp_path / "kernels").glob(".part-*"))
    assert len(left) == 2
    compiling._trim(tmp_path / "kernels")  # they may have writers yet
    assert all(path.exists() for path in left)
    for path in left:
        os.utime(path, (0, 0))
    compiling._trim(tmp_path / "kernels")
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def test_what_is_not_whole_is_not_read(folder):
    path = folder / "one"
    compiling._write(path, KEY, CODE)
    whole = path.read_bytes()
    assert compiling._read(path, KEY) == CODE
    assert compiling._read(path, b"of other code") is None
    for size in (0, 1, 31, 32, 33, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert compiling._read(path, KEY) is None
    for at in (0, 31, 32, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert compiling._read(path, KEY) is None


def full():
    import resource  # noqa: PLC0415  # of POSIX

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    print(*answers([4, 16]), list(cache_folder("kernels").iterdir()))


@needs_fork
def test_a_full_disk_costs_compiling_and_one_warning(tmp_path):
    outcome, *warnings = sorted(alone("full()", tmp_path, **UNCOVERED).splitlines())
    assert outcome == "(256, False) (64, False) []"
    assert len(warnings) == 1 and "File too large" in warnings[0]


def test_what_cannot_be_written_whole_is_not_there(folder, monkeypatch):
    def no_room(descriptor, mode):
        os.write(descriptor, CODE[:100])
        os.close(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", no_room)
    with pytest.raises(OSError, match="No space left"):
        compiling._write(folder / "one", KEY, CODE)
    assert list(folder.iterdir()) == []


# The folder


def test_the_folder_is_the_users_and_where_variables_say(tmp_path, monkeypatch):
    for name in ("FANOUT_CACHE_DIR", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which counts as none
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    places = [cache_folder("kernels")]
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "FANOUT_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
        places.append(cache_folder("kernels"))
    monkeypatch.setenv("FANOUT_CACHE_DIR", "~/own")
    places.append(cache_folder("kernels"))
    expected = ["home/.cache/fanout", "XDG_CACHE_HOME/fanout", "NUMBA_CACHE_DIR/fanout", "FANOUT_CACHE_DIR", "home/own"]
    assert places == [tmp_path / place / "kernels" for place in expected]
    assert {place.stat().st_mode & 0o777 for place in places} == {0o700}


def others_can_write(folder, monkeypatch):
    folder.chmod(0o770)
    return "others can write to it"


def belongs_to_another(folder, monkeypatch):
    user, lstat = os.getuid(), Path.lstat
    as_if = [*os.stat_result(folder.lstat())]
    as_if[4] = user + 1
    monkeypatch.setattr(Path, "lstat", lambda path: os.stat_result(as_if) if path == folder else lstat(path))
    return f"it belongs to user {user + 1}"


def is_a_link(folder, monkeypatch):
    folder.rmdir()
    folder.symlink_to(folder.parent)
    return "it is no folder"


def is_below_no_home(folder, monkeypatch):
    monkeypatch.setenv("HOME", "~")  # as where the user has no entry in passwd
    for name in ("FANOUT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "~/.cache")  # which no shell has expanded
    return "there is no home folder"


def cannot_be_made(folder, monkeypatch):
    shutil.rmtree(folder.parent)
    folder.parent.write_text("a file where the folder should be")
    return "File exists"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
@pytest.mark.parametrize("spoil", [others_can_write, belongs_to_another, is_a_link, is_below_no_home, cannot_be_made])
def test_a_folder_that_is_not_the_users_alone_is_not_used(folder, spoil, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    why, instead = spoil(folder, monkeypatch), tmp_path / f"fanout-{os.getuid()}-kernels"
    assert [cache_folder("kernels") for _ in range(2)] == [instead] * 2
    (warning,) = capsys.readouterr().err.splitlines()
    where = "~/.cache/fanout/kernels" if spoil is is_below_no_home else folder
    assert not (tmp_path / "~").exists()
    assert warning.startswith(f"warning: {where} cannot be Fanout's cache ({why}")
    assert warning.endswith(f"so {instead} is; mend it, or set FANOUT_CACHE_DIR")
    instead.chmod(0o777)
    with pytest.raises(PermissionError, match="others can write"):
        cache_folder("kernels")


def anybody_can_write(entry, monkeypatch):
    entry.chmod(0o602)
    return "others can write to it"


def is_anothers(entry, monkeypatch):
    user, fstat = os.getuid(), os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result([*fstat(file)[:4], user + 1, *fstat(file)[5:]]))
    return f"it belongs to user {user + 1}"


def is_a_pipe(entry, monkeypatch):
    entry.unlink()
    os.mkfifo(entry, 0o600)
    return "it is no file"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
@pytest.mark.parametrize("spoil", [anybody_can_write, is_anothers, is_a_pipe])
def test_an_entry_that_others_may_have_left_is_replaced_unread(folder, spoil, monkeypatch, capsys):
    compiling._write(folder / "one", KEY, CODE)
    with monkeypatch.context() as patched:
        why = spoil(folder / "one", patched)
        assert compiling._read(folder / "one", KEY) is None
    assert capsys.readouterr().err == f"warning: {folder} holds compiled code that is not run, but replaced ({why})\n"
    compiling._write(folder / "one", KEY, CODE)
    assert compiling._read(folder / "one", KEY) == CODE


def test_the_folder_is_bounded_and_what_is_used_stays(folder, monkeypatch):
    monkeypatch.setattr(compiling, "MOST_BYTES", 4 * (len(CODE) + 32))
    for number in range(4):
        compiling._write(folder / str(number), KEY, CODE)
        os.utime(folder / str(number), (number + 1, number + 1))
    assert len(list(folder.iterdir())) == 4
    assert compiling._read(folder / "0", KEY) == CODE
    assert time.time() - (folder / "0").stat().st_mtime < 60
    compiling._write(folder / "4", KEY, CODE)
    assert {path.name for path in folder.iterdir()} == {"0", "3", "4"}
    assert compiling._read(folder / "1", KEY) is None


# What the code depends on


FOUR = types.int64, types.literal(4)


def key_of(signature=FOUR, function=divide, processor=("x86", "zen", ""), **options):
    class Codegen:
        def magic_tuple(self):
            return processor

    return compiling.KernelCache(function, "Dispatcher", options)._key(signature, Codegen())


def test_the_key_has_all_that_changes_machine_code(monkeypatch):
    point = [types.NamedTuple((types.int64,) * 2, namedtuple("Point", names)) for names in ("x y", "y x")]
    keys = [
        key_of(),
        key_of((types.int64, types.int64)),
        key_of(types.int64(types.int64, types.literal(4))),
        key_of((point[0],)),
        key_of((point[1],)),
        key_of((types.Tuple((point[0],)),)),
        key_of((types.Tuple((point[1],)),)),
        key_of(processor=("x86", "haswell", "")),
        key_of(function=lambda number: number + 1),
        key_of(function=lambda number: number + 2),
        key_of(fastmath={"reassoc"}),
        *(key_of(function=made_for(number)) for number in (1, 2)),
    ]
    for name in ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "ENABLE_AVX", "DEBUGINFO_DEFAULT", "CPU_FEATURES"):
        with monkeypatch.context() as patches:
            patches.setattr(numba.config, name, "another")
            keys.append(key_of())
    monkeypatch.setattr(compiling, "_machine", lambda: ("another processor or version",))
    keys.append(key_of())
    assert len(set(keys)) == len(keys)


def made_for(number):
    return lambda other: other + number


def test_the_text_is_that_of_a_module_and_of_all_it_imports_from(tmp_path):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "one.py").write_text("import os\nfrom numba import njit\nfrom .two import (  # noqa\n    A,\n)\n")
    (package / "two.py").write_text("from . import inner\nfrom .one import B\n")
    (package / "inner" / "__init__.py").write_text("def late():\n    from .. import three\n")
    for name in ("three", "other"):
        (package / f"{name}.py").write_text("A = 1\n")

    def text():
        compiling.text_of.cache_clear()
        compiling._module.cache_clear()
        return compiling.text_of(package / "one.py")

    texts = [text()]
    for name in ("one", "two", "inner/__init__", "three"):
        with (package / f"{name}.py").open("a") as file:
            file.write("C = 2\n")
        texts.append(text())
    assert len(set(texts)) == 5
    (package / "other.py").write_text("A = 2\n")
    assert text() == texts[-1]


# What users see


def test_a_numba_with_other_insides_compiles_and_says_so(monkeypatch, capsys):
    files.warn_once.cache_clear()
    function = object()
    assert compiling._keep(function, divide, {}) is function
    monkeypatch.setitem(sys.modules, "numba.core.ccallback", None)
    monkeypatch.setattr(numba, "cfunc", lambda signature, **options: lambda function: (signature, options))
    assert compiling.kept_cfunc(types.int64(), divide, nogil=True) == (types.int64(), {"nogil": True})
    assert f"warning: Fanout's cache does not know numba {numba.__version__}" in capsys.readouterr().err


def test_a_tree_loads_no_scipy_and_others_still_find_it():
    code = (
        "import sys, impls; impls.make('numba', 10); print('scipy' in sys.modules); "
        "from numba.np import arraymath, linalg; linalg.ensure_blas(); "
        "print(arraymath._HAVE_BLAS, 'scipy.linalg' in sys.modules)"
    )
    assert run_python("-c", code).stdout.split() == ["False", "True", "True"]


def test_warming_compiles_what_first_uses_would(monkeypatch, capsys):
    from impls import __main__ as command  # noqa: PLC0415
    from impls import training  # noqa: PLC0415

    begun = []
    monkeypatch.setattr(compiling.progress, "begin", lambda: begun.append(1))
    monkeypatch.setattr(command, "_FORMS", [(16, "float32")])
    monkeypatch.setattr(training, "names", lambda: ("cartpole_dqn", "pong_dqn"))
    for _ in range(2):
        assert command.main(["warm"]) == 0
        assert len(capsys.readouterr().err.splitlines()) == 4  # the tree, the replay, a learner, the end
        begun.clear()
    tree = impls.make("numba", 5_000)
    tree.update([1], [1.0])
    tree.sample([0.5])
    replay.make(50, replay.Layout((7,), "float64", choices=3), alpha=0.5, epsilon=0.1)
    assert begun == []
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert command.main(["warm"]) == 2
    assert "NUMBA_DISABLE_JIT" in capsys.readouterr().err
