"""Keeps what 50,000 random settings of ``python -m impls.training`` resolve to: workload, processes and options.

    python -m tests.settings             compare with what was kept; exit code 1 where anything differs; 2 minutes
    python -m tests.settings --chunk 7   print the settings of a chunk and what each resolves to, a line each, so that
                                         diff can compare two commits
    python -m tests.settings --write     keep what there is now, where a change is meant

A setting is a workload, or a file with changed keys, and flags, drawn from ``tests/settings.toml``. Of 500 settings
there is a hash of outcomes (the exit code and all that a run would start from) and, after a hyphen, one of the facts of
refusals (flags, keys and numbers that they name, whatever their words). Nothing of the machine goes into either.
"""

import argparse
import contextlib
import hashlib
import io
import json
import re
import sys
import tomllib
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from random import Random
from unittest import mock

from impls.training import __main__ as command
from impls.training import learners, path_of
from impls.training import run as runs
from impls.training.algorithm import ALGORITHMS
from impls.training.settings import template

FILE = Path(__file__).with_name("data") / "kept" / "settings.json"
DRAWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CHUNKS, SIZE, ROW = 100, 500, 10
FACT = re.compile(r"--[a-z][a-z-]*|[a-z]+(?:_[a-z]+)+|\d[\d,_.]*(?:e[+-]?\d+)?")


@contextlib.contextmanager
def resolving():
    """Yield a function from a command line, and the text of its mine.toml, to its outcome and the facts of its refusal.

    Only this function knows the product. The command runs up to the loop of a run, which is not made. What depends on
    the machine is left out: whether the folder can be written, the device, what ``--adapt`` measures.
    """
    begun, begin, read, texts = [], runs.start, cache(Path.read_text), {}

    def ignore(*_, **options):
        return None

    def start(workload, plan, **options):
        begun.append({"workload": workload, "plan": plan, **options})
        return begin(workload, plan, **options)

    def make_loop(workload, *_, learner, policy, device, compiled=False, **options):
        learners.make(workload, learner, device=device, compiled=compiled)
        learners.make(workload, policy)

    def resolve(words, text):
        begun.clear()
        texts["mine.toml"] = text
        with contextlib.redirect_stderr(io.StringIO()) as printed, contextlib.redirect_stdout(io.StringIO()):
            try:
                code = command.main(["train", *words])
            except SystemExit as error:
                code = error.code
        said = re.sub(r"(?s)^usage:.*(?=error: )|\S*mine\.toml", "", printed.getvalue()) if code else ""
        facts = sorted(fact.replace(",", "").rstrip(".") for fact in FACT.findall(said))
        return json.dumps([code, *([] if code else begun)], sort_keys=True, default=make_plain), " ".join(facts)

    make_loop.contestant = "numba"
    starts = {"start": start, "SerialLoop": make_loop, "loop_of": lambda _: make_loop, "Run": mock.MagicMock()}
    starts["Run"]().run.return_value, starts["algorithms"] = None, mock.Mock(hook=lambda *_: make_loop)
    makers = ("learners.torch_learner.make", "learners.dense_learner.make", "split.make")
    idle = (*makers, "learners.torch_learner.unsuited", "learners.use_threads", "__main__.check")
    stubs = {f"run.{name}": stub for name, stub in starts.items()} | dict.fromkeys(idle, ignore)
    stubs |= {"adaptation.adapted": lambda made, *_: (made.workload, {}), "__main__._parser": cache(command._parser)}
    with contextlib.ExitStack() as patches:
        patches.enter_context(
            mock.patch("impls.strict_toml.content", lambda path, _: texts.get(path.name) or read(path))
        )
        for name, stub in stubs.items():
            patches.enter_context(mock.patch(f"impls.training.{name}", stub))
        yield resolve


def make_plain(value):
    """Return what JSON can hold of a value: the fields of a dataclass, the text of a path, nothing of a function."""
    return asdict(value) if is_dataclass(value) else value.as_posix() if isinstance(value, Path) else None


