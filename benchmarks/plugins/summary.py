"""What the records of plug-ins say: times of a step, ratios to the host's own, and the tree's share."""

from collections.abc import Sequence
from typing import Any

from dse import stats
from dse.records import Measurement, twins

from .cells import PRIMITIVE, STEP, TREE
from .host import hosts


def of(found: Sequence[Measurement]) -> dict[str, Any]:
    """Return the summary as JSON takes it: a row for each host, task and kind, and what has no time.

    A share is that of the tree's calls in a step, and ``most`` how many times as fast the step would be without them.
    """
    cells = {
        (record.contestant, record.options["task"], record.options["kind"], record.op): record
        for record in found
        if record.primitive == PRIMITIVE
    }
    rows = []
    for (host, task, kind, op), record in cells.items():
        if op == STEP and record.samples_seconds:
            first = cells.get((host, task, hosts()[host].kinds[0], STEP))
            tree = cells.get((host, task, kind, TREE))
            has_times = bool(first and first.samples_seconds and first is not record)
            share = stats.speedup(tree, record) if tree and tree.samples_seconds else None
            rows.append(
                {
                    "host": host,
                    "task": task,
                    "kind": kind,
                    "seconds": [record.seconds, record.low_seconds, record.high_seconds],
                    "is_unstable": record.status == "unstable",
                    "times": stats.speedup(first, record) if first and has_times else None,
                    "share": share,
                    "most": 1 / (1 - share[0]) if share and share[0] < 1 else None,
                }
            )
    absent = [
        {"host": host, "task": task, "kind": kind, "status": record.status, "reason": record.reason}
        for (host, task, kind, op), record in cells.items()
        if op == STEP and not record.samples_seconds
    ]
    return {"rows": rows, "absent": absent, "noise_floor": stats.noise_floor(twins(found, PRIMITIVE))}


def lines(found: dict[str, Any]) -> list[str]:
    """Return the summary as a table, with what has no time beneath."""
    text = [f"{'host':10}{'task':15}{'kind':18}{'step (us)':>12}{'times as fast':>24}{'tree':>8}{'without it':>12}"]
    for row in found["rows"]:
        times = "{:.2f} [{:.2f}, {:.2f}]".format(*row["times"]) if row["times"] else ""
        share = f"{row['share'][0]:.0%}" if row["share"] else ""
        most = f"{row['most']:.2f}" if row["most"] else ""
        step = f"{1e6 * row['seconds'][0]:,.1f}{'*' if row['is_unstable'] else ' '}"
        text.append(f"{row['host']:10}{row['task']:15}{row['kind']:18}{step:>12}{times:>24}{share:>8}{most:>12}")
    text += [f"not timed, {one['host']}, {one['task']}, {one['kind']}: {one['reason']}" for one in found["absent"]]
    floor = f"a step timed twice differs by up to {found['noise_floor']:.1%}" if found["rows"] else "nothing was timed"
    return [*text, f"{floor}; * unstable, its interval is wide; without it: most that a tree could gain"]
