"""Whoever filled a folder, and however deep: it can be given away and deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starverse.checkpoint.removing import remove_tree
from starverse.node.preparation import give


def deepen(folder: Path, levels: int) -> None:
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_WRONLY | os.O_CREAT, 0o400, dir_fd=here))
    os.close(here)


@pytest.mark.parametrize("levels", [0, 3, 1500, 4000])
def test_a_folder_of_any_depth_is_deleted(tmp_path: Path, levels: int) -> None:
    deepen(tmp_path / "top", levels)
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []
    remove_tree(tmp_path / "top")


def test_read_only_folders_go_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    deepen(kept, 1)
    top = tmp_path / "top"
    deepen(top, 2)
    (top / "link").symlink_to(kept)
    (top / "d").chmod(0o500)
    remove_tree(top)
    link = tmp_path / "link"
    link.symlink_to(kept)
    remove_tree(link)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "d" / "bottom").is_file()


def test_a_folder_of_any_depth_is_given_to_its_user(tmp_path: Path) -> None:
    owner = 200_001 if os.geteuid() == 0 else os.geteuid()
    deepen(tmp_path / "top", 1500)
    give(tmp_path / "top", owner)
    here = os.open(tmp_path / "top", os.O_RDONLY)
    for _ in range(1500):
        assert os.fstat(here).st_uid == owner
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    assert os.stat("bottom", dir_fd=here).st_uid == owner
    os.close(here)
    remove_tree(tmp_path / "top")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_inside_gave_to_others_of_the_team_stays_theirs(tmp_path: Path) -> None:
    owner, others_first = 200_001, 1 << 30
    top = tmp_path / "top"
    top.mkdir()
    given = {
        "platforms": owner,
        "theirs": others_first + 33,
        "strangers": owner,
        "last": others_first + 65_535,
    }
    for name, uid in (
        ("theirs", others_first + 33),
        ("strangers", others_first + 65_536),
        ("last", others_first + 65_535),
    ):
        (top / name).touch()
        os.chown(top / name, uid, uid)
    (top / "platforms").touch()
    give(top, owner, others_first)
    assert {path.name: path.stat().st_uid for path in top.iterdir()} == given
    assert top.stat().st_uid == owner
