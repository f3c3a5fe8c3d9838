"""Which options of drawing and of updating go together, as budgets.

That both have one tree, or that they part, is a budget like any other (its name begins with ``RULE``): two options that
do not go together need more of it than there is.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from ..platforms import Device

RULE = "rule: "
Role = Literal["joins", "keeps", "draws alone", "updates alone"]


def rules_of(device: Device, homes: Sequence[Device]) -> Callable[[Role], dict[str, float]]:
    """What an option needs of the rules that tie drawing to updating.

    joins: draws from the tree that is updated there; keeps: the tree is drawn from there; alone: they part.
    """
    others = [one.name for one in homes if one is not device]

    def needs(role: Role) -> dict[str, float]:
        here = device.name
        table = {
            "joins": [f"{here} joins", *(f"{other} keeps" for other in others)],
            "keeps": [f"{here} keeps", *(f"{other} joins" for other in others)],
            "draws alone": [f"{here} alone", *(f"{one.name} keeps" for one in homes)],
            "updates alone": [f"{here} alone", *(f"{one.name} joins" for one in homes)],
        }
        return {f"{RULE}{name}": 1.0 for name in table[role]} if others else {}

    return needs
