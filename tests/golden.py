"""Asks `dse` what `data/kept/answers` holds, a file a command, and compares the facts of each answer with it.

    python -m tests.golden             compare all; exit code 1 where any differs
    python -m tests.golden --only 17   question 17 alone, or those whose words hold a text
    python -m tests.golden --only refused.json   those of a file
    python -m tests.golden --write     keep the facts of today, where a change is meant

Two hundred questions are drawn by a seed. What is refused stands in `refused.json`: a question that is written there,
with `null` for its facts, is asked as well.

A question is a command, and after `<` the file `own.*` that it names, with `;` for the ends of its lines. Facts are
names, and numbers in SI units, never sentences; ``extract`` alone knows the JSON of today. Numbers are compared to 1e-9
of their size, all else exactly.
"""

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import random
import re
import sys
import tempfile
from collections.abc import Container, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from dse.platforms import fingerprint

FOLDER = Path(__file__).parent / "data" / "kept" / "answers"
REFUSED, EXAMPLE = "refused.json", "times --example"
RESULTS = Path(__file__).parent / "data" / "results"
SEED, CLOSE = 20_261_128, 1e-9
GRAMMAR = {
    "d": "1|2|3|4|5|6|7|8|9",
    "n": "1e3|3e4|1e5|3e5|1e6|2e6|1e7",
    "b": "16|64|128|256|512|1024|2048|4096|8192|8192",
    "us": "{d}{d}|{d}{d}0|{d}{d}00|{d}.{d}",
    "name": "edge|h200|u200|u200",
    "platform": "{name}",
    "device": "gpu|fpga|cpu",
    "task": "cartpole_ddpg|cartpole_dqn|cartpole_dqn|hopper_ddpg|hopper_ddpg|hopper_sac|pong_dqn|pendulum_td3",
    "system": "--platform {platform} --workload {task}",
    "goal": "||| --objective training| --objective fewest_devices| --objective per_watt",
    "more": "||| --free batch| --free presampled| --free environments| --epsilon 0.{d}| --exclude fpga",
    "where": "learner={device}|storage={device}|sampling={device}|contestant=numba|arrangement=apart",
    "by": "learner_implementation=torch|learner_implementation=dense|policy_implementation=torch|learner_threads={d}",
    "shape": "batch={b}|update_interval={d}|capacity={n}|presampled={d}|actor_count={d}|environments={d}",
    "several": "threads=1",
    "fix": "|| --fix {where}| --fix {by}| --fix {shape}| --fix {several}| --fix {where} --fix {shape}",
    "mapping": "recommend {system}{goal}{more}{fix}",
    "explain": "explain {system}{goal} --config {where}|explain {system}{more} --config {by},{where}",
    "side": "{explain}|what-if {system} --set cpu.{part}={d}{d}",
    "part": "cores|memory_gb|power_watts|memory.bandwidth_gb_per_s",
    "adapt": "adapt {system}|adapt {system} --memory-gb {d}{d}|adapt {system} --fix {shape}",
    "learners": "learners {system} --most {d} --longest-period {d}|learners {system} --fix {by}",
    "cores": "cores {system}|cores {system} --cores {d}{d}|cores {system} --update-interval {d} --reserved 1",
    "tuning": "{adapt}|{learners}|{cores}|depth {system} --spread 0.{d}|depth {system} --fix {where}",
    "curve": "1:{d}00,2:1{d}00,4:2{d}00|1:{d}000,3:{d}{d}00|2:{d}00,8:{d}{d}0",
    "lone": "depth --sampling-us {us} --training-us {us}{way}|cores --actors {curve} --learners {curve} --cores {d}{d}",
    "way": "| --updating-us {us} --transfer-us {us}| --together| --spread 0.{d}",
    "net": "hopper|cartpole|mlp:15-256-256-1|mlp:{d}-{d}{d}-{d}|conv:4x20x20-8k4s2-16k3s1-64-{d}",
    "fpga": "fpga --network {net} --batch {b}{design}",
    "design": "|| --slice free --platform edge| --fill systolic| --leaf-bits 24| --clock-mhz 1{d}0| --capacity {n}",
    "tree": "recommend --capacity {n} --batch {b} --updates-per-sample {u} {records}",
    "u": "1|1|4|0.{d}",
    "records": "--platform {name}",
    "show": "platform show {name}|platform check {name}|platform check {name} --results results|{estimate}",
    "estimate": "platform estimate {name} --workload {task}",
    "two": "recommend --platform own.toml --workload {task}{goal} --fix batch=4096 < name = 'own';origin = 'assumed';"
    "note = '-';device = [{cpu}, {name = 'gpu'{gpu}, {name = 'gpu1'{gpu}];link = [{to = 'gpu'{hop}, {to = 'gpu1'{hop}]",
    "cpu": "{name = 'cpu', kind = 'cpu', cores = 16, clock_ghz = {d}, peak_fp32_gops = 900{watts}",
    "gpu": ", kind = 'gpu', multiprocessors = 80, clock_ghz = 1, peak_fp32_tops = 20, launch_us = 5{watts}",
    "watts": ", power_watts = 99, memory = {size_gb = 64, bandwidth_gb_per_s = 400}}",
    "hop": ", from = 'cpu', hops = 1, alpha_us = 9, beta_gb_per_s = 9, back_alpha_us = 9, back_beta_gb_per_s = 9}",
    "timed": "{mapping} --times {own}|{side} --times {own}|platform estimate u200 --workload hopper_ddpg --times {own}",
    "own": "own.csv < {csv};sampling,gpu,256,measured,{us};updating,gpu,256,measured,{us};storage,gpu,256,measured,{us}"
    ";learner,gpu,256,measured,{us}0|own.toml < {toml}",
    "csv": "part,device,batch,source,us;sampling,cpu,256,quoted,{us};updating,cpu,256,quoted,{us}"
    ";storage,cpu,256,quoted,{us};learner,cpu,256,quoted,{us}00",
    "toml": "[[time]];part = 'learner';device = '{device}';batch = 256;ms = {d}.{d};source = 'modeled'{link}",
    "link": "|;factor = 1.{d}|;low = 0.1;high = 10|;[[time]];part = 'link';from = 'cpu';to = 'fpga';gb_per_s = {d}",
}
MISFITS = (
    "recommend --platform u20 --workload {task}|recommend --platform {name} --workload hoper_ddpg"
    "|recommend {system} --objective speed|recommend --platform edge --workload pong_dqn --fix capacity=1e8"
    "|recommend {system} --fix learner=tpu|recommend {system} --fix batch=2e6|recommend {system} --exclude cpu"
    "|recommend {system} --fix sync=local --fix learners=1|recommend --platform edge --workload {task} --fix actors=64"
    "|recommend --capacity 0 --batch {b} --machine 8fb834d50a|recommend --capacity 1e12 --batch {b} --platform {name}"
    "|recommend --capacity 1e12 --batch {b} --machine 8fb834d50a --threads {d}|explain {system} --config batch={b}"
    "|what-if {system} --set tpu.cores={d}|adapt {system} --memory-gb 0.1|learners {system} --most 0"
    "|fpga --network pong --platform edge --batch {b}"
    "|platform check own.toml < name = 'own';[[device]];name = 'cpu';core = -{d}"
    "|platform estimate u200 --times own.csv < part,device,batch,us;learner,gpu,{b},-{d};learner,tpu,0,{us}"
    "|run {task} --platform u200"
)
RECORDED = GRAMMAR | {
    "name": "results/{key}/platform.toml",
    "key": "8fb834d50a|c948cac9ea|d7dae63b89",
    "platform": "{name}|{name}|this --machine {key} --results results",
    "device": "cpu",
    "goal": "| --objective training| --objective fewest_devices",
    "more": "||| --free batch| --free presampled| --free environments| --epsilon 0.{d}",
    "several": "learners=2|learners=2 --fix banks=2|learners=2 --fix sync=local --fix period=8",
    "records": "--machine 8fb834d50a --threads {d}|--machine d7dae63b89 --threads {d}",
}
SHIPPED = "{mapping}|{mapping}|{side}|{tuning}|{fpga}|{mapping}|{tuning}|{tree}|{side}|{lone}|{mapping}"
TIMED = "{mapping}|{side}|{tuning}|{mapping}|{tree}|{tuning}|{mapping}|{tree}|{show}|{side}|platform estimate edge"
GROUPS = (
    (100, f"{SHIPPED}|{{show}}|{SHIPPED}|{{two}}", GRAMMAR),
    (60, TIMED, RECORDED),
    (20, "{timed}", GRAMMAR),
    (20, MISFITS, GRAMMAR),
)
TABLES = {"rows": 7, "others": 4, "decides": 3}
"""How many rows of each table are kept."""
LEFT_OUT = set(
    "evidence unit told command text differs run race options results where bottleneck mapping"
    " devices own_sigma".split()
)
"""Keys of JSON that hold no fact, or a fact that another key holds."""
NAMES = (
    "cpu gpu fpga edge serial pipelined actors sampling storage learner updating batches numba torch dense presampled"
)


