"""No figure survives its record: of shaken records the page and the READMEs show other measured numbers everywhere.

Every time, rate and version in a copy of the results is changed, each record by a factor of its own. A number that
stays the same at the same place of the same sentence or row would be typed by hand; those that may stay are listed
with the reason. Chance leaves some the same, so a place that stays is looked at again with other factors.
"""

import ast
import html
import json
import operator
import random
import re
import shutil
from collections import Counter

import pytest

import dse
from dse import accuracy
from dse.records import read_file
from reports import page, readme_tables, tidy
from reports.chart import Material
from reports.claims import quoted
from reports.sections import fpga
from tests.committed import COMMITTED, ROOT
from tests.made import alter

KEY = readme_tables.COMPARED  # whose records are the most various
TIMES = ("median_seconds", "low_seconds", "high_seconds")
RUN = ("seconds", "test_mean", "sample_efficiency")
WORDED = ("kernel", "python", "packages")
UNSHAKEN = {
    "On an FPGA (modeled)": "laws and quoted numbers; no record",
    "Published mappings (modeled)": "laws and quoted numbers; no record",
    "Look closer": "the rows of the records, as JSON; tests/page/test_look.py compares them",
    "References": "years of papers",
    **dict.fromkeys(("Claims of [Hou2023]", "Claims of [Zhang2022]"), "quoted numbers and arithmetic on them"),
    **dict.fromkeys(
        ("Verdicts on the papers", "Papers against us"),
        "the papers' sentences again, whose evidence stands in the sections of claims",
    ),
    "Ask for another tree": "hundreds of answers, some alike by chance; tests/page/test_explorer.py compares them",
    "Mappings, and what would change them": "most of it modeled; tests/page/test_what_ifs.py compares it with answers",
}
MAY_STAY = {
    r"95 %": "the confidence of every interval",
    r"[+-]?0(\.0+)?\s?(%|x)?": "nothing is nothing, however long it takes",
    r"100 ?%|1\.00x?": "all of it",
    r"[1-3] %": "a share so small that its whole percents stay",
}
BY_LAW = {
    r"as printed|removal heeded|learner first, then the best RMM": "tables drawn by a seed, no times",
    r"within a factor of|ties, within": "a factor that is told as such",
    r"\| (a workload|a machine) \||equal simulated hardware|on one processor, on another": "the factor of a law",
    r"\| none: nothing was run \|": "the paper's own figures alone",
    r"\(as is usual\)": "drift of a machine that no sentinel tells",
    r"confirmed if|refuted if|clearly faster": "the level of a test",
}
ENDS = {"Which mapping": "on the platform of"}  # from there on laws and a platform file, no record
UNIT = r"(?:\s?(?:ns|us|ms|s|%|x|/s)(?![\w-])| (?:times|gradient steps)\b)"
NUMBER = re.compile(rf"(?<![\w.,-])[+-]?\d+(?:,\d{{3}})*(?:\.\d+)?(?:e-?\d+)?{UNIT}?")
FIGURE = re.compile(r"[.%]|[num]?s$|x$|times|\d{3}")  # a unit, decimals or three digits; other counts are short
QUANTITY = re.compile(r"\d\s?(?:[num]s\b|%|x\b)|\d times")
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.ClassDef)
ROUNDS = 7


def shaken(results, out, seed):
    """A copy of one machine's results and of what is quoted, with every measured number changed."""
    for path in sorted(path for name in (KEY, "quoted") for path in (results / name).rglob("*") if path.is_file()):
        text = path.read_text()
        if path.suffix == ".jsonl":
            text = "".join(_record(one, seed) for one in read_file(path))
        elif path.suffix == ".json":
            text = json.dumps(_values(json.loads(text), random.Random(f"{seed}{path}")))
        target = out / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return out


def _record(one, seed):
    rng = random.Random(f"{seed}{one}")
    factor = rng.uniform(1.3, 1.9)
    other = {name: getattr(one, name) and getattr(one, name) * factor for name in TIMES}
    other["samples_seconds"] = tuple(factor * sample for sample in one.samples_seconds)
    other["reason"] = _digits(one.reason, rng)
    words = {name: _digits(one.machine.get(name), random.Random(seed)) for name in WORDED}
    return alter(one, **other, machine=one.machine | words).to_json() + "\n"


def _digits(value, rng):
    """The same text with other digits; of a table the same names."""
    if isinstance(value, dict):
        return {name: _digits(one, rng) for name, one in value.items()}
    return value and re.sub(r"\d", lambda found: str((int(found[0]) + rng.randint(1, 9)) % 10), value)


def _values(content, rng):
    """Training runs and findings about exactness, with other results."""
    if isinstance(content, list):
        return [_values(one, rng) for one in content]
    changed = {name: int(rng.uniform(1.3, 1.9) * content[name]) for name in RUN if content.get(name)}
    if "throughput" in content:
        rates = content["throughput"].items()
        changed["throughput"] = {name: rate and rng.uniform(1.3, 1.9) * rate for name, rate in rates}
    if content.get("value"):
        changed["value"] = content["value"] * rng.uniform(0.3, 0.9)
    if content.get("note"):
        changed["note"] = _digits(content["note"], rng)
    return content | changed


