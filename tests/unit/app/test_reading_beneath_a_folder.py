"""Files that workloads wrote are read and written without being led out of their folder."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path

import pytest

from starverse.app import beneath
from starverse.app.workspaces import OpenFile, Workspace, list_files
from starverse.checkpoint.removing import remove_tree
from starverse.domain.errors import Conflict, Invalid, NotFound, TooLarge


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "secret.txt").write_text("not yours")
    inside = tmp_path / "job"
    (inside / "runs/1").mkdir(parents=True)
    (inside / "runs/1/out.txt").write_text("result")
    (inside / "latest").symlink_to("runs/1")
    (inside / "runs/1/up").symlink_to("../../runs/1/out.txt")
    (inside / "absolute").symlink_to("/workspace/runs/1/out.txt")
    (inside / "out").symlink_to("../secret.txt")
    (inside / "etc").symlink_to("/etc")
    (inside / "loop").symlink_to("loop")
    (inside / "around").symlink_to("latest/../../secret.txt")
    os.mkfifo(inside / "pipe")
    yield inside
    remove_tree(inside)  # pytest itself cannot delete the deep ones


def read(root: Path, path: str) -> bytes:
    opened = OpenFile(Workspace(root, None), path)
    return b"".join(opened.tar() if opened.is_folder else opened.pieces())


@pytest.mark.parametrize(
    "path", ["runs/1/out.txt", "latest/out.txt", "latest/up", "absolute", "./runs//1/out.txt"]
)
def test_what_is_inside_is_read_also_through_links(root: Path, path: str) -> None:
    assert read(root, path) == b"result"


@pytest.mark.parametrize(
    "path", ["out", "etc", "etc/passwd", "loop", "around", "pipe", "missing", "runs/1/out.txt/more", "a\x01b"]
)
def test_what_leads_out_or_is_no_file_is_not_there(root: Path, path: str) -> None:
    with pytest.raises(NotFound):
        read(root, path)


@pytest.mark.parametrize("path", ["..", "../secret.txt", "runs/../../secret.txt", "a/" + "n" * 300, "a\0b"])
def test_a_path_that_climbs_is_refused(root: Path, path: str) -> None:
    with pytest.raises(Invalid):
        read(root, path)


def test_a_folder_reads_as_a_tar_with_links_as_links(root: Path) -> None:
    with tarfile.open(fileobj=BytesIO(read(root, "")), mode="r:") as archive:
        names = {member.name: member for member in archive.getmembers()}
        assert names["out"].issym() and names["out"].linkname == "../secret.txt"
        assert "pipe" not in names
        found = archive.extractfile("runs/1/out.txt")
        assert found is not None and found.read() == b"result"


def test_listing_names_kinds_and_pages(root: Path) -> None:
    workspace = Workspace(root, None)
    kinds = {entry.path: entry.kind for entry in list_files(workspace, "").items}
    assert kinds["runs"] == "folder" and kinds["latest"] == "link" and kinds["pipe"] == "other"
    first = list_files(workspace, "", limit=2)
    assert first.next_cursor is not None
    rest = list_files(workspace, "", cursor=first.next_cursor)
    assert [entry.path for entry in (*first.items, *rest.items)] == sorted(kinds)
    assert [entry.path for entry in list_files(workspace, "latest/out.txt").items] == ["latest/out.txt"]


def write_half(root: Path) -> AbstractContextManager[int]:
    return beneath.new_file(root, "half.txt", None, root.with_name(".incoming-2"))


def write(root: Path, path: str, content: bytes) -> None:
    with beneath.new_file(root, path, None, root.with_name(".incoming-1")) as descriptor:
        os.write(descriptor, content)


def test_writing_makes_folders_and_replaces_at_once(root: Path) -> None:
    write(root, "new/deep/file.txt", b"one")
    write(root, "new/deep/file.txt", b"two")
    assert (root / "new/deep/file.txt").read_bytes() == b"two"
    assert [path.name for path in (root / "new/deep").iterdir()] == ["file.txt"]


def deepen(folder: Path, levels: int) -> None:
    """Folders within folders, deeper than one path could say."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_a_folder_deeper_than_may_be_packed_is_refused_in_words(root: Path) -> None:
    deepen(root / "runs", 1500)
    with pytest.raises(TooLarge, match="levels"):
        read(root, "runs")
    for path in ("/".join(["runs", *["d"] * 200]), "/".join("x" * 200)):
        with pytest.raises(Invalid, match="levels"):
            read(root, path)
        with pytest.raises(Invalid, match="levels"):
            write(root, path, b"deep")


def test_links_lead_through_so_many_folders_only(root: Path) -> None:
    deepen(root / "runs", 300)
    (root / "far").symlink_to("/".join(["runs", *["d"] * 300]))
    with pytest.raises(NotFound, match="folders"):
        read(root, "far/x")


@pytest.mark.parametrize("path", ["etc/evil", "latest/evil", "runs/1/out.txt/evil", "runs"])
def test_writing_follows_no_link_and_replaces_no_folder(root: Path, path: str) -> None:
    with pytest.raises(Conflict):
        write(root, path, b"evil")
    assert (root / "runs/1/out.txt").read_text() == "result"


def test_writing_to_a_link_replaces_the_link_not_what_it_names(root: Path) -> None:
    write(root, "out", b"mine now")
    assert (root.parent / "secret.txt").read_text() == "not yours"
    assert (root / "out").read_bytes() == b"mine now"


def test_what_was_not_finished_leaves_nothing(root: Path) -> None:
    with pytest.raises(RuntimeError), write_half(root) as descriptor:
        os.write(descriptor, b"half")
        assert not [path for path in root.iterdir() if path.name.startswith((".", "half"))]
        raise RuntimeError("the sender is gone")
    assert not (root / "half.txt").exists()
    assert not [path for path in root.parent.iterdir() if path.name.startswith(".incoming")]


def test_too_many_levels_are_refused_before_the_first_byte(root: Path) -> None:
    (root / "/".join("d" * 90)).mkdir(parents=True)
    below = root / "/".join("d" * 90) / "/".join("e" * 20)
    below.mkdir(parents=True)
    with pytest.raises(TooLarge, match="more than 100 levels"):
        OpenFile(Workspace(root, None), "")
    assert read(root, "/".join("d" * 50))
