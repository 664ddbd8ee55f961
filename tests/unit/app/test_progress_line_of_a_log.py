"""The last progress line: what counts as one, whatever the training loop prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.app.progress import last_progress, progress_of


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("epoch 3/60 loss 0.1\n", "epoch 3/60 loss 0.1"),
        ("epoch 3/60\nsaved\n", "epoch 3/60"),
        ("37%|###   | 37/100\r41%|####  | 41/100\r", "41%|####  | 41/100"),
        ("epoch 3/60\nepoch 4/6", "epoch 3/60"),
        ("done 12.5 % of it\n", "done 12.5 % of it"),
        ("nothing here\n", None),
        ("path /a/3/4/b and 2026/11/30\n", None),
        ("61/60\n", None),
        ("0/0\n", None),
        ("180% CPU\n", None),
        ("", None),
    ],
)
def test_the_newest_complete_line_with_a_share_done(text: str, line: str | None) -> None:
    assert progress_of(text) == line


def test_only_the_end_of_a_long_log_is_read_and_a_missing_one_has_none(tmp_path: Path) -> None:
    assert last_progress(tmp_path, 1) is None
    (tmp_path / "1.out").write_bytes(b"epoch 1/9\n" + b"x" * 20_000 + b"\n")
    assert last_progress(tmp_path, 1) is None
    (tmp_path / "2.out").write_bytes(b"\xff\xfe epoch 2/9\n")
    assert last_progress(tmp_path, 2) == "\ufffd\ufffd epoch 2/9"
