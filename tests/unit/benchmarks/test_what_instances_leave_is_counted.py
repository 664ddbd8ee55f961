"""The counts that say whether instances left anything see what is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.traces_left import count


def test_each_kind_of_trace_is_seen_and_its_end_too(tmp_path: Path) -> None:
    before = count(tmp_path, os.getpid())
    for place in ("instances/i/home", "workspaces/w", "allocations/a/run"):
        (tmp_path / place).mkdir(parents=True)
    with (
        (tmp_path / "held").open("w") as held,
        subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=held, close_fds=True
        ) as child,
    ):
        more = count(tmp_path, os.getpid()).since(before)
        assert child.stdin is not None
        child.stdin.close()
    seen = {key: value for key, value in more.items() if key in ("homes", "workspaces", "rooms", "processes")}
    assert seen == {"homes": 1, "workspaces": 1, "rooms": 1, "processes": 1}
    assert more["files_open"] >= 2
    after = count(tmp_path, os.getpid()).since(before)
    assert (after["processes"], after["files_open"]) == (0, 0)
