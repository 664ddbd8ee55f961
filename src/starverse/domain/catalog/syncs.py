"""Copies between a disk and a remote: their states, when they are tried again, when a schedule is due, and
what whoever copies is told and tells.

A sync copies and never deletes. It is interrupted by whatever there is, and tried again; a try that got
nowhere counts, one that moved something does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from starverse.domain.catalog.disks import SyncDirection, SyncState

ATTEMPTS_MAX = 5
"""Tries in a row that got nowhere; after the last one the sync has failed."""
RETRY_SECONDS = (5, 15, 60, 180)
SCHEDULE_MINUTES_MIN = 15
SCHEDULE_CHARACTERS_MAX = 64
FOLDER_BYTES_MAX = 4096

_S = SyncState
SYNC_TRANSITIONS: Mapping[SyncState, frozenset[SyncState]] = {
    _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.QUEUED, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
ENDED_SYNC_STATES = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})


class Ending(StrEnum):
    """How a try ended: ``interrupted`` may go better the next time, ``failed`` cannot."""

    DONE = "done"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of one try. ``None``: not known yet. ``checking``: all is copied and is being compared."""

    bytes_done: int = 0
    bytes_total: int | None = None
    files_done: int = 0
    files_total: int | None = None
    bytes_per_second: int | None = None
    checking: bool = False


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """The end of a try, with words for the sync's owner. ``verified``: all was compared afterwards."""

    ending: Ending
    message: str
    progress: Progress
    verified: bool = False


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """One try, as it is handed to whoever copies.

    ``tree`` is the disk's host folder (which holds ``data``), ``block_file`` that of a block disk (``None``:
    a shared one). ``folder`` is below the disk's root, ``""``: all of it. ``path`` is that of the remote in
    ``config``, which holds credentials; ``hidden`` are its values that no words of rclone may show.
    ``in_place``: at the remote, files have their names before they are whole. ``unix_uid`` ``None``: the
    copy runs as the platform's own user.
    """

    sync_id: str
    direction: SyncDirection
    tree: str
    folder: str
    path: str
    config: str
    hidden: tuple[str, ...]
    in_place: bool
    verify: bool
    bytes_per_second_max: int | None
    gib: int
    unix_uid: int | None
    block_file: str | None = None

    def __repr__(self) -> str:
        return f"CopyOrder({self.sync_id!r}, {self.direction.value!r}, {self.folder!r})"


@dataclass(frozen=True, slots=True)
class Next:
    """What follows for a sync: its state, when it is tried again (``None``: not), how many tries count."""

    state: SyncState
    due_at: datetime | None
    attempts: int
    message: str


def after_try(end: CopyEnd, attempts: int, now: datetime, *, cancel_asked: bool = False) -> Next:
    """What follows a try. ``attempts`` are those before it that got nowhere, in a row."""
    if end.ending is Ending.DONE:
        return Next(_S.SUCCEEDED, None, attempts, end.message)
    if end.ending is Ending.CANCELLED or cancel_asked:
        return Next(_S.CANCELLED, None, attempts, end.message or "cancelled")
    counted = 0 if end.progress.files_done else attempts + 1
    if end.ending is Ending.FAILED or counted >= ATTEMPTS_MAX:
        tries = f"{counted} tries got nowhere: " if counted >= ATTEMPTS_MAX else ""
        return Next(_S.FAILED, None, counted, f"{tries}{end.message}")
    wait = RETRY_SECONDS[min(max(counted, 1), len(RETRY_SECONDS)) - 1]
    message = f"interrupted: {end.message}; goes on in {wait} s"
    return Next(_S.QUEUED, now + timedelta(seconds=wait), counted, message)


def seconds_left(done: int, total: int | None, rate: int | None) -> int | None:
    """How long the rest takes at this rate; ``None``: nobody knows."""
    if total is None or not rate:
        return None
    return -(-max(0, total - done) // rate)


def next_due(schedule: str, after: datetime, zone: ZoneInfo) -> datetime:
    """When a schedule (five fields of cron, in ``zone``) is due next after an instant. Raises ``ValueError``
    with what would be right."""
    if len(schedule.split()) != 5:
        raise ValueError(_CRON_EXPECTED)
    try:
        found = next(CronSim(schedule, after.astimezone(zone)))
    except (CronSimError, StopIteration):
        raise ValueError(_CRON_EXPECTED) from None
    return found.astimezone(after.tzinfo)


_CRON_EXPECTED = "five fields of cron, such as '30 3 * * *' (every day at 03:30)"


def check_schedule(schedule: str, now: datetime, zone: ZoneInfo) -> datetime:
    """The first time that it is due; raises ``ValueError`` where it is none, or too often."""
    if len(schedule) > SCHEDULE_CHARACTERS_MAX:
        raise ValueError(_CRON_EXPECTED)
    first = at = next_due(schedule, now, zone)
    for _ in range(4):
        following = next_due(schedule, at, zone)
        if following - at < timedelta(minutes=SCHEDULE_MINUTES_MIN):
            raise ValueError(f"a schedule with at least {SCHEDULE_MINUTES_MIN} minutes between two runs")
        at = following
    return first


def clean_folder(text: str) -> str:
    """A folder of a disk without empty parts and dots, ``""`` for all of it; raises ``ValueError``."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    long = any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts)
    if ".." in parts or "\0" in text or long or len(text.encode("utf-8", "surrogatepass")) > FOLDER_BYTES_MAX:
        raise ValueError("a folder inside the disk, without '..', each name of at most 255 bytes")
    return "/".join(parts)
