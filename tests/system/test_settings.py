"""Random settings of training resolve to what was kept (``tests/settings.py``)."""

import json

from tests.nursery import run_python
from tests.settings import CHUNKS, list_changes, read_hashes, resolve_chunk

DAILY = (0, 41, 99)


def test_settings_resolve_to_what_was_kept():
    """Resolve them in a process of its own, where no other test has set anything."""
    code = f"from tests.settings import hash_chunk; print(*map(hash_chunk, {DAILY}))"
    kept = read_hashes()
    assert len(kept) == CHUNKS
    assert run_python("-c", code).stdout.split() == [kept[chunk] for chunk in DAILY]


def test_a_changed_chunk_is_listed():
    before, after = ["aa-bb", "cc-dd", "ee-ff"], ["aa-bb", "cd-dd", "ee-fe"]
    assert list(list_changes(before, after)) == ["chunk 1: other outcomes", "chunk 2: other facts of refusals"]


def test_about_half_of_the_settings_are_accepted():
    codes = [json.loads(outcome)[0] for _, outcome, _ in resolve_chunk(DAILY[0])]
    assert 150 < codes.count(0) < 350
