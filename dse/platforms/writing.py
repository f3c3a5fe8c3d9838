"""Write platform files: a template to fill in, a copy of one, or a platform, which reads back as the same one."""

import collections
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .platform import Platform, leaves
from .quantities import Quantity, in_unit, readable, split
from .reading import RESULTS, load, path_of, text_of

TEMPLATE = Path(__file__).with_name("template.txt")
NAMED = 'name = "mine"'
COMMENTS = 34  # the column that they begin in
Source = tuple[str, str]


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


def to_toml(platform: Platform, comment: str = "") -> str:
    """Write the text. The source that most numbers share stands once, at the top, below ``comment`` with its "#"."""
    sources = (leaf.value for leaf in leaves(platform) if isinstance(leaf.value, Quantity))
    ((common, _),) = collections.Counter((quantity.origin, quantity.note) for quantity in sources).most_common(1)
    return comment + "\n".join(_table(platform, "", common)) + "\n"


def _table(thing: Any, header: str, common: Source) -> Iterator[str]:
    tables = []
    for field in sorted(dataclasses.fields(thing), key=lambda field: field.metadata["shape"] == "number"):
        value, shape = getattr(thing, field.name), field.metadata["shape"]
        if value is None:
            continue
        name = field.metadata.get("key", split(field.name)[0])
        if shape == "number":
            yield _number(field.name, value, common)
        elif shape == "text":
            yield f"{name} = {_text(value)}"
        else:
            path = f"{header}.{name}" if header else name
            tables += (
                [(f"[[{path}]]", path, part) for part in value] if shape == "tables" else [(f"[{path}]", path, value)]
            )
    if not header:
        yield f"origin = {_text(common[0])}"
        yield f"note = {_text(common[1])}"
    for brackets, path, part in tables:
        yield from ("", brackets)
        yield from _table(part, path, common)


def _number(field: str, quantity: Quantity, common: Source) -> str:
    name, unit = split(field)[0], readable(field, quantity.value)[1]
    value = in_unit(quantity.value, unit)
    parts = {"value": f"{int(value)}" if value == int(value) else repr(value)}
    if (quantity.origin, quantity.note) != common:
        parts |= {"origin": _text(quantity.origin), "note": _text(quantity.note)}
    if quantity.spread is not None:
        parts["spread"] = repr(quantity.spread)
    inside = ", ".join(f"{key} = {part}" for key, part in parts.items())
    return f"{name}{unit.ending} = {parts['value'] if len(parts) == 1 else f'{{ {inside} }}'}"


def _text(words: str) -> str:
    """Quote printable text as TOML does, which is as JSON does."""
    return json.dumps(words, ensure_ascii=False)
