"""Whole replay buffers, ours and other libraries', alone and shared by threads or processes.

``cells`` lists what is timed, ``buffers`` and the ``*_buffer`` files make the buffers, ``crew`` runs several actors and
learners on one buffer, ``worker`` is a process that takes samples on request, ``command`` takes them in turns.
"""
