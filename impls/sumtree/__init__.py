"""K-ary sum trees: ``contract.py`` says what one is, each ``*_tree.py`` is one, ``oracle.py`` holds them to it."""
