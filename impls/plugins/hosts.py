"""Whether the host of a plug-in is here, and in a version that the plug-in knows.

A plug-in rests on names that its host may change in any version, some of them private. So it asks here, before it
imports the host, and a user reads one sentence in place of an AttributeError in the middle of training.
"""

import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Mapping
from typing import Any

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)")


def require(module: str, at_least: str, below: str, *, package: str = "") -> None:
    """Return if ``module`` can be imported and at_least <= its version < below.

    ``package`` is what pip calls it, if that is not the module's name (``ray[rllib]`` of ``ray``). A pre-release counts
    as its release: 3.0rc1 is not below 3. Raises ImportError otherwise (ModuleNotFoundError where there is no such
    module): one sentence with the versions that work and the line for pip that installs one.
    """
    package = package or module.replace("_", "-")
    remedy = f"install one by: pip install '{package}>={at_least},<{below}'"
    wanted = f"this plug-in works with {package} from {at_least} on and below {below}"
    if importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(f"{wanted}, and none is installed; {remedy}", name=module)
    version = _version(module, package.partition("[")[0])
    match = _RELEASE.match(version)
    if match is None:
        raise ImportError(f"{wanted}, and the installed one does not tell its version; {remedy}", name=module)
    if not _numbers(at_least) <= _numbers(match[1]) < _numbers(below):
        raise ImportError(f"{wanted}, not with the installed {version}; {remedy}", name=module)


def _version(module: str, package: str) -> str:
    """The version that pip installed, else the one that a module without pip's records states; empty if none does."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", ""))


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers of a release, without zeros at their end, so that 3 and 3.0 are equal."""
    numbers = [int(number) for number in release.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


class Replacement:
    """Names in a host's modules, where :meth:`put` puts ours and :meth:`undo` the host's own again.

    ``places``: a module, as it is imported, and a name in it; a name may be in several modules.
    """

    def __init__(self, *places: tuple[str, str]) -> None:
        self._theirs = {(module, name): getattr(importlib.import_module(module), name) for module, name in places}

    def put(self, ours: Mapping[str, Any]) -> None:
        """Put ours, by the host's name, into every place."""
        for module, name in self._theirs:
            setattr(sys.modules[module], name, ours[name])

    def undo(self) -> None:
        """Put the host's own back; what was made meanwhile keeps ours."""
        for (module, name), theirs in self._theirs.items():
            setattr(sys.modules[module], name, theirs)
