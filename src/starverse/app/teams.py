"""Teams: open one with its wallet, who is in it, and the checks that a caller belongs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.gifts import Gift, give_credit
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import accounts, ledger, teams
from starverse.db.accounts import Account
from starverse.db.events import Event, record
from starverse.db.jobs import next_number
from starverse.db.metering import load_books
from starverse.db.teams import Member, Team, TeamOfAccount
from starverse.domain.errors import Conflict, FieldFault, Forbidden, Invalid, NotFound
from starverse.domain.ids import AccountId, TeamId
from starverse.domain.ledger.accounts import cash

ROLES = ("owner", "member")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,38}[a-z0-9])?")
_NAME_EXPECTED = "2 to 40 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit"


@dataclass(frozen=True, slots=True)
class TeamView:
    """A team, the caller's role in it, and (where asked for) its members."""

    team: Team
    role: str
    members: tuple[Member, ...] = ()


def open_team(
    platform: Platform,
    connection: Connection,
    owner: AccountId,
    name: str,
    now: datetime,
    *,
    personal: bool,
) -> Team:
    """Insert a team with its first owner and its wallet. Raises ``IntegrityError`` when the name is taken."""
    uid = next_number(connection, "unix_uid", platform.settings.unix_uid_first)
    team = Team(TeamId(platform.ids.uuid7()), name, personal, uid, now)
    teams.add_team(connection, team)
    teams.add_member(connection, team.id, owner, "owner")
    ledger.open_accounts(connection, [cash(team.id)], now)
    return team


def free_name(connection: Connection, email: str) -> str:
    """A team name from the mail's local part that nobody has: ``wang``, else ``wang-2``, ``wang-3`` ..."""
    local = email.partition("@")[0]
    stem = re.sub(r"[^a-z0-9]+", "-", local).strip("-")[:32].rstrip("-") or "team"
    if len(stem) < 2:
        stem = f"team-{stem}"
    taken = teams.names_like(connection, stem)
    number = 2
    name = stem
    while name in taken:
        name = f"{stem}-{number}"
        number += 1
    return name


def ids_of_teams_and_accounts(platform: Platform, given: Iterable[str], place: str) -> dict[str, str]:
    """The id of each team that an operator names by its id or its name, and of each account that goes by its
    mail address; ``place`` is the setting.

    Raises :class:`Invalid` with every one that there is none of.
    """
    found: dict[str, str] = {}
    faults = []
    with platform.database.read() as connection:
        for words in given:
            one: Account | Team | None
            if "@" in words:
                one = accounts.find_account(connection, words.lower())
            else:
                one = teams.get_team(connection, TeamId(words)) or teams.find_team(connection, words)
            if one is None:
                expected = "the id or the name of a team, or the mail address of an account, that there is"
                faults.append(FieldFault(place, words, expected))
            else:
                found[words] = one.id
    if faults:
        raise Invalid(faults=faults, hint="starverse admin team ls; starverse admin account ls")
    return found


def give_signup_credit(
    platform: Platform, connection: Connection, team_id: TeamId, account_id: AccountId, now: datetime
) -> None:
    """The price book's sign-up credit, from the ledger's gifts."""
    amount = load_books(connection).books.at(now).signup_credit
    if amount:
        give_credit(connection, platform.ids, Gift(team_id, amount, "sign-up credit", account_id), now)


def own_team(connection: Connection, identity: Identity, name: str) -> TeamOfAccount:
    """The named team if the caller is in it; raises :class:`NotFound` otherwise."""
    for own in teams.teams_of(connection, identity.account_id):
        if own.team.name == name and (identity.scope == "account" or own.team.id == identity.team_id):
            return own
    raise NotFound(f"There is no team {name!r}, or you are not in it.")


def require_owner(identity: Identity, what: str) -> None:
    """Raises :class:`Forbidden` unless the caller owns the team it acts for."""
    if identity.role != "owner":
        raise Forbidden(f"Only an owner of {identity.team_name} may {what}.")


