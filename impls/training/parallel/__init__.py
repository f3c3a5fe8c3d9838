"""Training by several processes: actors, learners and a prefetcher of batches, each on cores of its own.

    actor ---- records ----> replay ---- batches ----> learner      (apart: each learner samples for itself)
      ^                        ^                         |          (pipelined: a prefetcher samples ahead)
      |                        +------ priorities -------+
      +------------------------ weights -----------------+

One step of ``apart`` goes through these modules:

    actor      acting.act -> pace (how far it may go), board.claim -> board.fetch (weights) -> training.actor.Actor.step
               -> transports (records) -> board.add, board.report
    learner    loop.ParallelLoop.advance -> learning.Learning.advance -> syncs: claim -> batches.take
               (transports.receive, replay.sample) -> syncs: step -> board.publish -> batches.learned (priorities)
               -> children.watch

``board`` has what the processes share, on ``counter``'s kernels; ``node`` is one machine's part of a run without its
learner; ``children`` starts, watches, pauses and ends processes. ``prefetcher`` is the process named "keeper" in
reports, ``units`` the tree and the storage in its place, ``testing`` the process that evaluates, ``drawing`` what a
process that draws does, ``changing`` a loop whose actors and batch change while it trains.
"""
