"""P serial loops, each with an environment and a network of its own, whose weights meet [StoneSachdev, IV-C].

``loop`` has what each copy is, and what the process that was started does, which is copy 0; ``syncs`` the ways in which
weights meet, and the memory that copies have in common.
"""
