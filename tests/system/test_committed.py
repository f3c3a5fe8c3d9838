"""What a user has measured changes no test."""

import shutil
import subprocess

from tests.committed import checkout


def test_the_tests_own_records_are_those_of_the_last_commit(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments], cwd=tmp_path, check=True)

    kept = tmp_path / "results" / "here" / "quick.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}\n")
    (tmp_path / "code.py").write_text("")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert checkout(tmp_path) == tmp_path
    kept.write_text("{}\n{}\n")
    (tmp_path / "results" / "measured").mkdir()
    (tmp_path / "results" / "measured" / "quick.jsonl").write_text("{}\n")
    made = checkout(tmp_path)
    assert [path.name for path in (made / "results").iterdir()] == ["here"]
    assert (made / "results" / "here" / "quick.jsonl").read_text() == "{}\n"
    assert (made / "code.py").samefile(tmp_path / "code.py")
    assert checkout(tmp_path) == made
    shutil.rmtree(made)
