"""Judge the claims of [StoneSachdev] about concurrent training in Python by runs of copies on CartPole.

Its four figures have no numbers in the text, its code is not to be had, and what it trains takes hours a seed.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from dse import learning_runs
from dse.records import Record

from . import seeds
from .claims import Claim, not_run, unmeasured
from .noise import LEVEL, Noise, noise_of, own_sigma
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[StoneSachdev]", 1
SHARED = "peer_shared"
ADDED, VIA = "add to weights", ("torch", "private")
MISSED = 0.8
"""Where power is stated: the time of two threads over that of one."""


def verdicts(records: Sequence[Record], quoted: Quoted = NOTHING) -> list[Claim]:
    """Judge that threads share one core, what a shared tensor costs, and what copies, A3C and Dyna-Q show."""
    return [_threads_share_a_core(records), _shared_tensors(records), *_of_copies(records, quoted)]


def _threads_share_a_core(records: Sequence[Record]) -> Claim:
    text = "Threads of one Python process take turns on a single core (IV-A)."
    timed = [record for record in records if record.median_seconds is not None]
    noise, pairs = noise_of(timed, "peer"), _pairs(timed)
    rule = (
        "refuted if samples from one shared tree are clearly faster by two threads than by one for some implementation "
        f"(one-sided tests, {LEVEL:.0%} for all together); confirmed if for none"
    )
    if not pairs or not noise.pairs:
        lacks = "no tree shared by threads was timed in a run with A/A twins"
        return unmeasured(text, rule, lacks, "peers", remedy="measure with: make peers")
    limit = noise.critical(len(pairs))
    faster = {
        name: one.seconds / two.seconds
        for name, (one, two) in pairs.items()
        if math.log(one.seconds / two.seconds) > limit * math.hypot(noise.sigma, own_sigma(one), own_sigma(two))
    }
    said = ", ".join(f"{name} {gain:.2f}x" for name, gain in faster.items()) or "none"
    python = pairs.get("python")
    alone = f". Pure Python: {python[0].seconds / python[1].seconds:.2f}x" if python else ""
    power = _student_miss(noise, limit)
    return Claim(
        text,
        "refuted" if faster else "confirmed",
        f"clearly faster by two threads, {len(faster)} of {len(pairs)} implementations: {said}{alone}. Native code may "
        "release the interpreter's lock, code in Python cannot",
        rule,
        f"where no thread helps one is refuted in at most {LEVEL:.0%} of cases; one implementation that takes "
        f"{MISSED:g} of the time is missed in {power:.0%} ({noise})",
    )


def _student_miss(noise: Noise, limit: float) -> float:
    """Compute the chance that a gain is not seen, where timings are as noisy as the run's A/A twins."""
    distance = -math.log(MISSED) / noise.sigma if noise.sigma else math.inf
    return 0.5 * math.erfc((distance - limit) / math.sqrt(2))


def _pairs(timed: Sequence[Record]) -> dict[str, tuple[Record, Record]]:
    """Select the times of one and two threads, of one run, by implementation with default options."""
    times: dict[tuple[str, str, str], dict[int, Record]] = defaultdict(dict)
    for record in timed:
        if record.primitive == SHARED and not record.options:
            times[record.contestant, record.dtype, record.run.command][record.threads] = record
    several = [name for name, *_ in times]
    return {
        name if several.count(name) == 1 else f"{name} {dtype}": (both[1], both[2])
        for (name, dtype, _), both in sorted(times.items())
        if {1, 2} <= both.keys()
    }


def _shared_tensors(records: Sequence[Record]) -> Claim:
    """Judge one addition to a policy's weights, in a tensor of its own and in one that torch shares."""
    times = {
        record.contestant: record for record in records if record.op == ADDED and record.median_seconds is not None
    }
    text = "Operations on PyTorch's shared memory are slower than on private memory (IV-B)."
    rule = (
        "confirmed if the interval of an addition to all weights of a shared tensor lies above that of a private one; "
        "otherwise refuted"
    )
    if len(times) < len(VIA):
        return unmeasured(text, rule, "no addition is on record", "run transports --only hand-over", "records")
    shared, own = (times[via] for via in VIA)
    is_slower = (shared.low_seconds or 0) > (own.high_seconds or math.inf)
    said = "time of an addition to all weights of a policy, in alternation, shared to private"
    evidence = f"{said}: {shared.seconds / own.seconds:.2f}x ({1e6 * shared.seconds:.3g} to {1e6 * own.seconds:.3g} us)"
    return Claim(
        text, "confirmed" if is_slower else "refuted", evidence, rule, "of equal times about 1 in 40 is slower"
    )


Kind = tuple[int, str, int]  # copies, sync, gradient steps between meetings; model workers, "", their cap
ALONE: Kind = (1, "lock", 1)
NO_MODEL: Kind = (0, "", 1)
TWO, USUAL, LIMITED = 2, 16, (16, 64)