def draw_questions() -> list[str]:
    """Return the questions that the seed draws, no two of them equal: each group takes its kinds in turn."""
    draw, questions = random.Random(SEED).random, dict[str, None]()
    for count, kinds, rules in GROUPS:
        wanted, turns = len(questions) + count, itertools.cycle(kinds.split("|"))
        while len(questions) < wanted:
            text = next(turns)
            while match := re.search(r"\{(\w+)\}", text):
                options = rules[match[1]].split("|")
                text = text[: match.start()] + options[int(draw() * len(options))] + text[match.end() :]
            questions[text] = None
    return list(questions)


def read_kept(ending: str = ".json") -> dict[str, Any]:
    """Return the kept facts of each question of the files whose names end so."""
    files = [json.loads(path.read_text()) for path in sorted(FOLDER.glob(f"*{ending}"))]
    return {question: facts for kept in files for question, facts in kept.items()}


def list_questions() -> list[str]:
    """Return the questions that the seed draws, one about times of one's own, and those that are refused."""
    return [*draw_questions(), EXAMPLE, *read_kept(REFUSED)]


def name_file(question: str, refused: Container[str]) -> str:
    """Return the name of the file that keeps a question: its command's, or that of what is refused."""
    command = question.split(maxsplit=1)[0]
    if command == "recommend":
        command += "-mapping" if "--workload" in question else "-tree"
    return REFUSED if question in refused else f"{command}.json"


