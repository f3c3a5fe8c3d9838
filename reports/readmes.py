"""Rewrite what the READMEs show of the records: outputs of commands, tables and figures.

    python -m reports.readmes            rewrite them
    python -m reports.readmes --check    say what differs, write nothing; exit code 1 if anything does

Such text stands between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``. Of a block named ``output`` the README
gives the command, after "$ ", and what it prints is put below; any other NAME is a function of
``reports/readme_tables.py``. Records are those of the last commit, so that the text is the same on every machine,
whatever was measured since.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dse
from dse.platforms.checkout import GitError, files_at
from impls.cores import count_allowed

from . import readme_tables, style, tidy
from .chart import Material
from .page import charts

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = "output"
BLOCK = re.compile(r"(?<=<!-- begin: )(?P<name>\w+)( -->\n)(?P<body>.*?)(?=<!-- end: (?P=name) -->)", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)
FIGURES = {"fanout": "8fb834d50a", "peers_batch": "d7dae63b89", "fpga_latency": "8fb834d50a"}
"""Figures that READMEs show, each with the key of the machine whose records it is drawn from."""


def readmes(root: Path = ROOT) -> list[Path]:
    """The README at the top and those of the folders."""
    return sorted([root / "README.md", *root.glob("[!.]*/README.md"), *root.glob("impls/*/README.md")])


def text_of(path: Path, results: Path) -> str:
    """A README with every block as it should be."""
    return BLOCK.sub(lambda found: found["name"] + found[2] + _body(found, results), path.read_text(encoding="utf-8"))


def _body(found: re.Match[str], results: Path) -> str:
    if found["name"] != OUTPUT:
        return str(getattr(readme_tables, found["name"])(results))
    commands = COMMAND.findall(found["body"])
    with ThreadPoolExecutor(count_allowed()) as pool:
        outputs = pool.map(lambda command: _output_of(command, results.parent), commands)
        shown = [f"$ {command}\n{output}" for command, output in zip(commands, outputs, strict=True)]
    return "```console\n" + "\n".join(shown) + "```\n"


def _output_of(command: str, folder: Path) -> str:
    """What a command prints where ``folder`` is the working directory. RuntimeError if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stderr.strip()}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def figures(results: Path) -> dict[Path, bytes]:
    """The bytes of each figure by its path below the root."""
    drawn = {}
    for key in sorted(set(FIGURES.values())):
        records = dse.read_folder(results, key)
        material = Material(records, tidy.about(records), results)
        for chart in charts():
            if FIGURES.get(chart.name) == key:
                figure = chart.draw(chart.rows(material), material.about)
                drawn[Path("reports/gallery") / f"{chart.name}.svg"] = style.picture(figure, "svg")
    return drawn


@contextmanager
def committed_results() -> Iterator[Path]:
    """A copy of ``results/`` as the last commit has it, or as it is where this is no checkout, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with files_at(ROOT, "HEAD", "results") as files:
                files.extractall(folder)
        except GitError:
            shutil.copytree(ROOT / "results", Path(folder) / "results")
        yield Path(folder) / "results"


def main(arguments: list[str] | None = None) -> int:
    """Rewrite or check; returns the exit code: 1 if ``--check`` found a difference, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m reports.readmes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="say what differs, write nothing")
    options = parser.parse_args(arguments)
    with committed_results() as results:
        wanted = {path: text_of(path, results).encode() for path in readmes()}
        wanted |= {ROOT / path: content for path, content in figures(results).items()}
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
