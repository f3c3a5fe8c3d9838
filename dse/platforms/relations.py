"""Check tables against each other: names given twice, links to nowhere, devices left alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from impls.checks import near, short
from impls.strict_toml import MOST_TABLES, Faults
from impls.toml_lines import KeyPath

Found = Iterator[tuple[KeyPath, str]]
Tables = list[tuple[KeyPath, Mapping[str, Any]]]


def between(data: Mapping[str, Any]) -> Faults:
    """List (path, sentence) of each fault. Takes tables of any content, and is silent on faults within one."""
    devices, links = _tables(data, ("device",)), _tables(data, ("link",))
    faults = [*_twice("device", devices), *_link_faults(links, [name for _, name in _named(devices)])]
    for path, device in devices:
        for key in ("cache", "slice"):
            faults += _twice(key, _tables(device, (*path, key)))
    return faults or list(_alone(devices, links))


def _tables(data: Mapping[str, Any], path: KeyPath) -> Tables:
    parts = data.get(str(path[-1]), ())
    listed = parts if isinstance(parts, list) else ()
    return [((*path, position), part) for position, part in enumerate(listed[:MOST_TABLES]) if isinstance(part, dict)]


def _named(tables: Tables) -> list[tuple[KeyPath, str]]:
    return [(path, part["name"]) for path, part in tables if isinstance(part.get("name"), str)]


def _twice(what: str, tables: Tables) -> Found:
    seen = set()
    for path, name in _named(tables):
        if name in seen:
            yield (*path, "name"), f"a second {what} {short(name)}; give each a name of its own"
        seen.add(name)


def _ends(link: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List (key, device) of the ends that are named."""
    return [(key, link[key]) for key in ("from", "to") if isinstance(link.get(key), str)]


def _link_faults(links: Tables, known: list[str]) -> Found:
    seen = set()
    for path, link in links:
        ends = _ends(link)
        for key, name in ends:
            if name not in known:
                there = ", ".join(map(short, known)) or "none"
                yield (*path, key), f"a link to {short(name)}, which is no device; there are {there}{near(name, known)}"
        pair = frozenset(name for _, name in ends)
        if len(ends) == 2 and len(pair) == 1:
            yield (*path, "to"), f"a link from {short(ends[0][1])} to itself"
        elif len(ends) == 2 and pair in seen:
            yield path, f"a second link between {' and '.join(short(name) for _, name in ends)}"
        seen.add(pair)


def _alone(devices: Tables, links: Tables) -> Found:
    """Yield devices no chain of links joins to the first: whatever is placed there could never be fed."""
    named, pairs = _named(devices), [{name for _, name in _ends(link)} for _, link in links]
    reached = {name for _, name in named[:1]}
    # Invariant: after r rounds reached has every device that a chain of at most r links joins to the first.
    for _ in pairs:
        reached = reached.union(*(pair for pair in pairs if pair & reached))
    for path, name in named:
        if name not in reached:
            yield path, f"no chain of links joins {short(name)} to {short(named[0][1])}; add a [[link]]"
