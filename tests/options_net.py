"""Every option that the solver is fed, written down: time, interval and needs, for timed workloads on five platforms.

    python -m tests.options_net            compare with what was written; exit code 1 where anything differs
    python -m tests.options_net --changed  the same, and what differs, a line each
    python -m tests.options_net --write    write what there is now, where a change is meant

Numbers are compared to 1e-12 of their size. The three objectives are fed the same options, at the depths that each is
asked with, so what differs between them stands beside the options.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from dse.mapping.processes import ExecutionMode
from dse.mapping.question import ask
from dse.solver.problem import ProblemError
from impls.training import timed_names
from tests.committed import COMMITTED

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_name("data") / "kept" / "options_net.json.gz"
PLATFORMS = ("edge", "u200", "h200", *(f"results/{key}/platform.toml" for key in ("8fb834d50a", "d7dae63b89")))
FREE = {"ratio": (), "training": ("presampled",), "per_watt": ()}
CLOSE = 1e-12
Net = dict[str, list[float]]
"""By what an option is called: its time with both ends, what it needs, and what each batch ahead takes more."""


def name_mode(mode: ExecutionMode) -> str:
    """Name an execution mode as the kept numbers do."""
    if not mode.actors:
        return mode.arrangement
    more = [mode.combined] * (mode.how.learners > 1)
    return ", ".join([mode.arrangement, str(mode.actors), mode.learner, mode.policy, *more])


def fed(platform: str, workload: str) -> Iterator[tuple[str, list[float]]]:
    """What the solver is fed of a question: the depths by objective, and each option of each execution mode."""
    where = str(COMMITTED.parent / platform) if "/" in platform else platform
    for objective, free in FREE.items():
        try:
            problems = ask(where, workload, objective, free=free, results=COMMITTED).built().problems
        except ProblemError as error:
            yield f"{objective}: {error}", []
            continue
        for mode, problem in ((name_mode(mode), problem) for mode, problem in problems.items()):
            yield f"{objective}, {mode}: depths", [float(depth) for depth in problem.depths]
            if objective == "ratio":
                yield from ((f"{mode}: {name}", numbers) for name, numbers in _options(problem.axes))


def _options(axes: Collection) -> Iterator[tuple[str, list[float]]]:
    known: dict[str, int] = {}
    for option in (option for axis in axes for choice in axis for option in choice):
        budgets = [*sorted(option.needs), *(f"+{name}" for name in sorted(option.ahead))]
        name = f"{option.part} {option.name} on {option.where} takes {', '.join(budgets)}"
        known[name] = known.get(name, 0) + 1
        taken = [each[name] for each in (option.needs, option.ahead) for name in sorted(each)]
        yield f"{name} #{known[name]}", [option.time.value, option.time.low, option.time.high, *map(float, taken)]


def net(platforms: Collection[str] = PLATFORMS, workloads: Collection[str] = timed_names()) -> Net:
    """All options, by platform, workload and what they are called."""
    return {
        f"{platform}, {workload}, {name}": numbers
        for platform in platforms
        for workload in workloads
        for name, numbers in fed(platform, workload)
    }


def written(platforms: Collection[str] = PLATFORMS) -> Net:
    """What was written of some platforms."""
    known: Net = json.loads(gzip.decompress(FILE.read_bytes()))
    return {name: numbers for name, numbers in known.items() if name.startswith(tuple(f"{one}, " for one in platforms))}


def changes(before: Net, after: Net) -> Iterator[str]:
    """What differs, a line each."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"{'added' if old is None else 'gone'}: {name}"
        elif len(old) != len(new) or any(
            abs(a - b) > CLOSE * max(abs(a), abs(b)) for a, b in zip(old, new, strict=True)
        ):
            yield f"changed: {name}: {old} before, {new} now"


def main(arguments: list[str] | None = None) -> int:
    """Compare, and print how much differs."""
    parser = argparse.ArgumentParser("python -m tests.options_net", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--changed", action="store_true", help="list what differs, a line each")
    parser.add_argument("--write", action="store_true", help="write what there is now")
    options = parser.parse_args(arguments)
    now = net()
    if options.write:
        FILE.write_bytes(gzip.compress(json.dumps(now, separators=(",", ":")).encode(), mtime=0))
    differ = list(changes(written(), now))
    print(f"{len(now):,} rows of options and depths; {len(differ):,} differ")
    print(*differ if options.changed else (), sep="\n", end="\n" if options.changed and differ else "")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
