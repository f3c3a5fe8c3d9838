"""Find the machine whose records answer: this machine itself, or the nearest machine that has some.

Near means first of all the same processor: another model is nearer than another family, and that nearer than another
vendor. Then come the vector instructions, what numba is set to compile for, the cores, and the caches by the logarithms
of their ratios; of machines that are equally near, the one measured last. Old records state a processor's name alone:
it counts as the same processor where the name is the same, after those that are known to be.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from impls.files import list_files

from .answer import Note
from .platforms import Platform, PlatformError, fingerprint, load
from .platforms.files import FILE, HERE, keep_to_allowed, remove_gpus
from .platforms.fingerprint import COMPILED_FOR
from .records import NoRecordsError, Record, how_to_measure, in_order, read_folder, read_machine

Facts = Mapping[str, Any]  # of a machine, as its records spell them out
PROCESSOR = ("vendor", "family", "model")  # the first that differs counts most
DEVICE = "device"  # the fact of a record that its tree was on a GPU
UNSET = "unset"  # a setting that has numba compile for another processor


def _is_sweep(record: Record) -> bool:
    timed = record.source == "measured" and record.median_seconds is not None
    return timed and record.primitive == "sum_tree" and record.op in ("draw", "update")


class Needed(NamedTuple):
    """Records that a question needs of a machine: their name, and whether a record is one of them."""

    name: str
    includes: Callable[[Record], bool]


SWEEP, ANYTHING = Needed("sweep", _is_sweep), Needed("records", lambda record: True)
MEASURE_SWEEP = "sweep --preset quick"


def read(results: Path, machine: str | None, needed: Needed) -> tuple[list[Record], Note | None]:
    """Return (a machine's evidence, a note that names it where this machine has none of its own).

    ``machine``: the key of the one to read, and of no other. A machine without a GPU takes no answer about trees from
    records of trees on one. RecordError if there is nothing to read.
    """
    here = fingerprint()
    if machine is not None:
        return read_folder(results, machine, here=str(here["key"])), None
    is_on_cpu = needed is SWEEP and not here.get("gpus")

    def keep(records: Iterable[Record]) -> list[Record]:
        return [record for record in records if not (is_on_cpu and DEVICE in record.facts)]

    own = keep(read_machine(results, str(here["key"])))
    if any(map(needed.includes, own)):
        return own, None
    records, how = keep(read_folder(results)), how_to_measure(MEASURE_SWEEP)
    known = _facts(filter(needed.includes, records))
    if not known:
        raise NoRecordsError(f"{results}: no {needed.name} of any machine here; {how}")
    key = nearest(here, known)
    note = _name_another(here, known[key], ["records"], [needed.name], [f"{how} (4 minutes)"])
    return [record for record in records if record.machine_key == key], note


def _is_profile(record: Record) -> bool:
    return record.primitive == "training"


def platform(
    name: str | Path, results: Path, machine: str | None = None, workload: str = "WORKLOAD"
) -> tuple[Platform, Note | None]:
    """Return (the platform of that name or file, a note that names another machine that answers for `this`).

    `this` needs a platform file and records, best of all a profile: this machine's, or the nearest one's that has them.
    ``machine``: the key of the one that `this` shall be. ``workload``: whose profile is advised. PlatformError where
    there is no such platform, or nothing to choose from.
    """
    if str(name) != HERE:
        if machine is not None:
            raise PlatformError(
                f"--machine {machine} goes with --platform {HERE}, not with {name}; leave --machine out"
            )
        return load(name, results), None
    here, probed = fingerprint(), [path.parent.name for path in list_files(results, f"*/{FILE}")]
    own = str(here["key"])
    if machine is not None:
        return _named(machine, own, probed, results), None
    if own in probed and any(map(_is_profile, read_machine(results, own))):
        return load(HERE, results), None
    records = read_folder(results) if list_files(results, "**/*.jsonl") else []
    profiled = _facts(filter(_is_profile, records))
    pools = [{key: facts for key, facts in known.items() if key in probed} for known in (profiled, _facts(records))]
    pool = pools[0] or pools[1]
    if own in pool or (own in probed and not pool):
        return load(HERE, results), None
    if not pool:
        raise PlatformError(
            f"{results}: this machine was not probed, and no machine has a {FILE} and records there; name the results "
            "of a checkout of Fanout with --results FOLDER, or begin with: python -m dse platform probe"
        )
    key, remedies = nearest(here, pool), dict[str, str]()
    if own not in probed:
        remedies["platform file"] = "probe this machine with: python -m dse platform probe"
    if own not in profiled:
        remedies["profile"] = f"{how_to_measure(f'profile --workload {workload}')} (a minute)"
    there = keep_to_allowed(_named(key, own, probed, results))
    there = there if here.get("gpus") else remove_gpus(there)
    note = _name_another(here, pool[key], ["records", "platform file"], list(remedies), list(remedies.values()))
    return there, note


def _named(machine: str, own: str, probed: Sequence[str], results: Path) -> Platform:
    """Load the platform of a machine by its key. PlatformError where it was not probed, naming those that were."""
    if machine == own:
        return load(HERE, results)
    if machine not in probed:
        there = f"only of {', '.join(probed)}; ask with --machine {probed[0]}, or" if probed else "nor of any other;"
        raise PlatformError(
            f"{results}: no {FILE} of machine {machine}, {there} on machine {machine}: python -m dse platform probe"
        )
    path = results / machine / FILE
    named = load(path)
    if named.machine_key != machine:
        raise PlatformError(
            f"{path}: was probed on machine {named.machine_key}; on machine {machine}: python -m dse platform probe"
        )
    return dataclasses.replace(named, name=machine)  # its file calls it "this", which another machine asks


def nearest(here: Facts, others: Mapping[str, Facts]) -> str:
    """Find the key of the nearest machine; of equally near ones the first. ``others`` must not be empty."""
    return min(others, key=lambda key: distance(here, others[key]))


def distance(here: Facts, there: Facts) -> tuple[float, ...]:
    """Rank how far a machine is, smaller is nearer; the order is at the top of this file."""
    is_same_name = here.get("cpu") == there.get("cpu")
    pairs = [(here.get(fact), there.get(fact)) for fact in PROCESSOR]
    unknown = [None in pair for pair in pairs]
    unlike = [not is_same_name if None in pair else pair[0] != pair[1] for pair in pairs]
    rank = len(PROCESSOR) - unlike.index(True) if True in unlike else 0
    mine, theirs = (set(facts.get("vector_sets") or ()) for facts in (here, there))
    vectors = len(mine ^ theirs) if mine and theirs else 0
    steppings = here.get("stepping"), there.get("stepping")
    return (
        rank,
        sum(unknown),
        vectors,
        float(any(here.get(fact) != there.get(fact) for fact in COMPILED_FOR)),
        float(None not in steppings and steppings[0] != steppings[1]),
        float(not is_same_name),
        _distance_of_logs(here.get("cores"), there.get("cores")),
        sum(_distance_of_logs(*sizes) for sizes in _cache_sizes(here, there).values()),
    )


def differences(here: Facts, there: Facts) -> dict[str, tuple[Any, Any]]:
    """Return the facts that both machines state and that differ, by name: (here, there); of caches bytes, or None.

    Of vector instructions those that only one of them has.
    """
    stated = {fact: (here.get(fact), there.get(fact)) for fact in (*PROCESSOR, "stepping", "cpu", "cores")}
    if "gpus" in here and "gpus" in there:
        stated["GPUs"] = len(here["gpus"]), len(there["gpus"])
    mine, theirs = here.get("vector_sets"), there.get("vector_sets")
    if mine and theirs:
        stated["vector_sets"] = [name for name in mine if name not in theirs], [n for n in theirs if n not in mine]
    known = {fact: pair for fact, pair in stated.items() if None not in pair}
    known |= {name: (here.get(fact, UNSET), there.get(fact, UNSET)) for fact, name in COMPILED_FOR.items()}
    return {fact: pair for fact, pair in (known | _cache_sizes(here, there)).items() if pair[0] != pair[1]}


def _cache_sizes(here: Facts, there: Facts) -> dict[str, tuple[int | None, int | None]]:
    """Pair the bytes of each level here and there."""
    mine, theirs = here.get("caches") or {}, there.get("caches") or {}
    return {level: (mine.get(level), theirs.get(level)) for level in sorted({*mine, *theirs})}


def _distance_of_logs(here: float | None, there: float | None) -> float:
    """Return |ln(here / there)|; a number that only one of them states counts as a factor of 2."""
    if here and there:
        return abs(math.log(here / there))
    return math.log(2) if here or there else 0.0


def _facts(records: Iterable[Record]) -> dict[str, Facts]:
    """Collect the facts of each machine, by key, from its latest record; the machine measured last comes first."""
    latest = {record.machine_key: record for record in in_order(records) if record.machine_key}
    return {record.machine_key: record.machine for record in reversed(in_order(latest.values()))}


def _name_another(here: Facts, there: Facts, what: list[str], lacks: list[str], how: list[str]) -> Note:
    """Return the note that names the machine that answers, how it differs, and how to have records of one's own."""
    whose = {name: there.get(fact) for name, fact in (("machine", "key"), ("cpu", "cpu"), ("cores", "cores"))}
    asked = {f"here_{name}": here.get(fact) for name, fact in (("key", "key"), ("cpu", "cpu"), ("cores", "cores"))}
    untold = [fact for fact in (*PROCESSOR, "stepping", "vector_sets") if there.get(fact) is None]
    values = {**whose, **asked, "of": what, "lacks": lacks, "differs": differences(here, there)}
    return Note("answered_from_old" if untold else "answered_from", {**values, "untold": untold, "how": how})
