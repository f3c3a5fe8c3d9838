"""Puts faults into copies of the code, one at a time, and sees whether the tests named for each catch it.

The faults are text: tests/mutants/*.txt, a file an area, in which lines that begin with ``#`` are comments,
``file: PATH`` names the file that its faults are in, and ``needs: MODULE`` a module that the tests need and the project
does not install (areas whose module is missing are left out). A fault is two lines, or three:

    what goes wrong
        old -> new
            why no test can see it, or none does yet; it is then expected to live

``old`` occurs once in the file, ``new`` stands there instead (nothing, where it is left out), and a line break in
either is written as a return sign. A fault of another file begins with its path, or with as much of its end as only one
file has: ``kernels/updating.py: old -> new``. The tests that catch each, the fewest and fastest, of which at least one
fails under it, stand in tests/data/kept/killers.json, which ``--find`` writes.

exit code 0: every mutant is killed but for at most 3, each with its reason; 1: it is not so.
"""

import argparse
import importlib.util
import itertools
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from impls.terminal import plural
from tests import durations

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tests/mutants"
MOST_ALIVE = 3
SECONDS = 180.0  # that the killers of a mutant may take
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--color=no", "--tb=no")
OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)
FAILED, PASSED = 1, 0  # pytest's exit codes
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # that end an interpreter
KILLERS = "killers.json"
PORTIONS = (0, 8, 40, 120, 480)  # of the tests that enter a fault, run at a time where its killer is looked for
KEPT = "tests/system/test_kept.py::test_nothing_that_was_kept_has_changed[{}]"
LAST = {  # tests that take a minute, by where a fault is: whether what was kept is what there is, and of the page
    "impls/fpga/": ("tests.golden",),
    "impls/replay/": ("tests.curves",),
    "impls/sumtree/": ("tests.curves",),
    "impls/training/": ("tests.curves", "tests.settings"),
    "dse/": ("tests.golden", "tests.options_net"),
    "benchmarks/": ("tests.cells",),
    "reports/": ("reports.readmes --check",),
}
PAGE = ("tests/page/test_page.py", "tests/page/test_sections.py")
RETURN, EXCUSE = "\N{RETURN SYMBOL}", 8 * " "
CHANGE = re.compile(r"    (?:([\w./-]+\.(?:cpp|css|cu|html|js|json|md|py|toml|txt|v)): )?(.*?) ->(?: (.*))?")
NEEDS = re.compile(r"^needs: (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A fault: its area (the file's name), what it changes where, the tests that catch it, or why none does."""

    area: str
    name: str
    file: str
    old: str
    new: str = ""
    excuse: str = ""
    killer: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the name by which its killers are kept."""
        return f"{self.area}: {self.name}"

    def why_stale(self, root: Path) -> str:
        """Say why it cannot be put into the code as it is; nothing if it can."""
        path = root / self.file
        if not path.is_file():
            return f"no file {self.file}, or more files that end so"
        count = path.read_text().count(self.old)
        if count != 1 or self.old == self.new:
            return "changes nothing" if self.old == self.new else f"its old text occurs {count} times in {self.file}"
        return ""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: ``verdict`` is killed, lives, stale or broken (no verdict: ``detail`` says why)."""

    mutant: Mutant
    verdict: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether it is as the list says: killed, or alive with a reason."""
        return self.verdict == ("lives" if self.mutant.excuse else "killed")


def read(root: Path = ROOT, areas: Sequence[str] = (), folder: str = FOLDER) -> list[Mutant]:
    """Read the mutants of these areas, all if none is named. ValueError for an area without a file, or a bad line."""
    paths = {path.stem: path for path in sorted((root / folder).glob("*.txt"))}
    if missing := set(areas) - set(paths):
        raise ValueError(f"no area {', '.join(sorted(missing))}; there are {', '.join(paths)}")
    files, killers, found = _listed(root, "--cached", "--others"), read_killers(root, folder), []
    for area in areas or paths:
        try:
            faults = entries(paths[area].read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{paths[area].name}, {error}") from None
        for fault in faults:
            named = [file for file in files if f"/{file}".endswith(f"/{fault['file']}")]
            fault["file"] = named[0] if len(set(named)) == 1 else fault["file"]
            found.append(Mutant(area, **fault, killer=killers.get(f"{area}: {fault['name']}", ())))
    return found


def read_killers(root: Path = ROOT, folder: str = FOLDER) -> dict[str, tuple[str, ...]]:
    """Read the tests that catch each fault, by its area and name."""
    path = _path_of_killers(root, folder)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {key: tuple(tests) if isinstance(tests, list) else (tests,) for key, tests in kept.items()}


def write_killers(killers: Mapping[str, Sequence[str]], root: Path = ROOT, folder: str = FOLDER) -> None:
    """Write the tests that catch each fault, a line a fault."""
    rows = {key: tests[0] if len(tests) == 1 else list(tests) for key, tests in sorted(killers.items())}
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(tests)}" for key, tests in rows.items())
    _path_of_killers(root, folder).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _path_of_killers(root: Path, folder: str) -> Path:
    return root / ("tests/data/kept" if folder == FOLDER else folder) / KILLERS


def entries(text: str) -> list[dict[str, str]]:
    """Read the faults of an area's file: name, file, old and new text, excuse. ValueError for a line that is none."""
    faults: list[dict[str, str]] = []
    default, name = "", ""
    for line in text.splitlines():
        if not line or line.startswith(("#", "needs: ")):
            continue
        if line.startswith("file: "):
            default = line.removeprefix("file: ")
        elif not line.startswith("    "):
            name = line
        elif line.startswith(EXCUSE) and not name:
            faults[-1]["excuse"] = line.strip()
        elif name and (change := CHANGE.fullmatch(line)):
            file, old, new = (part or "" for part in change.groups())
            old, new = (part.replace(RETURN, "\n") for part in (old, new))
            faults.append({"name": name, "file": file or default, "old": old, "new": new})
            name = ""
        else:
            raise ValueError(f"{line.strip()!r}: write a line with the fault's name, then `    old -> new`")
    return faults


def left_out(root: Path = ROOT) -> dict[str, str]:
    """Return the areas whose tests need a module that is not installed here, with that module's name."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((root / FOLDER).glob("*.txt"))}
    needs = {area: found[1] for area, text in texts.items() if (found := NEEDS.search(text))}
    return {area: module for area, module in needs.items() if not importlib.util.find_spec(module)}


class Copy:
    """A copy of the working tree, to put one mutant at a time into; all copies share a cache of compiled kernels."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self._cache, self._count = folder / "tree", folder.parent / "cache", 0
        subprocess.run(["git", "clone", "-q", "--shared", str(root), str(self.folder)], check=True, capture_output=True)
        for name in _listed(root, "--modified", "--others", "--deleted"):
            target = self.folder / name
            if (root / name).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, target)
            else:
                target.unlink(missing_ok=True)

    def pytest(self, killers: Iterable[str], *more: str, seconds: float = SECONDS) -> Any:
        """Run tests here. subprocess.TimeoutExpired."""
        command = [sys.executable, *PYTEST, *more, *killers]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "FANOUT_CACHE_DIR": str(self._cache),
            "COLUMNS": "1000",  # so that no node id is cut off
        }
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )

    def judge(self, mutant: Mutant) -> Outcome:
        """Put a mutant in, run its killers until one fails, take it out."""
        path, begin = self.folder / mutant.file, time.monotonic()
        text, was = path.read_text(), path.stat()
        path.write_text(text.replace(mutant.old, mutant.new))
        self._count += 1
        # A time of its own, for Python's bytecode goes by time and size; afterwards the old one, so that its is good.
        os.utime(path, (self._count, self._count))
        try:
            done = self.pytest(mutant.killer, "-x", "-rfE", seconds=SECONDS + 3 * len(mutant.killer))
        except subprocess.TimeoutExpired:
            return Outcome(mutant, "broken", f"its killers take more than {SECONDS:.0f} s", time.monotonic() - begin)
        finally:
            path.write_text(text)
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        seconds = time.monotonic() - begin
        if done.returncode == FAILED:
            return Outcome(mutant, "killed", ", ".join(name for _, name in OUTCOME.findall(done.stdout)), seconds)
        if done.returncode == PASSED:
            return Outcome(mutant, "lives", mutant.excuse or "no killer fails", seconds)
        if -done.returncode in CRASHES and len(mutant.killer) == 1:
            return Outcome(mutant, "killed", mutant.killer[0], seconds)
        if -done.returncode in CRASHES:  # which of them ended the interpreter is found by halves
            halves = mutant.killer[: len(mutant.killer) // 2], mutant.killer[len(mutant.killer) // 2 :]
            outcomes = (self.judge(replace(mutant, killer=half)) for half in halves)
            found = next((outcome for outcome in outcomes if outcome.verdict == "killed"), None)
            return replace(found or Outcome(mutant, "broken", _last_line(done), seconds), mutant=mutant)
        return Outcome(mutant, "broken", _last_line(done), seconds)


def _listed(root: Path, *kinds: str) -> list[str]:
    command = ["git", "-C", str(root), "ls-files", "-z", "--exclude-standard", *kinds]
    return [
        name for name in subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0") if name
    ]


def not_passing(copy: Copy, killers: Sequence[str]) -> dict[str, str]:
    """Run killers on the code as it is; return those that do not pass, and why."""
    if not killers:
        return {}
    seconds = SECONDS + 10 * len(killers)
    try:
        done = copy.pytest(killers, "-rpfE", seconds=seconds)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(killers, f"takes too long without it: {len(killers)} tests more than {seconds:.0f} s")
    if done.returncode not in (PASSED, FAILED) and len(killers) > 1:  # a test that is not there keeps all from running
        halves = killers[: len(killers) // 2], killers[len(killers) // 2 :]
        return not_passing(copy, halves[0]) | not_passing(copy, halves[1])
    outcomes = [(name, outcome) for outcome, name in OUTCOME.findall(done.stdout)]
    faults = {}
    for killer in killers:
        inside = (f"{killer}[", f"{killer}::")
        here = {outcome for name, outcome in outcomes if name == killer or name.startswith(inside)}
        if here != {"PASSED"}:
            faults[killer] = "fails without it" if here else f"does not run here, {_last_line(done)}"
    return faults


def _last_line(done: Any) -> str:
    return str((done.stdout + done.stderr).strip().rpartition("\n")[2])


def run(mutants: Sequence[Mutant], root: Path = ROOT, workers: int = 2, told: Any = None) -> list[Outcome]:
    """Judge mutants, several at a time, each worker in a copy of its own; ``told`` is called with each outcome."""
    lock, results = threading.Lock(), {}

    def finish(outcome: Outcome) -> None:
        with lock:
            results[outcome.mutant] = outcome
            if told:
                told(outcome, len(results))

    fresh = []
    for mutant in mutants:
        if reason := mutant.why_stale(root):
            finish(Outcome(mutant, "stale", reason))
        elif not mutant.killer:
            finish(Outcome(mutant, "lives", mutant.excuse or "has no killer"))
        else:
            fresh.append(mutant)
    killers = sorted({killer for mutant in fresh for killer in mutant.killer})
    cut = -(-len(killers) // workers) or 1
    shares = [killers[low : low + cut] for low in range(0, len(killers), cut)]
    with Copies(root, workers) as copies:
        faults = {name: why for share in copies.map(not_passing, shares) for name, why in share.items()}

        def judge(copy: Copy, mutant: Mutant) -> None:
            bad = [f"{killer} {faults[killer]}" for killer in mutant.killer if killer in faults]
            finish(Outcome(mutant, "broken", "; ".join(bad)) if bad else copy.judge(mutant))

        copies.map(judge, fresh)
    return [results[mutant] for mutant in mutants]


class Copies:
    """Several copies of the working tree, which work at once; a context."""

    def __init__(self, root: Path, count: int) -> None:
        self._folder, self._threads = tempfile.TemporaryDirectory(), ThreadPoolExecutor(count)
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(count):
            self._free.put(Copy(root, Path(self._folder.name) / str(number)))

    def __enter__(self) -> "Copies":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        self._folder.cleanup()

    def map(self, work: Callable[[Copy, Any], Any], items: Iterable[Any]) -> list[Any]:
        """Call ``work`` with a free copy and each item; return what it returns."""

        def call(item: Any) -> Any:
            copy = self._free.get()
            try:
                return work(copy, item)
            finally:
                self._free.put(copy)

        return list(self._threads.map(call, items))


def list_candidates(mutant: Mutant, root: Path = ROOT) -> list[str]:
    """List the tests that enter the lines of a fault; where none does, as in compiled code, those of what imports it.

    Those that are quick and enter little of a file come first, one case of each test before the second of any.
    """
    from coverage import CoverageData  # noqa: PLC0415  # where a killer is looked for

    data = CoverageData(str(root / ".coverage"))
    data.read()

    def lines_of(path: Path) -> dict[int, set[str]]:
        """Return the tests that enter each line; of a process that a test starts it is that test, and its phase."""
        names = data.contexts_by_lineno(str(path))
        return {line: {re.sub(r" \(\w+\)$", "", name) for name in names[line]} - {""} for line in names}

    path = root / mutant.file
    text = path.read_text(encoding="utf-8")
    first = text[: text.index(mutant.old)].count("\n") + 1
    lines = lines_of(path)
    entered = Counter(name for names in lines.values() for name in names)
    found = set().union(*(lines.get(line, ()) for line in range(first, first + mutant.old.count("\n") + 1)))
    if not found:
        imported = re.compile(rf"^(from|import|   ) [\w., ()]*\b{path.stem}\b", re.MULTILINE)
        others = [
            other for other in path.parents[1].rglob("*.py") if imported.search(other.read_text(encoding="utf-8"))
        ]
        entered.update(name for other in others for names in lines_of(other).values() for name in names)
        found = set(entered)
    seconds = durations.read()
    tests = Counter(name.partition("::")[0] for name in data.measured_contexts())
    costs = {
        name: entered[name] * (0.2 + seconds.get(name.partition("::")[0], 60.0) / tests[name.partition("::")[0]])
        for name in found
        if not re.search(r"[ \[]/", name)  # it names a path of this checkout, which a copy has not
    }
    cases, turns = Counter[str](), {}
    for name in sorted(costs, key=lambda name: (costs[name], name)):
        turns[name] = cases[test := name.partition("[")[0]]
        cases[test] += 1
    return sorted(turns, key=turns.__getitem__)


def find_killer(copy: Copy, mutant: Mutant) -> tuple[str, str]:
    """Find a test that fails under a fault among the nearest that enter it, in portions; else say what is known."""
    entering, unjudged = list_candidates(mutant, ROOT), []
    last = [KEPT.format(name) for place, names in LAST.items() if mutant.file.startswith(place) for name in names]
    last += PAGE if mutant.file.startswith("reports/") else ()
    # Invariant: the portions before pass under the fault, fail without it too, or are named in ``unjudged``.
    first, *others = (entering[low:high] for low, high in itertools.pairwise(PORTIONS))
    for tests in (first, last, *others):
        portion = tests
        while portion:
            outcome = copy.judge(replace(mutant, killer=tuple(portion)))
            killer = outcome.detail.partition(", ")[0]
            if outcome.verdict == "killed" and not not_passing(copy, [killer]):
                return killer, ""
            unjudged += [outcome.detail] if outcome.verdict == "broken" else []
            is_known = outcome.verdict == "killed" and killer in portion
            portion = portion[portion.index(killer) + 1 :] if is_known else []
    if unjudged or not entering:
        return "", f"not judged: {'; '.join(unjudged) or 'no test enters it'}"
    nearest = f"the nearest {min(len(entering), PORTIONS[-1])} of {plural(len(entering), 'test')}"
    return "", f"lives under {nearest}{', and what was kept' * bool(last)}"


def find_killers(outcomes: Sequence[Outcome], root: Path = ROOT, workers: int = 2, folder: str = FOLDER) -> None:
    """Find and keep a killer of each fault that no test kills; drop the killers of faults that are gone."""
    alive = [outcome.mutant for outcome in outcomes if outcome.verdict in ("lives", "broken") and not outcome.is_right]
    killers = {mutant.key: mutant.killer for mutant in read(root, folder=folder) if mutant.killer}
    lock = threading.Lock()

    def find(copy: Copy, mutant: Mutant) -> None:
        killer, why_not = find_killer(copy, mutant)
        print(f"{mutant.key}: {killer or why_not}", file=sys.stderr, flush=True)
        with lock:  # kept at once, for the next may take minutes
            killers.update({mutant.key: (killer,)} if killer else {})
            write_killers(killers, root, folder)

    write_killers(killers, root, folder)
    with Copies(root, workers) as copies:
        copies.map(find, alive)


def has_contexts(root: Path = ROOT) -> bool:
    """Say whether it is known which test enters which line."""
    from coverage import CoverageData  # noqa: PLC0415  # where a killer is looked for

    data = CoverageData(str(root / ".coverage"))
    data.read()
    return bool(data.measured_contexts() - {""})


def summary(outcomes: Sequence[Outcome], most_alive: int = MOST_ALIVE) -> tuple[bool, str]:
    """Say whether the run is as it should be, and its counts in a sentence."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if not outcome.is_right]
    good = not wrong and counts["lives"] <= most_alive
    words = ", ".join(f"{counts[name]} {name}" for name in ("killed", "lives", "stale", "broken") if counts[name])
    why = f"; {len(wrong)} not as the list says" if wrong else ""
    why += f"; at most {most_alive} may live" if counts["lives"] > most_alive else ""
    return good, f"{plural(len(outcomes), 'mutant')}: {words or 'none'}{why}"


def as_row(outcome: Outcome) -> str:
    """Return an outcome as a line of the table."""
    mark = " " if outcome.is_right else "!"
    verdict = outcome.verdict.upper() if outcome.verdict == "lives" else outcome.verdict
    return (
        f"{mark} {verdict:6} {outcome.seconds:5.1f} s  {outcome.mutant.area}: {outcome.mutant.name}  [{outcome.detail}]"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants, print a table; return the exit code."""
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__, formatter_class=kind)
    parser.add_argument("--only", metavar="AREA", action="append", default=[], help="mutants of this file; repeatable")
    parser.add_argument("--named", metavar="TEXT", default="", help="mutants whose name has this in it")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="how many at a time")
    parser.add_argument(
        "--folder", default=FOLDER, help="faults of another folder, where any number may live for a reason"
    )
    text = (
        "then find killers of those that live, by the tests that `python -m tests.run --contexts` saw enter each line"
    )
    parser.add_argument("--find", action="store_true", help=text)
    options = parser.parse_args(arguments)
    if options.find and not has_contexts(ROOT):
        print("error: no test is known to enter a line; first: python -m tests.run --contexts", file=sys.stderr)
        return 2
    try:
        mutants = [mutant for mutant in read(ROOT, options.only, options.folder) if options.named in mutant.name]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for area, module in left_out(ROOT).items():
        if any(mutant.area == area for mutant in mutants):
            print(f"{area} is left out: it needs {module}; make plugins installs it", file=sys.stderr)
            mutants = [mutant for mutant in mutants if mutant.area != area]

    def told(outcome: Outcome, count: int) -> None:
        print(f"{count} of {len(mutants)}: {as_row(outcome)}", file=sys.stderr, flush=True)

    begin = time.monotonic()
    outcomes = run(mutants, ROOT, max(1, options.workers), told)
    if options.find:
        find_killers(outcomes, ROOT, max(1, options.workers), options.folder)
    good, words = summary(outcomes, MOST_ALIVE if options.folder == FOLDER else len(outcomes))
    print("\n".join(map(as_row, outcomes)))
    print(f"{words} ({time.monotonic() - begin:.0f} s)")
    return 0 if good and outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
