"""What its owner changes about an instance without starting or stopping it: policy, name, release date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.etags import require_version
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.instances import views
from starverse.app.instances.finding import find
from starverse.app.instances.launching import (
    name_faults,
    policy_faults,
    read_idle_stop,
    require_few,
)
from starverse.app.platform import Platform
from starverse.db import disks, events, instances, jobs, workspaces
from starverse.db.events import Event
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, FieldFault, Invalid
from starverse.domain.ids import AccountId
from starverse.domain.workloads.instances import Instance, InstanceReason, Policy, Restart
from starverse.domain.workloads.specs import DiskMount
from starverse.domain.workloads.states import InstanceState

EXTEND_DAYS_MAX = 365


@dataclass(frozen=True, slots=True)
class _New:
    """What a copy does not have of its source."""

    instance_id: str
    workspace_id: str
    number: int
    name: str | None
    now: datetime
    release_at: datetime


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """What is named is set, everything else stays. ``ttl_seconds`` 0: it has no time to live any more."""

    name: str | None = None
    idle_stop: str | int | None = None
    ttl_seconds: int | None = None
    restart: str | None = None


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """What people change with PATCH, and what its version is made from: nothing that only was seen."""

    id: str
    name: str
    policy: views.PolicyView


def settings_of(view: views.InstanceView) -> InstanceSettings:
    return InstanceSettings(view.id, view.name, view.policy)


def change(
    platform: Platform, identity: Identity, ref: str, wanted: InstanceChange, version: str | None
) -> views.InstanceView:
    """Change its policy or its name; what runs follows at once. ``version``: what the caller read."""
    ttl = wanted.ttl_seconds or None
    faults = name_faults(wanted.name) + policy_faults(wanted.idle_stop, ttl, wanted.restart)
    if faults:
        raise Invalid(faults=faults)

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        instance = find(connection, identity, ref)
        if instance.state is InstanceState.RELEASED:
            raise Conflict(f"instance {instance.name} is released")
        old = instances.policy_of(connection, instance.id)
        seen = InstanceSettings(instance.id, instance.name, views.policy_view(old))
        require_version(version, seen)
        new = _changed(old, wanted)
        if new != old:
            instances.change_policy(connection, instance.id, old, new, now)
        if wanted.name is not None and wanted.name != instance.name:
            instances.change(connection, instance, name=wanted.name)
        text = f"changed by {identity.email}"
        happened = Event(
            now, "instance", instance.id, "change", "asked", text, instance.team_id, identity.account_id
        )
        events.record(connection, happened)
        return instance.id

    try:
        instance_id = platform.database.write_retrying(act)
    except IntegrityError as error:
        raise Conflict(f"there is an instance {wanted.name} already; choose another name") from error
    platform.wakeups.wake("idle")
    return views.one(platform, instance_id)


def extend(
    platform: Platform, identity: Identity, ref: str, days: int, once: Once | None = None
) -> views.InstanceView:
    """A later release date for a stopped instance: so many days more; its owner is warned anew before it."""
    if not 1 <= days <= EXTEND_DAYS_MAX:
        raise Invalid(faults=[FieldFault("days", str(days), f"1 to {EXTEND_DAYS_MAX}")])

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        instance = find(connection, identity, ref)
        made = claim(connection, AccountId(identity.account_id), once, instance.id, now)
        if made is not None:
            return made
        if instance.state is not InstanceState.STOPPED or instance.release_at is None:
            raise Conflict(
                f"instance {instance.name} is {instance.state.value}: it has no release date",
                hint="stopped instances have one",
            )
        later = instance.release_at + timedelta(days=days)
        if later > now + timedelta(days=EXTEND_DAYS_MAX):
            raise Invalid(faults=[FieldFault("days", str(days), f"at most {EXTEND_DAYS_MAX} from now")])
        instances.change(connection, instance, release_at=later, release_warned_at=None)
        text = f"kept {days} days longer, by {identity.email}"
        happened = Event(
            now, "instance", instance.id, "extend", "asked", text, instance.team_id, identity.account_id
        )
        events.record(connection, happened)
        return instance.id

    return views.one(platform, platform.database.write_retrying(act))


def clone(
    platform: Platform, identity: Identity, ref: str, name: str | None, once: Once | None = None
) -> views.InstanceView:
    """A stopped copy with files of its own, a copy of those of a stopped instance; shared disks are had by
    both, block disks by the first one alone. Its files are there once its reason is ``new``."""
    if faults := name_faults(name):
        raise Invalid(faults=faults)
    instance_id, workspace_id = platform.ids.uuid7(), platform.ids.uuid7()

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        source = find(connection, identity, ref)
        made = claim(connection, AccountId(identity.account_id), once, instance_id, now)
        if made is not None:
            return made
        if source.state is not InstanceState.STOPPED or source.reason == InstanceReason.CLONING.value:
            raise Conflict(
                f"instance {source.name} is {source.state.value}; only what is stopped is copied whole",
                hint="stop it first",
            )
        require_few(connection, identity)
        workspaces.insert_workspace(connection, workspace_id, source.team_id, None, now)
        number = jobs.next_number(connection, "job")
        keep = timedelta(days=platform.settings.instance_keep_days)
        fresh = _New(instance_id, workspace_id, number, name, now, now + keep)
        new = _copy_of(source, fresh, identity.account_id)
        policy = replace(instances.policy_of(connection, source.id), generation=0, changed_at=now)
        instances.insert_instance(connection, new, policy, _shared(connection, source))
        text = f"cloned from {source.name}"
        happened = Event(now, "instance", new.id, "clone", "", text, new.team_id, identity.account_id)
        events.record(connection, happened)
        return new.id

    try:
        made_id = platform.database.write_retrying(act)
    except IntegrityError as error:
        raise Conflict(f"there is an instance {name} already; choose another name") from error
    platform.wakeups.wake("clone")
    return views.one(platform, made_id)


def _changed(old: Policy, wanted: InstanceChange) -> Policy:
    new = old
    if wanted.idle_stop is not None:
        kind, seconds = read_idle_stop(wanted.idle_stop)
        new = replace(new, idle_stop=kind, idle_seconds=seconds)
    if wanted.ttl_seconds is not None:
        new = replace(new, ttl_seconds=wanted.ttl_seconds or None)
    if wanted.restart is not None:
        new = replace(new, restart=Restart(wanted.restart))
    return new


def _copy_of(source: Instance, new: _New, account_id: str) -> Instance:
    return Instance(
        id=new.instance_id,
        number=new.number,
        team_id=source.team_id,
        account_id=account_id,
        name=new.name or f"{source.name[:50]}-{new.number}",
        workspace_id=new.workspace_id,
        spec=replace(source.spec, cloned_from=source.id),
        state=InstanceState.STOPPED,
        reason=InstanceReason.CLONING.value,
        message=f"its files are copied from {source.name}",
        created_at=new.now,
        stopped_at=new.now,
        release_at=new.release_at,
    )


def _shared(connection: Connection, source: Instance) -> tuple[DiskMount, ...]:
    wanted = instances.disks_of(connection, [source.id])[source.id]
    kinds = disks.get_many(connection, [disk.mount.disk_id for disk in wanted])
    return tuple(d.mount for d in wanted if kinds[d.mount.disk_id].kind is DiskKind.SHARED)
