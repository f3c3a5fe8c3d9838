"""The page's section of races: what raced on this machine, what won, and by how much."""

from dse.race_trees import configuration_of
from dse.records import Record
from impls.terminal import plural

from ..chart import Material, Section
from ..markup import paragraph, table
from ..tidy import commit_of

RUNS = "race of runs"
HEAD = ("question", "won", "time", "next", "slower by", "candidates", "raced")
COMMANDS = "python -m dse recommend --capacity 1e6 --batch 256, python -m dse run cartpole_dqn"
READING = (
    "Candidates race on the machine that asks, in blocks that take turns, until all but the fastest are known to be "
    "slower, or as fast within a few percent. A tree's time is that of a step in a program, timed after its race, and "
    "its interval holds from run to run; the intervals of training runs hold 95 % of their turns."
)


def section(material: Material) -> str:
    """Return the latest race of each question as a table, as HTML."""
    runs = [one for one in material.measurements if one.primitive == RUNS]
    latest = {question_of(one): one for one in (*material.races, *runs)}
    if not latest:
        return paragraph(f"Left out: nothing has raced here; this would: {COMMANDS}.")
    rows = [_row(question, one) for question, one in latest.items()]
    source = f"Source: measured on {material.about.cpu}, {material.about.cores} cores."
    return paragraph(f"{READING} {source}") + table(HEAD, rows)


def question_of(record: Record) -> str:
    """Write what was raced for."""
    asked = record.metrics["race"]["asked"]
    if record.primitive == RUNS:
        return ", ".join([asked["workload"], *(f"{key} {value}" for key, value in asked["fix"].items())])
    words = (
        f"N = {asked['capacity']:,}, B = {asked['batch']:,}, {plural(asked['updates_per_sample'], 'update')} per sample"
    )
    return words + f", {asked['inserts']} inserts" * bool(asked["inserts"]) + ", cold caches" * asked["cold"]


def _row(question: str, record: Record) -> tuple[str, ...]:
    race = record.metrics["race"]
    first, *others = race["rows"]
    behind = next((row for row in others if row["status"] in ("slower", "undecided") and row["ratio"][0]), None)
    name = (lambda row: row["name"]) if record.primitive == RUNS else (lambda row: str(configuration_of(row)))
    if record.primitive == RUNS:
        middle, low, high = first["hz"]
        time = f"{middle:,.0f} [{low:,.0f}, {high:,.0f}] gradient steps/s"
    else:
        middle, low, high = (1e6 * seconds for seconds in race.get("step", first)["seconds"])
        time = f"{middle:.3g} [{low:.3g}, {high:.3g}] us/step"
    slower = f"{behind['ratio'][0] - 1:.0%}" if behind else "-"
    equal = "".join(f", as fast: {name(row)}" for row in others if row["status"] == "equal")
    commit = commit_of(record, "with uncommitted changes")
    raced = f"{record.utc[:10]}, {race['seconds']:.1f} s, {race['ending']}, {commit}"
    return (question, name(first) + equal, time, name(behind) if behind else "-", slower, str(len(race["rows"])), raced)


SECTIONS = (Section(12, "Races: what is the fastest here", section, ("race",)),)
