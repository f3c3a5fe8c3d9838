"""The compiled kernels of ``numba_tree.py``; its docstring shows the memory they work on.

A kernel takes the address of the tree's header, whether the call is at the ``head`` of the line of those that wait for
their turn, then what it is compiled for, its :class:`~.header.Form`, then its arguments. Nodes are numbered as in
``levels.py``; ``mass`` is a prefix value.

Turns. The header's lock word counts the kernels that read the tree, and has a bit for one that writes, and a bit that
the head of the line sets to keep out all others. A kernel takes its turn when it begins and gives it back when it
ends, or else returns BUSY with nothing done.

A kernel that samples or gathers first goes without a turn: it counts only if the header's sequence word was even, hence
no kernel was changing the tree, and is the same afterwards. Meanwhile it may read anything, rows half written included,
and must stay inside the tree's memory whatever it reads. After a second such attempt it takes its turn.

Other threads may write to the arrays of a call meanwhile, so every element of an argument is read once an attempt: the
value that is used is the value that was checked.
"""
