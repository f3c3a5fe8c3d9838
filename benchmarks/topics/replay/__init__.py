"""Whole replay buffers, ours and other libraries', alone and shared by threads or processes.

``cells`` lists what is timed, ``buffers`` fills and checks buffers, ``jobs`` are what actors and learners do on one,
``worker`` runs several at once in a process that takes samples on request, ``command`` takes them in alternation.
"""
