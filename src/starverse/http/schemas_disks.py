"""Shapes of disks, who has them, and their snapshots."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from starverse.app.disks.orders import DiskChange, NewDisk
from starverse.app.idempotency import Once
from starverse.domain.catalog.disks import NAME_CHARACTERS_MAX
from starverse.domain.disk_kind import DiskKind
from starverse.http.shapes import In, InstantText, Out


class DiskIn(In):
    """``shared``: a folder that many write; ``block``: a file system of its own with one writer. It begins
    empty, or as a snapshot (its id)."""

    name: Annotated[str, Field(max_length=NAME_CHARACTERS_MAX)]
    kind: Literal["shared", "block"] = "shared"
    gib: int
    from_snapshot: Annotated[str | None, Field(max_length=64)] = None

    def request(self, once: Once | None) -> NewDisk:
        return NewDisk(self.name, DiskKind(self.kind), self.gib, self.from_snapshot, once)


class DiskChangeIn(In):
    """What is named is changed. A block disk only grows, while nothing has it attached.
    ``snapshot_schedule`` is a cron line in the installation's time zone; empty: no schedule any more."""

    name: Annotated[str | None, Field(max_length=NAME_CHARACTERS_MAX)] = None
    gib: int | None = None
    snapshot_schedule: Annotated[str | None, Field(max_length=64)] = None
    snapshots_kept: int | None = None

    def request(self) -> DiskChange:
        return DiskChange(self.name, self.gib, self.snapshot_schedule, self.snapshots_kept)


class RestoreIn(In):
    """``name``: another one than before, where that is taken."""

    name: Annotated[str | None, Field(max_length=NAME_CHARACTERS_MAX)] = None


class AttachIn(In):
    """``instance`` is a name, number or id; ``path`` is below ``/data``, left out: ``/data/NAME``."""

    instance: Annotated[str, Field(max_length=200)]
    path: Annotated[str | None, Field(max_length=1024)] = None
    read_only: bool = False


class DetachIn(In):
    """From which instance."""

    instance: Annotated[str, Field(max_length=200)]


class SnapshotIn(In):
    """``name`` left out: one by the time."""

    name: Annotated[str | None, Field(max_length=NAME_CHARACTERS_MAX)] = None


class AttachmentOut(Out):
    """A disk at a run; ``state`` is attaching, attached, refused, detaching, detached or stuck (an operator
    has to look), ``message`` says why. ``instance`` null: a job's."""

    id: str
    instance: str | None
    instance_id: str | None
    job: str
    allocation_id: str
    target: str
    read_only: bool
    state: str
    reason: str
    message: str
    asked_at: InstantText
    attached_at: InstantText | None
    detach_by: InstantText | None
    ended_at: InstantText | None


class StuckOut(Out):
    """A disk that did not come out of a run; ``nodes`` are where to look, ``instance`` null: a job's."""

    id: str
    disk: str
    disk_id: str
    kind: str
    team: str
    instance: str | None
    job: str
    nodes: list[str]
    target: str
    message: str
    asked_at: InstantText
    detach_by: InstantText | None


class HadByOut(Out):
    """An instance that has the disk at each start."""

    instance: str
    instance_id: str
    target: str
    read_only: bool


class DiskOut(Out):
    """``state`` is making, ready, failed or deleted. ``hard_quota``: it cannot hold more than its size;
    ``over_quota``: it does, and is attached read-only. ``used_*`` are as of ``used_at``, null: not measured.
    ``price_month`` is without the team's free GiB. Attachments are those that are open; of one disk alone
    also the newest that are over."""

    id: str
    name: str
    team: str
    account: str
    kind: str
    gib: int
    state: str
    message: str
    made_from: str | None
    created_at: InstantText
    deleted_at: InstantText | None
    restorable_until: InstantText | None
    used_bytes: int | None
    used_files: int | None
    used_at: InstantText | None
    hard_quota: bool
    growing: bool
    over_quota: bool
    snapshot_schedule: str | None
    snapshots_kept: int | None
    snapshot_due_at: InstantText | None
    price_month_micro: int
    price_month: str
    attachments: list[AttachmentOut]
    instances: list[HadByOut]


class DiskUsageOut(Out):
    """What a disk holds and costs: ``free_gib`` of its size cost nothing now, the rest ``price_month``."""

    name: str
    kind: str
    gib: int
    used_bytes: int | None
    used_files: int | None
    used_at: InstantText | None
    over_quota: bool
    hard_quota: bool
    free_gib: int
    price_month_micro: int
    price_month: str
    charged_this_month_micro: int
    charged_this_month: str
    charged_until: InstantText | None


class SnapshotOut(Out):
    """A copy of a disk: ``state`` is making, made or failed. ``bytes`` are those copied, ``gib`` is the size
    that the disk had."""

    id: str
    name: str
    state: str
    message: str
    scheduled: bool
    bytes: int | None
    gib: int
    asked_at: InstantText
    made_at: InstantText | None
