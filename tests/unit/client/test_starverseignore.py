"""The patterns of .starverseignore, beside what git itself does with them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from starverse.client.ignore_file import IgnoreRules

PATHS = [
    "a.log", "sub/a.log", "data/", "data/x.bin", "sub/data/", "sub/data/y", "docs/api/x.md", "docs/x.md",
    "build/", "keep.log", "a b.txt", "#hash", "!bang", "x[1].txt", "x1.txt", "deep/er/est/f.tmp", "数据/",
    "数据/表.csv", "foo/bar", "abc/def/ghi", "trailing ", "a.pyc", "a.pyo", "A.LOG", "back\\slash",
]  # fmt: skip

CASES = {
    "plain name at any depth": "a.log",
    "star stops at a slash": "*.log",
    "negated later": "*.log\n!keep.log",
    "folder only": "data/",
    "anchored": "/data",
    "slash in the middle anchors": "docs/*.md",
    "two stars lead": "**/f.tmp",
    "two stars trail": "docs/**",
    "two stars inside": "abc/**/ghi",
    "question mark": "a.py?",
    "class": "a.py[co]",
    "negated class": "a.py[!c]",
    "escaped hash and bang": "\\#hash\n\\!bang",
    "comment and blank": "# a.log\n\n   \n",
    "space in a name": "a b.txt",
    "trailing spaces are nothing": "a.log   ",
    "escaped trailing space": "trailing\\ ",
    "bracket taken literally": "x\\[1].txt",
    "chinese": "数据/",
    "everything but one": "*\n!keep.log",
    "unclosed bracket": "x[1",
    "only a slash": "/",
    "only a bang": "!",
}


def ignored_by_us(rules: IgnoreRules, path: str) -> bool:
    parts = path.rstrip("/").split("/")
    for depth in range(1, len(parts) + 1):
        is_folder = depth < len(parts) or path.endswith("/")
        if rules.ignores("/".join(parts[:depth]), is_folder=is_folder):
            return True
    return False


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed; it is the reference here")
@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_patterns_mean_what_git_takes_them_for(tmp_path: Path, text: str) -> None:
    plain = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env=plain)
    (tmp_path / ".gitignore").write_text(text, encoding="utf-8")
    for path in PATHS:
        place = tmp_path / path
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"")
    asked = "\0".join(path.rstrip("/") for path in PATHS) + "\0"
    answer = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=tmp_path, env=plain, input=asked.encode(), capture_output=True, check=False,
    )  # fmt: skip
    by_git = {path for path in answer.stdout.decode().split("\0") if path}
    rules = IgnoreRules(text)
    assert {path for path in PATHS if ignored_by_us(rules, path)} == {
        path for path in PATHS if path.rstrip("/") in by_git
    }


def test_versions_and_caches_are_left_out_unless_taken_back() -> None:
    assert IgnoreRules().ignores(".git", is_folder=True)
    assert IgnoreRules().ignores("pkg/__pycache__", is_folder=True)
    assert not IgnoreRules("!.git/").ignores(".git", is_folder=True)