def texts(results):
    """The page's sections without their pictures, and the tables of the READMEs that show records, by name."""
    records = dse.read_folder(results, KEY)
    material = Material(records, tidy.about(records), results)

    def section(one):
        whole = page.section_html(one, material).partition("<details>")[0]  # counts: tests/system/test_origins.py
        return whole.partition(ENDS.get(one.heading, "\0"))[0]

    made = {one.heading: lambda one=one: section(one) for one in page.sections() if one.heading not in UNSHAKEN}
    tables = ("peers", "share", "training")
    return made | {name: lambda name=name: getattr(readme_tables, name)(results) for name in tables}


def shapes(results):
    """Numbers that say what was timed, or how often: of cells, settings and counts of records, as they are written."""
    records = dse.read_folder(results, KEY)
    numbers = [getattr(one, name) for one in records for name in ("capacity", "batch", "fanout", "threads")]
    numbers += [number for one in records for number in one.options.values() if isinstance(number, int | float)]
    runs = [json.loads(path.read_text()) for path in (results / KEY).rglob("summary.json")]
    numbers += [run[name] for run in runs for name in ("alpha", "steps", "solved_at", "test_episodes")]
    numbers += [one.trials for path in (results / KEY).glob("*accuracy.json") for one in accuracy.read(path)]
    for kind in map(operator.attrgetter, ("primitive", "run.command", "status")):
        numbers += Counter(kind(one) for one in records).values()
        numbers += Counter((one.primitive, kind(one)) for one in records).values()
        numbers += Counter((one.primitive, one.capacity, kind(one)) for one in records).values()
    return {text for number in numbers for text in (f"{number:,}", f"{number}", f"{number:g}")}


def figures(text):
    """Every number that is a figure, by its place: the line without numbers, which such line, which number of it."""
    text = re.sub(r"\d{4}-\d\d-\d\d(T[\d:+.]*)?|\[\w+\d{4}[^\]]*\]|\b[0-9a-f]{8,10}\b|python -m [^<;]*", "", text)
    seen, found = Counter(), {}
    for line in re.split(r"</tr>|</p>|</li>|\n", text):
        plain = html.unescape(re.sub(r"<[^>]+>", " | ", line))
        frame = NUMBER.sub("#", plain)
        seen[frame] += 1
        for position, number in enumerate(NUMBER.finditer(plain)):
            if FIGURE.search(number[0]) and not any(re.search(law, plain) for law in BY_LAW):
                found[(frame, seen[frame]), position] = number[0]
    return found


def staying(results, folder, make=texts):
    """The figures of each text that no shaking changes and that may not stay, by the name of the text."""
    known = shapes(results)
    may_stay = re.compile("|".join([*MAY_STAY, *map(re.escape, known)]))
    first = {name: figures(text()) for name, text in make(results).items()}
    left = {
        name: {at: one for at, one in found.items() if not may_stay.fullmatch(one)} for name, found in first.items()
    }
    for seed in range(ROUNDS):
        other = make(shaken(results, folder / str(seed), seed)) if any(left.values()) else {}
        for name in [name for name in left if left[name]]:
            again = figures(other[name]())
            left[name] = {place: number for place, number in left[name].items() if again.get(place) == number}
    for name in [name for name in left if name.startswith("Claims")]:  # with the paper's own figures beside
        rows = Counter(line for line, _ in first[name])
        same = Counter(line for line, _ in left[name])
        left[name] = {place: one for place, one in left[name].items() if same[place[0]] == rows[place[0]]}
    return {name: numbers for name, numbers in left.items() if numbers}


def test_no_measured_number_of_the_page_or_a_table_outlives_its_record(tmp_path):
    assert staying(COMMITTED, tmp_path) == {}


def test_a_figure_typed_by_hand_is_found(tmp_path):
    """One number of each kind, in a row and in a sentence, beside numbers of records."""
    typed = "The tree takes 12.3 us, 4,538 ns or 1.47x.\n| `numba` | 33 % |"

    def make(results):
        return {"text": lambda: readme_tables.share(results) + typed}

    found = staying(COMMITTED, tmp_path, make)
    assert sorted(found["text"].values()) == ["1.47x", "12.3 us", "33 %", "4,538 ns"]


def test_quoted_numbers_of_the_page_are_those_of_the_papers_file(tmp_path):
    def row(folder):
        quotes = quoted.read(folder)
        return re.findall(r"[\d.,]+%?", fpga._resources(quotes).split("published (quoted)")[1].partition("</tr>")[0])

    shutil.copytree(COMMITTED / "quoted", tmp_path / "quoted")
    path = tmp_path / "quoted" / "seed3.toml"
    before, (head, kept, tail) = row(path.parent), path.read_text().partition("[table_vi.rmm]\n")
    printed, blank, after = tail.partition("\n\n")
    other = re.sub(r"= ([\d_.]+)", lambda found: f"= {1.37 * float(found[1].replace('_', '')):.1f}", printed)
    path.write_text(head + kept + other + blank + after)
    assert len(before) > 6
    assert [same for same, now in zip(before, row(path.parent), strict=True) if same == now] == ["1"]  # of SLR1


OWN = [path for path in sorted((ROOT / "reports").rglob("*.py")) if path.parent.name != "claims"]  # claims quote


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_text_of_the_reports_has_a_figure_in_it(path):
    tree = ast.parse(path.read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    told = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)}
    is_format = re.compile(r"(\{:)?[+,.\d]*[%efg]\}?").fullmatch
    texts = [text for text in texts if text not in told and not is_format(text)]
    hits = [
        text
        for text in texts
        if QUANTITY.search(text.replace("95 %", "").replace("99 %", "")) and "{ font:" not in text
    ]
    assert hits == []
