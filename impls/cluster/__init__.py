"""One prioritized replay over many machines, on Ray: a shard on each node, sampled as one K-ary tree.

Only this package imports ray, and not before a cluster is asked for.
"""

from .calls import ClusterError
from .sharded import NodeReplay, ReplayHandle, ShardedReplay

__all__ = ["ClusterError", "NodeReplay", "ReplayHandle", "ShardedReplay"]
