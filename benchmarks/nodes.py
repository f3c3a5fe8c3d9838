"""Measure on the nodes of a Ray cluster: each takes groups of cells, and its records go to the file of its machine.

Nodes of equal machines, by the key of their facts, share the groups of one file; a group is timed by one node as a
whole. This process alone writes: a node that is lost loses its group, which goes to another, and a command that was
killed continues where it stopped. A node joins while there is work left, and is left out where its code is another, or
where others keep it busy. Of equal machines a node stops whose sentinels are slower than those of the fastest.
"""

import collections
import dataclasses
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from dse import platforms
from dse.platforms import checkout
from dse.platforms.checkout import hash_code, is_done
from dse.records import SENTINEL, Record, RecordError, Writer, parse_lines, twins
from impls.cluster import ClusterError
from impls.cluster.connection import connect
from impls.terminal import plural

from .run import Stamp, Tally, latest, show
from .sentinels import DISTURBED, Sentinels
from .topic import Topic, parser_for
from .topics import load_topic
from .workers import ROOT

LOOK_SECONDS = 2.0
"""Seconds after which this process looks for nodes that have joined."""
SECONDS_A_CELL, LEAST_SECONDS = 60.0, 600.0
"""After so many seconds a cell a node that does not answer is lost; the least for a group."""
NODE_DIGITS = 8
LEFT_OUT = (".git", "results", "reports", "tests", ".venv*", "**/__pycache__", "runs")
"""What a node needs no copy of."""


class LostError(Exception):
    """A node ended, or did not answer, before its group was measured."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a topic on a node: the facts of its machine and the primitive, as records state them, and the keys of
    its cells by group."""

    machine: dict[str, Any]
    primitive: str
    is_counted: bool
    groups: list[list[str]]


@dataclasses.dataclass(frozen=True)
class Greeting:
    """A node's answer to what it would measure: the ``parts`` of the topic and the file of their records.

    ``code``: the hash of its code. ``load``: what others run there; "" for nothing.
    """

    code: str
    load: str
    file: str
    parts: Sequence[Part]

    @property
    def key(self) -> str:
        """Key of the node's machine."""
        return str(self.parts[0].machine["key"])


def make_topic(name: str, words: Sequence[str]) -> Topic:
    """Make a topic of the words that follow its command. ValueError or RecordError where it cannot be measured."""
    kind: type[Topic] = load_topic(name)
    return kind(parser_for(kind).parse_args(words))


class Measurer:
    """A process that measures on a node: it makes a topic of the words of a command, and times groups of its cells."""

    def __init__(
        self, topic: str, words: Sequence[str], node: str, commit: str | None, dirty: bool | None, command: str
    ) -> None:
        self._stack, self._sentinels = ExitStack(), Sentinels()
        made = make_topic(topic, words)
        self._file, self._parts, self._anyway = made.file, made.parts(), made.options.anyway
        self._code, self._is_open = hash_code(type(made).__module__), [False] * len(self._parts)
        for part in self._parts:
            part.path = Path(self._file)
            machine = {**part.stamp.machine, "node": node}
            part.stamp = dataclasses.replace(part.stamp, commit=commit, dirty=dirty, command=command, machine=machine)
        self._groups = [[{part.key(cell): cell for cell in group} for group in part.cells()] for part in self._parts]

    def greet(self) -> Greeting:
        """Return what this node is and would measure."""
        load = "" if self._anyway or not checkout.read_load() else checkout.describe_load()
        parts = [
            Part(part.stamp.machine, part.primitive, part.is_counted, [[*group] for group in groups])
            for part, groups in zip(self._parts, self._groups, strict=True)
        ]
        return Greeting(self._code, load, self._file, parts)

    def measure(self, place: int, keys: Sequence[str]) -> list[str]:
        """Measure the cells of a group that have these keys; return their records, a line each."""
        part = self._parts[place]
        if not self._is_open[place]:
            part.open(self._stack)
            self._is_open[place] = True
        group = next(group for group in self._groups[place] if group.keys() >= {*keys})
        visit = self._sentinels.visit(part.stamp.timed) if part.has_sentinels else ()
        return [record.to_json() for record in (*visit, *part.measure([group[key] for key in keys]))]


class Node(Protocol):
    """A node of a cluster, from outside."""

    name: str

    def greet(self) -> Greeting:
        """Return what the node is and would measure. LostError where it has ended."""

    def measure(self, place: int, keys: Sequence[str], seconds: float) -> list[str]:
        """Return the lines of a group's records. LostError where there are none within ``seconds``."""


