"""What the records of arrangements say: rates beside the bounds of their parts and beside predictions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse import platforms
from dse.platforms.reading import FILE
from dse.records import Measurement
from dse.validation.arrangements import ArrangementQuestion, Candidate, Predictor

from ..chart import Material

ARRANGEMENT = "training arrangement"
USUAL = {"learners": 1, "sync": "synchronous", "transport": "shared", "weights": "shared"}
"""Options of the runs that the section compares; other topics compare other values of them."""
_SHAPE = ("workload", "update_interval", "arrangement", "actors", "environments", "presampled", "learner", "policy")


@dataclass(frozen=True)
class Point:
    """An arrangement as it ran at an update interval: the records of its rate and of its bound.

    ``free_seconds``: of a gradient step, the longest of what its parts take when neither waits for the other, where
    that was timed.
    """

    rate: Measurement
    bound: Measurement | None = None
    free_seconds: float | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the run."""
        return self.rate.options

    @property
    def hz(self) -> float:
        """Gradient steps a second."""
        return 1 / self.rate.seconds

    @property
    def share(self) -> float | None:
        """The share of the bound that was reached, None without a bound."""
        return self.bound.seconds / self.rate.seconds if self.bound else None

    @property
    def name(self) -> str:
        """The arrangement with its actors and environments."""
        options = self.options
        if options["arrangement"] == "serial":
            return f"serial, E = {options['environments']}"
        return f"{options['arrangement']}, A = {options['actors']}, E = {options['environments']}"

    @property
    def processes(self) -> int:
        """How many processes there were."""
        actors = {"serial": 0, "apart": 0, "pipelined": 1}[self.options["arrangement"]]
        return 1 if self.options["arrangement"] == "serial" else 1 + actors + int(self.options["actors"])


def points(measurements: Iterable[Measurement]) -> list[Point]:
    """Return the runs that were timed, by workload and update interval, the fastest first."""
    by: dict[tuple[Any, ...], dict[str, Measurement]] = {}
    for record in measurements:
        if record.primitive == ARRANGEMENT and record.median_seconds is not None and _is_usual(record.options):
            key = (record.options["ratio"], *(record.options[name] for name in _SHAPE))
            by.setdefault(key, {})[record.op] = record
    made = [Point(ops["rate"], ops.get("bound"), _free(by, key)) for key, ops in by.items() if _is_run(key, ops)]
    return sorted(made, key=lambda one: (one.options["workload"], one.options["update_interval"], -one.hz))


def _is_usual(options: Mapping[str, Any]) -> bool:
    """Whether it is a run to compare; those that predictions rest on name the workload's ``identity`` besides."""
    is_whole = {*_SHAPE, "ratio"} <= options.keys() and "identity" not in options
    return is_whole and all(options.get(name) == value for name, value in USUAL.items())


def _is_run(key: Sequence[Any], ops: Mapping[str, Measurement]) -> bool:
    return key[0] == "kept" and "rate" in ops


def _free(by: Mapping[tuple[Any, ...], Mapping[str, Measurement]], key: tuple[Any, ...]) -> float | None:
    """Return seconds of a gradient step by the parts of the same arrangement at a free ratio, whose pace has no u."""
    shape = dict(zip(_SHAPE, key[1:], strict=True))
    for other, ops in by.items():
        is_same = other[0] == "free" and (other[1], *other[3:]) == (key[1], *key[3:])
        if is_same and {"actor turn", "learner step"} <= ops.keys():
            turns = shape["update_interval"] / (shape["actors"] * shape["environments"])
            return max(turns * ops["actor turn"].seconds, ops["learner step"].seconds)
    return None


def groups(every: Sequence[Point]) -> dict[tuple[str, int], list[Point]]:
    """Group runs by workload and update interval."""
    by: dict[tuple[str, int], list[Point]] = {}
    for one in every:
        by.setdefault((one.options["workload"], one.options["update_interval"]), []).append(one)
    return by


def best_of_each(every: Sequence[Point]) -> list[Point]:
    """Return the fastest run of each arrangement, by workload and update interval."""
    best: dict[tuple[Any, ...], Point] = {}
    for one in every:  # the fastest come first
        options = one.options
        best.setdefault((options["workload"], options["update_interval"], options["arrangement"]), one)
    return list(best.values())


@dataclass(frozen=True)
class Prediction:
    """Gradient steps a second that the solver predicts of a run, in [``low``, ``high``]."""

    point: Point
    hz: float
    low: float
    high: float


def predictions(material: Material, chosen: Sequence[Point]) -> Iterator[Prediction]:
    """Predict runs from the machine's records; nothing of those that records do not tell of, or without a platform.

    Each is predicted once for all that show it.
    """
    if predictor := _predictor(material):
        for one in chosen:
            options, asked = one.options, ("prediction", one.rate.cell)
            if asked not in material.answers:
                names = ("arrangement", "actors", "environments", "presampled", "learner", "policy")
                candidate = Candidate(**{name: options[name] for name in names})
                shape = options["workload"], options["batch"], options["update_interval"]
                (material.answers[asked],) = predictor.answer(ArrangementQuestion(*shape, (candidate,)))
            row = material.answers[asked]
            if "told" in row:
                yield Prediction(one, row["told"], row["low"], row["high"])


def _predictor(material: Material) -> Predictor | None:
    path = material.folder / FILE
    return Predictor(material.measurements, platforms.load(path)) if path.is_file() else None


def long_runs(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the long runs of the kept ratio, by workload and arrangement."""
    found = [one for one in measurements if (one.primitive, one.op) == (ARRANGEMENT, "ratio") and one.median_seconds]
    return sorted(found, key=lambda one: (one.options["workload"], one.options["arrangement"]))
