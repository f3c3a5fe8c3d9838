"""How contestants are timed."""
