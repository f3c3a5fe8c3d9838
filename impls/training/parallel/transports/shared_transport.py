"""Records by shared memory: an actor inserts them into the replay itself."""

from dataclasses import dataclass

from ....replay import Replay
from ..board import Board
from ..handing import Handing, Send


@dataclass(frozen=True)
class Shared(Handing):
    """Records go into the shared replay by the actor's own insert."""

    is_polled = False

    def sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """The replay's own insert, which waits for nobody but other inserts."""
        assert replay is not None  # the parent shares it
        return lambda inserted: replay.insert(*inserted)

    def receive(self, replay: Replay) -> int:
        """Insert nothing: nothing comes but by the actors' own inserts."""
        return 0
