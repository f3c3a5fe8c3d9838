"""Training over the nodes of a Ray cluster: learners, and on each node actors with a part of the replay."""
