"""The disks that a job names: which they are, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from starverse.db import disks
from starverse.domain.catalog.disks import DiskState, mount_target
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import FieldFault
from starverse.domain.workloads.specs import DiskMount
from starverse.engines.base import Capabilities


def name_disks(
    connection: Connection, team_id: str, wanted: Sequence[DiskMount], nodes: int, engine: Capabilities
) -> tuple[tuple[DiskMount, ...], list[FieldFault]]:
    """``wanted`` have a name or an id for the disk, and ``""`` for its usual path; the answer has both."""
    mounts: list[DiskMount] = []
    faults: list[FieldFault] = []
    for wish in wanted:
        disk = disks.find(connection, team_id, wish.disk_id)
        if disk is None or disk.state not in (DiskState.READY, DiskState.MAKING):
            faults.append(FieldFault("--disk", wish.disk_id[:80], "a disk of `starverse disk ls`"))
            continue
        try:
            mount = DiskMount(disk.id, mount_target(disk.name, wish.target or None), wish.read_only)
        except ValueError as error:
            faults.append(FieldFault("--disk", wish.target[:80], str(error)))
            continue
        if disk.kind is DiskKind.BLOCK and nodes > 1:
            expected = f"a shared disk: a block disk has one writer, and this runs on {nodes} nodes"
            faults.append(FieldFault("--disk", disk.name, expected))
        elif disk.kind is DiskKind.BLOCK and engine.no_block_disks:
            expected = f"a shared disk: {engine.no_block_disks}"
            faults.append(FieldFault("--disk", disk.name, expected))
        if any(mount.disk_id == other.disk_id or mount.target == other.target for other in mounts):
            faults.append(FieldFault("--disk", disk.name, "each disk and each path once"))
        mounts.append(mount)
    return tuple(mounts), faults