@dataclasses.dataclass
class Work:
    """The work for one machine's file: groups that remain, by (part, keys of cells), records so far, and the keys of
    cells that the command counts."""

    path: Path
    stamps: list[Stamp]
    writer: Writer
    tally: Tally
    records: list[Record]
    groups: collections.deque[tuple[int, list[str]]]
    cells: frozenset[str]
    groups_under_way: int = 0
    levels: dict[str, dict[tuple[str, str], float]] = dataclasses.field(default_factory=dict)
    """By node, the median seconds of each sentinel."""


class Driver:
    """Gives groups of cells to nodes, and writes what they return."""

    def __init__(
        self, results: Path, code: str, commit: tuple[Any, Any, str], resumes: bool, say: Callable[[str], None]
    ) -> None:
        self._results, self._code, self._commit, self._resumes, self._say = results, code, commit, resumes, say
        self._stack, self.works = ExitStack(), dict[str, Work]()
        self._lock, self._answers = threading.Lock(), queue.SimpleQueue[tuple[Any, ...]]()
        self._threads: dict[str, threading.Thread] = {}

    def add(self, node: Node) -> None:
        """Let a node take part, in a thread of its own."""
        if node.name not in self._threads:
            self._threads[node.name] = threading.Thread(target=self._serve, args=(node,), daemon=True)
            self._threads[node.name].start()

    def run(self, find: Callable[[], Iterable[Node]]) -> None:
        """Measure until no group is left, or no node; ``find`` lists the nodes that there are now. RecordError."""
        with self._stack:
            looked = -LOOK_SECONDS
            # Invariant: each group is in the work of its machine, under way on one node, or written.
            while True:
                if time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    for node in find():
                        self.add(node)
                try:
                    self._take(*self._answers.get(timeout=LOOK_SECONDS / 4))
                except queue.Empty:
                    if not any(thread.is_alive() for thread in self._threads.values()):
                        break
        for work in self.works.values():
            self._sum_up(work)

    def _serve(self, node: Node) -> None:
        """Measure on a node, group by group, as long as there are any for its machine."""
        try:
            greeting = node.greet()
            why = greeting.load or ("its code is another" if greeting.code != self._code else "")
            if why:
                self._say(f"node {node.name} is left out: {why}")
                return
            work = self._work_of(greeting)
            while group := self._next_group(work):
                place, keys = group
                try:
                    lines = node.measure(place, keys, max(LEAST_SECONDS, SECONDS_A_CELL * len(keys)))
                except LostError:
                    self._answers.put((work, node.name, group, None))
                    raise
                written = threading.Event()
                self._answers.put((work, node.name, group, lines, written))
                written.wait()
                if work.levels.get(node.name) is not None and self._is_slow(work, node.name):
                    self._say(f"node {node.name} stops: its sentinels are slower than those of an equal machine")
                    return
        except LostError as error:
            self._say(f"node {node.name} is lost: {error}")
        except Exception as error:  # of the plan or of the measuring, which other nodes would meet as well
            self._answers.put((None, node.name, None, error))

    def _work_of(self, greeting: Greeting) -> Work:
        """Return the work of a machine, begun by its first node."""
        with self._lock:
            if greeting.key not in self.works:
                self.works[greeting.key] = self._begin(greeting)
            return self.works[greeting.key]

    def _begin(self, greeting: Greeting) -> Work:
        path = self._results / greeting.key / greeting.file
        stamps = [Stamp(*self._commit, part.primitive, part.machine) for part in greeting.parts]
        writer = self._stack.enter_context(Writer(path))
        known = [record for stamp in stamps for record in stamp.known(path)] if self._resumes else []
        done = {record.cell for record in known if is_done(record)}
        every = [(place, group) for place, part in enumerate(greeting.parts) for group in part.groups]
        left = [(place, [key for key in group if key not in done]) for place, group in every]
        keys = [key for part in greeting.parts if part.is_counted for group in part.groups for key in group]
        tally = Tally(len(keys), resumed=len(done.intersection(keys)), keys=keys)
        groups = collections.deque(group for group in left if group[1])
        return Work(path, stamps, writer, tally, known, groups, frozenset(keys))

    def _next_group(self, work: Work) -> tuple[int, list[str]] | None:
        """Return a group that is to be measured; waits while another node may still give its group back."""
        while True:
            with self._lock:
                if work.groups:
                    work.groups_under_way += 1
                    return work.groups.popleft()
                if not work.groups_under_way:
                    return None
            time.sleep(LOOK_SECONDS / 10)

    def _take(
        self,
        work: Work | None,
        node: str,
        group: tuple[int, list[str]] | None,
        lines: list[str] | Exception | None,
        written: threading.Event | None = None,
    ) -> None:
        """Write what a node found, or give its group back where it found nothing."""
        if work is None or group is None:
            assert isinstance(lines, Exception)
            raise lines
        found = [*parse_lines(lines, f"node {node}")] if isinstance(lines, list) else []  # none: the node is lost
        for record in found:
            if record.primitive == SENTINEL:
                work.levels.setdefault(node, {})[record.contestant, record.op] = record.seconds
        is_kept = lines is not None and not self._is_slow(work, node)
        for record in found if is_kept else ():
            work.writer.append(record)
            work.records.append(record)
            if record.cell in work.cells:
                work.tally.by_status[record.status] += 1
                work.tally.reasons.update([record.reason or ""] if record.status == "skipped" else ())
        with self._lock:
            work.groups_under_way -= 1
            if not is_kept:
                work.groups.append(group)
        if is_kept:
            done = work.tally.resumed + work.tally.by_status.total()
            self._say(f"node {node}: {done:,} of {plural(work.tally.cells, 'cell')}")
        if written:
            written.set()

    def _is_slow(self, work: Work, node: str) -> bool:
        """Say whether another node of an equal machine is faster, by the median over the sentinels."""
        own = work.levels.get(node, {})
        for other, levels in work.levels.items():
            ratios = [own[name] / levels[name] for name in own.keys() & levels.keys()]
            is_alive = self._threads[other].is_alive() if other in self._threads else False
            if other != node and is_alive and ratios and statistics.median(ratios) > DISTURBED:
                return True
        return False

    def _sum_up(self, work: Work) -> None:
        tally = work.tally
        tally.left = sum(key in work.cells for _, keys in work.groups for key in keys)
        tally.pairs = [pair for stamp in work.stamps for pair in twins(work.records, stamp.primitive)]
        tally.found = latest(record for record in work.records if record.cell in work.cells)
        tally.failures = [
            f"{record.contestant} {record.op}, {record.reason}" for record in tally.found if record.status == "failed"
        ]


