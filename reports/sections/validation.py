"""The page's section that compares answers with later measurements."""

from dse.cli.validate import ANSWERS, answer_row
from dse.records import RecordError
from dse.validation.answered import sides

from ..chart import Material, Section
from ..markup import paragraph, table

COVERAGE, MEDIAN_REGRET, WORST_REGRET, LOOP_ERROR = (0.88, 0.99), 0.02, 0.10, 0.15
TARGETS = (
    f"Targets: {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%} of the intervals hold what was measured; worst slowdown at most "
    f"{MEDIAN_REGRET:.0%} in the median and {WORST_REGRET:.0%} at worst; a rate off by at most {LOOP_ERROR:.0%} in the "
    "median; each count of the best ones within its 95 %."
)


def _section(material: Material) -> str:
    if not (known := sides(material.results, material.about.key)):
        raise RecordError(f"no question was asked of machine {material.about.key}")
    return paragraph(ABOUT) + table(ANSWERS, map(answer_row, known))


SECTIONS = (
    Section(
        110,
        "Answers validated against measurement",
        _section,
        ("sentinel",),
        ("KEY/questions-*.csv", "KEY/questions-*.json"),
    ),
)
