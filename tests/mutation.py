"""Puts faults into copies of the code, one at a time, and sees whether the tests named for each catch it.

The faults are data: tests/mutants/*.toml, a file an area, with ``needs`` at its top where the tests need a module that
the project does not install (areas whose module is missing are left out), and each fault as ``[[mutant]]`` with

  name        what goes wrong
  file        where; left out where it is the one named before, by the entry above or at the top
  old         exact text that occurs once in the file
  new         what stands there instead; nothing where it is left out
  killer      the tests (pytest's node ids), the fewest and fastest, of which at least one fails under it; left out
              where they are those of the entry above
  equivalent  where no test can see it: why; it is then expected to live
  lives       where no test sees it yet: why; it is then expected to live

exit code 0: every mutant is killed but for at most 3, each with its reason; 1: it is not so.
"""

import argparse
import importlib.util
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from impls.terminal import plural

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tests/mutants"
MOST_ALIVE = 3
SECONDS = 180.0  # that the killers of a mutant may take
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--color=no", "--tb=no")
OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)
FAILED, PASSED = 1, 0  # pytest's exit codes


@dataclass(frozen=True)
class Mutant:
    """A fault: its area (the file's name), what it changes where, the tests that catch it, or why none does."""

    area: str
    name: str
    file: str
    old: str
    new: str = ""
    killer: tuple[str, ...] = ()
    equivalent: str = ""
    lives: str = ""

    @property
    def excuse(self) -> str:
        """The reason why it is expected to live, if it is."""
        return self.equivalent or self.lives

    def why_stale(self, root: Path) -> str:
        """Say why it cannot be put into the code as it is; nothing if it can."""
        path = root / self.file
        if not path.is_file():
            return f"no file {self.file}"
        count = path.read_text().count(self.old)
        if count != 1 or self.old == self.new:
            return "changes nothing" if self.old == self.new else f"its old text occurs {count} times in {self.file}"
        return "" if self.killer or self.excuse else "has no killer"


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


def read(root: Path = ROOT, areas: Sequence[str] = ()) -> list[Mutant]:
    """Read the mutants of these areas, all if none is named. ValueError for an area without a file, or a bad entry."""
    paths = {path.stem: path for path in sorted((root / FOLDER).glob("*.toml"))}
    if missing := set(areas) - set(paths):
        raise ValueError(f"no area {', '.join(sorted(missing))}; there are {', '.join(paths)}")
    found = []
    for area, path in paths.items():
        for entry in entries(path.read_text()) if not areas or area in areas else ():
            try:
                found.append(Mutant(area, **entry | {"killer": tuple(entry["killer"])}))
            except TypeError as error:
                raise ValueError(f"{path.name}, {entry.get('name')!r}: {error}") from None
    return found


def entries(text: str) -> list[dict[str, Any]]:
    """Read the entries of an area's file, each with the file that its fault is in and its killer: the last named."""
    area = tomllib.loads(text)
    found = [{"file": area.get("file", ""), "killer": []}]
    for entry in area.get("mutant", []):
        found.append({key: found[-1][key] for key in ("file", "killer")} | entry)
    return found[1:]


def left_out(root: Path = ROOT) -> dict[str, str]:
    """Areas whose tests need a module that is not installed here, and that module's name."""
    needs = {path.stem: tomllib.loads(path.read_text()).get("needs", "") for path in (root / FOLDER).glob("*.toml")}
    return {area: module for area, module in sorted(needs.items()) if module and not importlib.util.find_spec(module)}


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
        """Put a mutant in, run its killers, take it out."""
        path, begin = self.folder / mutant.file, time.monotonic()
        text, was = path.read_text(), path.stat()
        path.write_text(text.replace(mutant.old, mutant.new))
        self._count += 1
        # A time of its own, for Python's bytecode goes by time and size; afterwards the old one, so that its is good.
        os.utime(path, (self._count, self._count))
        try:
            done = self.pytest(mutant.killer, "-x", "-rfE")
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
    if done.returncode not in (PASSED, FAILED) and len(killers) > 1:  # one that is not there keeps all from running
        return {name: why for killer in killers for name, why in not_passing(copy, [killer]).items()}
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
            finish(Outcome(mutant, "lives", mutant.excuse))
        else:
            fresh.append(mutant)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as threads:
        copies = list(threads.map(lambda which: Copy(root, Path(folder) / str(which)), range(workers)))
        killers = sorted({killer for mutant in fresh for killer in mutant.killer})
        cut = -(-len(killers) // workers)
        shares = [killers[which * cut : (which + 1) * cut] for which in range(workers)]
        faults = {name: why for share in threads.map(not_passing, copies, shares) for name, why in share.items()}
        free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judge(mutant: Mutant) -> None:
            if bad := [f"{killer} {faults[killer]}" for killer in mutant.killer if killer in faults]:
                return finish(Outcome(mutant, "broken", "; ".join(bad)))
            copy = free.get()
            try:
                finish(copy.judge(mutant))
            finally:
                free.put(copy)
            return None

        list(threads.map(judge, fresh))
    return [results[mutant] for mutant in mutants]


def summary(outcomes: Sequence[Outcome]) -> tuple[bool, str]:
    """Say whether the run is as it should be, and its counts in a sentence."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if not outcome.is_right]
    good = not wrong and counts["lives"] <= MOST_ALIVE
    words = ", ".join(f"{counts[name]} {name}" for name in ("killed", "lives", "stale", "broken") if counts[name])
    why = f"; {len(wrong)} not as the list says" if wrong else ""
    why += f"; at most {MOST_ALIVE} may live" if counts["lives"] > MOST_ALIVE else ""
    return good, f"{plural(len(outcomes), 'mutant')}: {words or 'none'}{why}"


def as_row(outcome: Outcome) -> str:
    """Return an outcome as a line of the table."""
    mark = " " if outcome.is_right else "!"
    verdict = outcome.verdict.upper() if outcome.verdict == "lives" else outcome.verdict
    return (
        f"{mark} {verdict:6} {outcome.seconds:5.1f} s  {outcome.mutant.area}: {outcome.mutant.name}  [{outcome.detail}]"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants, print a table or JSON; return the exit code."""
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__, formatter_class=kind)
    parser.add_argument("--only", metavar="AREA", action="append", default=[], help="mutants of this file; repeatable")
    parser.add_argument("--named", metavar="TEXT", default="", help="mutants whose name has this in it")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="how many at a time")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    try:
        mutants = [mutant for mutant in read(ROOT, options.only) if options.named in mutant.name]
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
    good, words = summary(outcomes)
    if options.json:
        listed = [{**asdict(one.mutant), "verdict": one.verdict, "detail": one.detail} for one in outcomes]
        print(json.dumps({"good": good, "summary": words, "mutants": listed}))
    else:
        print("\n".join(map(as_row, outcomes)))
        print(f"{words} ({time.monotonic() - begin:.0f} s)")
    return 0 if good and outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
