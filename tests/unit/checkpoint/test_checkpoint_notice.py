"""A notice is heard through the file and through SIGUSR1, and answered with exit code 99."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from starverse.checkpoint import Checkpointer, Notice, published


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("text", "notice"),
    [
        (
            '{"reason": "reclaimed", "deadline": "2026-01-02T03:04:05Z"}',
            Notice("reclaimed", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ),
        (
            '{"reason": "no_money", "deadline": "2026-01-02T11:04:05+08:00"}',
            Notice("no_money", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ),
        ('{"reason": "reclaimed", "deadline": "soon"}', Notice("reclaimed")),
        ('{"reason": "reclaimed"}', Notice("reclaimed")),
        ('{"reas', Notice("unknown")),
        ("[]", Notice("unknown")),
    ],
)
def test_the_file_is_the_notice(tmp_path: Path, text: str, notice: Notice) -> None:
    file = tmp_path / "notice.json"
    checkpointer = Checkpointer(
        tmp_path / "root", environment={"STARVERSE_NOTICE_FILE": str(file)}, handle_signal=False
    )
    assert not checkpointer.requested
    assert checkpointer.notice is None
    file.write_text(text)
    assert checkpointer.requested
    assert checkpointer.notice == notice


def test_the_signal_is_a_notice_and_reaches_the_handler_before(tmp_path: Path) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    checkpointer = Checkpointer(tmp_path, environment={})
    assert not checkpointer.requested
    os.kill(os.getpid(), signal.SIGUSR1)
    assert checkpointer.requested
    assert checkpointer.notice == Notice("signal")
    assert heard == [signal.SIGUSR1]


def test_the_handler_is_left_alone_when_asked(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    Checkpointer(tmp_path, environment={}, handle_signal=False)
    assert signal.getsignal(signal.SIGUSR1) is before


def test_leaving_for_the_queue_publishes_what_is_under_way_and_exits_with_99(tmp_path: Path) -> None:
    program = f"""
import os, signal
from starverse.checkpoint import Checkpointer
checkpointer = Checkpointer({str(tmp_path)!r}, environment={{}})
os.kill(os.getpid(), signal.SIGUSR1)
if checkpointer.requested:
    checkpointer.save_async(5, {{"a": bytes(30_000_000)}})
    checkpointer.exit_for_requeue()
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 99
    assert [item.step for item in published(tmp_path)] == [5]
