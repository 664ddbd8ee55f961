"""Parts of a log: whole characters, gaps where the cap punched holes."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from starverse.app.logs import Gap, read_piece

PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01


def test_text_is_cut_between_characters_unless_nothing_follows(tmp_path: Path) -> None:
    log = tmp_path / "1.out"
    log.write_bytes("损失 0.5\n".encode() + "准".encode()[:2])
    going_on = read_piece(log, 0, 1000, whole=False)
    assert going_on.text == "损失 0.5\n"
    assert going_on.next_offset == len("损失 0.5\n".encode())
    ended = read_piece(log, 0, 1000, whole=True)
    assert ended.text == "损失 0.5\n\ufffd"
    assert ended.next_offset == log.stat().st_size


@pytest.mark.parametrize("whole", [False, True])
def test_every_cut_of_a_text_puts_together_to_the_same(tmp_path: Path, whole: bool) -> None:
    text = "a损é\U0001f600z\n" * 3
    log = tmp_path / "1.out"
    log.write_text(text, "utf-8")
    for size in range(4, 12):
        parts, offset = [], 0
        while offset < log.stat().st_size:
            piece = read_piece(log, offset, size, whole=whole)
            assert piece.next_offset > offset
            parts.append(piece.text)
            offset = piece.next_offset
        assert "".join(parts) == text


def test_bytes_that_are_no_text_do_not_hold_the_reader_up(tmp_path: Path) -> None:
    log = tmp_path / "1.out"
    log.write_bytes(b"\xff\xfe\x80\x80\x80\x80\x80")
    piece = read_piece(log, 0, 1000, whole=False)
    assert piece.next_offset == 7


def test_a_hole_reads_as_a_gap(tmp_path: Path) -> None:
    log = tmp_path / "1.out"
    block = os.statvfs(tmp_path).f_bsize
    log.write_bytes(b"a" * (4 * block) + b"the end\n")
    descriptor = os.open(log, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_int64(0), ctypes.c_int64(4 * block)
    failed = libc.fallocate(descriptor, PUNCH_HOLE_KEEP_SIZE, offset, length)
    os.close(descriptor)
    if failed:
        pytest.skip("this file system punches no holes")
    piece = read_piece(log, 10, 1000, whole=True)
    assert piece.gap == Gap(10, 4 * block)
    assert piece.text == "the end\n"
    assert read_piece(log, 4 * block, 1000, whole=True).gap is None


def test_at_the_end_there_is_nothing(tmp_path: Path) -> None:
    log = tmp_path / "1.out"
    log.write_bytes(b"abc")
    assert read_piece(log, 3, 10, whole=False).text == ""
    assert read_piece(log, 99, 10, whole=True).next_offset == 99
