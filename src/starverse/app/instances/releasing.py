"""The end of stopped instances: their owners are warned, they are released, their files go; copies are made.

The record says first that something goes; then the files go. A crash in between is found again.
"""

from __future__ import annotations

import contextlib
import secrets
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection

from starverse.app import removal
from starverse.app.instances.following import release
from starverse.app.platform import Platform
from starverse.checkpoint.removing import remove_tree
from starverse.db import events, folders, instances, workspaces
from starverse.db.events import Event
from starverse.domain.errors import Uncopyable
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.instances import Instance, InstanceReason
from starverse.domain.workloads.states import InstanceState

WARN_DAYS = 3
BATCH = 50


def due_warnings(platform: Platform) -> list[Instance]:
    """Those that are released within three days and whose owners do not know."""
    before = platform.clock.now() + timedelta(days=WARN_DAYS)
    with platform.database.read() as connection:
        return instances.to_warn(connection, before, BATCH)


def warn(platform: Platform, instance: Instance) -> str:
    """Tell its owner, once for each release date, which is never sooner than three days after that."""

    def act(connection: Connection) -> bool:
        now, current = platform.clock.now(), instances.get(connection, instance.id)
        if current is None or current.release_at is None or current.release_warned_at is not None:
            return False
        release_at = max(current.release_at, now + timedelta(days=WARN_DAYS))
        instances.change(connection, current, release_at=release_at, release_warned_at=now)
        when = format_instant(release_at.replace(microsecond=0))
        keep = f"start it, or keep it longer: starverse extend {current.name}"
        text = f"it is released with its own files at {when}; {keep}"
        warning = Event(
            now, "instance", current.id, "warning", "release", text, current.team_id, current.account_id
        )
        events.record(connection, warning)
        return True

    return f"warned {instance.name}" if platform.database.write_retrying(act) else ""


def due_releases(platform: Platform) -> list[Instance]:
    with platform.database.read() as connection:
        return instances.to_release(connection, platform.clock.now(), BATCH)


def release_due(platform: Platform, instance: Instance) -> str:
    """Release it, unless it was started or kept longer meanwhile. Nobody is released without a warning."""

    def act(connection: Connection) -> bool:
        now, current = platform.clock.now(), instances.get(connection, instance.id)
        if current is None or current.state is not InstanceState.STOPPED or current.release_at is None:
            return False
        if current.release_at > now or current.release_warned_at is None:
            return False
        release(connection, current, now)
        return True

    return f"released {instance.name}" if platform.database.write_retrying(act) else ""


def due_removals(platform: Platform) -> list[Instance]:
    with platform.database.read() as connection:
        return instances.to_remove(connection, BATCH)


def remove_files(platform: Platform, instance: Instance) -> str:
    """Delete the own files of a released instance, and what its starts left; a repeat changes nothing."""
    now = platform.clock.now()
    with platform.database.write() as connection:
        if instances.clones_of(connection, instance):
            return ""  # they are being copied
        workspaces.give_up(connection, instance.workspace_id, now)
    removal.remove_workspace_files(platform, instance.workspace_id)
    _remove_aside(platform.paths.instance_home(instance.id).parent)
    with platform.database.write() as connection:
        instances.note_removed(connection, instance.id, now)
    return f"removed the files of {instance.name}"


def due_copies(platform: Platform) -> list[Instance]:
    """New clones whose files are not there yet."""
    with platform.database.read() as connection:
        return instances.to_copy(connection, BATCH)


def copy_files(platform: Platform, clone: Instance) -> str:
    """Give a clone its copy, whole or not at all; from then on it can be started."""
    with platform.database.read() as connection:
        source = instances.get(connection, clone.spec.cloned_from or "")
        workspace = folders.get_workspace(connection, clone.workspace_id)
    if source is None or workspace is None:
        return _copied(platform, clone, None, "the files of the other instance are gone")
    pairs = (
        (platform.paths.instance_home(source.id), platform.paths.instance_home(clone.id)),
        (platform.paths.workspace(source.workspace_id), platform.paths.workspace(clone.workspace_id)),
    )
    try:
        for here, there in pairs:
            _copy_whole(platform, here, there)
    except Uncopyable as fault:
        return _given_up(platform, clone, f"the files of {source.name} cannot be copied: {str(fault)[:500]}")
    return _copied(platform, clone, source, "")


def _copied(platform: Platform, clone: Instance, source: Instance | None, message: str) -> str:
    def act(connection: Connection) -> bool:
        current = instances.get(connection, clone.id)
        if current is None or current.reason != InstanceReason.CLONING.value:
            return False
        ran = None if source is None else source.first_ready_at
        instances.change(
            connection, current, reason=InstanceReason.NEW.value, message=message, first_ready_at=ran
        )
        return True

    return f"copied the files of {clone.name}" if platform.database.write_retrying(act) else ""


def _given_up(platform: Platform, clone: Instance, why: str) -> str:
    """There is no such clone: an empty one would look like a copy, one that waits would hold its source."""

    def act(connection: Connection) -> bool:
        now, current = platform.clock.now(), instances.get(connection, clone.id)
        if current is None or current.reason != InstanceReason.CLONING.value:
            return False
        instances.change(connection, release(connection, current, now), message=why)
        warning = Event(
            now, "instance", current.id, "warning", "clone", why, current.team_id, current.account_id
        )
        events.record(connection, warning)
        return True

    return f"gave up {clone.name}: {why}" if platform.database.write_retrying(act) else ""


def _copy_whole(platform: Platform, here: Path, there: Path) -> None:
    if there.is_dir() or not here.is_dir():
        return
    there.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    aside = there.with_name(f".new-{there.name}-{secrets.token_hex(4)}")
    try:
        platform.copy_tree(here, aside)
        aside.rename(there)
    finally:
        with contextlib.suppress(OSError):
            remove_tree(aside)


def _remove_aside(place: Path) -> None:
    aside = place.with_name(f".old-{place.name}-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        place.rename(aside)
        remove_tree(aside)
