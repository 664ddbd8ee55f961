"""A block disk's file has room for all that may be written into it, and never takes the reserve."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from starverse.node.disk_files import GIB, copy_block_file, grow_block_file, make_block_file, written_bytes
from starverse.node.disk_reserve import room_bytes
from starverse.node.disk_trees import TreeFault

pytestmark = pytest.mark.skipif(
    shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None, reason="mkfs.ext4 is missing"
)


def stored(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_it_is_had_at_once_grows_so_and_only_what_was_written_counts(tmp_path: Path) -> None:
    made, copy = tmp_path / "block.img", tmp_path / "copy.img"
    make_block_file(made, 1, 0)
    assert stored(made) >= GIB
    grow_block_file(made, 2)
    assert stored(made) >= 2 * GIB
    assert 0 < written_bytes(made) < GIB // 4
    copy_block_file(made, copy)
    assert stored(copy) < GIB // 4


def test_a_host_without_room_refuses_in_words_and_keeps_what_was(tmp_path: Path) -> None:
    made = tmp_path / "block.img"
    make_block_file(made, 1, 0)
    before, room = stored(made), room_bytes(tmp_path, 0)
    with pytest.raises(TreeFault, match="beside the operator's reserve"):
        grow_block_file(made, 2, room - GIB // 2)
    with pytest.raises(TreeFault, match="beside the operator's reserve"):
        make_block_file(tmp_path / "other.img", 1, 0, room - GIB // 2)
    assert made.stat().st_size == GIB
    assert stored(made) == before
    assert stored(tmp_path / "other.img") <= 4096
