"""Write a workload file to begin with: the keys that every workload states, and all others commented out."""

from pathlib import Path

from .workload import CONTINUOUS, FAMILIES

TEMPLATE = Path(__file__).with_name("template.txt")
CHOOSING = {"environment": '"CartPole-v1"', "shape": "[4]", "choices": "choices = 2", "size": "#size = 1"}
CONTINUING = {"environment": '"Pendulum-v1"', "shape": "[3]", "choices": "#choices = 2", "size": "size = 1"}
REPLAYED = {"steps": "50_000", "batch": 64, "interval": 1, "starts": "1_000", "capacity": "capacity = 50_000"}
ROLLOUTS = {"steps": "300_000", "batch": 128, "interval": 128, "starts": 128, "capacity": "#capacity = 50_000"}
"""What a3c states instead; it has no replay."""


def template(name: str = "mine", algorithm: str = "dqn") -> str:
    """Write a file that is valid and trains: a network of two layers on an environment of gymnasium's own."""
    spaces = CONTINUING if FAMILIES.get(algorithm, algorithm) in CONTINUOUS else CHOOSING
    numbers = ROLLOUTS if algorithm == "a3c" else REPLAYED
    values = {"name": name, "quoted": f'"{name}"', "algorithm": f'"{algorithm}"', **spaces, **numbers}
    return TEMPLATE.read_text(encoding="utf-8").format_map(values)
