"""The papers that the page cites by short name."""

from ..chart import Section
from ..markup import items

PAPERS = (
    "[Mnih2013] V. Mnih et al., Playing Atari with Deep Reinforcement Learning, 2013",
    "[Zhang2021] C. Zhang, S. R. Kuppannagari, V. K. Prasanna, Parallel Actors and Learners: A Framework for "
    "Generating Scalable RL Implementations, HiPC 2021",
    "[Zhang2022] C. Zhang, Acceleration of Deep Reinforcement Learning: Efficient Algorithms and Hardware Mapping, "
    "dissertation, USC 2022",
    "[Zhang2023] C. Zhang, Y. Meng, V. Prasanna, A Framework for Mapping DRL Algorithms With Prioritized Replay Buffer "
    "Onto Heterogeneous Platforms, TPDS 2023",
)

SECTIONS = (Section(150, "References", lambda _: items(PAPERS)),)
