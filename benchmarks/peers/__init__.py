"""How fast and how exact other libraries' sum trees are: ``python -m benchmarks peers``."""
