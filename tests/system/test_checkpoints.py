"""Checkpoints that were damaged or edited: refused in one sentence, never another state."""

import contextlib
import copy
import random
import re
import shutil

import numpy as np
import pytest

from impls.training import TrainingError

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training import checkpoint  # with torch
from impls.training.run import Plan, start
from tests.system.test_actors import fake

WORKLOAD = fake(evaluation={"interval": 30})


def begin(folder, **options):
    return start(WORKLOAD, Plan(folder, 20, 0, live=False), contestant="numpy", **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder and state of a run that was saved after an evaluation."""
    folder = tmp_path_factory.mktemp("saved")
    with contextlib.closing(begin(folder)) as run:
        run.run(40)
        run.save()
    return folder, checkpoint.load(folder / "checkpoint.pt")


def resume(folder, saved, state):
    """Resume the saved run in another folder, where its checkpoint has another state."""
    for name in ("curve.csv", "episodes.csv"):
        shutil.copy(saved[0] / name, folder)
    checkpoint.save(state, folder / "checkpoint.pt")
    begin(folder, resume=True).close()


def test_no_damage_to_a_checkpoint_is_loaded_as_another_state(saved, tmp_path):
    folder, state = saved
    whole, rng, path = (folder / "checkpoint.pt").read_bytes(), random.Random(7), tmp_path / "checkpoint.pt"
    refused = 0
    for number in range(300):
        data, at = bytearray(whole), rng.randrange(len(whole))
        if number % 3 == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif number % 3 == 1:
            data[at : at + 512] = bytes(len(data[at : at + 512]))
        else:
            for _ in range(20):
                data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            np.testing.assert_equal(checkpoint.load(path), state)
        except TrainingError as error:
            refused += 1
            assert "\n" not in str(error)
            assert "begin again in another folder with --out" in str(error)
    assert refused > 200


def test_no_damage_to_the_shape_or_type_of_an_array_is_loaded(tmp_path):
    path, state = tmp_path / "best.pt", {"x": np.arange(17_410, dtype=np.float32), "y": np.zeros((70, 90), bool)}
    checkpoint.save(state, path)
    whole = path.read_bytes()
    headers = [match.span() for match in re.finditer(rb"{'descr'.*?}", whole)]
    assert len(headers) == 3  # with the text
    for at in (at for header in headers for at in range(*header)):
        for letter in b"0124689<>|=bfiu ,":
            if whole[at] != letter:
                path.write_bytes(whole[:at] + bytes([letter]) + whole[at + 1 :])
                with pytest.raises(TrainingError, match="is no checkpoint, or was damaged"):
                    checkpoint.load(path)


def test_a_compressed_part_of_a_checkpoint_is_refused_unread(tmp_path):
    path = tmp_path / "checkpoint.npz"
    np.savez_compressed(path, np.frombuffer(b'{"format": 5, "state": 1}', np.uint8))
    with pytest.raises(TrainingError, match="its parts are compressed"):
        checkpoint.load(path)


def places(state, at=()):
    """The path to everything in a state, through dicts and short lists."""
    yield at
    if isinstance(state, dict):
        for key, part in state.items():
            yield from places(part, (*at, key))
    elif isinstance(state, list) and len(state) < 10:
        for number, part in enumerate(state):
            yield from places(part, (*at, number))


def changed(state, at, value):
    """The state with another value at a place; without one, the place is removed."""
    other = copy.deepcopy(state)
    part = other
    for key in at[:-1]:
        part = part[key]
    if value is None:
        del part[at[-1]]
    else:
        part[at[-1]] = value
    return other


OWN = {"setting", "seconds", "points", "recent", "losses", "rng", "score", "mean", "largest", "actions", "drawn"}
"""Keys under which another value, or one fewer, may be some run's: any priority is large enough, lists may be empty."""


@pytest.mark.parametrize("odd", [None, "text", float("nan"), [], 1 << 70, np.zeros(3)], ids=str)
def test_odd_contents_of_a_checkpoint_are_a_sentence(saved, tmp_path, odd):
    state, resumed = saved[1], []
    for at in [place for place in places(state) if place][:: 2 if odd is None else 3]:
        try:
            resume(tmp_path, saved, changed(state, at, odd))
        except TrainingError as error:
            assert "\n" not in str(error)
            continue
        resumed.append(at)
    lacks_default = [at for at in resumed if odd is None and at[0] == "identity"]  # as one of an older version may
    assert [at for at in resumed if not OWN & {*at} and at not in lacks_default] == []


def test_a_checkpoint_lacks_keys_of_later_versions_only_where_they_have_their_defaults(saved, tmp_path):
    older = changed(saved[1], ("identity", "workload", "model", "kind"), None)
    resume(tmp_path, saved, older)
    for key in (("learner", "batch"), ("evaluation", "interval")):  # which have another value, or no default
        with pytest.raises(TrainingError, match=re.escape(".".join(key))):
            resume(tmp_path, saved, changed(saved[1], ("identity", "workload", *key), None))


@pytest.mark.parametrize("vector", ["weights", "targets", "mean", "square"])
def test_numbers_that_are_not_finite_are_refused(saved, tmp_path, vector):
    with pytest.raises(TrainingError, match=f"{vector} has not the form"):
        resume(tmp_path, saved, changed(saved[1], ("loop", "learner", vector, 1), np.inf))


def test_a_checkpoint_whose_folder_is_gone_is_a_sentence(tmp_path):
    with pytest.raises(TrainingError, match="cannot be written"):
        checkpoint.save({"step": 1}, tmp_path / "gone" / "checkpoint.pt")
