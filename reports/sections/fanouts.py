"""The page's section that holds the chosen fanout K, and the model's reach, against measurement."""

from dse.cli.validate import REACHES, REGRETS, reach_row, regret_row
from dse.validation.fanouts import NO_PEER, families, reaches, regrets, verdict

from ..chart import Material, Section
from ..markup import paragraph, table

ABOUT = (
    "A regret is the time of a step (one draw and one update) with the chosen K over that with the best measured K, "
    "less 1; in the mean over (N, B), and at worst. The model has not seen the N, the B or the family it is judged on, "
    "and chooses the K of the least expected time under the error it had when other N and B were left out; where it "
    "knows nothing it chooses 16. The noise floor is by how much the same cell measured twice in the run differs; "
    "unstable are the family's times whose interval is wide."
)
REACH = (
    "Error of the model's times, as a factor, at an N or B as many times beyond all that it was fitted to; "
    "next to it the error bound that it tells beforehand, within which 95 % of the cells should be."
)


def _section(material: Material) -> str:
    swept = families(material.results)
    judged = regrets(swept)
    return (
        paragraph(ABOUT)
        + table(REGRETS, map(regret_row, judged))
        + paragraph(verdict(judged))
        + paragraph(NO_PEER)
        + paragraph(REACH)
        + table(REACHES, map(reach_row, reaches(swept)))
    )


SECTIONS = (Section(45, "The choice of K", _section, ("sum_tree",)),)
