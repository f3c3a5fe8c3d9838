"""Does training by several processes learn as the serial loop does? Runs by arrangement, sync, depth and seed.

cells.py    which runs there are, and the names of their records' fields
worker.py   one run in a process of its own
command.py  ``python -m benchmarks run learning``
"""
