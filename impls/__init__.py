"""Implementations to be timed: sum trees behind one contract, and the primitives built on them."""

from . import exits

exits.until_ready()  # before anything that takes time to import

from .sumtree.arguments import stratified_uniforms, to_numpy, uniforms  # noqa: E402
from .sumtree.contract import SumTree  # noqa: E402
from .sumtree.registry import make, names, traits, why_not  # noqa: E402

__version__ = "0.1.0"
__all__ = ["SumTree", "make", "names", "stratified_uniforms", "to_numpy", "traits", "uniforms", "why_not"]
