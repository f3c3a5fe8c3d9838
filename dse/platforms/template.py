"""Write platform files to begin with: a template to fill in, and copies of those that are there."""

import re
from pathlib import Path

from .reading import RESULTS, load, path_of, text_of

TEMPLATE = Path(__file__).with_name("template.txt")
NAMED = 'name = "mine"'
COMMENTS = 34  # the column that they begin in


def template(name: str = "mine") -> str:
    """Write a file with every key, its unit and its meaning; those that an answer needs are not commented out."""
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace(NAMED.ljust(COMMENTS), f'name = "{name}"'.ljust(COMMENTS), 1)


def copied(name: str | Path, new: str, results: Path = RESULTS) -> str:
    """Copy a platform's file under a ``new`` name, without the key of the machine whose records it would be taken for.

    PlatformError where the platform is not right.
    """
    load(name, results)
    text = re.sub(r'(?m)^name = ".*"', lambda _: f'name = "{new}"', text_of(path_of(name, results)), count=1)
    text = re.sub(r"(?m)^machine_key = ", "# machine_key = ", text)
    return (
        f"# A copy of {name}, to be changed where the machine differs; then: python -m dse platform check FILE\n{text}"
    )
