"""What parts of a training system send each other in a gradient step, and over which links of a platform."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from ..estimate import Evidence, weakest
from ..platforms import Device, Link
from ..platforms.quantities import SOURCE_OF
from ..solver.problem import Flow, Hop
from ..times.own import TYPED
from ..times.parts import Parts

INDEX_BYTES, PRIORITY_BYTES, SUM_BYTES, SAMPLE_BYTES = 4.0, 4.0, 8.0, 8.0


def flows(parts: Parts) -> Iterator[Flow]:
    """What a gradient step sends between parts, in bytes."""
    b, u = parts.batch, parts.workload.learner.update_interval
    actors = parts.workload.actors
    yield Flow("sampling", "storage", b * SAMPLE_BYTES, True)
    yield Flow("sampling", "learner", b * PRIORITY_BYTES, True)
    yield Flow("storage", "learner", b * parts.transition_bytes, True)
    yield Flow("learner", "updating", b * (SAMPLE_BYTES + PRIORITY_BYTES), True)
    yield Flow("updating", "sampling", b * parts.height * (INDEX_BYTES + SUM_BYTES), False)
    yield Flow("actors", "storage", u * parts.written_bytes, False, parts.inserts)
    yield Flow("actors", "updating", u * (SAMPLE_BYTES + PRIORITY_BYTES), False, parts.inserts)
    syncs = u / (actors.sync_interval * actors.count * parts.environments)
    yield Flow("learner", "actors", parts.weights_bytes * syncs, False, syncs)


def ways(
    parts: Parts, devices: Sequence[Device], process: str = "", like: Mapping[str, str] | None = None
) -> dict[tuple[str, str], tuple[Hop, ...]]:
    """The fastest chain of links between any two devices, for a batch of records.

    ``process``: the engine that every transfer keeps busy, where one process drives all devices in turns; without it
    each direction of a link is an engine of its own. ``like``: by a link's name, that of an equal one, whose evidence
    it rests on (default: its own).
    """
    routes = {}
    for source, target in itertools.permutations((device.name for device in devices), 2):
        _, links = parts.platform.way(source, target, parts.batch_bytes)
        known = tuple(_hops(source, links, process, like or {}))
        usual = tuple(sum(getattr(hop, key) for hop in known) for key in ("alpha_seconds", "seconds_per_byte"))
        engine = process or f"link {source} to {target}"
        own = parts.own and parts.own.hop(source, target, parts.batch_bytes, engine, usual if known else None)
        if own or known:
            routes[source, target] = (own,) if own else known
    return routes


def _hops(start: str, links: Sequence[Link], process: str, like: Mapping[str, str]) -> Iterator[Hop]:
    for link in links:
        back = link.source != start
        end = link.source if back else link.target
        alpha = link.back_alpha_seconds if back else link.alpha_seconds
        beta = link.back_beta_bytes_per_s if back else link.beta_bytes_per_s
        hops = link.hops.value
        command = f"no command here times a link; time one, and state alpha and beta in the platform file; or {TYPED}"
        source = weakest(SOURCE_OF[origin] for origin in link.origins)
        evidence = Evidence(
            f"link {like.get(link.name, link.name)}", source, f"the platform file: {alpha.note}", command
        )
        yield Hop(process or f"link {start} to {end}", hops * alpha.value, hops / beta.value, evidence)
        start = end