def write_kept(kept: dict[str, Any]) -> None:
    """Write each question's facts into its file, a line a fact."""
    refused = read_kept(REFUSED)
    for name in {name_file(question, refused): None for question in kept}:
        rows = [
            f"{json.dumps(question)}: {{\n"
            + ",\n".join(f" {json.dumps(fact)}: {json.dumps(facts[fact])}" for fact in facts)
            + "\n}"
            for question, facts in kept.items()
            if name_file(question, refused) == name
        ]
        (FOLDER / name).write_text("{\n" + ",\n".join(rows) + "\n}\n")


def prepare(folder: str) -> None:
    """Give this process a home and the tests' records, on a machine that none of them is of."""
    home = tempfile.mkdtemp(dir=folder)
    os.environ.update(HOME=home, FANOUT_CACHE_DIR=home, NUMBA_OPT="3")  # which a machine's key depends on
    os.chdir(home)
    Path("results").symlink_to(RESULTS)


def answer(question: str) -> dict[str, Any]:
    """Ask in this process, and return the facts of the answer by column; after an error of Fanout's the code is 70."""
    from dse.__main__ import main  # noqa: PLC0415  # when the environment is prepared

    command, _, text = question.partition(" < ")
    words, out, err, code = [*command.split(), *["--json"] * (command != EXAMPLE)], io.StringIO(), io.StringIO(), 70
    for name in {"own.csv", "own.toml"}.intersection(words):
        Path(name).write_text(text.replace(";", "\n"))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(Exception):
        try:
            code = main(words)
        except SystemExit as refusal:
            code = int(refusal.code or 0)
    said, shown = err.getvalue(), out.getvalue()
    if shown:
        return dict(extract({"sentence": shown} if command == EXAMPLE else json.loads(shown))) | {"code": code}
    sentence = said.rpartition("error: ")[2].replace(str(fingerprint()["key"]), "KEY")  # of the machine that asks
    repeats = sorted({*re.findall(r"\w+", command)} & {*re.findall(r"\w+", sentence)})
    is_one_line = re.fullmatch("error: .*\n", said) is not None
    return dict(extract({"sentence": sentence})) | {"repeats": repeats, "is_one_line": is_one_line, "code": code}


