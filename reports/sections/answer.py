"""The page's first section: the fastest tree here and what that is worth, three questions answered, three figures."""

import math
import re
from collections.abc import Sequence

import pandas as pd

from dse import stats
from dse.answers.printer import write, write_tree
from dse.answers.tree_answer import label_of, tree_answer
from dse.race_trees import configuration_of
from dse.records import Record, RecordError, twins
from dse.times.tree_times import Configuration
from impls.terminal import plural
from reports.claims.peer_claims import PEER, is_ours, one_run

from ..chart import Material, Section, placeholder
from ..markup import console, here, link, paragraph, safe, slug, table
from ..tidy import OPS, PREFERRED_CAPACITY, nearest, of_one_run, timed, where
from . import mapping, peers, races, training, tree, tree_figures
from .peers_figures import SUM

FIGURES = ("fanout", "peers_batch", "training_tree", "batch", "capacity")
"""Figures to show, as many of the first of them as were drawn."""
SHOWN = 3
COMPARISON = "compare.md"
COMPARE = "python -m benchmarks compare HEAD~1 HEAD"
COMPARE_LIBRARIES = "No other library was timed beside it; this does it: make peers."
MEASURE_SHARE = "python -m benchmarks run share --workload cartpole_dqn"
WORDS = {
    "sum tree, N, K, B": "a tree whose leaves are N priorities and whose nodes are sums of K children; a batch of B "
    "leaves is sampled or updated at once",
    "a sample, an update, element": "B leaves found by their priorities; B leaves given new ones; one of the B. A draw "
    "is a sample without its random numbers",
    "training step, gradient step": "what is done for one batch: acting, storing, sampling, learning and new "
    "priorities; learning alone",
    "learner torch, learner dense": "gradient steps by PyTorch; by compiled code of ours",
    "cartpole_dqn, hopper_ddpg ...": "workloads, an environment and an algorithm each: python -m impls.training list",
    "machine 8fb834d50a ...": "a machine by a hash of its processor, cores and caches: python -m benchmarks list",
    "* or hollow, unstable": "the 95 % interval of a median is wide",
    "noise floor, A/A pairs": "how far two timings of the same code lie apart in one run; less means nothing",
}
"""What readers of the page meet first, each with its meaning."""
HEADLINE = 3  # lines of an answer: the choice, which may take two, and the line to paste


def section(material: Material) -> str:
    """Return the answer as HTML: headline, questions, figures, which are long and so come last."""
    drawn = [name for name in FIGURES if name in material.drawn][:SHOWN]
    sentences = _fastest_here(material), _beside_libraries(material), _share(material)
    headline = f'<p class="lead">{safe(" ".join(sentences))}</p>\n'
    questions = "".join((_which_tree(material), _which_mapping(material), _which_commit(material)))
    return headline + _words() + questions + "".join(map(placeholder, drawn))


def _words() -> str:
    meanings = "".join(f"<dt>{safe(word)}</dt><dd>{safe(meaning)}</dd>\n" for word, meaning in WORDS.items())
    return f"<details><summary>Words used on this page</summary><dl>{meanings}</dl></details>\n"


def _fastest_here(material: Material) -> str:
    """Say in a sentence which tree is the fastest on this machine: as last raced, else as timed."""
    if not material.races:
        return _fastest_timed(material.frame)
    last = material.races[-1]
    first, *others = map(configuration_of, last.metrics["race"]["rows"])
    against = f"against {plural(len(others), 'other')}{', undecided' * (last.status == 'unstable')}"
    ns = peers.said(1e9 * last.seconds / last.batch)
    asked = f"{races.question_of(last)}, {last.utc[:10]}"
    return f"Fastest here: {write_tree(label_of(first))}, {ns} ns an element; raced {against}: {asked}."


