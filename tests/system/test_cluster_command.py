"""The command that tries a sharded replay, where there is no cluster to try it on."""

import sys

import pytest

from impls.cluster import ClusterError
from impls.cluster.__main__ import main, print_result
from impls.cluster.sharded import check_versions, list_versions

LOCAL = {"batches_per_second": 50_000.0, "cpu_us_per_batch": 18.0}


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


@pytest.mark.parametrize("name", list_versions())
def test_a_node_with_other_versions_is_refused_by_name(name):
    assert list_versions()["Python"] == "{}.{}".format(*sys.version_info)
    check_versions("0123456789", list_versions())
    with pytest.raises(ClusterError, match=f"node 01234567 has {name} 0.0"):
        check_versions("0123456789", list_versions() | {name: "0.0"})
    with pytest.raises(ClusterError, match=name):
        check_versions("0123456789", {key: value for key, value in list_versions().items() if key != name})


def test_a_result_as_text_says_each_number_once(capsys):
    stats = {"shards": 3, "records": 3000, "skew": 0.0125}
    print_result({"batches_per_second": 1234.5, "cpu_us_per_batch": 98.7, "stats": stats, "local": LOCAL}, 64)
    said = capsys.readouterr().out
    for number in ("1,234 batches of 64", "3 shards", "3,000 records", "99 us", "50,000", "18 us", "1.2 %"):
        assert number in said
