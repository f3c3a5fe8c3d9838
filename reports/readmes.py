"""Rewrite what the READMEs show of the records: outputs of commands, tables of the page and figures.

    python -m reports.readmes            rewrite them
    python -m reports.readmes --check    say what differs, write nothing; exit code 1 if anything does

Such text stands between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``. In a block named ``output`` the README
gives the command, after "$ ", and what it prints is put below; ``implementations`` lists the trees; ``NAME_says`` is
what the section with that figure or table says; any other NAME is a file ``results/NAME.md``, or a table of the page,
of another machine where ``NAME KEY`` names it.
Records are those of the last commit, so that the text is the same on every machine, whatever was measured since.
"""

import argparse
import ast
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.platforms.checkout import GitError, files_at, git
from impls.cores import count_allowed
from impls.sumtree.registry import names, options_of, traits

from .draw import save
from .frame import Data
from .page import list_figures, list_sections, list_tables, make_table
from .page import write_table as write_cells

ROOT = Path(__file__).resolve().parent.parent
TREES = ROOT / "impls" / "sumtree"
MACHINE = "8fb834d50a"  # whose records READMEs show, or another machine's where it has none
OUTPUT, SAYS = "output", "_says"
NAME = r"\w+(?: \w+)?"
BLOCK = re.compile(rf"(?<=<!-- begin: )(?P<name>{NAME})( -->\n)(?P<body>.*?)(?=<!-- end: (?P=name) -->)", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)
FIGURES = ("fanout", "peers_batch", "fpga")
"""Figures that READMEs show; they lie in ``reports/gallery``."""


def list_readmes(root: Path = ROOT) -> list[Path]:
    """List the README at the top and those of the folders."""
    return sorted([root / "README.md", *root.glob("[!.]*/README.md"), *root.glob("impls/*/README.md")])


def fill_blocks(path: Path, data: Data) -> str:
    """Return a README with every block as it should be. KeyError for a block without a table."""
    return BLOCK.sub(lambda found: found["name"] + found[2] + _fill(found, data), path.read_text(encoding="utf-8"))


def _fill(found: re.Match[str], data: Data) -> str:
    name, _, machine = found["name"].partition(" ")
    data = replace(data, machine=machine) if machine else data
    if name == OUTPUT:
        commands = COMMAND.findall(found["body"])
        with ThreadPoolExecutor(count_allowed()) as pool:
            outputs = pool.map(lambda command: _run(command, data.results.parent), commands)
            shown = [f"$ {command}\n{output}" for command, output in zip(commands, outputs, strict=True)]
        return "```console\n" + "\n".join(shown) + "```\n"
    if (path := data.results / f"{name}.md").is_file():
        return path.read_text(encoding="utf-8")
    if name.endswith(SAYS):
        parts = {part.name: section for section in list_sections() for part in (*section.figures, *section.tables)}
        says = parts[name.removesuffix(SAYS)].says
        return f"{says(data)}\n" if says else ""
    return list_implementations() if name == "implementations" else write_table(name, data)


def write_table(name: str, data: Data) -> str:
    """Write a table of the page as Markdown, with its note."""
    table = list_tables()[name]
    frame, source = make_table(table, data)
    note = " ".join(filter(None, [table.note, source]))
    return to_markdown(*write_cells(frame)) + (f"\n{note}\n" if note else "")


def list_implementations() -> str:
    """List the trees that git has: the first line of each file, and the options that not every tree has."""
    listed, rows = [], []
    with contextlib.suppress(GitError):
        listed = git(TREES, "ls-files").split()
    for name in names():
        if (file := f"{name}_tree.py") in listed or not listed:
            about = ast.get_docstring(ast.parse((TREES / file).read_text(encoding="utf-8"))) or ""
            own = [*options_of(name), *["threads"] * traits(name).threaded]
            rows.append(
                (f"`{name}`", about.partition("\n")[0].removesuffix("."), ", ".join(f"`{each}`" for each in own))
            )
    return to_markdown(("name", "content", "options"), rows)


def to_markdown(head: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a table in Markdown."""
    named = list(head)
    lines = [named, ["---"] * len(named), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _run(command: str, folder: Path) -> str:
    """Return what a command prints where ``folder`` is the working directory. RuntimeError if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stderr.strip()}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def draw_figures(data: Data) -> dict[Path, bytes]:
    """Draw each figure of the READMEs; return its bytes by its path below the root."""
    figures, drawn = list_figures(), dict[Path, bytes]()
    with tempfile.TemporaryDirectory() as folder:
        for name in FIGURES:
            save(data.select(figures[name]), figures[name], path := Path(folder) / f"{name}.svg")
            drawn[Path("reports/gallery") / path.name] = path.read_bytes()
    return drawn


@contextmanager
def committed_results() -> Iterator[Path]:
    """Copy ``results/`` as the last commit has it, or as it is where this is no checkout, to an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with files_at(ROOT, "HEAD", "results") as files:
                files.extractall(folder)
        except GitError:
            shutil.copytree(ROOT / "results", Path(folder) / "results")
        yield Path(folder) / "results"


def main(arguments: list[str] | None = None) -> int:
    """Rewrite or check; return the exit code: 1 if ``--check`` found a difference, else 0."""
    how: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="python -m reports.readmes", description=__doc__, **how)
    parser.add_argument("--check", action="store_true", help="say what differs, write nothing")
    options = parser.parse_args(arguments)
    with committed_results() as results:
        data = Data.read(results, MACHINE)
        wanted = {path: fill_blocks(path, data).encode() for path in list_readmes()}
        wanted |= {ROOT / path: content for path, content in draw_figures(data).items()}
    differing = [path for path, content in wanted.items() if not path.exists() or path.read_bytes() != content]
    for path in differing:
        print(f"{path.relative_to(ROOT)} {'differs' if options.check else 'rewritten'}")
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(wanted[path])
    if options.check and differing:
        print("to rewrite them: python -m reports.readmes")
    return int(options.check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