class RayNode:
    """A node of a Ray cluster, of which the measuring has all CPUs."""

    def __init__(self, ray: Any, about: Mapping[str, Any], *arguments: Any) -> None:
        self._ray, self.name = ray, str(about["NodeID"])[:NODE_DIGITS]
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(about["NodeID"], soft=False)
        how = {"num_cpus": about["Resources"]["CPU"], "scheduling_strategy": strategy, "max_restarts": 0}
        topic, words, *stamp = arguments
        self._actor = ray.remote(Measurer).options(**how).remote(topic, words, self.name, *stamp)

    def greet(self) -> Greeting:
        """Return what the node is and would measure. LostError where it has ended."""
        greeting: Greeting = self._ask(self._actor.greet.remote(), LEAST_SECONDS)
        return greeting

    def measure(self, place: int, keys: Sequence[str], seconds: float) -> list[str]:
        """Return the lines of a group's records. LostError where there are none within ``seconds``."""
        lines: list[str] = self._ask(self._actor.measure.remote(place, [*keys]), seconds)
        return lines

    def _ask(self, reference: Any, seconds: float) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=seconds)
        except errors.GetTimeoutError:
            self._ray.kill(self._actor)
            raise LostError(f"no answer in {seconds:.0f} s") from None
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise LostError(str(error).strip().partition("\n")[0]) from None


def measure_over(name: str, words: Sequence[str]) -> int:
    """Measure a topic, as the words of its command ask, on every node of a cluster; return the worst exit code of all
    machines. RecordError where there is no cluster, or no node of it can measure."""
    topic = make_topic(name, words)
    options, parts = topic.options, topic.parts()
    stamp = (*platforms.commit(Path(__file__).parent), platforms.command_line())
    try:
        ray = connect(options.cluster, runtime_env={"working_dir": str(ROOT), "excludes": [*LEFT_OUT]})
    except ClusterError as error:
        raise RecordError(str(error)) from None
    nodes: dict[str, RayNode] = {}

    def find() -> Iterable[Node]:
        for about in ray.nodes():
            if about["Alive"] and about["Resources"].get("CPU", 0) >= 1 and about["NodeID"] not in nodes:
                nodes[about["NodeID"]] = RayNode(ray, about, name, [*words], *stamp)
        return nodes.values()

    code, resumes = hash_code(type(topic).__module__), all(part.resumes for part in parts)
    driver = Driver(Path(options.results), code, stamp, resumes, _say_on(options.json))
    driver.run(find)
    if not driver.works:
        raise RecordError("no node of the cluster measures; the lines above say why")
    return max(_show(work, topic, options) for work in driver.works.values())


def _show(work: Work, topic: Topic, options: Any) -> int:
    found, lines = topic.summarize(work.tally.found)
    print(f"machine {work.path.parent.name}:" if not options.json else "", end="\n" * (not options.json))
    return max(show(work.tally, work.path, options, found, lines), int(bool(work.tally.left)))


def _say_on(as_json: bool) -> Callable[[str], None]:
    return lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True)
