"""Training by several processes: actors, learners and a prefetcher of batches, each on cores of its own.

    actor ---- records ----> replay ---- batches ----> learner      (apart: each learner samples for itself)
      ^                        ^                         |          (pipelined: a prefetcher samples ahead)
      |                        +------ priorities -------+
      +------------------------ weights -----------------+

``pace`` says how far actors and learners may go, ``board`` has what the processes share, ``children`` starts and
watches them, ``loop`` is the parent; an actor runs ``acting``, a learner ``learning``, a prefetcher ``prefetcher``.
"""
