"""Training by several processes: actors, learners and a keeper of the replay, each on cores of its own.

    actor ---- records ----> replay ---- batches ----> learner      (apart: the first learner samples for itself)
      ^                        ^                         |          (pipelined: a keeper samples ahead)
      |                        +------ priorities -------+
      +------------------------ weights -----------------+

``arrangement.py`` says which processes there are, ``pace.py`` how far each may go, ``board.py`` what they share.
"""
