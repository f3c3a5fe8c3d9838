"""The papers that the page cites by short name, with their titles and where they can be read."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..chart import Section
from ..markup import outside, safe


@dataclass(frozen=True)
class Paper:
    """A paper; ``address``: of a page where it can be read, "" where none is known to stay."""

    name: str
    authors: str
    title: str
    where: str
    address: str = ""

    @property
    def html(self) -> str:
        """The paper as an entry of a list, its title a link to its address."""
        title = outside(self.address, self.title) if self.address else safe(self.title)
        return f"{safe(self.name)} {safe(self.authors)}, {title}, {safe(self.where)}"


PAPERS = (
    Paper(
        "[Hou2023]",
        "J. Hou, G. Chen, R. Zhang, Z. Li, S. Gu, C. Jiang",
        "Spreeze: High-Throughput Parallel Reinforcement Learning Framework",
        "2023",
        "https://arxiv.org/abs/2312.06126",
    ),
    Paper(
        "[Mnih2013]",
        "V. Mnih et al.",
        "Playing Atari with Deep Reinforcement Learning",
        "2013",
        "https://arxiv.org/abs/1312.5602",
    ),
    Paper(
        "[StoneSachdev]",
        "C. Stone, K. Sachdev",
        "Analysis of Concurrent Reinforcement Learning Algorithms",
        "course report, Virginia Tech, no year stated",
    ),
    Paper(
        "[Zhang2021]",
        "C. Zhang, S. R. Kuppannagari, V. K. Prasanna",
        "Parallel Actors and Learners: A Framework for Generating Scalable RL Implementations",
        "HiPC 2021",
        "https://arxiv.org/abs/2110.01101",
    ),
    Paper(
        "[Zhang2022]",
        "C. Zhang",
        "Acceleration of Deep Reinforcement Learning: Efficient Algorithms and Hardware Mapping",
        "dissertation, USC 2022",
    ),
    Paper(
        "[Zhang2023]",
        "C. Zhang, Y. Meng, V. Prasanna",
        "A Framework for Mapping DRL Algorithms With Prioritized Replay Buffer Onto Heterogeneous Platforms",
        "TPDS 2023",
        "https://doi.org/10.1109/TPDS.2023.3264823",
    ),
)


def _items() -> Iterator[str]:
    yield from (f"<li>{paper.html}</li>\n" for paper in PAPERS)


SECTIONS = (Section(150, "References", lambda _: f"<ul>{''.join(_items())}</ul>\n"),)
