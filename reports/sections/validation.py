"""The page's section that compares answers with later measurements."""

from dse.answers.validate import ANSWERS, answer_row
from dse.records import RecordError
from dse.validation.answered import sides

from ..chart import Material, Section
from ..markup import paragraph, table

COVERAGE, MEDIAN_REGRET, WORST_REGRET, LOOP_ERROR = (0.88, 0.99), 0.02, 0.10, 0.15
ABOUT = (
    "The seed of the questions is the hash of the last commit that changed code, and the answers were written before "
    "anything was measured, but where the last column says otherwise. The code that answers has changed since; what "
    f"can be run here is raced now. Targets: {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%} of the intervals hold what was "
    f"measured; slowdown at most {MEDIAN_REGRET:.0%} in the median and {WORST_REGRET:.0%} at worst; a rate off by at "
    f"most {LOOP_ERROR:.0%} in the median; each count of the best ones within its 95 %."
)


def _section(material: Material) -> str:
    if not (known := sides(material.results, material.about.key)):
        raise RecordError(f"no question was asked of machine {material.about.key}")
    return paragraph(ABOUT) + table(ANSWERS, map(answer_row, known))


FILES = tuple(f"KEY/{kind}-*.{end}" for kind in ("questions", "arrangements") for end in ("csv", "json"))
SECTIONS = (Section(110, "Answers validated against measurement", _section, ("sentinel",), FILES),)
