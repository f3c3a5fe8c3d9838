"""Our trees inside other libraries (``impls.plugins``), timed against those libraries' own replay.

host.py       what every host offers; ``x_host.py`` is host x: its buffers and training steps, with and without ours
cells.py      what is timed, under the names of a record
worker.py     the process of a host's environment, in which theirs and ours take turns, and the trees' time in a step

install.py    puts the hosts into environments of their own
command.py    ``python -m benchmarks plugins``, what the records say, and runs of Stable-Baselines3's DQN by seed
"""
