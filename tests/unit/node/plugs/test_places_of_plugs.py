"""Where a plug may be shown, and what is asked of a source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starverse.node.plugs.holders import describe_holders
from starverse.node.plugs.places import PlugRefused, open_file, open_folder, place_of


@pytest.mark.parametrize(
    "target", ["/data/home", "/data/a/b/c", "/data/with space", "/data/" + "\u76d8" * 85]
)
def test_a_place_below_data(target: str) -> None:
    assert place_of(target, taken=["/data/other"]) == target.removeprefix("/data/")


@pytest.mark.parametrize(
    ("target", "taken"),
    [
        ("/data", ()),
        ("/data/", ()),
        ("/database/x", ()),
        ("data/x", ()),
        ("/etc/passwd", ()),
        ("/data/../etc", ()),
        ("/data/./x", ()),
        ("/data/a//b", ()),
        ("/data/a/", ()),
        ("/data/a\0b", ()),
        ("/data/" + "\u76d8" * 86, ()),
        ("/data/" + "a/" * 16 + "a", ()),
        ("/data/a", ("/data/a",)),
        ("/data/a/b", ("/data/a",)),
        ("/data/a", ("/data/a/b",)),
    ],
)
def test_no_place(target: str, taken: tuple[str, ...]) -> None:
    with pytest.raises(PlugRefused):
        place_of(target, taken)


def test_a_source_is_the_folder_or_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "to-folder").symlink_to("folder")
    (tmp_path / "to-file").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    os.close(open_folder(str(tmp_path / "folder")))
    os.close(open_file(str(tmp_path / "file"), write=True))
    for name in ("file", "to-folder", "pipe", "nothing", "folder/../folder"):
        with pytest.raises(PlugRefused):
            open_folder(f"{tmp_path}/{name}")
    for name in ("folder", "to-file", "pipe", "nothing"):
        with pytest.raises(PlugRefused):
            open_file(f"{tmp_path}/{name}", write=True)


def test_who_holds_is_named_but_not_without_end() -> None:
    assert "something inside" in describe_holders([])
    assert describe_holders([f"p{number}" for number in range(7)]) == "held by p0, p1, p2, p3, p4 and 2 more"
