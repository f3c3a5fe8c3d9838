"""Locking strategies of a replay: strategy ``x`` is the one public class of ``x_strategy.py``."""
