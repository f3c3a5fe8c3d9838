"""Where each part of a training system runs on a machine: the question, its options, its answer."""
