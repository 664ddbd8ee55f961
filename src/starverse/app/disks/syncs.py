"""Copies between disks and remotes: asked for, scheduled, told of, cancelled; and each try of one, from the
taking of its lease to what follows.

A sync is recorded first, then whoever has the loop takes it under a lease (of its own, by the database's
clock), runs it outside every transaction, and says every few seconds that it goes on. Whoever lost the lease
writes nothing more about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app import secrets
from starverse.app.disks.finding import find_disk, lock_disk, require_ready
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.views import Page
from starverse.db import attachments, disks, snapshots, syncs, teams
from starverse.db.disks import Disk
from starverse.db.events import Event, record
from starverse.db.syncs import Sync
from starverse.domain.catalog import remotes
from starverse.domain.catalog.disks import DiskState, SyncDirection, SyncState
from starverse.domain.catalog.syncs import (
    ATTEMPTS_MAX,
    ENDED_SYNC_STATES,
    CopyEnd,
    CopyOrder,
    Ending,
    Progress,
    after_try,
    check_schedule,
    clean_folder,
    next_due,
    seconds_left,
)
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import (
    Conflict,
    FieldFault,
    Invalid,
    LimitExceeded,
    NotFound,
    StarverseError,
    Unavailable,
)
from starverse.domain.ids import AccountId, TeamId

T = TypeVar("T")

LEASE_SECONDS = 20.0
"""Longer than a copy inside goes on without a word from its server (``node/rclone/inside.py``)."""
OPEN_MAX = 50
BATCH = 100
RATE_MIN = 10 * 1024
"""Bytes per second: below it no remote keeps a connection."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. ``folder`` is of the disk, ``""``: all of it; ``secret`` an ``rclone.conf``."""

    direction: SyncDirection
    remote: str
    folder: str = ""
    secret: str | None = None
    bytes_per_second_max: int | None = None
    verify: bool = False
    schedule: str | None = None
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class SyncView:
    """A sync as its team sees it; ``seconds_left`` at the present rate."""

    sync: Sync
    disk: str

    @property
    def seconds_left(self) -> int | None:
        if self.sync.state is not SyncState.RUNNING:
            return None
        return seconds_left(self.sync.bytes_done, self.sync.bytes_total, self.sync.bytes_per_second)


@dataclass(frozen=True, slots=True)
class Try:
    """A sync whose lease was taken, and what is to be done; ``ended``: it cannot even be begun."""

    sync: Sync
    order: CopyOrder | None
    ended: CopyEnd | None = None

    @property
    def last(self) -> bool:
        return self.sync.attempts + 1 >= ATTEMPTS_MAX


def ask(platform: Platform, identity: Identity, disk_ref: str, wanted: Wanted) -> SyncView:
    """Record a sync or a schedule of syncs of a disk of the caller's team, with every fault named at once.

    Raises ``Invalid``, ``Conflict`` for a disk that cannot be read or written now, ``Unavailable`` where this
    installation copies nothing.
    """
    with platform.database.read() as connection:
        disk = find_disk(connection, identity, disk_ref)
        _require_copier(platform)
        folder, faults = _read_wanted(connection, platform, identity, wanted)
    if faults:
        raise Invalid(faults=faults)
    require_ready(disk)
    sync_id = platform.ids.uuid7()

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        before = claim(connection, AccountId(identity.account_id), wanted.once, sync_id, now)
        if before is not None:
            return before
        locked = lock_disk(connection, identity, disk_ref)
        require_ready(locked)
        _require_free(connection, platform, locked, wanted.direction)
        if len(syncs.open_of_disk(connection, locked.id)) >= OPEN_MAX:
            raise LimitExceeded(
                f"{OPEN_MAX} syncs of the disk {locked.name} wait or run, schedules counted.",
                hint="Let some end, or cancel some.",
            )
        due_at = None if wanted.schedule is None else _next(platform, wanted.schedule, now)
        new = Sync(
            id=sync_id,
            disk_id=locked.id,
            team_id=locked.team_id,
            account_id=identity.account_id,
            direction=wanted.direction,
            remote=wanted.remote,
            folder=folder,
            secret_name=wanted.secret,
            bytes_per_second_max=wanted.bytes_per_second_max,
            verify=wanted.verify,
            asked_at=now,
            schedule=wanted.schedule,
            due_at=due_at,
            message="waits for its time" if wanted.schedule else "waits for its turn",
        )
        syncs.add(connection, new)
        record(connection, _event(new, now, "queued", identity.account_id))
        return sync_id

    made = platform.database.write_retrying(act)
    platform.wakeups.wake("syncs")
    with platform.database.read() as connection:
        return _view(connection, identity, disk_ref, made)


