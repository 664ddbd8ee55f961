"""Which disk a caller means, and how storage knows it."""

from __future__ import annotations

from sqlalchemy import Connection

from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import disks, teams
from starverse.db.disks import Disk
from starverse.domain.catalog.disks import DiskState
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, InvariantBroken, NotFound
from starverse.domain.ids import TeamId, is_uuid
from starverse.engines.base import Capabilities, DiskTree

_GONE = (DiskState.PURGED,)


def find_disk(connection: Connection, identity: Identity, ref: str) -> Disk:
    """A disk of the caller's team by name or id, also a deleted one by its id; operators find any by id.

    Raises :class:`NotFound`, also for what the caller may not see.
    """
    found = disks.find(connection, identity.team_id, ref)
    if found is None and identity.operator and is_uuid(ref):
        found = disks.get(connection, ref)
    if found is None or found.state in _GONE:
        shown = ref[:80].encode("utf-8", "backslashreplace").decode()
        raise NotFound(f"There is no disk {shown!r} in team {identity.team_name}; see `starverse disk ls`.")
    return found


def lock_disk(connection: Connection, identity: Identity, ref: str) -> Disk:
    """The same, which nobody else changes, attaches or copies until the transaction ends."""
    disk = disks.lock(connection, find_disk(connection, identity, ref).id)
    if disk is None or disk.state in _GONE:
        raise NotFound(f"There is no disk {ref[:80]!r} any more.")
    return disk


def require_served(engine: Capabilities, kind: DiskKind) -> None:
    """Raises :class:`Conflict` where no workload can ever have such a disk: before anybody pays for it."""
    if kind is DiskKind.BLOCK and engine.no_block_disks:
        why, _, remedy = engine.no_block_disks.rpartition(": ")
        hint = f"Its operator can have them: {remedy}. Shared disks work." if remedy else "Shared disks work."
        raise Conflict(f"No workload can have a block disk here: {why or engine.no_block_disks}.", hint=hint)


def require_ready(disk: Disk) -> None:
    """Raises :class:`Conflict` unless the disk can be used."""
    if disk.state is DiskState.READY:
        return
    hint = {
        DiskState.MAKING: "It is ready in a moment.",
        DiskState.DELETED: f"Restore it first: `starverse disk restore {disk.id}`.",
    }.get(disk.state)
    why = f": {disk.message}" if disk.message else ""
    raise Conflict(f"The disk {disk.name} is {disk.state.value}{why}.", hint=hint)


def tree_of(connection: Connection, platform: Platform, disk: Disk) -> DiskTree:
    """The disk as storage knows it."""
    team = teams.get_team(connection, TeamId(disk.team_id))
    if team is None:
        raise InvariantBroken(f"disk {disk.id} belongs to no team")
    uid = team.unix_uid if platform.settings.drops_to_team_uid else None
    return DiskTree(disk.id, disk.kind, disk.gib, uid)
