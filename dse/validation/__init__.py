"""Answers held against what was measured afterwards."""
