"""What follows a try of a sync, when a schedule is due, which folders are of the disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from starverse.domain.catalog.disks import SyncState
from starverse.domain.catalog.syncs import (
    ATTEMPTS_MAX,
    ENDED_SYNC_STATES,
    SYNC_TRANSITIONS,
    CopyEnd,
    Ending,
    Progress,
    after_try,
    check_schedule,
    clean_folder,
    next_due,
    seconds_left,
)

NOW = datetime(2026, 3, 10, 2, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")


def ended(ending: Ending, files: int = 0) -> CopyEnd:
    return CopyEnd(ending, "the wire is cut", Progress(files_done=files))


@pytest.mark.parametrize(
    ("end", "attempts", "cancelled", "state", "wait", "counted"),
    [
        (ended(Ending.DONE), 0, False, SyncState.SUCCEEDED, None, 0),
        (ended(Ending.DONE), 3, True, SyncState.SUCCEEDED, None, 3),
        (ended(Ending.CANCELLED), 0, False, SyncState.CANCELLED, None, 0),
        (ended(Ending.INTERRUPTED), 0, True, SyncState.CANCELLED, None, 0),
        (ended(Ending.INTERRUPTED), 0, False, SyncState.QUEUED, 5, 1),
        (ended(Ending.INTERRUPTED), 1, False, SyncState.QUEUED, 15, 2),
        (ended(Ending.INTERRUPTED), 3, False, SyncState.QUEUED, 180, 4),
        (ended(Ending.INTERRUPTED), 4, False, SyncState.FAILED, None, 5),
        (ended(Ending.INTERRUPTED, files=1), 4, False, SyncState.QUEUED, 5, 0),
        (ended(Ending.FAILED), 0, False, SyncState.FAILED, None, 1),
    ],
)
def test_what_follows_a_try(
    end: CopyEnd, attempts: int, cancelled: bool, state: SyncState, wait: int | None, counted: int
) -> None:
    found = after_try(end, attempts, NOW, cancel_asked=cancelled)
    assert (found.state, found.attempts) == (state, counted)
    assert found.due_at == (None if wait is None else NOW + timedelta(seconds=wait))
    assert "the wire is cut" in found.message
    assert found.state in SYNC_TRANSITIONS[SyncState.RUNNING]


def test_tries_end_somewhere() -> None:
    attempts, tries = 0, 0
    while True:
        tries += 1
        found = after_try(ended(Ending.INTERRUPTED), attempts, NOW)
        if found.state in ENDED_SYNC_STATES:
            break
        attempts = found.attempts
    assert tries == ATTEMPTS_MAX


@pytest.mark.parametrize(
    ("done", "total", "rate", "left"),
    [
        (0, None, 5, None),
        (0, 10, None, None),
        (0, 10, 0, None),
        (5, 10, 2, 3),
        (10, 10, 2, 0),
        (11, 10, 2, 0),
    ],
)
def test_how_long_the_rest_takes(done: int, total: int | None, rate: int | None, left: int | None) -> None:
    assert seconds_left(done, total, rate) == left


def test_a_schedule_is_due_in_the_installations_zone() -> None:
    assert next_due("30 3 * * *", NOW, SHANGHAI) == datetime(2026, 3, 10, 19, 30, tzinfo=UTC)
    assert check_schedule("0 4 * * MON", NOW, SHANGHAI) == datetime(2026, 3, 15, 20, tzinfo=UTC)
    berlin = ZoneInfo("Europe/Berlin")
    night = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert next_due("30 2 * * *", night, berlin) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC), (
        "02:30 is skipped"
    )


@pytest.mark.parametrize(
    "line",
    ["", "x", "* * *", "0 0 0 * * *", "@daily", "61 * * * *", "0 0 30 2 *", "*/10 * * * *", "0 0 " * 40],
)
def test_a_line_that_is_no_schedule_or_too_often_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"cron|minutes"):
        check_schedule(line, NOW, SHANGHAI)


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("", ""),
        ("/", ""),
        (".", ""),
        ("a//b/", "a/b"),
        ("./a/./b", "a/b"),
        ("数 据", "数 据"),
        ("长" * 85, "长" * 85),
    ],
)
def test_a_folder_of_the_disk(text: str, folder: str) -> None:
    assert clean_folder(text) == folder


@pytest.mark.parametrize("text", ["..", "a/../b", "../../etc", "a\0b", "长" * 86, "a/" * 2100])
def test_what_is_no_folder_of_the_disk(text: str) -> None:
    with pytest.raises(ValueError, match="inside the disk"):
        clean_folder(text)