def _of_copies(records: Sequence[Record], quoted: Quoted) -> list[Claim]:
    """Judge Figs. 1 to 4 and what is said of syncs by runs of copies until solved, paired by seed."""
    best = quoted.table("stonesachdev.best")
    fewer, more = (f"{best[name]:g}" if name in best else "?" for name in ("fewer", "more"))
    runs = [run for run in learning_runs.latest(records) if run.options["arrangement"] == learning_runs.COPIES]
    ratios = Ratios(runs, "cartpole_dqn", "copies")
    syncs = sorted({sync for count, sync, every in ratios.kinds if (count, every) == (TWO, USUAL)})
    two = [((TWO, sync, USUAL), ALONE) for sync in syncs]
    others = [((TWO, "hogwild", every), (TWO, sync, every)) for every in LIMITED for sync in ("lock", "server")]
    limits = [((TWO, "hogwild", every), (TWO, "hogwild", 1)) for every in LIMITED]
    server = [((TWO, "server", USUAL), ALONE)]
    a3c, dyna_q = Ratios(runs, "cartpole_a3c", "a3c"), Ratios(runs, "cartpole_dyna_q", "dyna_q")
    actors = [(kind, ALONE) for kind in a3c.kinds if kind[0] == TWO]
    simulated = [(kind, NO_MODEL) for kind in dyna_q.kinds if kind[0] in (1, 2)]
    copies = f"two copies, k = {USUAL}, to one"
    return [
        ratios.judge("DQN trains in fewer episodes with more processes (IV-F, Fig. 1).", "episodes", two, copies, -1),
        ratios.judge(
            "An episode takes longer with more processes (IV-F, Fig. 2).", "seconds an episode", two, copies, 1
        ),
        not_run(
            f"Training takes the least time with {fewer} or {more} processes (IV-F, Fig. 3).",
            "no machine of these records has as many cores",
            "a machine with as many, and the same runs on it",
            ratios.told("minutes", [(kind, ALONE) for kind in ratios.kinds if kind[0] > TWO]),
        ),
        ratios.judge("Any number of processes trains faster than one (IV-F, Fig. 4).", "minutes", two, copies, -1),
        ratios.judge(
            "Updates without locks, if limited, train sooner than a parameter server or a global lock (IV-C).",
            "minutes",
            others,
            "two copies by hogwild to two by another",
            -1,
        ),
        ratios.judge(
            "A limit on how often updates are pushed makes training sooner (IV-C).",
            "minutes",
            limits,
            "two copies by hogwild to k = 1",
            -1,
        ),
        ratios.judge("A parameter server trains no sooner than one process (IV-C).", "minutes", server, copies, 1),
        a3c.judge(
            "A3C trains in fewer episodes with more processes (IV-F, Fig. 1).", "episodes", actors, "two to one", -1
        ),
        dyna_q.judge(
            "Dyna-Q by two or three processes does not work well (IV-F).",
            "episodes",
            simulated,
            "real ones, one and two model workers to none",
            1,
        ),
    ]


class Ratios:
    """Medians over seeds of what copies need until solved, one kind to another by the same seed, with intervals.

    ``only`` is the name by which ``benchmarks learning`` has such runs of the workload.
    """

    def __init__(self, runs: Sequence[Record], workload: str, only: str) -> None:
        self._only = only
        self._figures = {
            _kind_of(group[0]): next(iter(learning_runs.figures_of(group).values()))
            for (name, _), group in learning_runs.group_by_kind(runs).items()
            if name == workload
        }
        self.kinds: list[Kind] = sorted(self._figures)

    def of(self, name: str, pairs: Sequence[tuple[Kind, Kind]]) -> dict[str, seeds.Ratio]:
        """Compute the ratio of a figure for each pair of kinds, by what it is of."""
        return {
            f"{_kind(kind)} to {_kind(other)}": seeds.ratio_of(
                *(self._figures.get(each, {}).get(name, {}) for each in (kind, other))
            )
            for kind, other in pairs
        }

    def told(self, name: str, pairs: Sequence[tuple[Kind, Kind]]) -> str:
        """Tell the ratios of a figure with their intervals."""
        said = seeds.tell(self.of(name, pairs))
        return f"{name}: {said}" if said else ""

    def judge(self, text: str, name: str, pairs: Sequence[tuple[Kind, Kind]], of: str, sign: int) -> Claim:
        """Judge that every ratio is above 1 (``sign`` 1) or below (-1)."""
        return seeds.judge(text, name, self.of(name, pairs), of, sign, self._only)


def _kind_of(run: Record) -> Kind:
    if "model_workers" in run.options:
        return run.options["model_workers"], "", run.options["cap"]
    return run.options["processes"], run.options["sync"], run.options["every"]


def _kind(kind: Kind) -> str:
    if kind in (ALONE, NO_MODEL):
        return "one" if kind == ALONE else "none"
    return "P = {}, {}, k = {}".format(*kind) if kind[1] else f"W = {kind[0]}, c = {kind[2]}"
