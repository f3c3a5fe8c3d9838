"""A platform, a workload and tables as problems: every option of every part, what they share and what they send.

Each execution mode, which is a set of processes to put parts in, is a problem of its own:

serial     one process does everything serially, transfers and all, as ``python -m impls.training train`` does
apart      actors on cores of their own; one process samples, gathers, sends, learns and updates serially
pipelined  actors, replay and learner, each on cores (or devices) of their own, all at the same time
"""

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from impls.training.arrangement import NODES

from ..answer import Note
from ..estimate import Evidence, weakest
from ..fpga import rmm_search
from ..platforms import Device, Link
from ..platforms.quantities import SOURCE_OF
from ..records import benchmark
from ..solver.problem import PARTS, Configuration, Flow, Hop, Part, Problem, ProblemError
from ..times.door import Times
from ..times.laws import budgets
from .learners import fastest
from .options import ARRANGEMENT, EqualDevices, OptionBuilder
from .processes import ExecutionMode, LoopOverhead, OfOneLearner, combinations, runs_of, times_of_run

DEPTHS = (*range(9), 16, 50)
LISTED = 6  # options of a device in a sentence


@dataclass(frozen=True)
class Built:
    """A problem for each execution mode.

    ``searched``: what was tried; ``ratios``: how many times the sum of its parts a mode takes, where a whole run told.
    """

    problems: Mapping[ExecutionMode, Problem]
    parts: Times
    searched: tuple[Note, ...] = ()
    ratios: Mapping[ExecutionMode, float] = field(default_factory=dict)

    @functools.cached_property
    def evidence(self) -> Mapping[str, Evidence]:
        """Evidence by id, of every option and link; of several that share an id the first one's."""
        every = [timed.rests_on for problem in self.problems.values() for timed in problem.every_timed()]
        return {evidence.id: evidence for evidence in reversed(every)}

    def rests_on(self, evidence_id: str, chosen: Configuration) -> Evidence:
        """The evidence of an id: that of the chosen options where they rest on it, with a model's error bound."""
        times = [option.time for option in chosen.options if option.time.rests_on.id == evidence_id]
        if not times:
            return self.evidence[evidence_id]
        longest = max(times, key=lambda time: time.value).rests_on
        if longest.source in ("measured", "interpolated"):
            return longest
        within = max(time.factor for time in times)
        return replace(longest, description=f"{longest.description}; error bound: a factor of {within:.3g}")

    def notes(self, chosen: Configuration) -> Iterator[Note]:
        """Yield what the numbers behind a configuration leave out, and constraints that say nothing about it."""
        cpu, fixed = self.parts.cpu.name, self.parts.constraints
        assumed = dict.fromkeys(line for option in chosen.options for line in option.time.rests_on.assumed)
        yield from (Note("not_stated", line._asdict()) for line in assumed)
        processors = [device.name for device in self.parts.platform.devices if device.kind == "cpu"]
        if len(processors) > 1:
            others = [name for name in processors if name != cpu]
            yield Note("one_processor_tried", {"cpu": cpu, "others": others})
        engines = {option.engine for option in chosen.options if option.device == cpu}
        if len(engines) > 1 and not (self.parts.table and self.parts.table.concurrent):
            yield from self._unslowed(cpu, chosen)
        for key, part in (("learner_threads", chosen.learner), ("threads", chosen.updating)):
            if key in fixed and part.device != cpu:
                values = {"key": key, "value": fixed[key], "part": part.part, "device": part.device}
                yield Note("fixed_for_processor", values, "warning")

    def _unslowed(self, cpu: str, chosen: Configuration) -> Iterator[Note]:
        """Yield which parts that share a processor's cores nobody timed together, so that no slowdown is counted."""
        known = self.parts.slowdowns()
        if not known:
            yield Note("no_slowdowns", {"cpu": cpu})
            return
        apart = {option.part: option for option in chosen.options if option.device == cpu}
        for part, other in (("actors", "learner"), ("learner", "actors")):
            there = part in apart and other in apart and apart[part].engine != apart[other].engine
            if there and (part, other, cpu) not in known:
                yield Note("no_slowdown", {"part": part, "other": other, "cpu": cpu})

    def count_options(self) -> dict[tuple[str, str], int]:
        """Return how many options each part has on each device, over all modes."""
        names: dict[tuple[str, str], set[str]] = {}
        for problem in self.problems.values():
            for option in problem.every_option():
                names.setdefault((option.part, option.device), set()).add(option.name)
        return {place: len(options) for place, options in names.items()}


def build(parts: Times, free: frozenset[str] = frozenset(), excluded: frozenset[str] = frozenset()) -> Built:
    """All execution modes in which every part has an option. ProblemError, naming what was asked for, without any."""
    equal = EqualDevices(parts, [device for device in parts.platform.devices if device.name not in excluded])
    problems: dict[ExecutionMode, Problem] = {}
    lacking: list[Part] = []
    ratios: dict[ExecutionMode, float] = {}
    if parts.constraints.get("arrangement") == NODES:
        raise ProblemError(f"arrangement={NODES} is what recommend and run ask about; fix another here, or none")
    own = parts.workload.replay.presampled
    depths = tuple(sorted({*DEPTHS, own})) if "presampled" in free else (own,)
    for builder in _builders(parts, equal, "layers" in free):
        mode = builder.mode
        lacking += builder.build().lacking()
        if not builder.lacking():
            problems[mode] = _problem(builder, depths)
            ratios[mode] = builder.run_times.ratio if builder.run_times else 1.0
    if not (problems or lacking):
        told = f"records of {parts.workload.name} on {parts.platform.name}"
        sentence = (
            f"several learners are predicted apart, on processors alone, from {told}; fix learners=1, or measure:"
        )
        raise ProblemError(f"{sentence} {benchmark(f'profile --workload {parts.workload_word}')}")
    if not problems:
        asked = ", ".join(f"{key}={value}" for key, value in parts.constraints.items()) or "the devices there are"
        part = max(PARTS, key=lacking.count)  # what lacks in the most places
        lack = f"nothing can run the part {part!r} on platform {parts.platform.name!r} with {asked}"
        offer = _offer(equal, part)
        raise ProblemError(lack + (f"; with nothing but the arrangement fixed it could be: {offer}" if offer else ""))
    every = [option for problem in problems.values() for option in problem.options["learner"]]
    is_split = any("layers" in option.details for option in every)
    whole = [Note("layers_are_not_split", level="first")] if "layers" in free and not is_split else []
    return Built(problems, parts, (*whole, *searched(equal, free, depths)), ratios)


