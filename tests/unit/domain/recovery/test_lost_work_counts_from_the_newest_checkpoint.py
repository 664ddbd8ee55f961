"""Lost work in whole seconds."""

from __future__ import annotations

from datetime import datetime

import pytest

from starverse.domain.recovery.lost_work import lost_work_seconds
from starverse.testing.snapshots import at


@pytest.mark.parametrize(
    ("saved_at", "ready_at", "ended_at", "lost"),
    [
        (None, at(0), at(90), 90),
        (at(60), at(0), at(90), 30),
        (at(60), at(0), at(90.9), 30),
        (at(-500), at(0), at(90), 90),
        (at(95), at(0), at(90), 0),
        (None, None, at(90), 0),
        (at(60), None, at(90), 0),
        (at(90), at(0), at(90), 0),
    ],
)
def test_the_seconds_to_run_again(
    saved_at: datetime | None, ready_at: datetime | None, ended_at: datetime, lost: int
) -> None:
    assert lost_work_seconds(saved_at, ready_at, ended_at) == lost
