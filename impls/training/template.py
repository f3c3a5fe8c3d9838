"""Write a workload file to begin with: the keys that every workload states, and all others commented out."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from .workload import CONTINUOUS, FAMILIES, MOST, SOFT_TAU, Workload

COMMENTS = 30  # the column that they begin in
COMMON = {
    "steps": 50_000,
    "network.hidden": (64, 64),
    "learner.batch": 64,
    "learner.update_interval": 1,
    "learner.learning_starts": 1_000,
    "replay.capacity": 50_000,
    "evaluation.interval": 2_500,
}
ROLLOUTS = {
    "steps": 300_000,
    **dict.fromkeys(("learner.batch", "learner.update_interval", "learner.learning_starts"), 128),
}
"""What a3c states otherwise; it has no replay."""
CHOOSING = {"environment": "CartPole-v1", "observation.shape": (4,), "action.choices": 2}
CONTINUING = {"environment": "Pendulum-v1", "observation.shape": (3,), "action.size": 1}
SHOWN = {"note": "?", "choices": 2, "size": 1, "tau": SOFT_TAU, "capacity": 50_000}
"""What stands commented out where the default itself is outside of what a file may state."""
WIDTH = 120
HEAD = """\
# A workload: an environment, and how a network is trained on it. To train it: python -m impls.training {name}.toml
# Every key stands here with its meaning and its range. A line #key is omitted and has the default that it shows; take
# its # away to state another value. Replace the environment by yours, such as mypackage:Grid-v0, with its spaces.
"""


def template(name: str = "mine", algorithm: str = "dqn") -> str:
    """Write a file that is valid and trains: a network of two layers on an environment of gymnasium's own."""
    spaces = CONTINUING if FAMILIES.get(algorithm, algorithm) in CONTINUOUS else CHOOSING
    given = {**COMMON, **spaces, "name": name, "algorithm": algorithm}
    if algorithm == "a3c":
        given |= ROLLOUTS
        del given["replay.capacity"]
    return HEAD.format(name=name) + "".join(f"{line}\n" for line in _table(Workload, given))


def _table(of: Any, given: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Write a line for each key, then the tables in this one."""
    tables = []
    for field in dataclasses.fields(of):
        if dataclasses.is_dataclass(field.type):
            tables.append((field.name, field.type))
            continue
        stated = f"{at}{field.name}" in given
        value = given[f"{at}{field.name}"] if stated else SHOWN.get(field.name, field.default)
        key = f"{'' if stated else '#'}{field.name} = {_toml(value)}".ljust(COMMENTS)
        line, bounds = f"{key}# {'needed; ' if stated else ''}{field.metadata['help']}", _bounds(field.metadata)
        yield from [line + bounds] if len(line + bounds) <= WIDTH else [line, f"{' ' * COMMENTS}#{bounds}"]
    for name, inner in tables:
        yield from ("", f"[{name}]", *_table(inner, given, f"{name}."))


def _bounds(rules: Mapping[str, Any]) -> str:
    """Write what a key may be, in parentheses, and on what its default depends."""
    words = [", ".join(rules.get("choices", ())), rules["otherwise"]]
    if "low" in rules:
        low, high = (f"{end:g}" if isinstance(end, float) else f"{end:,}" for end in (rules["low"], rules["high"]))
        least = f"{'above ' * rules.get('above', False)}{low}"
        words.insert(0, f"at least {low}" if rules["high"] == MOST else f"{least} to {high}")
    return f" ({'; '.join(filter(None, words))})" if any(words) else ""


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
