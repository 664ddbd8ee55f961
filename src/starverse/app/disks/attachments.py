"""Who has which disk where. An attachment belongs to an allocation: it begins and ends with it, or within it.

Recorded first, then the launcher is told the whole set that it is to have (``Desired.plugs``), then what it
reports is recorded. A refusal leaves nothing behind, and nothing is asked twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app.platform import Platform
from starverse.db import allocations, attachments, disks, events, snapshots, syncs
from starverse.db.attachments import Attachment
from starverse.db.disks import Disk
from starverse.db.events import Event
from starverse.domain.catalog.disks import AttachFacts, attach_refusal
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict
from starverse.domain.workloads.launch import LauncherState, Plug
from starverse.domain.workloads.plugging import ATTACH_SECONDS_MAX, DETACH_SECONDS_MAX, state_after
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.specs import DiskMount
from starverse.domain.workloads.states import (
    ATTACHMENT_TRANSITIONS,
    AllocationState,
    AttachmentState,
    path,
)

OVER_SIZE_TEXT = "the disk holds more than its size: it is read-only until it holds less or is resized"


# -- with a run, from its placement to its end


def place(
    connection: Connection,
    platform: Platform,
    allocation: Allocation,
    mounts: Sequence[DiskMount],
    now: datetime,
) -> str | None:
    """Record the disks of a run that is being placed; why one of them cannot be had, ``None``: all can.

    In the placement's transaction, which the caller rolls back on a refusal. Disks are locked in the order
    of their ids, so that no two placements wait for each other.
    """
    for mount in sorted(mounts, key=lambda mount: mount.disk_id):
        disk = disks.lock(connection, mount.disk_id)
        if disk is None:
            return "a disk of it is gone"
        why = why_not(connection, disk, allocation, mount.target)
        if why is not None:
            return f"disk {disk.name}: {why}"
        insert(connection, disk, allocation, mount, now, platform.ids.uuid7())
    return None


def begin_end(connection: Connection, allocation_id: str, now: datetime) -> None:
    """The run is over: its disks come out with its launcher. In the transaction of its end."""
    for one in attachments.open_of_allocation(connection, allocation_id):
        if one.state in (AttachmentState.ATTACHING, AttachmentState.ATTACHED):
            move_on(
                connection,
                one,
                AttachmentState.DETACHING,
                reason="ended",
                detach_by=now + timedelta(seconds=DETACH_SECONDS_MAX),
            )


def record_cleaned(platform: Platform, allocation_id: str) -> None:
    """Nothing of an ended run is left on its nodes: nobody has its disks. Both in one transaction."""

    def act(connection: Connection) -> None:
        now = platform.clock.now()
        allocations.note_cleaned(connection, allocation_id, now)
        for one in attachments.open_of_allocation(connection, allocation_id):
            move_on(connection, one, AttachmentState.DETACHED, ended_at=now)

    platform.database.write_retrying(act)


def wanted_plugs(connection: Connection, platform: Platform, allocation_id: str) -> tuple[Plug, ...]:
    """The disks that a run is to have now."""
    return plugs_of(connection, platform, [allocation_id]).get(allocation_id, ())


def plugs_of(
    connection: Connection, platform: Platform, allocation_ids: Collection[str]
) -> Mapping[str, tuple[Plug, ...]]:
    """The same of many; those that never had a disk are left out."""
    return {
        key: tuple(
            Plug(
                one.id,
                one.target,
                one.kind.value,
                str(platform.paths.disk(one.disk_id, one.kind)),
                one.read_only,
            )
            for one in own
        )
        for key, own in attachments.wanted(connection, allocation_ids).items()
    }


def note_plugged(platform: Platform, allocation: Allocation, state: LauncherState) -> str:
    """Record what a launcher says of its plugs; what changed, in words. Cheap where nothing did."""
    if not state.plugged:
        return ""
    reported = {plug.id: plug for plug in state.plugged}
    with platform.database.read() as connection:
        held = attachments.open_of_allocation(connection, allocation.id)
    if not any(one.id in reported and state_after(one.state, reported[one.id].state) for one in held):
        return ""

    def act(connection: Connection) -> list[str]:
        now, did = platform.clock.now(), []
        for one in attachments.open_of_allocation(connection, allocation.id):
            plug = reported.get(one.id)
            after = None if plug is None else state_after(one.state, plug.state)
            if plug is not None and after is not None:
                _become(connection, one, after, plug.message, now)
                did.append(f"disk at {one.target} {after.value}")
        return did

    return ", ".join(platform.database.write_retrying(act))


# -- what is late


def settle_late(platform: Platform) -> list[Attachment]:
    """Attachments that are past their time, to be given to :func:`settle_one`."""
    now = platform.clock.now()
    asked_before = now - timedelta(seconds=ATTACH_SECONDS_MAX)
    with platform.database.read() as connection:
        late = attachments.overdue(connection, now, asked_before)
        left = attachments.open_of_ended(connection, len(late) + 100)
    return [*left, *(one for one in late if one.id not in {own.id for own in left})]


def settle_one(platform: Platform, late: Attachment) -> str:
    """What is past its time gets its end: refused, stuck, or detached where its run was cleaned up."""

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        one, run = attachments.get(connection, late.id), allocations.get(connection, late.allocation_id)
        if one is None or run is None or not one.open:
            return ""
        if run.cleaned_at is not None:
            move_on(connection, one, AttachmentState.DETACHED, ended_at=now)
            return f"disk at {one.target} is detached: its run is no more"
        if one.state is AttachmentState.ATTACHING:
            if run.state is not AllocationState.RUNNING or now < _answer_by(one, run):
                return ""
            _become(connection, one, AttachmentState.REFUSED, "its launcher did not answer", now)
            return f"disk at {one.target} is refused: no answer"
        if one.state is AttachmentState.DETACHING and one.detach_by is not None and one.detach_by <= now:
            _become(connection, one, AttachmentState.STUCK, one.message or "its launcher did not answer", now)
            return f"disk at {one.target} is stuck"
        return ""

    return platform.database.write_retrying(act)


def _answer_by(one: Attachment, run: Allocation) -> datetime:
    asked = one.asked_at if run.ready_at is None else max(one.asked_at, run.ready_at)
    return asked + timedelta(seconds=ATTACH_SECONDS_MAX)


# -- leaves


def why_not(connection: Connection, disk: Disk, run: Allocation | None, target: str) -> str | None:
    held = () if run is None else attachments.open_of_allocation(connection, run.id)
    return attach_refusal(
        AttachFacts(
            kind=disk.kind,
            state=disk.state,
            growing=disk.growing,
            snapshot_making=snapshots.is_making(connection, disk.id),
            syncing=syncs.runs_on(connection, disk.id),
            same_team=run is None or run.team_id == disk.team_id,
            reachable=run is None or _goes_on(run),
            nodes=1 if run is None else len(run.nodes),
            taken_by="" if run is None else taken_by(connection, disk),
            has_it=any(one.disk_id == disk.id for one in held),
            target_taken=any(one.target == target for one in held),
        )
    )


def _goes_on(run: Allocation) -> bool:
    stopping = run.stop_requested_at is not None or run.notice_reason is not None
    return run.open and run.state is not AllocationState.STOPPING and not stopping


def taken_by(connection: Connection, disk: Disk, but_for: str | None = None) -> str:
    """Who has a block disk, ``""``: nobody. ``but_for``: the instance that asks, whose earlier start ends."""
    held = attachments.open_of_disk(connection, disk.id) if disk.kind is DiskKind.BLOCK else ()
    owners = attachments.owners_of(connection, [one.allocation_id for one in held])
    others = [one for one in held if not but_for or owners[one.allocation_id].instance_id != but_for]
    return next((owners[one.allocation_id].named + _WAY_OUT.get(one.state, "") for one in others), "")


_WAY_OUT = {AttachmentState.DETACHING: " (on its way out)", AttachmentState.STUCK: " (it is stuck there)"}


def instances_at(connection: Connection, disk_ids: Collection[str]) -> frozenset[str]:
    """The instances with an open attachment of one of the disks."""
    held = [one for disk_id in disk_ids for one in attachments.open_of_disk(connection, disk_id)]
    owners = attachments.owners_of(connection, [one.allocation_id for one in held])
    return frozenset(o.instance_id for o in owners.values() if o.instance_id is not None)


def insert(
    connection: Connection,
    disk: Disk,
    run: Allocation,
    mount: DiskMount,
    now: datetime,
    attachment_id: str,
) -> None:
    over = disk.over_quota and not mount.read_only
    attachments.insert_attachment(
        connection,
        Attachment(
            id=attachment_id,
            disk_id=disk.id,
            allocation_id=run.id,
            team_id=run.team_id,
            target=mount.target,
            read_only=mount.read_only or over,
            exclusive=disk.kind is DiskKind.BLOCK,
            state=AttachmentState.ATTACHING,
            asked_at=now,
            message=OVER_SIZE_TEXT if over else "",
        ),
    )


def _become(
    connection: Connection, one: Attachment, state: AttachmentState, message: str, now: datetime
) -> None:
    """Move an attachment on, and tell its team of what went wrong."""
    over = state in (AttachmentState.REFUSED, AttachmentState.DETACHED)
    move_on(
        connection,
        one,
        state,
        message=message if state is AttachmentState.DETACHED else message or one.message,
        attached_at=now if state is AttachmentState.ATTACHED else one.attached_at,
        ended_at=now if over else None,
    )
    if state is AttachmentState.REFUSED:
        _forget_refused(connection, one)
    if state in (AttachmentState.REFUSED, AttachmentState.STUCK):
        text = f"at {one.target}: {message}"
        happened = Event(now, "disk", one.disk_id, "warning", state.value, text, one.team_id)
        events.record(connection, happened)


def _forget_refused(connection: Connection, one: Attachment) -> None:
    """A refused hot plug leaves nothing behind: the instance's next start does not ask for it again."""
    owner = attachments.owners_of(connection, [one.allocation_id])[one.allocation_id]
    if owner.instance_id is not None:
        disks.delete_instance_disk(connection, owner.instance_id, one.disk_id, since=one.asked_at)


def move_on(connection: Connection, one: Attachment, state: AttachmentState, **values: object) -> None:
    """Along every state between; the values are those of the last."""
    way = path(ATTACHMENT_TRANSITIONS, one.state, state)
    if way is None:
        raise Conflict(f"the attachment is {one.state.value}, it cannot be {state.value}")
    for step in way[:-1]:
        one = attachments.change(connection, one, step)
    if way:
        attachments.change(connection, one, way[-1], **values)
