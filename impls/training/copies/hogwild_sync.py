"""Copies that add to the shared weights without a lock [StoneSachdev]: of two additions at one moment one is lost."""

from .sync import Adding


class Hogwild(Adding):
    """One of several copies."""

    def exchange(self) -> None:
        """Add at once, whatever others do meanwhile, and take what is there then."""
        self.add()
