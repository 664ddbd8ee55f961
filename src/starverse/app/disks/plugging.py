"""Hot plug: a disk into an instance that runs, or for the starts of one that does not; and out again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.disks.attachments import insert, move_on, why_not
from starverse.app.disks.finding import lock_disk, require_served
from starverse.app.disks.views import DiskView, view_of
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.instances.finding import find as find_instance
from starverse.app.platform import Platform
from starverse.db import allocations, attachments, disks
from starverse.db.attachments import Attachment
from starverse.db.disks import Disk, InstanceDisk
from starverse.domain.catalog.disks import mount_target
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound
from starverse.domain.ids import AccountId
from starverse.domain.workloads.instances import Instance
from starverse.domain.workloads.plugging import DETACH_SECONDS_MAX
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.specs import DiskMount
from starverse.domain.workloads.states import AttachmentState, InstanceState


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """``path`` ``None``: ``/data/NAME``."""

    instance: str
    path: str | None = None
    read_only: bool = False
    once: Once | None = None


def attach(platform: Platform, identity: Identity, ref: str, wanted: AttachRequest) -> DiskView:
    """Have an instance have a disk: at each start from now on, and at once where it runs."""
    engine = platform.engine.capabilities

    def act(connection: Connection) -> DiskView:
        now = platform.clock.now()
        disk = lock_disk(connection, identity, ref)
        before = claim(connection, AccountId(identity.account_id), wanted.once, disk.id, now)
        if before is not None:
            return view_of(connection, platform, disk)
        require_served(engine, disk.kind)
        instance = _instance(connection, identity, wanted.instance, disk)
        mount = DiskMount(disk.id, _target(disk, wanted.path), wanted.read_only)
        _require_free(connection, instance, disk, mount.target)
        run = _run_of(connection, instance)
        why = why_not(connection, disk, run, mount.target)
        if why is not None:
            raise Conflict(f"The disk {disk.name} is not attached to {instance.name}: {why}.")
        terms = InstanceDisk(instance.id, disk.id, mount.target, mount.read_only, now)
        disks.insert_instance_disk(connection, terms)
        if run is not None:
            insert(connection, disk, run, mount, now, platform.ids.uuid7())
        return view_of(connection, platform, disk)

    try:
        attached = platform.database.write_retrying(act)
    except IntegrityError as taken:
        raise Conflict("Another disk was attached there at the same moment; look, and try again.") from taken
    platform.wakeups.wake("observe")
    return attached


def detach(platform: Platform, identity: Identity, ref: str, instance_ref: str) -> DiskView:
    """Take a disk from an instance: at once where it runs, and for its next starts. Twice is as once."""

    def act(connection: Connection) -> DiskView:
        now = platform.clock.now()
        disk = lock_disk(connection, identity, ref)
        instance = _instance(connection, identity, instance_ref, disk)
        run = _run_of(connection, instance)
        held = [] if run is None else attachments.open_of_allocation(connection, run.id)
        own = [one for one in held if one.disk_id == disk.id]
        had = disks.delete_instance_disk(connection, instance.id, disk.id)
        if not own and not had:
            raise Conflict(f"The disk {disk.name} is not attached to {instance.name}.")
        for one in own:
            _begin_detach(connection, disk, one, now)
        return view_of(connection, platform, disk)

    detached = platform.database.write_retrying(act)
    platform.wakeups.wake("observe")
    return detached


def _begin_detach(connection: Connection, disk: Disk, one: Attachment, now: datetime) -> None:
    if one.state is AttachmentState.ATTACHING:
        raise Conflict(f"The disk {disk.name} is being attached; try again in a moment.")
    if one.state is AttachmentState.STUCK:
        hint = "Stop the instance, or ask the operator to look."
        raise Conflict(f"The disk {disk.name} is stuck: {one.message}.", hint=hint)
    if one.state is AttachmentState.ATTACHED:
        by = now + timedelta(seconds=DETACH_SECONDS_MAX)
        move_on(connection, one, AttachmentState.DETACHING, reason="asked", message="", detach_by=by)


def _instance(connection: Connection, identity: Identity, ref: str, disk: Disk) -> Instance:
    instance = find_instance(connection, identity, ref)
    if instance.team_id != disk.team_id:
        raise NotFound(f"There is no instance {ref[:80]!r} in the disk's team.")
    if instance.state is InstanceState.RELEASED:
        raise Conflict(f"The instance {instance.name} is released.")
    return instance


def _run_of(connection: Connection, instance: Instance) -> Allocation | None:
    """Its open run. Raises :class:`Conflict` while a start of it waits, which takes its disks."""
    found = attachments.run_of_instance(connection, instance.id)
    if found is None and instance.state is InstanceState.QUEUED:
        raise Conflict(f"The instance {instance.name} waits for its start.", hint="Ask again once it runs.")
    return None if found is None else allocations.get(connection, found)


def _require_free(connection: Connection, instance: Instance, disk: Disk, target: str) -> None:
    for had in disks.disks_of_instance(connection, instance.id):
        if had.disk_id == disk.id:
            raise Conflict(f"{instance.name} has the disk {disk.name} already, at {had.target}.")
        if had.target == target:
            raise Conflict(f"{instance.name} has another disk at {target}.")


def _target(disk: Disk, wanted: str | None) -> str:
    try:
        return mount_target(disk.name, wanted)
    except ValueError as error:
        raise Invalid(faults=[FieldFault("path", str(wanted)[:80], str(error))]) from error