def extract(found: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each fact in JSON; a sentence is reduced to its names.

    Of the first rows of a table those are values that have no parts; of notes their kinds, and of first ones and
    warnings their values.
    """
    if not isinstance(found, dict) or "notes" not in found:
        yield from leaves_of(found, "", 9)
        return
    for name in ("question", "choice"):
        yield from leaves_of(found[name], name, 9)
    for name, most in TABLES.items():
        yield f"{name}.count", len(found[name])
        yield name, [[value for _, value in leaves_of(row, "", 1)] for row in found[name][:most]]
    notes = [note for note in found["notes"] if note["kind"] != "said"]
    yield "notes", [note["kind"] for note in notes if note["level"] != "detail"]
    yield "details", sorted({note["kind"] for note in notes if note["level"] == "detail"})
    for note in notes:
        yield from leaves_of(note, note["kind"], 2) if note["level"] in ("first", "warning") else ()
    yield "paste", list(map(list_names, found["paste"]))


def leaves_of(found: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each leaf that is at most so deep; nothing of null, and of what is left out."""
    if isinstance(found, (dict, list)):
        keys = found.items() if isinstance(found, dict) else enumerate(found)
        for key, value in keys if depth else ():
            yield from leaves_of(value, f"{name}.{key}", depth - 1) if key not in LEFT_OUT else ()
    elif found is not None:
        yield name, list_names(found) if isinstance(found, str) and " " in found else found


def list_names(text: str) -> list[str]:
    """Return the commands, flags, names of things and files, and numbers that stand in a text, sorted."""
    commands = re.findall(r"python -m (\S+(?: platform)? [a-z][a-z-]*)", text)
    words = re.findall(r"[\w+-](?:[\w./=:+-]*[\w+])?", re.sub(r",(?=\d{3}\b)|python -m", "", text))
    named = (word for word in words if word in NAMES.split() or re.search(r"--|[\d_=/]|\w\.\w", word))
    return sorted({*commands, *re.findall(r"'([^' ]+)'", text), *named})


def ask(questions: Sequence[str]) -> dict[str, Any]:
    """Return the facts of each answer, by two processes that are prepared for it; floats have 12 digits."""
    with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(2, prepare, (folder,)) as pool:
        answers = dict(zip(questions, pool.map(answer, questions, chunksize=1), strict=True))
    return dict(json.loads(json.dumps(answers), parse_float=lambda digits: float(f"{float(digits):.12g}")))


def compare(kept: Any, now: Any, where: str) -> Iterator[str]:
    """Yield a line for each fact that differs; what is null and what is not there are the same."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in sorted(kept.keys() | now.keys()):
            yield from compare(kept.get(key), now.get(key), f"{where}: {key}")
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for number, pair in enumerate(zip(kept, now, strict=True)):
            yield from compare(*pair, f"{where}: {number}")
    elif not (isinstance(kept, float) and isinstance(now, float) and math.isclose(kept, now, rel_tol=CLOSE)):
        yield from [f"{where}: {kept} kept, {now} now"] * (kept != now)


def main(arguments: list[str] | None = None) -> int:
    """Ask and compare, or write; return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.golden", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="TEXT", default="", help="a question's number, or words that it holds")
    parser.add_argument("--write", action="store_true", help="keep the facts of today")
    options = parser.parse_args(arguments)
    drawn, only, refused = list_questions(), options.only, read_kept(REFUSED)
    asked = [question for question in drawn if only in question or only == name_file(question, refused)]
    now = ask([drawn[int(only) - 1]] if only.isdigit() else asked)
    kept = read_kept()
    if options.write:
        write_kept({question: (kept | now)[question] for question in drawn if question in kept | now})
    differ = [line for question in now for line in compare(kept.get(question), now[question], question)]
    print(*differ, f"{len(now)} questions, {len(differ)} facts differ", sep="\n")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
