"""A process that draws: which images it writes, what it refuses before anything is written, and that no run fails."""

import contextlib
import io
import os
import signal

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("pygame", reason="CartPole draws by the extra `train`")
from impls.training import TrainingError
from impls.training.__main__ import main
from impls.training.actor import VALIDATION, evaluate, seed_of
from impls.training.environments import Environment
from impls.training.parallel import drawing
from impls.training.run import Plan, start
from tests.parallel_runs import small
from tests.profiled import write_workload

image = pytest.importorskip("PIL.Image", reason="comes with the extra `suite`")


def begin_run(folder, steps=300):
    workload = small("CartPole-v1", shape=(4,), steps=steps)
    return workload, start(workload, Plan(folder, 10**6, 0, live=False))


def test_an_evaluations_first_episode_is_drawn_as_it_is(tmp_path, monkeypatch):
    shown, (workload, run) = tmp_path / "shown", begin_run(tmp_path / "run")
    with contextlib.closing(run), contextlib.closing(Environment(workload, render_mode="rgb_array")) as environment:
        run.run(show=str(shown))
        scores = evaluate(workload, run._loop.learner, environment, 1, 0, VALIDATION, 300)
        images = sorted((shown / "episode-300").iterdir())
        assert [image.name for image in images] == [f"{number:03}.png" for number in range(1 + int(scores[0]))]
        assert (shown / "episode-0" / "000.png").exists()
        monkeypatch.setattr(drawing, "IMAGES_SHOWN", 3)
        drawing.Drawing(str(shown))(workload)(workload, run._loop.learner, 0, 7)
        environment.reset(seed_of(0, VALIDATION, 7, 0))
        first, *others = sorted((shown / "episode-7").iterdir())
        np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(first.read_bytes()))), environment.draw())
    assert len(others) == 2


@pytest.mark.parametrize("what", ["killed", "full"])
def test_a_run_says_once_that_it_draws_no_more_and_goes_on(tmp_path, capfd, what):
    (tmp_path / "shown").mkdir()
    _, run = begin_run(tmp_path / "run", 6000)
    if what == "full":
        (tmp_path / "shown" / "episode-0").touch()
    with contextlib.closing(run):
        run._begin_drawing(str(tmp_path / "shown"))
        if what == "killed":
            os.kill(run._drawer.pid, signal.SIGKILL)
        assert run.run()["steps"] == 6000
    said = capfd.readouterr().err
    assert said.count("warning: no episode is drawn any more: ") == 1
    assert what == "killed" or "episode-0" in said


def test_what_cannot_be_drawn_is_refused_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    path = write_workload(tmp_path)
    (tmp_path / "old" / "episode-0").mkdir(parents=True)
    there = {*tmp_path.iterdir()}
    assert main(["train", str(path), "--out", str(tmp_path / "run"), "--show", str(tmp_path / "old")]) == 2
    assert "another run" in capsys.readouterr().err
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    cart = small("CartPole-v1", shape=(4,))
    drawing.check(cart, str(tmp_path / "old"), is_resumed=True)
    for workload, place, fact in (
        (cart, drawing.WINDOW, "display"),
        (cart, path, "folder"),
        (small(), "new", "install"),
    ):
        with pytest.raises(TrainingError, match=fact):
            drawing.check(workload, str(place), is_resumed=False)
    assert {*tmp_path.iterdir()} == there
