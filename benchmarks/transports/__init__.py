"""Transports of experience and weights, alone and inside a training system of actors and a learner.

``cells`` lists what is timed, ``command`` times one hand-over, runs a system and times a transport inside it.
"""
