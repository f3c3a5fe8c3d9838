"""The rows that the figures of other libraries show, every contestant under one label and at one place in the order."""

import numpy as np
import pandas as pd

from dse.published.peer_claims import BATCH, PEER, is_ours

from .table import OPS, PREFERRED_CAPACITY, where

NAMED = {"validate=False": "unchecked", "launch=graph": "graph"}  # options that are called otherwise
GPU = "gpu"  # the primitive of trees on a device, timed beside each other
SUM = "draw + update"
KINDS = ["contestant", "dtype", "options"]


def label(contestant: str, dtype: str, options: str, dtypes: int) -> str:
    """A contestant's name, its dtype if it was measured in several, its options.

    >>> label("torchrl", "float32", "", 2), label("cupy", "float32", "launch=graph,validate=False", 1)
    ('torchrl float32', 'cupy, graph, unchecked')
    """
    name = f"{contestant} {dtype}" if dtypes > 1 else contestant
    return ", ".join([name, *(NAMED.get(option, option) for option in options.split(",") if option)])


def peers(frame: pd.DataFrame, primitive: str = PEER) -> pd.DataFrame:
    """Draws and updates of libraries and of ours beside them, by one thread, with ``label`` and ``ours``.

    ``label`` is categorical: ours first, then libraries, each from the fastest to the slowest in the geometric mean.
    ``place`` is the label's among ours or among the libraries, ``tree`` that of its contestant, ``variant`` that of its
    options and dtype among those of its contestant.
    """
    rows = where(frame, primitive=primitive, op=OPS, threads=1, distribution="uniform")
    rows = rows.assign(contestant=rows["contestant"].astype(str), cost=np.log(rows["ns"]))
    rows["ours"] = rows["contestant"].map(is_ours).astype(bool)
    dtypes = rows.groupby("contestant")["dtype"].nunique()
    rows["label"] = [label(*kind, dtypes[kind[0]]) for kind in rows[KINDS].itertuples(index=False, name=None)]
    order = rows.groupby(["ours", *KINDS, "label"], as_index=False)["cost"].mean()
    order["variant"] = order.sort_values(["options", "dtype"]).groupby("contestant").cumcount()
    order = order.sort_values(["ours", "cost"], ascending=[False, True])
    order["place"] = order.groupby("ours").cumcount()
    order["tree"] = order.groupby("ours")["contestant"].transform(lambda names: pd.factorize(names)[0])
    rows = rows.merge(order[["label", "place", "tree", "variant"]], on="label")
    return rows.assign(label=pd.Categorical(rows["label"], order["label"]))


def by_batch(frame: pd.DataFrame, primitive: str = PEER) -> pd.DataFrame:
    """Every contestant over B at N = 1,000,000, or else at the N with the most B; empty unless there are two B."""
    rows = peers(frame, primitive)
    batches = rows.groupby("capacity")["batch"].nunique()
    several = batches[batches > 1]
    if several.empty:
        return rows[:0]
    return where(rows, capacity=PREFERRED_CAPACITY if PREFERRED_CAPACITY in several.index else several.idxmax())


def on_gpu(frame: pd.DataFrame) -> pd.DataFrame:
    """The same of trees on a GPU."""
    return by_batch(frame, GPU)


def by_capacity(frame: pd.DataFrame) -> pd.DataFrame:
    """Draw + update of every contestant at B = 128 over N, a row for both; empty unless there are two N."""
    rows = where(peers(frame), batch=BATCH)
    keys = ["label", "capacity"]
    parts = {op: where(rows, op=op).set_index(keys) for op in OPS}
    draws, updates = (part.loc[parts["draw"].index.intersection(parts["update"].index)] for part in parts.values())
    both = draws.assign(op=SUM)
    for column in ("ns", "low_ns", "high_ns"):
        both[column] += updates[column]
    both["status"] = np.where((draws["status"] == "unstable") | (updates["status"] == "unstable"), "unstable", "ok")
    both = both.reset_index()
    return both if both["capacity"].nunique() > 1 else both[:0]
