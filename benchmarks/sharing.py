"""Records of one machine for another person: an archive of the folders of machines, written and read.

    fanout.json              {"format": 1, "version": "0.1.0", "utc": "2026-11-30T12:00:00+00:00"}
    <machine>/<name>.jsonl   records, as the folder of results has them
    <machine>/platform.toml  the machine as it was probed, if it was

What is imported is checked before anything is written: each record is of this schema, its machine's key is the hash of
the facts that it states, and no file of that machine that is here already says something else.
"""

import contextlib
import dataclasses
import datetime
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import impls
from dse import platforms
from dse.drift import drift
from dse.platforms import fingerprint
from dse.platforms.checkout import hash_code
from dse.platforms.files import FILE, parse
from dse.platforms.fingerprint import identity_of, key_of
from dse.records import AHEAD, ANOTHER, Record, RecordError, parse_lines, read_file, select
from impls.checks import short
from impls.files import list_files, refusing, write_whole

FORMAT = 1
MANIFEST, ORIGIN = "fanout.json", "imported.json"
"""The file of an archive that says what it is; the file of a machine's folder that says which archive it came from."""
MOST_BYTES = 1 << 28
"""Bytes of all files of an archive: twenty times what six machines have."""
NAME = re.compile(rf"[0-9a-f]{{10}}/(?:[A-Za-z0-9_]+/)?(?:[A-Za-z0-9_.-]+\.jsonl|{re.escape(FILE)})")
"""A file of a machine in an archive."""
REMEDY = "ask for it again; it is written by: python -m benchmarks list --machine KEY --export FILE.zip"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine whose records were imported, and what is known of them.

    ``is_code_here``: records timed by code as it is in this checkout. ``is_wrong``: records of answers that the exact
    tree refuted. ``change_between_runs``: 95 % of |ln(time in one run / time in another)|, as its sentinels tell, of so
    many ``runs``.
    """

    key: str
    cpu: str
    cores: int | None
    files: int
    records: int
    is_code_here: int
    is_wrong: int
    runs: int
    change_between_runs: float
    is_probed: bool


def export_machines(results: Path, machine: str | None, path: Path) -> int:
    """Write an archive of the records of a machine, or of all; return the number of files in it.

    RecordError where there are none, a file of them is damaged, or the archive cannot be written.
    """
    folders = [results / machine] if machine else sorted(folder for folder in results.iterdir() if folder.is_dir())
    files = {f"{folder.name}/{name}": content for folder in folders for name, content in _files_of(folder)}
    files = {name: content for name, content in files.items() if NAME.fullmatch(name)}
    if not files:
        raise RecordError(f"{results}: no records of machine {machine or 'any'}; see: python -m benchmarks list")
    manifest = {"format": FORMAT, "version": impls.__version__, "utc": platforms.now()}
    with refusing(path, RecordError, ANOTHER), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest))
        for name, content in files.items():
            archive.writestr(name, content)
    return len(files)


def _files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of a machine's folder; of records only lines that are whole."""
    for path in [*list_files(folder, "**/*.jsonl"), *list_files(folder, FILE)]:
        content = path.read_bytes()
        if path.suffix == ".jsonl":
            read_file(path)
            content = content[: content.rfind(b"\n") + 1]
        yield path.relative_to(folder).as_posix(), content


def import_machines(path: Path, results: Path) -> list[Machine]:
    """Import the records of an archive into a folder of results; return what is known of each machine.

    RecordError, before anything is written, for an archive that is damaged or of another kind, and for a file that is
    here with other content.
    """
    files = _read_archive(path)
    machines = [_check_machine(path, key, files) for key in sorted({name.partition("/")[0] for name in files})]
    targets = {results / name: content for name, content in files.items()}
    for target, content in targets.items():
        if target.exists() and target.read_bytes() != content:
            raise RecordError(
                f"{target}: is here with other content; import into a folder of its own: --results FOLDER"
            )
    origin = json.dumps({"archive": path.name, "utc": platforms.now()}).encode()
    for machine in machines:
        if machine.key != fingerprint()["key"]:
            targets[results / machine.key / ORIGIN] = origin
    for target, content in targets.items():
        with refusing(target, RecordError, "choose another folder: --results FOLDER"):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content)
    return machines


def name_archive(results: Path, machine: str) -> str:
    """Return the name of the archive that a machine's records came from; "" for a machine whose records are our own."""
    with contextlib.suppress(OSError, ValueError):
        return str(json.loads((results / machine / ORIGIN).read_text(encoding="utf-8"))["archive"])
    return ""


