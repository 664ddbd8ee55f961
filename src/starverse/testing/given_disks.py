"""Disks and syncs as rows and folders that are there, for tests that ask nothing of how they were made."""

from __future__ import annotations

import os
from pathlib import Path

from starverse.db import disks, syncs, teams
from starverse.db.disks import Disk
from starverse.db.syncs import Sync
from starverse.domain.catalog.disks import DiskState, SyncDirection
from starverse.domain.disk_kind import DiskKind
from starverse.domain.ids import AccountId, TeamId
from starverse.node.disk_files import make_block_file
from starverse.testing.http_sites import Person, Site


def given_disk(
    site: Site, owner: Person, name: str = "home", *, kind: DiskKind = DiskKind.SHARED, gib: int = 1
) -> Disk:
    """A ready disk of a person's team, with its folder; owned by the team's user where the platform is root
    and has such users."""
    platform = site.platform
    account = AccountId(owner.get("/me")["account"]["id"])
    now = platform.clock.now()
    disk = Disk(
        platform.ids.uuid7(), owner.team_id, account, name, kind, gib, DiskState.READY, now, made_gib=gib
    )
    with platform.database.write() as connection:
        disks.insert_disk(connection, disk)
        team = teams.get_team(connection, TeamId(owner.team_id))
    uid = team.unix_uid if team is not None and platform.settings.drops_to_team_uid else os.getuid()
    folder = folder_of(site, disk)
    if kind is DiskKind.BLOCK:
        folder.parent.mkdir(parents=True)
        make_block_file(block_file_of(site, disk), gib, uid)
    else:
        folder.mkdir(parents=True)
        os.chown(folder, uid, -1)
    return disk


def folder_of(site: Site, disk: Disk) -> Path:
    """What is on a shared disk."""
    return site.platform.settings.data / "disks" / disk.id / "data"


def block_file_of(site: Site, disk: Disk) -> Path:
    """The file of a block disk."""
    return folder_of(site, disk).with_name("block.img")


def given_sync(site: Site, disk: Disk, direction: SyncDirection = SyncDirection.PULL) -> Sync:
    """A sync that waits, of a remote that there is not."""
    platform = site.platform
    sync = Sync(
        id=platform.ids.uuid7(),
        disk_id=disk.id,
        team_id=disk.team_id,
        account_id=disk.account_id,
        direction=direction,
        remote=":http,url='http://127.0.0.1:9':",
        folder="",
        secret_name=None,
        bytes_per_second_max=None,
        verify=False,
        asked_at=platform.clock.now(),
    )
    with platform.database.write() as connection:
        syncs.add(connection, sync)
    return sync
