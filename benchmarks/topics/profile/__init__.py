"""The primitives of a training system, timed one by one, several at once, and concurrently on the same core.

``cells`` lists the cells of a workload, ``parts`` makes the calls, ``worker`` is a process that runs them, ``command``
takes samples of several processes in alternation.
"""
