"""Instances, what their owners want of them, their idle clocks, and what was seen of their use.

What people want (``instance_policies``) is a row of its own that nothing but their wish writes; what was seen
is in other tables. Changes are conditional on the generation, as those of jobs are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from starverse.db.disk_tables import disks, instance_disks
from starverse.db.instance_tables import (
    instance_activity,
    instance_idleness,
    instance_policies,
    instances,
)
from starverse.db.prepared import Prepared, among
from starverse.db.session import LostRace, traits_of
from starverse.db.statements import in_chunks
from starverse.db.tables import allocations, charges, jobs
from starverse.domain.money import Money
from starverse.domain.workloads.idleness import Evidence
from starverse.domain.workloads.instances import Afterwards, IdleStop, Instance, InstanceSpec, Policy, Restart
from starverse.domain.workloads.launch import Activity
from starverse.domain.workloads.specs import DiskMount
from starverse.domain.workloads.states import INSTANCE_TRANSITIONS, InstanceState, advance

_SPEC = TypeAdapter(InstanceSpec)
_AFTERWARDS = TypeAdapter(Afterwards)
_PLAIN = tuple(f.name for f in dataclasses.fields(Instance) if f.name not in ("spec", "afterwards"))

_INSERT = Prepared(insert(instances), (*_PLAIN, "spec", "afterwards"))
_INSERT_POLICY = Prepared(insert(instance_policies), instance_policies.c.keys())
_GET = Prepared(select(instances).where(instances.c.id == bindparam("wanted")))
_COUNT = Prepared(
    select(func.count().label("many")).where(
        instances.c.team_id == bindparam("wanted"), instances.c.state != InstanceState.RELEASED
    )
)
_POLICIES = Prepared(select(instance_policies).where(among(instance_policies.c.instance_id, "wanted")))
_CLOCKS = Prepared(select(instance_idleness).where(among(instance_idleness.c.instance_id, "wanted")))
_DISKS = Prepared(
    select(
        instance_disks.c.instance_id,
        instance_disks.c.disk_id,
        instance_disks.c.target,
        instance_disks.c.read_only,
        disks.c.name,
        disks.c.kind,
    )
    .join(disks, disks.c.id == instance_disks.c.disk_id)
    .where(among(instance_disks.c.instance_id, "wanted"))
    .order_by(instance_disks.c.target)
)
_GET_MANY = Prepared(select(instances).where(among(instances.c.id, "wanted")))
_IN_STATE = Prepared(select(instances).where(among(instances.c.state, "states")).order_by(instances.c.number))
_EVIDENCE = Prepared(
    select(instance_activity)
    .where(among(instance_activity.c.allocation_id, "wanted"))
    .order_by(instance_activity.c.source)
)
_STOPPED = select(instances).where(instances.c.state == InstanceState.STOPPED)
_MOST = bindparam("most", type_=Integer)
_TO_WARN = Prepared(
    _STOPPED.where(instances.c.release_at < bindparam("before"), instances.c.release_warned_at.is_(None))
    .order_by(instances.c.release_at)
    .limit(_MOST)
)
_TO_RELEASE = Prepared(
    _STOPPED.where(instances.c.release_at <= bindparam("now")).order_by(instances.c.release_at).limit(_MOST)
)
_TO_COPY = Prepared(_STOPPED.where(instances.c.reason == "cloning").order_by(instances.c.number).limit(_MOST))
_LEFT_ON_A_NODE = (
    select(allocations.c.id)
    .join(jobs, jobs.c.id == allocations.c.job_id)
    .where(
        jobs.c.instance_id == instances.c.id,
        allocations.c.cleaned_at.is_(None) | allocations.c.closed_at.is_(None),
    )
)
_TO_REMOVE = Prepared(
    select(instances)
    .where(
        instances.c.state == InstanceState.RELEASED,
        instances.c.removed_at.is_(None),
        ~_LEFT_ON_A_NODE.exists(),
    )
    .order_by(instances.c.released_at)
    .limit(_MOST)
)


@dataclass(frozen=True, slots=True)
class IdleClock:
    """The idle clock of an instance's present run. ``seen_at``: when its launcher's evidence was last
    recorded; ``warned_at``: when its owner was last warned."""

    instance_id: str
    allocation_id: str
    counts_from: datetime
    seen_at: datetime | None = None
    warned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """Which instances of a team. Empty ``states``: all but the released ones."""

    team_id: str
    states: Collection[InstanceState] = ()
    before: int | None = None


@dataclass(frozen=True, slots=True)
class WantedDisk:
    """A disk that an instance has at each start."""

    instance_id: str
    mount: DiskMount
    name: str
    kind: str


def insert_instance(
    connection: Connection, new: Instance, policy: Policy, disks_: Iterable[DiskMount]
) -> None:
    """A new instance with its policy and its disks; a name that is taken raises ``IntegrityError``."""
    _INSERT.run(connection, **_row(new))
    _INSERT_POLICY.run(
        connection,
        instance_id=new.id,
        idle_stop=policy.idle_stop.value,
        idle_seconds=policy.idle_seconds,
        ttl_seconds=policy.ttl_seconds,
        restart=policy.restart.value,
        generation=policy.generation,
        changed_at=policy.changed_at or new.created_at,
    )
    rows = [
        {
            "instance_id": new.id,
            "disk_id": mount.disk_id,
            "target": mount.target,
            "read_only": mount.read_only,
            "since": new.created_at,
        }
        for mount in disks_
    ]
    if rows:
        connection.execute(insert(instance_disks), rows)


def get(connection: Connection, instance_id: str) -> Instance | None:
    row = _GET.first(connection, wanted=instance_id)
    return None if row is None else _made(row)


def get_many(connection: Connection, instance_ids: Collection[str]) -> dict[str, Instance]:
    """Those that there are, by id."""
    rows = _GET_MANY.rows(connection, wanted=instance_ids) if instance_ids else []
    return {row.id: _made(row) for row in rows}


def by_number(connection: Connection, number: int) -> Instance | None:
    row = connection.execute(select(instances).where(instances.c.number == number)).one_or_none()
    return None if row is None else _made(row)


def by_name(connection: Connection, team_id: str, name: str) -> Instance | None:
    """The instance of a team that is called so now; released ones have no name any more."""
    row = connection.execute(
        select(instances).where(
            instances.c.team_id == team_id, instances.c.name == name, instances.c.released_at.is_(None)
        )
    ).one_or_none()
    return None if row is None else _made(row)


def search(connection: Connection, wanted: Search, limit: int) -> list[Instance]:
    """Newest first; those whose number is below ``before``."""
    query = select(instances).where(instances.c.team_id == wanted.team_id)
    if wanted.states:
        query = query.where(instances.c.state.in_(list(wanted.states)))
    else:
        query = query.where(instances.c.state != InstanceState.RELEASED)
    if wanted.before is not None:
        query = query.where(instances.c.number < wanted.before)
    return _read(connection, query.order_by(instances.c.number.desc()).limit(limit))


def in_state(connection: Connection, *states: InstanceState) -> list[Instance]:
    """Instances of all teams in these states, oldest first."""
    rows = _IN_STATE.rows(connection, states=[state.value for state in states])
    return [_made(row) for row in rows]


def names_of(connection: Connection, instance_ids: Collection[str]) -> dict[str, str]:
    """Instance id -> its name, also of released ones."""
    return {
        row.id: row.name
        for some in in_chunks(instance_ids)
        for row in connection.execute(
            select(instances.c.id, instances.c.name).where(instances.c.id.in_(some))
        )
    }


def count_of(connection: Connection, team_id: str) -> int:
    """How many a team has that are not released."""
    return int(_COUNT.first(connection, wanted=team_id).many)


def change(connection: Connection, instance: Instance, **changes: Any) -> Instance:
    """Write changed fields if nobody wrote since it was read; raises ``LostRace`` otherwise.

    A new ``state`` must be a transition of the table.
    """
    state = changes.get("state")
    if state is not None and state != instance.state:
        advance(INSTANCE_TRANSITIONS, instance.state, state)
    changed = dataclasses.replace(instance, **changes, generation=instance.generation + 1)
    row = _row(changed)
    names = sorted({*changes, "generation"})
    values = {name: row[name] for name in names}
    done = _changing(*names).run(connection, wanted=instance.id, seen=instance.generation, **values)
    if done != 1:
        raise LostRace(f"instance {instance.name} was changed by someone else at the same moment")
    return changed


@cache
def _changing(*columns: str) -> Prepared:
    """The conditional update that sets these columns."""
    statement = update(instances).where(
        instances.c.id == bindparam("wanted"), instances.c.generation == bindparam("seen")
    )
    return Prepared(statement, columns)


def policy_of(connection: Connection, instance_id: str) -> Policy:
    """What its owner wants."""
    (row,) = _POLICIES.rows(connection, wanted=[instance_id])
    return _policy(row)


def policies_of(connection: Connection, instance_ids: Collection[str]) -> dict[str, Policy]:
    return {row.instance_id: _policy(row) for row in _POLICIES.rows(connection, wanted=instance_ids)}


def change_policy(connection: Connection, instance_id: str, old: Policy, new: Policy, now: datetime) -> None:
    """Write what its owner wants from now on; raises ``LostRace`` when it was changed meanwhile."""
    done = connection.execute(
        update(instance_policies)
        .where(
            instance_policies.c.instance_id == instance_id, instance_policies.c.generation == old.generation
        )
        .values(
            idle_stop=new.idle_stop.value,
            idle_seconds=new.idle_seconds,
            ttl_seconds=new.ttl_seconds,
            restart=new.restart.value,
            generation=old.generation + 1,
            changed_at=now,
        )
    )
    if done.rowcount != 1:
        raise LostRace("what is wanted of the instance was changed by someone else at the same moment")


def begin_idle_clock(connection: Connection, instance_id: str, allocation_id: str, now: datetime) -> None:
    """Its idle clock begins anew: to be written together with the assignment itself."""
    fresh = {"allocation_id": allocation_id, "counts_from": now, "seen_at": None, "warned_at": None}
    statement = traits_of(connection).insert(instance_idleness).values(instance_id=instance_id, **fresh)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[instance_idleness.c.instance_id], set_=fresh)
    )


def idle_clocks(connection: Connection, instance_ids: Collection[str]) -> dict[str, IdleClock]:
    """By instance; one that was never assigned anything has none."""
    rows = _CLOCKS.rows(connection, wanted=instance_ids)
    return {row.instance_id: IdleClock(**row._asdict()) for row in rows}


def note_warned(connection: Connection, clock: IdleClock, now: datetime) -> bool:
    """Its owner is warned now; false when the clock began anew, or somebody warned, meanwhile."""
    table = instance_idleness
    warned = table.c.warned_at.is_(None) if clock.warned_at is None else table.c.warned_at == clock.warned_at
    return (
        connection.execute(
            update(table)
            .where(
                table.c.instance_id == clock.instance_id,
                table.c.allocation_id == clock.allocation_id,
                warned,
            )
            .values(warned_at=now)
        ).rowcount
        == 1
    )


def note_activity(
    connection: Connection, allocation_id: str, seen: Iterable[tuple[Activity, datetime]], now: datetime
) -> None:
    """Evidence of a run: each source with when it last showed activity. Never backwards."""
    for activity, last_at in seen:
        values = {"last_at": last_at, "detail": activity.detail, "seen_at": now}
        statement = (
            traits_of(connection)
            .insert(instance_activity)
            .values(allocation_id=allocation_id, source=activity.source[:16], **values)
        )
        table = instance_activity
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[table.c.allocation_id, table.c.source],
                set_=values,
                where=table.c.last_at.is_(None) | (table.c.last_at < last_at),
            )
        )
    connection.execute(
        update(instance_idleness)
        .where(instance_idleness.c.allocation_id == allocation_id)
        .values(seen_at=now)
    )


def evidence_of(connection: Connection, allocation_ids: Collection[str]) -> dict[str, tuple[Evidence, ...]]:
    """By allocation; the sources by name."""
    found: dict[str, list[Evidence]] = {allocation_id: [] for allocation_id in allocation_ids}
    for row in _EVIDENCE.rows(connection, wanted=allocation_ids) if found else ():
        found[row.allocation_id].append(Evidence(row.source, row.last_at, row.detail))
    return {allocation_id: tuple(evidence) for allocation_id, evidence in found.items()}


def disks_of(connection: Connection, instance_ids: Collection[str]) -> dict[str, tuple[WantedDisk, ...]]:
    """What each of the instances has at each start, by target."""
    found: dict[str, list[WantedDisk]] = {instance_id: [] for instance_id in instance_ids}
    for row in _DISKS.rows(connection, wanted=instance_ids):
        mount = DiskMount(row.disk_id, row.target, row.read_only)
        found[row.instance_id].append(WantedDisk(row.instance_id, mount, row.name, row.kind.value))
    return {instance_id: tuple(own) for instance_id, own in found.items()}


def charged_of(connection: Connection, instance_ids: Collection[str]) -> dict[str, Money]:
    """What all starts of each instance were charged; those without a charge are left out."""
    found: dict[str, Money] = {}
    for some in in_chunks(instance_ids):
        query = (
            select(jobs.c.instance_id, func.sum(charges.c.total_micro, type_=BigInteger).label("micro"))
            .join(charges, charges.c.job_id == jobs.c.id)
            .where(jobs.c.instance_id.in_(some))
            .group_by(jobs.c.instance_id)
        )
        found |= {row.instance_id: Money(int(row.micro)) for row in connection.execute(query)}
    return found


def forget_disks(connection: Connection, instance_id: str) -> None:
    """A released instance has no disks any more."""
    connection.execute(delete(instance_disks).where(instance_disks.c.instance_id == instance_id))


def to_warn(connection: Connection, before: datetime, limit: int) -> list[Instance]:
    """Stopped ones that are released before then and whose owners were not told."""
    return [_made(row) for row in _TO_WARN.rows(connection, before=before, most=limit)]


def to_release(connection: Connection, now: datetime, limit: int) -> list[Instance]:
    """Stopped ones whose time is over."""
    return [_made(row) for row in _TO_RELEASE.rows(connection, now=now, most=limit)]


def to_remove(connection: Connection, limit: int) -> list[Instance]:
    """Released ones whose files are there, and of whose runs nothing is left on a node."""
    return [_made(row) for row in _TO_REMOVE.rows(connection, most=limit)]


def note_removed(connection: Connection, instance_id: str, now: datetime) -> None:
    """Its files are gone."""
    connection.execute(
        update(instances)
        .where(instances.c.id == instance_id, instances.c.removed_at.is_(None))
        .values(removed_at=now)
    )


def clones_of(connection: Connection, instance: Instance) -> list[Instance]:
    """Those of its team whose files are being copied from it now."""
    waiting = select(instances).where(
        instances.c.team_id == instance.team_id,
        instances.c.state == InstanceState.STOPPED,
        instances.c.reason == "cloning",
    )
    return [found for found in _read(connection, waiting) if found.spec.cloned_from == instance.id]


def to_copy(connection: Connection, limit: int) -> list[Instance]:
    """New clones whose files are not there yet, oldest first."""
    return [_made(row) for row in _TO_COPY.rows(connection, most=limit)]


def _row(instance: Instance) -> dict[str, Any]:
    row = {name: getattr(instance, name) for name in _PLAIN}
    row["spec"] = _SPEC.dump_json(instance.spec).decode()
    afterwards = instance.afterwards
    row["afterwards"] = None if afterwards is None else _AFTERWARDS.dump_json(afterwards).decode()
    return row


def _read(connection: Connection, query: Select[Any]) -> list[Instance]:
    return [_made(row) for row in connection.execute(query)]


def _made(row: Any) -> Instance:
    return Instance(
        **{name: getattr(row, name) for name in _PLAIN},
        spec=_SPEC.validate_json(row.spec),
        afterwards=None if row.afterwards is None else _AFTERWARDS.validate_json(row.afterwards),
    )


def _policy(row: Any) -> Policy:
    return Policy(
        idle_stop=IdleStop(row.idle_stop),
        idle_seconds=row.idle_seconds,
        ttl_seconds=row.ttl_seconds,
        restart=Restart(row.restart),
        generation=row.generation,
        changed_at=row.changed_at,
    )
