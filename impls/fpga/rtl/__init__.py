"""Hardware twin of the RMM, in Amaranth: it takes the cycles of the cycle laws, and its synthesis gives the resources.

A bank is L memories, one a level below the root, and two pipelines that share them. A sample goes down, an update up,
and a retrieval turns at the leaves; a ``mass`` is a prefix value in quanta:

    masses  ->  level L-1  ->  ..  ->  level 1  ->  level 0  ->  (leaf, priority)
    total   <-  level L-1  <-  ..  <-  level 1  <-  level 0  <-  (leaf, value)
                                        priority  <-  level 0  <-  leaf

``nodes`` numbers nodes, ``sampler`` and ``updater`` are the pipelines, ``bank`` joins them, ``dispatch`` leads lanes to
banks, ``rmm`` is all of it, ``simulate`` runs it, ``synthesis`` counts the cells of ``points``, to which ``fit`` fits
the coefficients of ``resources.py``.

A batch begins in cycle 0, when its first elements are on the inputs. It has taken T cycles when T is the first cycle in
which all its results (of an update: all its sums) are in registers.
"""