def _read_archive(path: Path) -> dict[str, bytes]:
    """Read the files of an archive by name, without its manifest. RecordError for what no export writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            every = archive.infolist()
            names = Counter(file.filename for file in every)
            if MANIFEST not in names:
                raise RecordError(f"{path}: is no archive of records, for it has no {MANIFEST}; {REMEDY}")
            if (size := sum(file.file_size for file in every)) > MOST_BYTES:
                raise RecordError(f"{path}: holds {size / 1e6:,.0f} MB, and at most {MOST_BYTES / 1e6:,.0f} are read")
            _check_manifest(path, archive.read(MANIFEST))
            for name, count in names.items():
                if name != MANIFEST and not NAME.fullmatch(name):
                    raise RecordError(f"{path}: {short(name)} is no file of records or of a machine; {REMEDY}")
                if count > 1:
                    raise RecordError(f"{path}: {name} stands {count} times in it; {REMEDY}")
            files = {name: archive.read(name) for name in names if name != MANIFEST}
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise RecordError(f"{path}: is damaged or no archive of records ({error}); {REMEDY}") from None
    if not files:
        raise RecordError(f"{path}: has no records; {REMEDY}")
    return files


def _check_manifest(path: Path, content: bytes) -> None:
    try:
        known = json.loads(content)["format"]
    except (ValueError, KeyError, TypeError):
        raise RecordError(f"{path}: its {MANIFEST} states no format; {REMEDY}") from None
    if known != FORMAT:
        raise RecordError(f"{path}: is of format {short(known)}, and this version reads {FORMAT}; export it anew")


def _check_machine(path: Path, key: str, files: Mapping[str, bytes]) -> Machine:
    """Check the files of a machine; return what is known of it. RecordError for the first fault."""
    own = {name: content for name, content in files.items() if name.startswith(f"{key}/")}
    found = [record for name in own if name.endswith(".jsonl") for record in _read_records(path, key, name, own[name])]
    if not found:
        raise RecordError(f"{path}: has no records of machine {key}; {REMEDY}")
    probed = own.get(f"{key}/{FILE}")
    if probed is not None:
        _check_platform(f"{path}:{key}/{FILE}", key, probed)
    kept, changes = select(found), drift(found)
    code = Counter(record.run.code for record in kept)
    here = {hash_code(clock) for clock in ("benchmarks.topics.sweep", "benchmarks.topics.profile.command")}
    return Machine(
        key=key,
        cpu=str(kept[-1].machine.get("cpu", "")),
        cores=kept[-1].machine.get("cores"),
        files=len(own),
        records=len(kept),
        is_code_here=sum(code[timed_by] for timed_by in here),
        is_wrong=sum(record.status == "failed" for record in kept),
        runs=changes.runs,
        change_between_runs=max(changes.common, changes.own),
        is_probed=probed is not None,
    )


def _read_records(path: Path, key: str, name: str, content: bytes) -> Iterator[Record]:
    """Yield the records of a file of an archive. RecordError for a fault, or a record of another machine."""
    where = f"{path}:{name}"
    try:
        *lines, rest = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise RecordError(f"{where}: byte {error.start} is no text; {REMEDY}") from None
    if rest:
        raise RecordError(f"{where}: its last line is torn; {REMEDY}")
    latest = (datetime.datetime.now(datetime.UTC) + AHEAD).isoformat()
    for record in parse_lines(lines, where):
        facts = identity_of(record.machine)
        if record.machine_key != key or key_of(facts) != key:
            raise RecordError(f"{where}: a record is of machine {key_of(facts)}, by the facts that it states; {REMEDY}")
        if record.utc > latest:
            raise RecordError(f"{where}: a record is of {record.utc}, which is in the future; mend the clock there")
        yield record


def _check_platform(where: str, key: str, content: bytes) -> None:
    try:
        platform, problems = parse(content.decode(), where)
    except UnicodeDecodeError as error:
        raise RecordError(f"{where}: byte {error.start} is no text; {REMEDY}") from None
    if platform is None:
        raise RecordError(f"{problems[0]}; {REMEDY}")
    if platform.machine_key != key:
        raise RecordError(f"{where}: was probed on machine {platform.machine_key}; {REMEDY}")


def describe_machines(machines: Sequence[Machine]) -> Iterable[tuple[str, ...]]:
    """Yield the rows of a table of what was imported, the heads first."""
    yield "machine", "cpu", "cores", "records", "by code as here", "wrong", "between runs", "probed"
    for machine in machines:
        between = f"up to {machine.change_between_runs:.0%} ({machine.runs} runs)" if machine.runs else "unknown"
        known = machine.key, machine.cpu, str(machine.cores or ""), f"{machine.records:,}", f"{machine.is_code_here:,}"
        yield *known, str(machine.is_wrong), between, "yes" if machine.is_probed else "no"


def list_rows(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return what was imported as plain values, for JSON."""
    return [dataclasses.asdict(machine) for machine in machines]
