"""Our trees inside other libraries (``impls.plugins``), timed against those libraries' own replay.

cells.py      what is timed, under the names of a record
worker.py     the process of a host's environment, in which theirs and ours take turns, and the trees' time in a step
command.py    ``python -m benchmarks plugins``, what the records say, and runs of Stable-Baselines3's DQN by seed
"""
