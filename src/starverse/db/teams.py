"""Teams and who is in them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, Select, bindparam, delete, func, insert, select, update

from starverse.db.prepared import Prepared, among
from starverse.db.tables import accounts, team_members, teams
from starverse.domain.ids import AccountId, TeamId


@dataclass(frozen=True, slots=True)
class Team:
    """Owns the wallet and the workloads. ``unix_uid`` is the host user that its workloads run as."""

    id: TeamId
    name: str
    personal: bool
    unix_uid: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TeamOfAccount:
    """A team as one of its members sees it; ``role`` is owner or member."""

    team: Team
    role: str


@dataclass(frozen=True, slots=True)
class Member:
    account_id: AccountId
    email: str
    role: str


def add_team(connection: Connection, team: Team) -> None:
    """Raises ``IntegrityError`` when the name is taken."""
    connection.execute(
        insert(teams).values(
            id=team.id,
            name=team.name,
            personal=team.personal,
            unix_uid=team.unix_uid,
            created_at=team.created_at,
        )
    )


def find_team(connection: Connection, name: str) -> Team | None:
    row = connection.execute(_select_teams().where(teams.c.name == name)).one_or_none()
    return None if row is None else _team(row)


def get_team(connection: Connection, team_id: TeamId) -> Team | None:
    row = connection.execute(_select_teams().where(teams.c.id == team_id)).one_or_none()
    return None if row is None else _team(row)


def names_of(connection: Connection, team_ids: Collection[str]) -> dict[str, str]:
    """Name by id, of the teams that exist."""
    return dict(_NAMES.rows(connection, ids=team_ids)) if team_ids else {}


def names_like(connection: Connection, stem: str) -> frozenset[str]:
    """Names taken that are ``stem`` or begin with ``stem-``."""
    query = select(teams.c.name).where(
        (teams.c.name == stem) | teams.c.name.startswith(f"{stem}-", autoescape=True)
    )
    return frozenset(connection.execute(query).scalars())


def list_teams(connection: Connection, limit: int, after_name: str | None = None) -> tuple[Team, ...]:
    """All teams by name, those after ``after_name``."""
    query = _select_teams().order_by(teams.c.name).limit(limit)
    if after_name is not None:
        query = query.where(teams.c.name > after_name)
    return tuple(_team(row) for row in connection.execute(query))


def teams_of(connection: Connection, account_id: AccountId) -> tuple[TeamOfAccount, ...]:
    """An account's teams, its personal one first, then by name."""
    rows = _TEAMS_OF.rows(connection, account=account_id)
    return tuple(TeamOfAccount(_team(row), row.role) for row in rows)


def members_of(connection: Connection, team_id: TeamId) -> tuple[Member, ...]:
    """By mail address."""
    query = (
        select(accounts.c.id, accounts.c.email, team_members.c.role)
        .join(team_members, team_members.c.account_id == accounts.c.id)
        .where(team_members.c.team_id == team_id)
        .order_by(accounts.c.email)
    )
    return tuple(Member(row.id, row.email, row.role) for row in connection.execute(query))


def add_member(connection: Connection, team_id: TeamId, account_id: AccountId, role: str) -> None:
    """Add someone, or change the role of who is in already."""
    changed = connection.execute(
        update(team_members)
        .where(team_members.c.team_id == team_id, team_members.c.account_id == account_id)
        .values(role=role)
    )
    if changed.rowcount == 0:
        connection.execute(insert(team_members).values(team_id=team_id, account_id=account_id, role=role))


def remove_member(connection: Connection, team_id: TeamId, account_id: AccountId) -> None:
    connection.execute(
        delete(team_members).where(team_members.c.team_id == team_id, team_members.c.account_id == account_id)
    )


def owners_count(connection: Connection, team_id: TeamId) -> int:
    query = select(func.count()).where(team_members.c.team_id == team_id, team_members.c.role == "owner")
    return int(connection.execute(query).scalar_one())


def lock_team(connection: Connection, team_id: TeamId) -> None:
    """Keep other writers of this team's members out until the transaction ends."""
    connection.execute(select(teams.c.id).where(teams.c.id == team_id).with_for_update())


def _select_teams() -> Select[*tuple[object, ...]]:
    return select(teams.c.id, teams.c.name, teams.c.personal, teams.c.unix_uid, teams.c.created_at)


def _team(row: Row[*tuple[object, ...]]) -> Team:
    return Team(row.id, row.name, row.personal, row.unix_uid, row.created_at)


_TEAMS_OF = Prepared(
    _select_teams()
    .add_columns(team_members.c.role)
    .join(team_members, team_members.c.team_id == teams.c.id)
    .where(team_members.c.account_id == bindparam("account"))
    .order_by(teams.c.personal.desc(), teams.c.name)
)
_NAMES = Prepared(select(teams.c.id, teams.c.name).where(among(teams.c.id, "ids")))
