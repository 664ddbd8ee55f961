"""Files with holes, saved as an image: holes take no room, and one larger than an image is refused unread."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starverse.node.images.layers import CopyRules, copy_layer
from starverse.node.images.sandbox import BuildFailed
from starverse.node.images.trees import LargeEntry, scan

MIB = 1024**2
TIB = 1024**4


def hole(folder: Path, size: int) -> Path:
    folder.mkdir()
    with (folder / "model.bin").open("wb") as file:
        file.write(b"begin")
        file.truncate(size)
    return folder


def test_holes_stay_holes_and_bytes_stay_bytes(tmp_path: Path) -> None:
    home = hole(tmp_path / "home", 64 * MIB)
    copy_layer(home, tmp_path / "copy", CopyRules(bytes_max=128 * MIB))
    made = tmp_path / "copy/model.bin"
    assert made.stat().st_size == 64 * MIB
    assert made.stat().st_blocks * 512 < MIB
    assert scan(home) == scan(tmp_path / "copy", 128 * MIB)
    with made.open("rb") as file:
        assert os.read(file.fileno(), 6) == b"begin\0"


def test_one_larger_than_an_image_is_refused_before_it_is_read(tmp_path: Path) -> None:
    home = hole(tmp_path / "home", TIB)
    with pytest.raises(BuildFailed, match=r"model\.bin' it is larger"):
        copy_layer(home, tmp_path / "copy", CopyRules(bytes_max=128 * MIB))
    with pytest.raises(LargeEntry, match=r"model\.bin"):
        scan(home, 128 * MIB)
