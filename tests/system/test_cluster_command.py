"""The command that tries a sharded replay, where there is no cluster to try it on."""

import sys

import pytest

from impls.cluster.__main__ import main


def test_a_missing_ray_is_said_with_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([]) == 2
    assert "fanout[ray]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--shards", "0"], ["--records", "0"], ["--records", "1", "--shards", "2"], ["--cluster", "nowhere"]]
)
def test_bad_options_are_a_sentence_and_exit_code_2(monkeypatch, capsys, words):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and words[-1] in said
