"""Judge what [Zhang2021] says its replay gains inside RLlib (Fig. 11), by training steps of libraries on our trees.

The paper times training steps of two algorithms in RLlib, with a replay of its own in the place of RLlib's. Here a step
of each library is timed on its own replay and on ours; what a tree that takes no time would give stands next to it.
"""

from collections.abc import Mapping, Sequence

from dse import stats
from dse.records import Record, how_to_measure, in_order

from . import fanout_curves
from .claims import Claim, not_run
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2021]", 4
PRIMITIVE = "plugin"
STEP, TREE = "step", "tree"
BUFFER, OURS, JUDGED = "buffer", "ours", "rllib"
OWN = ("theirs", "uniform")  # a library's own replay
Key = tuple[str, str]
Times = tuple[float, float, float]
"""A ratio of times: its median and both ends of its 95 % interval."""


def latest(records: Sequence[Record]) -> list[Record]:
    """Select the latest record of each cell, A/A twins too, of the code that timed plug-ins last."""
    own = in_order(record for record in records if record.primitive in (PRIMITIVE, f"{PRIMITIVE}_again"))
    last = own[-1].run.code if own else None
    return list({record.cell: record for record in own if record.run.code == last}.values())


def by_step(records: Sequence[Record]) -> dict[Key, dict[tuple[str, str], Record]]:
    """Group the timed cells by host and task, then by kind and op."""
    groups: dict[Key, dict[tuple[str, str], Record]] = {}
    for record in latest(records):
        if record.primitive == PRIMITIVE and record.samples_seconds:
            key = record.contestant, str(record.options["task"])
            groups.setdefault(key, {})[str(record.options["kind"]), record.op] = record
    return groups


def own_kind(cells: Mapping[tuple[str, str], Record]) -> str | None:
    """Return the name of the library's own replay among the cells of a task, None where it was not timed."""
    return next((kind for kind in OWN if (kind, STEP) in cells), None)


def share(cells: Mapping[tuple[str, str], Record], kind: str) -> float | None:
    """The share of a kind's step that the tree's calls take, None where that was not timed."""
    step, tree = cells.get((kind, STEP)), cells.get((kind, TREE))
    return tree.seconds / step.seconds if step and tree else None


def verdicts(records: Sequence[Record], quoted: Quoted = NOTHING) -> list[Claim]:
    """Judge the gain of a training step; no claim where it is not quoted."""
    printed = quoted.table("zhang2021.plugins")
    if not printed:
        return []
    least, most = printed["least"], printed["most"]
    text = (
        f"Plugged into RLlib, the replay makes a training step {least:g} to {most:g} times faster (abstract, VI-E and "
        "Fig. 11)."
    )
    groups = {key: cells for key, cells in by_step(records).items() if key[1] != BUFFER}
    gains = {
        key: stats.speedup(cells[own, STEP], cells[OURS, STEP])
        for key, cells in groups.items()
        if (own := own_kind(cells)) and (OURS, STEP) in cells
    }
    judged = {key: times for key, times in gains.items() if key[0] == JUDGED}
    if not judged:
        would = f"RLlib in an environment of its own ({how_to_measure('run plugins')})"
        return [not_run(text, "no training step of RLlib was timed on both replays", would)]
    worst = min(judged.values(), key=lambda times: times[1])
    is_below = any(times[2] < least for times in judged.values())
    rounds = min(len(groups[key][OURS, STEP].samples_seconds) for key in judged)
    said = [_said(key, times, groups[key]) for key, times in sorted(gains.items(), key=lambda one: one[0][0] != JUDGED)]
    return [
        Claim(
            text,
            fanout_curves.verdict(1 if worst[1] >= least else -int(is_below)),
            f"{'; '.join(said)}; on one core, where the paper has several, and with RLlib as it is today",
            f"confirmed if the 95 % interval of the gain in RLlib is at or above {least:g} in every algorithm timed; "
            "refuted if it lies below in one; not testable here in between",
            f"medians over at least {rounds} rounds, whose 95 % intervals reach {_reach(worst):.0%} to each side: a "
            "gain at the limit passes in 2.5 % of cases, one as far above it in 97.5 %",
        )
    ]


def _said(key: Key, times: Times, cells: Mapping[tuple[str, str], Record]) -> str:
    own = own_kind(cells)
    part = share(cells, own) if own else None
    most = f", at most {1 / (1 - part):.2f} by a tree that takes no time" if part is not None and part < 1 else ""
    uniform = ", whose own replay is uniform" if own == "uniform" else ""
    return f"{key[0]} {key[1]}{uniform}: {times[0]:.2f} [{times[1]:.2f}, {times[2]:.2f}]{most}"


def _reach(times: Times) -> float:
    return max(times[2] / times[0] - 1, 1 - times[1] / times[0])
