"""Copies between a disk and a remote: asked for, scheduled, followed, cancelled."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from starverse.app.disks import syncs
from starverse.app.disks.syncs import SyncView, Wanted
from starverse.domain.catalog.disks import SyncDirection
from starverse.http.routing import make_router
from starverse.http.security import OnceDep, PlatformDep, TeamCaller
from starverse.http.shapes import LIMIT_DEFAULT, In, InstantText, Items, LimitParam, Out

router = make_router("disks", "/disks/{disk_ref}/syncs")


class SyncIn(In):
    """``pull`` copies from the remote into the disk, ``push`` from the disk to the remote; neither deletes.

    ``remote`` is ``NAME:path`` of the rclone.conf in the secret ``secret``, or ``:backend,option=value:path``
    without credentials. ``folder`` is of the disk, empty: all of it. ``verify`` compares every byte at the
    end. ``schedule`` is a line of cron in the installation's time zone: a run each time, instead of one now.
    """

    direction: Literal["pull", "push"]
    remote: Annotated[str, Field(max_length=4096)]
    folder: Annotated[str, Field(max_length=4096)] = ""
    secret: Annotated[str | None, Field(max_length=64)] = None
    bytes_per_second_max: int | None = None
    verify: bool = False
    schedule: Annotated[str | None, Field(max_length=64)] = None


class SyncOut(Out):
    """A sync; ``state`` is queued, running, succeeded, failed or cancelled, ``message`` says why.

    With ``schedule`` it is what others are made from (``schedule_of``): it stays queued, ``due_at`` is its
    next run. ``seconds_left`` is at the present rate; null: nobody knows.
    """

    id: str
    disk: str
    direction: str
    remote: str
    folder: str
    secret: str | None
    bytes_per_second_max: int | None
    verify: bool
    schedule: str | None
    schedule_of: str | None
    state: str
    message: str
    attempts: int
    asked_at: InstantText
    due_at: InstantText | None
    started_at: InstantText | None
    ended_at: InstantText | None
    verified_at: InstantText | None
    cancel_requested_at: InstantText | None
    bytes_done: int
    bytes_total: int | None
    files_done: int
    files_total: int | None
    bytes_per_second: int | None
    seconds_left: int | None

    @classmethod
    def made(cls, view: SyncView) -> SyncOut:
        return cls.of(view.sync, disk=view.disk, secret=view.sync.secret_name, seconds_left=view.seconds_left)


@router.post("", status_code=201)
def ask_sync(
    disk_ref: str, body: SyncIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep
) -> SyncOut:
    """Copy between a disk and a remote, now or by schedule; at most one at a time per disk and direction."""
    wanted = Wanted(
        direction=SyncDirection(body.direction),
        remote=body.remote,
        folder=body.folder,
        secret=body.secret,
        bytes_per_second_max=body.bytes_per_second_max,
        verify=body.verify,
        schedule=body.schedule,
        once=once,
    )
    return SyncOut.made(syncs.ask(platform, identity, disk_ref, wanted))


@router.get("")
def list_syncs(
    disk_ref: str,
    platform: PlatformDep,
    identity: TeamCaller,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Items[SyncOut]:
    """Syncs of a disk, its schedules among them, the newest first."""
    page = syncs.list_syncs(platform, identity, disk_ref, limit, cursor)
    return Items[SyncOut](items=[SyncOut.made(view) for view in page.items], next_cursor=page.next_cursor)


@router.get("/{sync_id}")
def get_sync(disk_ref: str, sync_id: str, platform: PlatformDep, identity: TeamCaller) -> SyncOut:
    """How far a sync is."""
    return SyncOut.made(syncs.get_sync(platform, identity, disk_ref, sync_id))


@router.delete("/{sync_id}")
def cancel_sync(disk_ref: str, sync_id: str, platform: PlatformDep, identity: TeamCaller) -> SyncOut:
    """End a sync within seconds; a schedule makes no more runs."""
    return SyncOut.made(syncs.cancel(platform, identity, disk_ref, sync_id))
