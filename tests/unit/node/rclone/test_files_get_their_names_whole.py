"""What runs beside rclone in its sandbox: names on the disk, rclone's words, a server that says nothing."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from starverse.node.rclone import inside
from starverse.node.rclone.starting import Order, build_arguments, read_order


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "aside" / "a").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return tmp_path


def give(disk: Path, name: str, folder: list[str]) -> None:
    inside.publish(str(disk / "aside"), folder, name, str(disk / "data"))


def test_a_whole_file_moves_to_its_name_and_replaces_what_was_there(disk: Path) -> None:
    (disk / "aside" / "a" / "文 件").write_text("new")
    (disk / "data" / "sub" / "a").mkdir()
    (disk / "data" / "sub" / "a" / "文 件").write_text("old")
    give(disk, "a/文 件", ["sub"])
    assert (disk / "data" / "sub" / "a" / "文 件").read_text() == "new"
    assert not (disk / "aside" / "a" / "文 件").exists()


@pytest.mark.parametrize("link", ["sub", "sub/a"])
def test_no_link_on_the_way_is_followed(disk: Path, link: str) -> None:
    (disk / "aside" / "a" / "f").write_text("x")
    place = disk / "data" / link
    if place.is_dir():
        place.rmdir()
    place.symlink_to(disk / "outside")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        give(disk, "a/f", ["sub"])
    assert list((disk / "outside").iterdir()) == []


def test_a_link_at_the_very_name_is_replaced_and_not_written_through(disk: Path) -> None:
    (disk / "outside" / "theirs").write_text("theirs")
    (disk / "data" / "f").symlink_to(disk / "outside" / "theirs")
    (disk / "aside" / "f").write_text("ours")
    give(disk, "f", [])
    assert (disk / "outside" / "theirs").read_text() == "theirs"
    assert not (disk / "data" / "f").is_symlink()


@pytest.mark.parametrize("name", ["../f", "a/../../f", "a/"])
def test_a_name_that_leads_out_is_none(disk: Path, name: str) -> None:
    with pytest.raises(OSError, match="leads out"):
        give(disk, name, [])


def test_what_is_left_aside_is_published_with_its_folders(disk: Path) -> None:
    (disk / "aside" / "a" / "empty").mkdir()
    (disk / "aside" / "a" / "f").write_text("1")
    (disk / "aside" / "g").write_text("2")
    inside.publish_rest(str(disk / "aside"), ["sub"], str(disk / "data"))
    found = sorted(str(p.relative_to(disk / "data")) for p in (disk / "data").rglob("*"))
    assert found == ["sub", "sub/a", "sub/a/empty", "sub/a/f", "sub/g"]


def test_what_a_folder_holds_counts_a_file_of_two_names_once(disk: Path) -> None:
    before = inside.used_bytes(str(disk / "data"))
    (disk / "data" / "f").write_bytes(os.urandom(100_000))
    once = inside.used_bytes(str(disk / "data"))
    os.link(disk / "data" / "f", disk / "data" / "g")
    assert inside.used_bytes(str(disk / "data")) == once >= before + 100_000


def test_statistics_of_rclone_become_counts() -> None:
    stats = {"bytes": 5, "totalBytes": 10, "transfers": 1, "totalTransfers": 2, "speed": 3.7, "eta": None}
    assert inside.counts(stats) == {
        "bytes_done": 5,
        "bytes_total": 10,
        "files_done": 1,
        "files_total": 2,
        "bytes_per_second": 3,
    }
    assert set(inside.counts({}).values()) == {0}


def heard(listener: inside.Listener) -> inside.Stopped:
    until = time.monotonic() + 10
    while listener.stopped is None and time.monotonic() < until:
        time.sleep(0.01)
    assert listener.stopped is not None
    return listener.stopped


@pytest.mark.parametrize(
    ("said", "ending", "words"),
    [
        (b"go on\ncancel\n", "cancelled", "cancelled"),
        (b"go on\n", "interrupted", "its server does not answer"),
        (None, "interrupted", "its server ended"),
    ],
)
def test_a_copy_ends_with_its_server(said: bytes | None, ending: str, words: str) -> None:
    readable, writable = os.pipe()
    listener = inside.Listener(readable, silence_seconds=0.2)
    try:
        if said is None:
            os.close(writable)
        else:
            os.write(writable, said)
        listener.start()
        stopped = heard(listener)
        assert (stopped.ending, str(stopped)) == (ending, words)
    finally:
        os.close(readable)
        if said is not None:
            os.close(writable)


def test_the_order_is_read_to_its_last_byte_and_no_further() -> None:
    config = "[lab]\npass = hunter2 芝麻\n"
    order = Order("/tree", None, True, 200_000, config, "internet", ("10.1.2.0/24",), {"folder": "数据"})
    readable, writable = os.pipe()
    try:
        os.write(writable, order.to_bytes() + b"go on\n")
        assert read_order(readable) == order
        assert os.read(readable, 100) == b"go on\n"
    finally:
        os.close(readable)
        os.close(writable)


def test_nothing_of_the_order_is_in_the_arguments() -> None:
    arguments = build_arguments("bwrap", [("/mnt/0", "/disk", "rw")], [(7, inside.CONFIG), (8, inside.ORDER)])
    assert arguments[arguments.index("--file") + 1 : arguments.index("--file") + 3] == ["7", inside.CONFIG]
    assert ("--cap-drop", "ALL") in list(pairwise(arguments))
    assert "--clearenv" in arguments
    assert arguments.count("--bind") == 1