def create_team(platform: Platform, identity: Identity, name: str, once: Once | None = None) -> TeamView:
    """A new shared team with an empty wallet, owned by the caller."""
    if len(name) < 2 or _NAME.fullmatch(name) is None:
        raise Invalid(faults=[FieldFault("name", name[:80], _NAME_EXPECTED)])
    try:
        with platform.database.write() as connection:
            now = platform.clock.now()
            earlier = claim(connection, identity.account_id, once, name, now)
            if earlier is not None:
                own = own_team(connection, identity, earlier)
                return TeamView(own.team, own.role, teams.members_of(connection, own.team.id))
            if teams.find_team(connection, name) is not None:
                raise _taken(name)
            team = open_team(platform, connection, identity.account_id, name, now, personal=False)
            record(connection, _event(identity, team, "created", "", now))
            return TeamView(team, "owner", teams.members_of(connection, team.id))
    except IntegrityError as error:
        raise _taken(name) from error


def list_teams(platform: Platform, identity: Identity) -> tuple[TeamView, ...]:
    """The teams that the caller's token reaches."""
    with platform.database.read() as connection:
        mine = teams.teams_of(connection, identity.account_id)
    return tuple(
        TeamView(own.team, own.role)
        for own in mine
        if identity.scope == "account" or own.team.id == identity.team_id
    )


def get_team(platform: Platform, identity: Identity, name: str) -> TeamView:
    """One of the caller's teams with its members."""
    with platform.database.read() as connection:
        own = own_team(connection, identity, name)
        return TeamView(own.team, own.role, teams.members_of(connection, own.team.id))


def add_member(platform: Platform, identity: Identity, name: str, email: str, role: str) -> TeamView:
    """Add someone who has an account, or change their role; owners only."""
    if role not in ROLES:
        raise Invalid(faults=[FieldFault("role", role[:40], "owner or member")])
    with platform.database.write() as connection:
        now = platform.clock.now()
        team = _owned_shared_team(connection, identity, name)
        account = accounts.find_account(connection, email.strip().lower())
        if account is None:
            fault = FieldFault("email", email[:254], "the mail address of someone who has an account here")
            raise Invalid(faults=[fault])
        teams.add_member(connection, team.id, account.id, role)
        _keep_an_owner(connection, team)
        record(connection, _event(identity, team, "member_added", role, now, account.email))
        return TeamView(team, "owner", teams.members_of(connection, team.id))


def remove_member(platform: Platform, identity: Identity, name: str, email: str) -> None:
    """Take someone out, with their tokens for the team; owners only, or oneself."""
    address = email.strip().lower()
    with platform.database.write() as connection:
        now = platform.clock.now()
        own = own_team(connection, identity, name)
        if own.team.personal:
            raise Conflict("A personal team keeps its one member.")
        if address != identity.email and own.role != "owner":
            raise Forbidden(f"Only an owner of {name} may take others out.")
        teams.lock_team(connection, own.team.id)
        member = next((m for m in teams.members_of(connection, own.team.id) if m.email == address), None)
        if member is None:
            raise NotFound(f"{address} is not in {name}.")
        teams.remove_member(connection, own.team.id, member.account_id)
        _keep_an_owner(connection, own.team)
        accounts.revoke_team_tokens(connection, member.account_id, own.team.id, now)
        record(connection, _event(identity, own.team, "member_removed", "", now, address))


def _owned_shared_team(connection: Connection, identity: Identity, name: str) -> Team:
    own = own_team(connection, identity, name)
    if own.role != "owner":
        raise Forbidden(f"Only an owner of {name} may change who is in it.")
    if own.team.personal:
        raise Conflict(
            "A personal team keeps its one member.", hint="Make a shared one: `starverse team create`."
        )
    teams.lock_team(connection, own.team.id)
    return own.team


def _keep_an_owner(connection: Connection, team: Team) -> None:
    if teams.owners_count(connection, team.id) == 0:
        raise Conflict(f"{team.name} would have no owner left; make someone else an owner first.")


def _taken(name: str) -> Conflict:
    return Conflict(f"The team name {name!r} is taken.", hint="Choose another name.")


def _event(identity: Identity, team: Team, kind: str, reason: str, now: datetime, message: str = "") -> Event:
    return Event(now, "team", team.id, kind, reason, message, team_id=team.id, account_id=identity.account_id)