def _fastest_timed(frame: pd.DataFrame) -> str:
    """Say in a sentence which tree of ours was timed the fastest, at the usual N and B or the nearest to them."""
    ours = frame[frame["contestant"].map(is_ours).astype(bool)]
    every = {name: set(ours[name]) for name in ("op", "threads")}
    at = "primitive", "options", "capacity", "batch"
    rows = tree_figures.trees(ours, *at, primitive=("sum_tree", PEER), source="measured", **every)
    if rows.empty:
        return f"No tree was timed here; this does it: {tree.SWEEP}."
    ops = [op for op in OPS if op in set(rows["op"])] or [nearest(rows["op"], "step")]
    rows = of_one_run(where(rows, op=ops))
    times = rows.groupby(["contestant", "fanout", "threads"], observed=True)["ns"].agg(["sum", "count"])
    whole = times[times["count"] == times["count"].max()]["sum"]
    name, fanout, threads = whole.idxmin()
    label = label_of(Configuration(name, int(fanout), int(threads)))
    what = f"{write_tree(label)}, {peers.said(whole.min())} ns an element"
    shape = f"for {' and '.join(ops)}, {tree_figures.said(rows, 'capacity', 'batch')}"
    return f"Fastest here: {what} {shape}; timed in one run against {plural(len(whole) - 1, 'other')}."


def _beside_libraries(material: Material) -> str:
    """Say in a sentence which tree is the fastest when compared with other libraries, and by how much."""
    records, where = beside_others(material)
    if not records:
        return COMPARE_LIBRARIES
    run = one_run(records)
    cells = [one for one in timed(run) if one.primitive == PEER]
    capacity = nearest([one.capacity for one in cells], PREFERRED_CAPACITY)
    cells = [one for one in cells if one.capacity == capacity]
    batch = nearest([one.batch for one in cells], peers.SORTED_BY)
    compared = peers.implementations(cells, run)
    timed_at = [(ns, one) for one in compared if not one.options and (ns := one.ns(SUM, batch))]
    times = sorted(timed_at, key=lambda pair: pair[0])
    ours, others = ([pair for pair in times if pair[1].ours is whose] for whose in (True, False))
    if not ours or not others:
        return COMPARE_LIBRARIES
    (first, best), (second, _) = ours[0], others[0]
    which, fanout = "tree" if first < second else "tree of ours", best.cells["update", batch].fanout
    setting = f"a sample and an update in one thread, in batches of {batch:,} of N = {capacity:,} leaves"
    unstable = any(one.mark(SUM, batch) != "" for _, one in (ours[0], others[0]))
    theirs = _beside(first, others, stats.noise_floor(twins(run, PEER)), " (unstable)" * unstable)
    return (
        f"Compared with other libraries the fastest {which} is {best.label} (K = {fanout}): {setting}, take "
        f"{best.said(SUM, batch)} ns an element; {theirs} (measured in one run{where})."
    )


def _beside(ours: float, others: Sequence[tuple[float, peers.Implementation]], floor: float, mark: str) -> str:
    """Say the slowdowns of other libraries over ours; ``others`` are sorted by their times.

    ``mark`` stands behind the ratio of the fastest.
    """
    (best, library), (worst, last) = others[0], others[-1]
    if abs(math.log(best / ours)) <= floor:
        ratio = "takes as long, within the noise"
    else:
        ratio = f"takes {_ratio(best / ours)}x the time" if best > ours else f"takes {best / ours:.0%} of that time"
    count = len({one.name for _, one in others})
    end = f" and the slowest, {last.label}, {_ratio(worst / ours)}x" if last is not library else ""
    return f"{library.label}, the fastest of {count} other librar{'ies' if count > 1 else 'y'}, {ratio}{mark}{end}"


def _ratio(ratio: float) -> str:
    """Write a slowdown.

    >>> _ratio(6.06), _ratio(459.4)
    ('6.1', '459')
    """
    return f"{ratio:,.1f}" if ratio < 10 else f"{ratio:,.0f}"


def _at_most(gain: float) -> str:
    """Write an upper end, rounded up.

    >>> _at_most(1.0148), _at_most(1.5)
    ('1.02', '1.5')
    """
    return f"{math.ceil(100 * gain - 1e-9) / 100:g}"


def beside_others(material: Material) -> tuple[list[Record], str]:
    """Return the times of ours and other libraries: this machine's, or those of another one, and its name."""
    own = material.of(PEER)
    if not any(one.primitive == PEER for one in timed(own.measurements)):
        return [], ""
    where = f" on machine {own.about.key}, for machine {material.about.key} has none"
    return list(own.measurements), where if own is not material else ""