def _offer(equal: EqualDevices, part: Part) -> str:
    """The options of a part by device, in words, if only the arrangement were fixed."""
    kept = {key: value for key, value in equal.parts.constraints.items() if key == "arrangement"}
    free = EqualDevices(replace(equal.parts, constraints=kept), equal.devices)
    found: dict[str, dict[str, None]] = {}
    for builder in _builders(free.parts, free):
        for option in builder.build().of(part):
            found.setdefault(option.device, {})[option.name] = None
    cut = (
        names if len(names) <= LISTED else [*names[: LISTED - 2], "...", names[-1]]
        for names in map(list, found.values())
    )
    return "; ".join(f"on {device} {', '.join(names)}" for device, names in zip(found, cut, strict=True))


def _builders(parts: Times, equal: EqualDevices, splits_layers: bool = False) -> Iterator[OptionBuilder]:
    """The execution modes that the constraints allow, without their options; each run of a mode that was timed here."""
    wanted, ways = parts.constraints.get("arrangement"), combinations(parts)
    for arrangement in (name for name in ARRANGEMENT if wanted in (None, name)):
        runs, alone = list(runs_of(parts, arrangement)), ExecutionMode(arrangement)
        for one in (times_of_run(parts, run) for run in runs):
            devices = EqualDevices(one.own, equal.devices)
            several = fastest(one, ways) if isinstance(one, OfOneLearner) else []
            for run_times in (*[one] * (ways[0].learners == 1), *several):
                yield OptionBuilder(parts, run_times.mode, devices, run_times, splits_layers)
        if not runs and ways[0].learners == 1:
            overhead = LoopOverhead(parts, alone) if alone.in_turns else None
            yield OptionBuilder(parts, alone, equal, overhead, splits_layers)


def _problem(builder: OptionBuilder, depths: tuple[int, ...]) -> Problem:
    parts = builder.parts
    if builder.must_run and not builder.mode.in_turns:
        depths = tuple(sorted({max(1, depth) for depth in depths}))  # the replay's own process is one batch ahead
    watts = {device.name: device.power_watts.value for device in builder.devices if device.power_watts}
    slowdowns = parts.quoted_slowdowns if any(depths) else {}  # without a batch ahead, learner and tree never overlap
    slowdowns |= {} if builder.run_times and builder.run_times.counts_others else parts.slowdowns()
    return Problem(
        {part: tuple(options) for part, options in builder.options.items()},
        {budget: amount for device in builder.devices for budget, amount in budgets(device)} | _crowd(builder),
        tuple(flows(parts)),
        ways(parts, builder.devices, builder.process, builder.equal.links),
        depths,
        slowdowns,
        watts,
        (builder.cpu,),
        tuple(builder.trees),
        builder.engines,
        tuple(tuple(one.name for one in each) for each in builder.classes if len(each) > 1),
    )


def _crowd(builder: OptionBuilder) -> dict[str, float]:
    """The budget of cores of a run with more processes than cores: times count that they share them."""
    mode = builder.mode
    is_crowded = mode.actors and mode.processes > builder.parts.cores
    return {f"{builder.cpu}.cores": float(mode.processes)} if is_crowded else {}


INDEX_BYTES, PRIORITY_BYTES, SUM_BYTES, SAMPLE_BYTES = 4.0, 4.0, 8.0, 8.0


def flows(parts: Times) -> Iterator[Flow]:
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
    parts: Times, devices: Sequence[Device], process: str = "", like: Mapping[str, str] | None = None
) -> dict[tuple[str, str], tuple[Hop, ...]]:
    """The fastest chain of links between any two devices, for a batch of records.

    ``process``: the engine that every transfer keeps busy, where one process drives all devices serially; without it
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
        source = weakest(SOURCE_OF[origin] for origin in link.origins)
        name = like.get(link.name, link.name)
        evidence = Evidence(f"link {name}", source, f"the platform file: {alpha.note}")
        yield Hop(process or f"link {start} to {end}", hops * alpha.value, hops / beta.value, evidence, name)
        start = end


def searched(equal: EqualDevices, free: Collection[str], depths: Sequence[int]) -> Iterator[Note]:
    """Yield what was tried of trees in hardware, and of batches sampled ahead."""
    if any(device.kind == "fpga" for device in equal.devices):
        hardware = {"fanouts": rmm_search.FANOUTS, "banks": rmm_search.BANKS, "leaf_bits": rmm_search.LEAF_BITS}
        yield Note("tried_in_hardware", hardware)
    if "presampled" in free:
        yield Note("tried_depths", {"depths": tuple(depths)})
