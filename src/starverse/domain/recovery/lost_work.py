"""Lost work: the seconds run after the newest verified checkpoint at a kill (glossary)."""

from __future__ import annotations

from datetime import datetime


def lost_work_seconds(
    newest_verified_published_at: datetime | None, ready_at: datetime | None, ended_at: datetime
) -> int:
    """Whole seconds that have to be run again.

    ``newest_verified_published_at`` ``None``: nothing was saved, everything since ``ready_at`` is lost.
    ``ready_at`` ``None``: it never ran, nothing is. A checkpoint of an earlier run does not count before
    this run's start, one from after the end (published while the copy was finished) leaves nothing lost.
    """
    if ready_at is None:
        return 0
    saved_at = newest_verified_published_at
    since = ready_at if saved_at is None else max(ready_at, saved_at)
    return max(0, int((ended_at - since).total_seconds()))