def _share(material: Material) -> str:
    """Say in a sentence what share of a training step our tree takes, by either learner, and what a faster one gains.

    The tree takes as long whichever learner it feeds.
    """
    kept = training.shares(material.measurements)
    ours = [one for one in kept if one.contestant == training.OURS]
    if not ours:
        return f"What share of a training step it takes was not measured; this does it: {MEASURE_SHARE}."
    least, most = (end(ours, key=lambda one: one.share) for end in (min, max))
    between = f"{least.share:.1%} ({least.workload}) to " if f"{least.share:.1%}" != f"{most.share:.1%}" else ""
    worst = max((one for one in kept if not is_ours(one.contestant)), key=lambda one: one.share, default=None)
    while_theirs = f", while {worst.contestant} takes {worst.share:.0%} of one ({worst.workload})" if worst else ""
    compiled = max(ours, key=lambda one: one.tree_us / (one.other_us or math.inf))
    by_other = (
        f"; by {training.BY_OTHER}, a learner of compiled code, a step is {compiled.whole_us / compiled.other_us:.1f} "
        f"times faster, and the tree takes {compiled.tree_us / compiled.other_us:.0%} of it ({compiled.workload})"
        if compiled.whole_us and compiled.other_us
        else ""
    )
    return (
        f"Of a serial training step by torch our tree takes {between}{most.share:.1%} ({most.workload}) on machine "
        f"{material.about.key}, so that no faster one would make it more than {_at_most(most.most_gain)} times as "
        f"fast{while_theirs}{by_other} (measured)."
    )


def _question(title: str, asked: str, answered: str, more: str) -> str:
    """Return a question, the line that asks it, and what it answers, as HTML."""
    anchor = f"question-{slug(title)}"
    heading = f'{here(anchor, title)}<h3 id="{anchor}">{safe(title)}</h3>\n'
    said = console(answered) if answered else ""
    return heading + console(asked) + said + (f'<p class="about">{more}</p>\n' if more else "")


def _which_tree(material: Material) -> str:
    question = tree.questions(material)[0]
    shape = " ".join(f"--{name} {getattr(question, name)}" for name in ("capacity", "batch", "dtype"))
    asked = f"python -m dse recommend --machine {material.about.key} {shape.removesuffix(' --dtype float32')}"
    more = f"All of the answer: {link('what-to-choose', 'What to choose')}."
    try:
        found = tree.answered(material, question)
    except RecordError as error:
        return _question("Which tree?", asked, f"{error}", "")
    return _question("Which tree?", asked, _first_lines("\n".join(write(tree_answer(found)))), more)


def _which_mapping(material: Material) -> str:
    asked, found = mapping.here(material)
    more = f"All of the answer: {link('which-mapping', 'Which mapping')}."
    return _question("Which mapping?", asked, _first_lines(found), more)


def _which_commit(material: Material) -> str:
    path = material.results / COMPARISON
    if not path.is_file():
        return _question("Is my commit slower?", COMPARE, "", "Left out: no comparison is on record.")
    example = re.search(r"```console\n(.*?)```\s*(.*)", path.read_text(encoding="utf-8"), re.DOTALL)
    shown = "" if example is None else paragraph(re.sub("[*`]", "", example[2])) + _compared(example[1])
    return _question("Is my commit slower?", COMPARE, "", "") + shown


def _compared(said: str) -> str:
    """Return what ``compare`` was asked and said, a table in Markdown and a verdict, as HTML."""
    asked, *lines = said.splitlines()
    head, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    verdict = " ".join(line for line in lines if line and not line.startswith("|"))
    return paragraph(asked.removeprefix("$ ")) + table(head, body) + paragraph(f"{verdict}.")


def _first_lines(answer: str) -> str:
    return "\n".join(answer.splitlines()[:HEADLINE])


SECTIONS = (
    Section(
        5,
        "The answer",
        section,
        ("sum_tree", "memory", "race", PEER, "serial_step", "training"),
        ("KEY/platform.toml", COMPARISON),
        figures=FIGURES[:SHOWN],
    ),
)
