"""Files of an allocation's folder: whole or as before, also where the disk takes only a part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import LauncherState
from starverse.node.folder import AllocationFolder, write_atomically

STATE = LauncherState("a-1", 1, "running", "boot", alive_at=10.0, ready_at=5.0)


@pytest.mark.parametrize("durable", [False, True])
def test_a_disk_that_takes_only_a_part_leaves_the_old_text(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "report.json"
    write_atomically(path, "old")
    program = f"""
import resource
from pathlib import Path
from starverse.node.folder import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
write_atomically(Path({str(path)!r}), "n" * 100)
try:
    write_atomically(Path({str(path)!r}), "x" * 150, durable={durable})
except OSError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert path.read_text() == "n" * 100
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


DAMAGED = {
    "empty": b"",
    "cut": STATE.to_json().encode()[:40],
    "no object": b"[]",
    "no fields": b"{}",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_state_counts_as_not_there(tmp_path: Path, content: bytes) -> None:
    folder = AllocationFolder(tmp_path)
    (tmp_path / "report.json").write_bytes(content)
    assert (folder.read_report(), folder.read_state()) == (None, None)
    folder.write_state(STATE)
    assert (folder.read_report(), folder.read_state()) == (None, STATE)
    (tmp_path / "state.json").write_bytes(content)
    assert folder.read_state() is None
