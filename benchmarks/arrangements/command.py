"""How fast is each arrangement of processes, and how near to the bound that its busiest part sets?

A workload is trained in turns (serial), with actors apart, and with a keeper of the replay besides (pipelined), at
update intervals of 1, 8 and 64: from a full replay on, by the default implementations. The bound is the rate at which
the kind of process that works most would never wait; its work is timed in the same run, beside the others. With --long
instead: how far do environment steps lead or lag the kept ratio over a million of them? Interrupt it as you like: the
same command goes on where it stopped. Records go to results/<machine>/arrangements.jsonl.
"""

import argparse
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from dse.records import Measurement, read_file
from impls.training import Workload, learners

from ..arguments import add_common, add_list, add_numbers, at_least, one_of, parser_of
from ..profile.command import workload_of
from ..run import Stamp, file_of, latest, run, show
from ..sentinels import Sentinels
from . import long
from .records import lines, rates, records
from .setting import PRIMITIVE, RATE, Setting

FILE, AGAIN = "arrangements.jsonl", f"{PRIMITIVE}_again"
WORKLOADS = ("cartpole_dqn", "hopper_ddpg")
INTERVALS, ACTORS, ENVIRONMENTS = (1, 8, 64), (1, 2), (1, 8)
DEPTHS = {"serial": 0, "apart": 0, "pipelined": 1}
"""D by arrangement; a keeper of the replay always samples ahead."""


def settings(workload: Workload, names: Sequence[str], intervals: Sequence[int]) -> list[Setting]:
    """List what is timed of a workload: every arrangement at every update interval, and apart at a free ratio."""
    by = dict.fromkeys(("learner", "policy"), learners.default(workload))
    shapes: list[dict[str, Any]] = [
        {"arrangement": name, "update_interval": interval, "actors": actors, "environments": count}
        for interval in intervals
        for name in names
        for actors, count in itertools.product((1,) if name == "serial" else ACTORS, ENVIRONMENTS)
    ]
    free = {"arrangement": "apart", "update_interval": 1, "actors": 1, "ratio": "free"}
    shapes += [{**free, "environments": count} for count in ENVIRONMENTS if "apart" in names]
    shared = {"batch": workload.learner.batch, **by}
    return [Setting.of(workload, {**one, **shared, "presampled": DEPTHS[one["arrangement"]]}) for one in shapes]


def measured(
    stamp: Stamp, twins: Sequence[Setting], seconds: float, warm: float, group: list[Setting]
) -> Iterator[Measurement]:
    """Yield the records of a group; of the settings among ``twins`` also those of a second run."""
    for setting in group:
        yield from records(stamp, setting, seconds, warm)
        if setting in twins:
            again = records(stamp, setting, seconds, warm, primitive=AGAIN)
            yield from (record for record in again if record.op == RATE)


def told(setting: Setting) -> str:
    """Describe a setting for the progress."""
    workload = setting.workload
    shape = f"A={workload.actors.count} E={workload.actors.environments} u={workload.learner.update_interval}"
    return f"{workload.name} {setting.name} {shape}{' free' * (setting.ratio == 'free')}"


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code: 0 done, 1 where settings failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    one_of(options.only, DEPTHS)
    workloads = [workload_of(name)[0] for name in options.workload]
    if options.long:
        return long.main(workloads[:1], options)
    path, stamp = file_of(options.results, FILE), Stamp.of_this_run(PRIMITIVE)
    every = [settings(workload, options.only, options.intervals) for workload in workloads]
    measure = functools.partial(measured, stamp, [own[0] for own in every], options.seconds, options.warm)
    how: dict[str, Any] = {"name": lambda one: stamp.cell(one.cell()), "told": told, "bar": not options.json}
    how |= {"is_final": lambda record: record.status != "failed", "sentinels": Sentinels(), "unit": "arrangement"}
    tally = run([[one] for own in every for one in own], path, stamp, measure, **how)
    rows = rates(latest(record for record in read_file(path) if stamp.covers(record)), PRIMITIVE)
    return show(tally, path, options.json, {"rates": rows}, lines(rows))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("arrangements", __doc__, "--workload cartpole_dqn --intervals 1,8")
    add_list(parser, "workload", str, default=WORKLOADS, help=f"names or files (default: {','.join(WORKLOADS)})")
    add_list(parser, "intervals", at_least(1, "u"), default=INTERVALS, help="update intervals u (default: 1,8,64)")
    add_list(parser, "only", str, default=tuple(DEPTHS), help=f"of {', '.join(DEPTHS)} (default: all)")
    seconds = {"seconds": (2.4, "seconds of timing a run"), "warm": (0.5, "seconds before them")}
    add_numbers(parser, **seconds, steps=(1_000_000, "environment steps of a long run"))
    parser.add_argument(
        "--long", action="store_true", help="instead: the kept ratio over long runs of the first workload"
    )
    return add_common(parser)
