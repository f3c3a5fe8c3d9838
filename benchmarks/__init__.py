"""How the implementations are timed: cells, clocks, and the commands that measure."""
