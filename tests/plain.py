"""Lists names and first lines of docstrings that a newcomer cannot read, and counts them for ``tests/budget.toml``.

python -m tests.plain [PATH ...]    of files and folders, by default of the four packages

name       a function, method, class or attribute that begins with a participle, preposition or adverb and has no verb
one        a variable that is called ``one``, ``ones``, ``it`` or ``each``, where a noun is meant
docstring  a first line of three words or fewer, or that begins with a pronoun or preposition
help       a help text of an option that begins with a preposition or pronoun
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KINDS = ("name", "one", "docstring", "help")
NO_NOUN = """of at by in on to with from told given made taken found held kept left missed placed shown known stated
    having begun behind beside beyond off apart together alike alone counted followed reached settled wanted lost late
    early those these that what how where which so such until since whose whom than as for near under over between
    among within without after before there here once twice least most"""
USUAL = r"""((from|with|for|is|has)_\w+|at_(least|most)|on_[a-z]+_(start|end|step)|in_place|over|before|after|what_if
    |_on_step|_on_training_start|to_(dict|json|toml|numpy|csv|html|markdown|si|bytes|string|frame|tensor|device))"""
VAGUE_NAME = re.compile(rf"(?x)(?!__|_*{USUAL}$)_*(?i:{'|'.join(NO_NOUN.split())})(_\w+)?$")
OPENING = r"(Those|That|Wh(at|ich|ere)|Of|By|With|In|On|At|As|From|To|For|Such|So)\b(?! (does|do|is|are)\b.*\?$)"
VAGUE_HELP = r"(?i)\(?(of|that|by|with|in|on|at|from|to|for|as|where|what|whose|so)\b"
Finding = tuple[str, str, str, str, int]  # the package, the kind, what is meant, the file and the line
SHOWN = "{3}:{4}: {1}: {2}"


def find_all(files: Mapping[str, str]) -> list[Finding]:
    """Return the findings in Python files, given by their path and text."""
    findings: set[Finding] = set()
    for file in (name for name in files if name.endswith(".py")):
        top, lines = Path(file).parts[0], [line.strip() for line in files[file].splitlines()]
        for node in ast.walk(ast.parse(files[file])):
            findings |= {(top, kind, f"{what} in {lines[at - 1]}"[:90], file, at) for kind, what, at in _judge(node)}
    return sorted(findings)


def _judge(node: Any) -> Iterator[tuple[str, str, int]]:
    match type(node).__name__:
        case "FunctionDef" | "AsyncFunctionDef" | "ClassDef":
            first = (ast.get_docstring(node) or "").split("\n")[0]
            if VAGUE_NAME.match(node.name):
                yield "name", node.name, node.lineno
            if first and (re.match(OPENING, first) or len(first.split()) <= 3):
                yield "docstring", first, node.lineno
        case "AnnAssign" if VAGUE_NAME.match(getattr(node.target, "id", "")):
            yield "name", node.target.id, node.lineno
        case "keyword" if node.arg == "help" and re.match(VAGUE_HELP, str(getattr(node.value, "value", ""))):
            yield "help", node.value.value, node.value.lineno
        case "arg" if node.arg in ("one", "ones", "it"):
            yield "one", node.arg, node.lineno
        case "For" | "comprehension" | "NamedExpr" | "Assign":
            targets = list(getattr(node, "targets", None) or [node.target])
            while targets:
                targets += getattr(target := targets.pop(), "elts", ())
                if getattr(target, "id", "") in ("one", "ones", "it", "each"):
                    yield "one", target.id, target.lineno


def count(findings: list[Finding]) -> dict[str, list[int]]:
    """Count the findings of each kind, by package."""
    counts = Counter(found[:2] for found in findings)
    return {package: [counts[package, kind] for kind in KINDS] for package, _ in sorted(counts)}


def list_excess(findings: list[Finding], limits: Mapping[str, list[int]], earlier: list[Finding]) -> list[str]:
    """List the findings that are new since an earlier state, of each package and kind that is above its limit."""
    # A finding that moved is known by its text; where the same text is new once more, all places of it are listed.
    new = Counter(found[1:3] for found in findings) - Counter(found[1:3] for found in earlier)
    numbers = Counter(found[:2] for found in findings)
    above = {key for key in numbers if numbers[key] > limits.get(key[0], [0] * 4)[KINDS.index(key[1])]}
    return [SHOWN.format(*found) for found in findings if found[:2] in above and found[1:3] in new]


def main(names: list[str]) -> None:
    """Print the findings in files and folders, and how many there are of each kind."""
    paths = [path for name in names for path in (Path(name), *Path(name).rglob("*.py")) if path.is_file()]
    findings = find_all({str(path): path.read_text(encoding="utf-8") for path in paths})
    print(*(SHOWN.format(*found) for found in findings), f"{', '.join(KINDS)}: {count(findings)}", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["impls", "dse", "benchmarks", "reports"])
