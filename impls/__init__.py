"""Implementations to be timed: sum trees behind one contract, and the primitives built on them."""

from .sumtree.contract import SumTree, stratified_uniforms, to_numpy, uniforms
from .sumtree.registry import make, names, traits, why_not

__version__ = "0.1.0"
__all__ = ["SumTree", "make", "names", "stratified_uniforms", "to_numpy", "traits", "uniforms", "why_not"]