def list_syncs(
    platform: Platform, identity: Identity, disk_ref: str, limit: int, cursor: str | None = None
) -> Page[SyncView]:
    """Syncs of a disk, schedules and runs of schedules among them, the newest first."""
    with platform.database.read() as connection:
        disk = find_disk(connection, identity, disk_ref)
        found = syncs.of_disk(connection, disk.id, limit + 1, cursor)
    items = tuple(SyncView(sync, disk.name) for sync in found[:limit])
    return Page(items, items[-1].sync.id if len(found) > limit else None)


def get_sync(platform: Platform, identity: Identity, disk_ref: str, sync_id: str) -> SyncView:
    """One sync of a disk with its counts."""
    with platform.database.read() as connection:
        return _view(connection, identity, disk_ref, sync_id)


def cancel(platform: Platform, identity: Identity, disk_ref: str, sync_id: str) -> SyncView:
    """End a sync: at once where it waits, within seconds where it runs; a schedule makes no more runs.

    Raises ``Conflict`` for one that ended.
    """

    def act(connection: Connection) -> None:
        found = _view(connection, identity, disk_ref, sync_id).sync
        if found.state in ENDED_SYNC_STATES:
            raise Conflict(f"This sync has {found.state.value} already.")
        now = platform.clock.now()
        if found.state is SyncState.RUNNING:
            if found.cancel_requested_at is None:
                syncs.change(connection, found, cancel_requested_at=now)
            return
        ended = {"state": SyncState.CANCELLED, "ended_at": now, "due_at": None}
        syncs.change(connection, found, **ended, message="cancelled", cancel_requested_at=now)
        record(connection, _event(found, now, "cancelled", identity.account_id))

    platform.database.write_retrying(act)
    platform.wakeups.wake("syncs")
    return get_sync(platform, identity, disk_ref, sync_id)


# -- what the loop does


def begin_scheduled(platform: Platform, schedule: Sync) -> str:
    """A run of a schedule whose time has come, unless one before still waits or runs; then its next time."""

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        current = syncs.get(connection, schedule.id)
        if current is None or current.state is not SyncState.QUEUED or current.schedule is None:
            return ""
        if current.due_at is None or current.due_at > now:
            return ""
        due_at = _next(platform, current.schedule, now)
        disk = disks.get(connection, current.disk_id)
        if disk is None or disk.state is not DiskState.READY:
            if disk is not None and disk.state is DiskState.DELETED:
                syncs.change(connection, current, due_at=due_at, message="skipped: the disk is deleted")
                return ""
            ended = {"state": SyncState.CANCELLED, "ended_at": now, "due_at": None}
            syncs.change(connection, current, **ended, message="the disk is gone")
            return ""
        if syncs.open_of_schedule(connection, current.id):
            syncs.change(
                connection,
                current,
                due_at=due_at,
                message=f"skipped {now:%F %H:%M} UTC: the run before goes on",
            )
            return ""
        run_id = platform.ids.uuid7()
        run = replace(
            current,
            id=run_id,
            schedule=None,
            schedule_of=current.id,
            due_at=None,
            asked_at=now,
            started_at=None,
            message="waits for its turn",
            generation=0,
        )
        syncs.add(connection, run)
        record(connection, _event(run, now, "queued", None))
        syncs.change(connection, current, due_at=due_at, message="waits for its time", started_at=now)
        return f"{run_id} by schedule"

    return platform.database.write_retrying(act)


def take_up_abandoned(platform: Platform) -> list[str]:
    """What a server that died or hung left running waits again; its try counts."""
    with platform.database.read() as connection:
        if not syncs.abandoned(connection):
            return []

    def act(connection: Connection) -> list[str]:
        now = platform.clock.now()
        taken = []
        for sync in syncs.abandoned(connection):
            progress = Progress(files_done=sync.files_done)
            _follow(connection, sync, CopyEnd(Ending.INTERRUPTED, "its server ended", progress), now)
            taken.append(f"{sync.id} again")
        return taken

    return platform.database.write_retrying(act)


