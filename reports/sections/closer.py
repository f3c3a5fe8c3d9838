"""The page's section of charts to look into: trees, other libraries, shared replays, and the parts of training."""

import pandas as pd

from dse.records import RecordError
from reports.claims.peer_claims import PEER

from ..chart import Material, Section
from ..look import Look, html
from ..tidy import OPS, PREFERRED_CAPACITY, tidy, where
from . import peers_figures, replay_figures, training_figures, tree_figures
from .answer import beside_others
from .replay_cells import REMARKS

PEERS = "make peers"
ALONG = {"fanout": "fanout K", "batch": "batch B", "capacity": "leaves N"}
MADE_OF = ("actor step", "learner step", "forward act", "numba draw", "numba update")


def trees(material: Material) -> pd.DataFrame:
    """Select every draw and update of a sweep."""
    rows = where(material.frame, primitive="sum_tree", op=OPS, distribution="uniform")
    return rows.assign(options=rows["options"].replace("", "default"))


def peers(material: Material) -> pd.DataFrame:
    """Select every draw and update of libraries and of ours, and both added; of another machine if need be.

    RecordError where there are none.
    """
    records, _ = beside_others(material)
    rows = peers_figures.peers(tidy(records)) if records else pd.DataFrame()
    if rows.empty:
        raise RecordError(f"no other library was timed; install and measure them: {PEERS}")
    whose = dict(zip(rows["label"], rows["ours"], strict=True))
    every = pd.concat([rows, peers_figures.both(rows)], ignore_index=True)
    return every.assign(
        label=every["label"].cat.rename_categories(lambda name: f"{name} (ours)" if whose[name] else name)
    )


def replays(material: Material) -> pd.DataFrame:
    """Select runs of actors and learners that share a replay, in microseconds a gradient step."""
    rows = replay_figures.shared(material)
    if rows.empty:
        return rows
    names = rows["label"].map(lambda name: f"{name} (not right)" if name in REMARKS else name)
    cores = rows["oversubscribed"].map({True: "more of them than cores", False: "a core each"})
    return rows.assign(label=names, oversubscribed=cores)


def training(material: Material) -> pd.DataFrame:
    """Select the parts of training systems that were timed alone, in microseconds a call."""
    parts = training_figures.parts(material.frame, *MADE_OF, by=training_figures.BY)
    rows = training_figures.called(training_figures.alone(parts), "us")
    return rows.assign(by=rows["by"].replace("", "neither"))


def section(material: Material) -> str:
    """Return every chart as HTML, and last why others are omitted."""
    return "".join(sorted((html(look, material) for look in LOOKS), key=lambda text: text.startswith("<p>")))


LOOKS = (
    Look(
        "look_trees",
        "Trees of ours: which one, at which K, N and B?",
        trees,
        "ns an element",
        {
            "op": "operation",
            "contestant": "implementation",
            **ALONG,
            "dtype": "dtype",
            "threads": "threads",
            "options": "layout and options",
        },
        across=("fanout", "batch", "capacity"),
        by=("capacity", "contestant", "fanout", "batch", "dtype", "threads", "options", "op"),
        usual={**tree_figures.USUAL, "op": "draw", "options": "default"},
        reading="Lower is faster. Every cell of the sweeps is here; hover over a point for its number and its source.",
        command="python -m benchmarks sweep --preset quick",
        figures=("fanout", "capacity", "batch"),
    ),
    Look(
        "look_peers",
        "Other libraries and ours: how far apart, at which B and N?",
        peers,
        "ns an element",
        {"op": "operation", "label": "implementation", **{name: ALONG[name] for name in ("batch", "capacity")}},
        across=("batch", "capacity"),
        by=("label", "op"),
        usual={"op": peers_figures.SUM, "batch": 128, "capacity": PREFERRED_CAPACITY},
        reading="Lower is faster. Implementations are in the order of their speed, ours before libraries. An interval "
        "of draw + update is those of both added.",
        command=PEERS,
        figures=("peers_batch", "peers_capacity"),
    ),
    Look(
        "look_replay",
        "A replay that actors and learners share: which locks?",
        replays,
        "us a gradient step",
        {
            "mode": "shared by",
            "label": "strategy",
            "threads": "actors and learners",
            "work": "sleep after each operation (us)",
            "oversubscribed": "cores",
        },
        across=("threads",),
        by=("label", "mode", "work", "oversubscribed"),
        usual={"mode": "processes", "work": 0},
        reading="Lower is faster. What is marked as not right is a bound, or may tear records.",
        command="python -m benchmarks run replay --only threads,processes",
        figures=("replay_locks",),
    ),
    Look(
        "look_training",
        "The parts of training: what takes how long, at which batch and on how many threads?",
        training,
        "us a call",
        {
            "workload": "workload",
            "part": "part",
            "by": "learner and policy by",
            "batch": "batch B",
            "threads": "threads",
        },
        across=("batch", "threads"),
        by=("part", "workload", "by", "threads", "batch"),
        usual={"workload": "cartpole_dqn", "part": "learner step", "by": "torch", "threads": 1},
        reading="Lower is faster. A learner's call is one gradient step, a tree's is one batch.",
        command="python -m benchmarks profile --workload cartpole_dqn",
        figures=("training_batch", "training_tree"),
    ),
)
SECTIONS = (
    Section(
        25, "Look closer", section, ("sum_tree", PEER, "replay_threads", "replay_processes", training_figures.PRIMITIVE)
    ),
)
