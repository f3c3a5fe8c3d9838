"""Judge claims of published documents by records and models: rows of ``results/quoted/claims``, one function judges."""

from .judge import VERDICTS, Judgment, judge_claims, list_papers

__all__ = ["VERDICTS", "Judgment", "judge_claims", "list_papers"]
