"""Which option for each part of a training system: an exact answer, and why.

To be read in this order: ``problem`` (options, budgets and links as plain values), ``law`` (the rate of a
configuration), ``solve`` (the best one), ``deciding`` (whose interval changes the choice), ``queues`` (a simulation).
"""
