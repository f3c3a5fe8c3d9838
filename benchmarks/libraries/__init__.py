"""The libraries that are timed beside ours, and ours under the same names: a file each, with the roles that it has.

``base`` says what a role is: a tree, a buffer, a training loop, or the host of a plug-in of ours. The registry is the
folder: every public class of a role is found there, under its ``name``, or that of its file. Versions stand in
``constraints.txt``; ``python -m benchmarks.install`` installs them.
"""
