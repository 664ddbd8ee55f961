"""Marks in file names, and paths that must stay in the workspace."""

from __future__ import annotations

import pytest

from starverse.domain.sbatch.origins import BadValue
from starverse.domain.sbatch.patterns import PatternContext, check_pattern, expand_pattern, workspace_file

TASK = PatternContext(
    job_number=128, job_name="my/run", user="root", node="gpu001.lab", array_number=123, array_index=4
)
SINGLE = PatternContext(job_number=7, job_name="run")


@pytest.mark.parametrize(
    ("pattern", "context", "expected"),
    [
        ("slurm-%j.out", SINGLE, "slurm-7.out"),
        ("slurm-%A_%a.out", TASK, "slurm-123_4.out"),
        ("%A_%a", SINGLE, "7_4294967294"),
        ("%5j-%3a", TASK, "00128-004"),
        ("%99j", SINGLE, "0000000007"),
        ("%J-%x-%u-%N-%n-%t-%s", TASK, "128-my_run-root-gpu001-0-0-batch"),
        ("100%%-%j", SINGLE, "100%-7"),
        ("%5x", SINGLE, "run"),
        ("%q%", SINGLE, "%q%"),
        ("a\\%j", SINGLE, "a%j"),
        ("\\%j-%j", SINGLE, "%j-%j"),
        ("a\\\\b", SINGLE, "a\\b"),
    ],
)
def test_marks(pattern: str, context: PatternContext, expected: str) -> None:
    assert expand_pattern(pattern, context) == expected


@pytest.mark.parametrize(
    ("pattern", "chdir", "expected"),
    [
        ("slurm-%j.out", ".", "slurm-7.out"),
        ("logs/%j.txt", "code", "code/logs/7.txt"),
        ("../%j", "code", "7"),
        ("/workspace/a/../b", "code", "b"),
        ("./a//b", ".", "a/b"),
        ("/dev/null", ".", None),
    ],
)
def test_paths_relative_to_the_workspace(pattern: str, chdir: str, expected: str | None) -> None:
    assert workspace_file(pattern, SINGLE, chdir) == expected


@pytest.mark.parametrize(
    "pattern",
    ["", "../x", "a/../../x", "/etc/passwd", "/workspace", "/workspace/../etc/x", "logs/", ".", "..", "a/..",
     "/workspace2/x", "\\../x", "x" * 2000],
)  # fmt: skip
def test_paths_outside_are_refused(pattern: str) -> None:
    with pytest.raises(BadValue):
        check_pattern(pattern)


def test_a_job_name_cannot_climb_out() -> None:
    with pytest.raises(BadValue):
        workspace_file("%x", PatternContext(job_number=1, job_name=".."))
    assert workspace_file("%x/out", PatternContext(job_number=1, job_name="../..")) == ".._../out"


def test_no_two_tasks_of_an_array_share_a_file() -> None:
    tasks = [PatternContext(13 + index, "x", array_number=12, array_index=index) for index in (0, 1)]
    for pattern in ("%j.out", "%J", "slurm-%A_%a.out"):
        assert len({expand_pattern(pattern, task) for task in tasks}) == 2
    assert expand_pattern("%6j", tasks[1]) == "000014"
