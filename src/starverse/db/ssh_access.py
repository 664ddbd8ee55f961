"""Whom a key or a sign-in lets into which instance, and which allocation answers there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Select, literal, or_, select

from starverse.db.instance_tables import instances, ssh_keys
from starverse.db.statements import in_chunks
from starverse.db.tables import accounts, allocations, team_members, teams
from starverse.domain.workloads.states import AllocationState, InstanceState

BY_SIGN_IN = ""
"""What stands for a key where someone came by a sign-in."""


@dataclass(frozen=True, slots=True)
class Way:
    """By which key (or :data:`BY_SIGN_IN`) an account comes to what a team owns."""

    key_id: str
    account_id: str
    team_id: str


@dataclass(frozen=True, slots=True)
class Admission:
    """A way into one instance. ``run_id`` is the job that runs it now, or ran it last."""

    way: Way
    instance_id: str
    number: int
    name: str
    team_name: str
    state: InstanceState
    message: str
    run_id: str | None


_ACCEPTING = (AllocationState.RUNNING, AllocationState.STOPPING)


def by_key(connection: Connection, fingerprint: str, name: str) -> tuple[Admission, ...]:
    """Every way that a key gives into an instance of this name, number or id; oldest key first."""
    query = (
        _select(ssh_keys.c.id, ssh_keys.c.account_id, name)
        .join(team_members, team_members.c.team_id == instances.c.team_id)
        .join(accounts, accounts.c.id == team_members.c.account_id)
        .join(ssh_keys, ssh_keys.c.account_id == accounts.c.id)
        .where(ssh_keys.c.fingerprint == fingerprint, accounts.c.disabled.is_(False))
        .order_by(ssh_keys.c.created_at, ssh_keys.c.id, instances.c.number)
    )
    return _read(connection, query)


def by_sign_in(connection: Connection, account_id: str, team_id: str, name: str) -> tuple[Admission, ...]:
    """A team's instances of this name, number or id, for an account known to be in it."""
    query = _select(literal(BY_SIGN_IN), literal(account_id), name)
    return _read(connection, query.where(instances.c.team_id == team_id).order_by(instances.c.number))


def accepting_allocation(connection: Connection, run_id: str) -> str | None:
    """The allocation of an instance's run that accepts streams; ``None``: none does."""
    query = (
        select(allocations.c.id)
        .where(allocations.c.job_id == run_id, allocations.c.state.in_(_ACCEPTING))
        .order_by(allocations.c.attempt.desc())
    )
    return connection.execute(query.limit(1)).scalar()


def still_accepting(connection: Connection, allocation_ids: Collection[str]) -> frozenset[str]:
    """Those of the allocations that accept streams."""
    query = select(allocations.c.id).where(allocations.c.state.in_(_ACCEPTING))
    return frozenset(
        row.id
        for some in in_chunks(sorted(allocation_ids))
        for row in connection.execute(query.where(allocations.c.id.in_(some)))
    )


def still_open(connection: Connection, ways: Collection[Way]) -> frozenset[Way]:
    """Those of the ways on which the key is there, and the account not disabled and in the team."""
    asked = frozenset(ways)
    keys = _keys_among(connection, {way.key_id for way in asked}) | {BY_SIGN_IN}
    members = _members_among(connection, {way.account_id for way in asked})
    return frozenset(w for w in asked if w.key_id in keys and (w.account_id, w.team_id) in members)


def _keys_among(connection: Connection, key_ids: Collection[str]) -> frozenset[str]:
    return frozenset(
        row.id
        for some in in_chunks(sorted(key_ids))
        for row in connection.execute(select(ssh_keys.c.id).where(ssh_keys.c.id.in_(some)))
    )


def _members_among(connection: Connection, account_ids: Collection[str]) -> frozenset[tuple[str, str]]:
    query = (
        select(team_members.c.account_id, team_members.c.team_id)
        .join(accounts, accounts.c.id == team_members.c.account_id)
        .where(accounts.c.disabled.is_(False))
    )
    return frozenset(
        (row.account_id, row.team_id)
        for some in in_chunks(sorted(account_ids))
        for row in connection.execute(query.where(team_members.c.account_id.in_(some)))
    )


def _select(
    key_id: ColumnElement[str], account_id: ColumnElement[str], name: str
) -> Select[*tuple[object, ...]]:
    return (
        select(
            key_id.label("key_id"),
            account_id.label("account_id"),
            instances.c.team_id,
            instances.c.id.label("instance_id"),
            instances.c.number,
            instances.c.name,
            teams.c.name.label("team_name"),
            instances.c.state,
            instances.c.message,
            instances.c.run_id,
        )
        .select_from(instances)
        .join(teams, teams.c.id == instances.c.team_id)
        .where(instances.c.state != InstanceState.RELEASED, _is_called(name))
    )


def _is_called(name: str) -> ColumnElement[bool]:
    number = int(name) if name.isascii() and name.isdecimal() and len(name) <= 18 else -1
    return or_(instances.c.name == name, instances.c.id == name, instances.c.number == number)


def _read(connection: Connection, query: Select[*tuple[object, ...]]) -> tuple[Admission, ...]:
    found = []
    for row in connection.execute(query):
        values = row._asdict()
        way = Way(values.pop("key_id"), values.pop("account_id"), values.pop("team_id"))
        found.append(Admission(way, **values))
    return tuple(found)
