"""K-ary sum trees: ``contract.py`` defines them, each ``*_tree.py`` is an implementation, ``oracle.py`` a naive one."""
