"""Implementations to be timed: sum trees behind one contract, and the primitives built on them."""

from . import quiet

quiet.until_ready()  # before anything that takes time to import

from .sumtree.contract import SumTree, stratified_uniforms, to_numpy, uniforms  # noqa: E402
from .sumtree.registry import make, names, traits, why_not  # noqa: E402

__version__ = "0.1.0"
__all__ = ["SumTree", "make", "names", "stratified_uniforms", "to_numpy", "traits", "uniforms", "why_not"]
