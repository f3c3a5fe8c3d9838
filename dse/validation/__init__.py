"""Hold answers against what was measured after them.

``asking`` samples questions by the hash of a commit, answers them and writes the answers down; ``benchmarks`` measures
them; ``runs`` reads both and says which files count; ``figures`` says how good the answers were.
"""
