"""Which option for each part of a training system: an exact answer, and why.

``problem``: options, budgets, traffic and links as plain values; ``throughput``: what one configuration gives, the
definition everything else is held against; the other modules search, compare and explain.
"""
