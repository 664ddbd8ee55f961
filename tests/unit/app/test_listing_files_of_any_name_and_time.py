"""A listing shows every file, whatever name and time its owner gave it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from starverse.app.beneath import Entry
from starverse.app.workspaces import Workspace, file_entry, list_files
from starverse.http.schemas_jobs import FileOut
from starverse.http.shapes import items_of

NAMES = [b"plain.txt", b"caf\xe9.txt", b"caf\xe8.txt", "星宇".encode(), b"\xff", b"new\nline", b"back\\xe9"]


def test_each_name_is_shown_once_page_by_page_as_json(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / os.fsdecode(name)).touch()
    workspace = Workspace(tmp_path, None)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = list_files(workspace, "", limit=2, cursor=cursor)
        assert items_of(FileOut, page).model_dump_json()
        seen += [entry.path for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == len(NAMES)
    assert {"plain.txt", "星宇", "\\xff", "caf\\xe9.txt"} <= set(seen)


TIMES = {
    "now": (1_770_000_000, 2026),
    "before 1970": (-86_400, 1969),
    "past the year 9999": (253_402_300_800, 9999),
    "past what a computer counts in": (2**63 - 1, 9999),
    "before the year 1": (-(2**63), 1),
}


@pytest.mark.parametrize("seconds, year", TIMES.values(), ids=TIMES.keys())
def test_each_time_is_one_that_every_zone_can_show(seconds: float, year: int) -> None:
    shown: datetime = file_entry(Entry("a", "file", 0, seconds)).modified_at
    assert shown.year == year
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
        assert abs(shown.astimezone(ZoneInfo(zone)).year - year) <= 1
