"""Answer how many: cores for actors and learners, batches sampled ahead, samplers, learners side by side."""
