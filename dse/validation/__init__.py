"""Hold answers against what was measured."""