@cache
def list_choices(part):
    """List the flags or the keys that are drawn: the name of each, its usual values, and its limits."""
    found = [(name, values.split(), values.split()) for name, values in DRAWN[part]["choices"].items()]
    for kind, usual in DRAWN["usual"].items():
        for word in DRAWN[part].get(kind, "").split():
            name, *limits = word.split(":")
            found.append((name, usual.split(), DRAWN["limits"][kind].split() + limits * 8))
    return found


@cache
def read_keys(workload):
    """Read the keys of a shipped workload, or of a template, each by its table and name, with its value as stated."""
    text = template(algorithm=workload) if workload in ALGORITHMS else path_of(workload).read_text("utf-8")
    tables = tomllib.loads(text)
    pairs = ((name, table if isinstance(table, dict) else {"": table}) for name, table in tables.items())
    return {f"{name}.{key}".rstrip("."): json.dumps(value) for name, table in pairs for key, value in table.items()}


def draw(number):
    """Draw a setting by its number: its workload, the keys that its file changes (None without a file), its flags."""
    rng, together = Random(number), DRAWN["together"]

    def pick(values):
        return values[int(rng.random() * len(values))]

    def vary(part):
        for _ in range(pick(together["counts"])):
            name, usual, limits = pick(list_choices(part))
            luck = rng.random()
            yield f"{name}s" if luck > 0.97 else name, pick(limits if luck > 0.7 else usual), luck

    workload, has_file = pick(together["workloads"].split()), rng.random() < 0.7
    keys = dict(pair.split("=") for pair in pick(together["keys"]).split())
    keys |= {name: None if luck < 0.05 else value for name, value, luck in vary("keys")}
    flags = pick(together["flags"]).split()
    flags += [f"--{name}={value}".removesuffix("=on") for name, value, _ in vary("flags")]
    return workload, keys if has_file else None, flags


def resolve_chunk(chunk):
    """Yield the settings of a chunk, each with its outcome and the facts of its refusal, as three texts."""
    with resolving() as resolve:
        for number in range(chunk * SIZE, (chunk + 1) * SIZE):
            workload, keys, flags = draw(number)
            stated = read_keys(workload) | (keys or {})
            text = "".join(f"{name} = {value}\n" for name, value in stated.items() if value is not None)
            words = [workload if keys is None else "mine.toml", *flags]
            yield f"{number}: {workload} {json.dumps(keys)} {' '.join(flags)}", *resolve(words, text)


def hash_chunk(chunk):
    """Return 16 hexadecimal digits of the outcomes of a chunk, and 16 of its facts."""
    _, *columns = zip(*resolve_chunk(chunk), strict=True)
    return "-".join(hashlib.sha256("\n".join(column).encode()).hexdigest()[:16] for column in columns)


def read_hashes():
    """Read the kept hashes of all chunks."""
    return " ".join(json.loads(FILE.read_text())).split()


def list_changes(before, after):
    """List the chunks whose hashes are others than before, and of what."""
    for chunk, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            has_outcomes = old.partition("-")[0] != new.partition("-")[0]
            yield f"chunk {chunk}: other {'outcomes' if has_outcomes else 'facts of refusals'}"


def main(arguments=None):
    """Compare all chunks, and print how many differ; or print the settings of one chunk."""
    parser = argparse.ArgumentParser("python -m tests.settings", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunk", type=int, choices=range(CHUNKS), metavar="N", help="print its settings, a line each")
    parser.add_argument("--write", action="store_true", help="keep what there is now")
    options = parser.parse_args(arguments)
    if options.chunk is not None:
        print(*(" -> ".join(texts) for texts in resolve_chunk(options.chunk)), sep="\n")
        return 0
    now = [hash_chunk(chunk) for chunk in range(CHUNKS)]
    if options.write:
        rows = [" ".join(now[first : first + ROW]) for first in range(0, CHUNKS, ROW)]
        FILE.write_text(json.dumps(rows, indent=1) + "\n")
    changes = list(list_changes(read_hashes(), now))
    print(f"{CHUNKS * SIZE:,} settings in {CHUNKS} chunks; {len(changes)} chunks differ", *changes, sep="\n")
    return bool(changes)


if __name__ == "__main__":
    sys.exit(main())