def take_next(platform: Platform, holder: str) -> Try | None:
    """Take the lease of the next sync that waits; ``None``: none does, or another was faster."""
    with platform.database.read() as connection:
        if not syncs.waiting(connection, platform.clock.now(), 1):
            return None

    def act(connection: Connection) -> Sync | None:
        now = platform.clock.now()
        found = syncs.waiting(connection, now, 1)
        if not found:
            return None
        disks.lock(connection, found[0].disk_id)  # whoever attaches it now sees this sync, or is seen by it
        return syncs.take(connection, found[0], holder, LEASE_SECONDS, now)

    try:
        taken = platform.database.write_retrying(act)
    except IntegrityError:
        return None  # a rival began another one of this disk and direction
    if taken is None:
        return None
    try:
        with platform.database.read() as connection:
            return Try(taken, _order(connection, platform, taken))
    except StarverseError as error:
        hint = f" {error.hint}" if error.hint else ""
        return Try(taken, None, CopyEnd(Ending.INTERRUPTED, f"{error.detail}{hint}", Progress()))
    except ValueError as error:
        words = f"the configuration in the secret {taken.secret_name} has changed; expected {error}"
        return Try(taken, None, CopyEnd(Ending.FAILED, words, Progress()))


def keep(platform: Platform, sync_id: str, holder: str, progress: Progress) -> Sync | None:
    """Renew the lease and note how far it is; ``None``: it is another's now, nothing more may be done."""

    def act(connection: Connection) -> tuple[Sync | None, bool]:
        kept = syncs.renew(connection, sync_id, holder, LEASE_SECONDS, progress)
        disk = None if kept is None else disks.get(connection, kept.disk_id)
        return kept, disk is not None and disk.state is DiskState.READY

    kept, usable = platform.database.write_retrying(act)
    if kept is None or usable:
        return kept
    return replace(kept, cancel_requested_at=kept.cancel_requested_at or platform.clock.now())


def finish(platform: Platform, sync_id: str, holder: str, end: CopyEnd) -> str:
    """Record how a try ended and what follows; ``""`` where its lease was lost."""

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        sync = syncs.get(connection, sync_id)
        if sync is None or sync.holder != holder or sync.state is not SyncState.RUNNING:
            return ""
        followed = _follow(connection, sync, end, now)
        return f"{sync_id} {followed.state.value}"

    return platform.database.write_retrying(act)


def _follow(connection: Connection, sync: Sync, end: CopyEnd, now: datetime) -> Sync:
    following = after_try(end, sync.attempts, now, cancel_asked=sync.cancel_requested_at is not None)
    over = following.state in ENDED_SYNC_STATES
    progress = end.progress
    changed = syncs.change(
        connection,
        sync,
        state=following.state,
        due_at=following.due_at,
        attempts=following.attempts,
        message=following.message,
        ended_at=now if over else None,
        verified_at=now if end.verified else sync.verified_at,
        bytes_done=max(progress.bytes_done, sync.bytes_done),
        bytes_total=progress.bytes_total if progress.bytes_total is not None else sync.bytes_total,
        files_done=max(progress.files_done, sync.files_done),
        files_total=progress.files_total if progress.files_total is not None else sync.files_total,
        bytes_per_second=None,
    )
    record(connection, _event(changed, now, following.state.value, None))
    return changed


def _order(connection: Connection, platform: Platform, sync: Sync) -> CopyOrder:
    """What is to be done, with the credentials of now. Raises what stands against it."""
    disk = disks.get(connection, sync.disk_id)
    team = teams.get_team(connection, TeamId(sync.team_id))
    if disk is None or team is None:
        raise NotFound("the disk is gone")
    require_ready(disk)
    _require_free(connection, platform, disk, sync.direction)
    remote, sections = _remote_and_sections(connection, platform, sync.team_id, sync.remote, sync.secret_name)
    backend = remotes.backend_of(remote, sections)
    tree = platform.settings.data / "disks" / disk.id
    return CopyOrder(
        sync_id=sync.id,
        direction=sync.direction,
        tree=str(tree),
        block_file=str(tree / "block.img") if disk.kind is DiskKind.BLOCK else None,
        folder=sync.folder,
        path=remote.path,
        config=remotes.whole_config(remote, sections),
        hidden=remotes.hidden_values(sections),
        in_place=backend in remotes.IN_PLACE_BACKENDS,
        verify=sync.verify,
        bytes_per_second_max=sync.bytes_per_second_max,
        gib=disk.gib,
        unix_uid=team.unix_uid if platform.settings.drops_to_team_uid else None,
    )


