"""Write a platform as the text of a platform file, which reads back as the same platform."""

import collections
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from .platform import Platform, leaves
from .quantities import Quantity, in_unit, readable, split

Source = tuple[str, str]


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
