"""How many: cores for actors and learners, batches drawn ahead, samplers, learners side by side."""
