"""``impls.terminal`` for the reports, which import nothing but ``dse``."""

from impls.terminal import answering

__all__ = ["answering"]
