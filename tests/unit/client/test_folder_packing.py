"""Packing a submit folder: same folder same bytes, odd names, limits, and what is refused by name."""

from __future__ import annotations

import hashlib
import os
import socket
import tarfile
from pathlib import Path

import pytest

from starverse.client.api import Client
from starverse.client.errors import ClientError
from starverse.client.packing import FolderLimits, PackedFolder, pack_folder, size_text
from starverse.client.settings import Settings
from starverse.testing.fake_api import FakeApi, Reply


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


def names_in(packed: PackedFolder) -> list[str]:
    packed.file.seek(0)
    with tarfile.open(fileobj=packed.file, mode="r:gz") as archive:
        return archive.getnames()


def packed_names(folder: Path) -> list[str]:
    packed = pack_folder(folder)
    try:
        return names_in(packed)
    finally:
        packed.close()


def test_the_same_folder_gives_the_same_bytes_whatever_its_age_place_and_order(tmp_path: Path) -> None:
    files = {"b.py": b"b", "a/x.txt": b"x", "a.py": b"a", "a-b": b"-"}
    one = write(tmp_path / "one", files)
    two = write(tmp_path / "two", dict(reversed(files.items())))
    os.utime(two / "a.py", (1, 1))
    (two / "b.py").chmod(0o664)
    first, second = pack_folder(one), pack_folder(two)
    first.file.seek(0)
    raw = first.file.read()
    assert first.folder_id == second.folder_id == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert first.archive_bytes == len(raw)
    assert first.files_bytes == 4
    first.close()
    second.close()


@pytest.mark.parametrize("change", ["content", "name", "execute bit"])
def test_what_matters_changes_the_id(tmp_path: Path, change: str) -> None:
    folder = write(tmp_path / "f", {"run.sh": b"1"})
    before = pack_folder(folder)
    if change == "content":
        (folder / "run.sh").write_bytes(b"2")
    elif change == "name":
        (folder / "run.sh").rename(folder / "run2.sh")
    else:
        (folder / "run.sh").chmod(0o755)
    after = pack_folder(folder)
    assert before.folder_id != after.folder_id
    before.close()
    after.close()


def test_names_with_spaces_chinese_255_bytes_and_broken_utf8_arrive_whole(tmp_path: Path) -> None:
    names = ["two words.txt", "训练 数据.csv", "长" * 85, "-rf", "line\nbreak", os.fsdecode(b"\xff\xfe.bin")]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    assert len(os.fsencode(names[2])) == 255
    assert sorted(packed_names(tmp_path)) == sorted(names)


def test_an_empty_folder_is_packed_too(tmp_path: Path) -> None:
    assert packed_names(tmp_path) == []


def test_empty_folders_and_links_inside_are_kept(tmp_path: Path) -> None:
    write(tmp_path, {"data/a.txt": b"a"})
    (tmp_path / "empty").mkdir()
    (tmp_path / "relative").symlink_to("data/a.txt")
    (tmp_path / "absolute").symlink_to(tmp_path / "data")
    (tmp_path / "dangling").symlink_to("not-yet-there")
    packed = pack_folder(tmp_path)
    packed.file.seek(0)
    with tarfile.open(fileobj=packed.file, mode="r:gz") as archive:
        assert archive.getmember("empty").isdir()
        links = {m.name: m.linkname for m in archive.getmembers() if m.issym()}
    packed.close()
    assert links == {"relative": "data/a.txt", "absolute": "data", "dangling": "not-yet-there"}


def test_everything_that_cannot_be_packed_is_named_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", {"ok": b""})
    (folder / "passwd").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("../elsewhere")
    (folder / "hop").symlink_to("up/../../x")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(folder / "sock"))
        with pytest.raises(ClientError) as caught:
            pack_folder(folder)
    assert {fault.field for fault in caught.value.faults} == {"passwd", "up", "hop", "pipe", "sock"}
    assert ".starverseignore" in (caught.value.hint or "")
    assert "link to /etc/passwd" in caught.value.detail


def test_what_is_ignored_is_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {".starverseignore": b"passwd\n", "ok": b""})
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    assert packed_names(tmp_path) == [".starverseignore", "ok"]


def a_mebibyte_more() -> FolderLimits:
    return FolderLimits(files_bytes=FolderLimits().files_bytes + 1024**2)


def write_sparse(folder: Path, *sizes: int) -> None:
    """Files that are large and cost nothing: holes, left out of what is packed by compression."""
    for index, size in enumerate(sizes):
        with (folder / f"hole{index}").open("wb") as file:
            file.truncate(size)


def test_a_folder_over_the_cap_is_refused_with_its_biggest_entries(tmp_path: Path) -> None:
    write(tmp_path, {"data/b.bin": b"b" * 600, "small": b"1", "log.txt": b"l" * 50})
    write_sparse(tmp_path / "data", 200 * 1024**2)
    with pytest.raises(ClientError) as caught:
        pack_folder(tmp_path, a_mebibyte_more)
    error = caught.value
    assert error.code == "too_large"
    assert "holds 200.0 MiB; a job's folder may hold 101.0 MiB" in error.detail
    assert "Biggest: data/ 200.0 MiB (in it data/hole0 200.0 MiB), log.txt 50 B, small 1 B" in error.detail


def test_what_the_server_allows_is_accepted_and_asked_for_only_over_the_usual(tmp_path: Path) -> None:
    asked = []

    def limits() -> FolderLimits:
        asked.append("limits")
        return a_mebibyte_more()

    usual = FolderLimits().files_bytes
    write_sparse(tmp_path, usual)
    pack_folder(tmp_path, limits).close()
    assert asked == []
    write_sparse(tmp_path, usual, 1024**2)
    pack_folder(tmp_path, limits).close()
    assert asked == ["limits"]
    write_sparse(tmp_path, usual, 1024**2 + 1)
    with pytest.raises(ClientError, match=r"may hold 101\.0 MiB"):
        pack_folder(tmp_path, limits)


def test_paths_that_no_server_takes_are_named_before_anything_is_sent(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("deep", *["d"] * 98)
    deep.mkdir(parents=True)
    (deep / "f").write_text("at level 100")
    pack_folder(tmp_path).close()
    (deep / "d").mkdir()
    (deep / "d" / "f").write_text("one deeper")
    long = tmp_path / "long"
    for _ in range(11):
        long = long / ("n" * 190)
    long.mkdir(parents=True)
    with pytest.raises(ClientError) as caught:
        pack_folder(tmp_path)
    assert {fault.value.partition(",")[0] for fault in caught.value.faults} == {"101 levels", "12 levels"}
    (tmp_path / ".starverseignore").write_text("long\ndeep\n")
    pack_folder(tmp_path).close()


def test_a_folder_that_is_there_already_costs_one_question(tmp_path: Path) -> None:
    packed = pack_folder(write(tmp_path, {"a": b"a"}))
    path = f"/folders/{packed.folder_id}"
    with FakeApi() as api, Client(Settings(api.url)) as client:
        api.on("HEAD", path, Reply(404), Reply(200))
        api.on("PUT", path, Reply(201, {"id": packed.folder_id}))
        assert client.jobs.send_folder(packed) is True
        assert client.jobs.send_folder(packed) is False
        sent = api.requests("PUT", path)
    assert len(sent) == 1
    assert f"sha256:{hashlib.sha256(sent[0].body).hexdigest()}" == packed.folder_id
    assert sent[0].headers["content-length"] == str(packed.archive_bytes)
    packed.close()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (100 * 1024**2, "100.0 MiB"), (5 * 1024**4, "5.0 TiB")],
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert size_text(count) == text
