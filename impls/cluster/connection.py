"""Joining a Ray cluster: the one that runs already, the one that the option --cluster names, or one of this machine."""

import importlib
import logging
import os
import platform
import socket
import subprocess
import sys
from typing import Any

from .calls import ClusterError

CLUSTER_HELP = (
    "which Ray cluster, where none is joined yet and RAY_ADDRESS is not set: auto (that of this machine), local "
    "(this machine alone, for the time of this command) or HOST:PORT of a head (default: auto)"
)
_SECONDS = 20.0  # within which a head of Ray answers that it is one
_ACCELERATORS = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"  # 0: workers without GPUs see what the node sees


def import_ray() -> Any:
    """Return the module ray. ClusterError where it is not installed."""
    os.environ.setdefault(_ACCELERATORS, "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ClusterError("ray is not installed: pip install 'fanout[ray]', on every node the same version") from None


def connect(cluster: str = "auto", **options: Any) -> Any:
    """Join a cluster, and return the module ray.

    A runtime that is initialized is used as it is. Else the address is that of RAY_ADDRESS; else ``cluster``: "auto"
    (the cluster that this machine is a node of), "local" (a new one, of this machine alone) or HOST:PORT of a head.
    ``options`` are of ``ray.init``. ClusterError, within half a minute, where there is none, with what to do.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS") or str(cluster)
    if address == "local":
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **options)
        return ray
    check_head(address)
    try:
        ray.init(address=address, log_to_driver=False, **options)
    except ConnectionError as error:
        raise _none_at(address, str(error)) from None
    except RuntimeError as error:  # such as other versions of Python or Ray
        here = f"here are Python {platform.python_version()} and Ray {ray.__version__}"
        raise ClusterError(f"the cluster at {address!r} refuses this process ({here}): {error}") from None
    return ray


def check_head(address: str) -> None:
    """Raise ClusterError, within half a minute, unless a head of Ray answers at "auto" or HOST:PORT."""
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    if address != "auto":
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 1 << 16) or "://" in address:
            named = "RAY_ADDRESS" if os.environ.get("RAY_ADDRESS") == address else "cluster"
            raise ClusterError(f"{named} must be 'auto', 'local' or HOST:PORT of a head, not {address!r}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS / 4).close()
        except OSError as error:
            raise _none_at(address, error.strerror or str(error)) from None
        asked += ["--address", address]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise _none_at(address, f"what listens there did not answer within {_SECONDS:g} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise _none_at(address, last.partition(": ")[2].partition(". ")[0] or last)


def _none_at(address: str, why: str) -> ClusterError:
    where = "on this machine" if address == "auto" else f"at {address}"
    return ClusterError(
        f"no Ray cluster {where} ({why}). Start a head with `ray start --head --port=6379`, and name it by "
        "HOST:6379 or RAY_ADDRESS; or take cluster='local', this machine alone"
    )
