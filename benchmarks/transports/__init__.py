"""Transports of experience and weights, alone and inside a training system of actors and a learner.

``cells`` lists what is timed, ``micro`` times one hand-over, ``command`` runs a system and times a transport inside it.
"""
