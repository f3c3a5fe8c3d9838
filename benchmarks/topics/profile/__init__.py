"""The primitives of a training system, timed one by one, several at once, and concurrently on the same core.

``cells`` lists the cells of a workload, ``parts`` makes the calls, ``concurrent_parts`` trains by several processes and
reads their parts, ``worker`` is a process that does both, ``command`` takes samples of several processes in turn.
"""