def _require_free(connection: Connection, platform: Platform, disk: Disk, direction: SyncDirection) -> None:
    """Raises :class:`Conflict` for a disk that somebody else writes, that cannot be mounted here, or that is
    over its size."""
    if disk.kind is DiskKind.BLOCK:
        if attachments.open_of_disk(connection, disk.id):
            raise Conflict(
                f"The disk {disk.name} is a block disk and attached to what runs: it has one writer.",
                hint="Detach it first, or copy from inside.",
            )
        if disk.growing or snapshots.is_making(connection, disk.id):
            raise Conflict(f"The disk {disk.name} is being grown or copied; try again in a moment.")
        missing = platform.copier.missing_for_block_disks()
        if missing:
            raise Conflict(
                f"The disk {disk.name} is a block disk, which cannot be mounted here: {missing}.",
                hint="Attach it to an instance and run rclone inside.",
            )
    if disk.over_quota and direction is SyncDirection.PULL:
        raise Conflict(
            f"The disk {disk.name} is full: it has {disk.gib} GiB.", hint="Resize it, or remove files first."
        )


def _read_wanted(
    connection: Connection, platform: Platform, identity: Identity, wanted: Wanted
) -> tuple[str, list[FieldFault]]:
    faults: list[FieldFault] = []
    folder = _reading(faults, "folder", wanted.folder, lambda: clean_folder(wanted.folder)) or ""
    shown = remotes.without_options(wanted.remote)
    remote = _reading(faults, "remote", shown, lambda: remotes.read_remote(wanted.remote))
    if wanted.secret is not None and secrets.missing_names(connection, identity.team_id, [wanted.secret]):
        faults.append(FieldFault("secret", wanted.secret[:64], "a secret of `starverse secret ls`"))
    elif remote is not None and remote.section and wanted.secret is None:
        faults.append(FieldFault("secret", "", "the name of a secret that holds an rclone.conf"))
    elif remote is not None and remote.section:
        secret = wanted.secret or ""
        sections = _reading(
            faults,
            "secret",
            secret,
            lambda: _remote_and_sections(connection, platform, identity.team_id, wanted.remote, secret)[1],
        )
        if sections is not None:
            _reading(faults, "remote", shown, lambda: remotes.backend_of(remote, sections))
    rate = wanted.bytes_per_second_max
    if rate is not None and not RATE_MIN <= rate < 2**40:
        faults.append(FieldFault("bytes_per_second_max", str(rate), f"at least {RATE_MIN}"))
    if wanted.schedule is not None:
        line, now = wanted.schedule, platform.clock.now()
        zone = ZoneInfo(platform.settings.timezone)
        _reading(faults, "schedule", line[:80], lambda: check_schedule(line, now, zone))
    return folder, faults


def _reading(faults: list[FieldFault], field: str, value: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except ValueError as error:
        faults.append(FieldFault(field, value[:200], str(error)))
        return None


def _remote_and_sections(
    connection: Connection, platform: Platform, team_id: str, text: str, secret: str | None
) -> tuple[remotes.Remote, dict[str, dict[str, str]]]:
    """Raises ``ValueError`` with what would be right."""
    remote = remotes.read_remote(text)
    if not secret:
        return remote, {}
    ((_, value),) = secrets.values_of(connection, platform, team_id, [secret])
    return remote, remotes.read_config(value)


def _require_copier(platform: Platform) -> None:
    missing = platform.copier.missing()
    if missing:
        raise Unavailable(f"This installation copies nothing to and from remotes: {missing}.")


def _view(connection: Connection, identity: Identity, disk_ref: str, sync_id: str) -> SyncView:
    disk = find_disk(connection, identity, disk_ref)
    found = syncs.get(connection, sync_id)
    if found is None or found.disk_id != disk.id:
        raise NotFound(f"There is no sync {sync_id[:80]!r} of the disk {disk.name}.")
    return SyncView(found, disk.name)


def _next(platform: Platform, schedule: str, now: datetime) -> datetime:
    return next_due(schedule, now, ZoneInfo(platform.settings.timezone))


def _event(sync: Sync, now: datetime, what: str, account_id: str | None) -> Event:
    words = f"{sync.direction.value} of disk {sync.disk_id}: {sync.message}".rstrip(": ")
    return Event(now, "sync", sync.id, "state", what, words, sync.team_id, account_id)
