"""Who is calling: registration, sign-in, tokens, and the identity behind a request.

A token is ``sv_`` and a secret of 256 bits; the database keeps its SHA-256 digest only. Scopes: ``account``
acts for the person in any of their teams, ``team`` for one team, ``workload`` for the team of one open
allocation and dies with it. Only the account scope carries the operator's rights.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app import teams as team_cases
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.passwords import NO_PASSWORD, password_fault
from starverse.app.platform import Platform
from starverse.app.rate_limits import Attempts
from starverse.app.secret_files import write_secret
from starverse.db import accounts, teams
from starverse.db.accounts import Account, Token
from starverse.db.events import Event, record
from starverse.db.teams import Team, TeamOfAccount
from starverse.domain.errors import (
    Conflict,
    FieldFault,
    Forbidden,
    Invalid,
    NotFound,
    Unauthenticated,
)
from starverse.domain.ids import AccountId, AllocationId, TeamId, TokenId

SESSION_DAYS = 30
TOKEN_DAYS_MAX = 3650
OPERATOR_EMAIL = "operator@localhost"
OPERATOR_TOKEN_FILE = "operator-token"

_EMAIL = re.compile(
    r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9](?:[a-z0-9-]{0,62})(?:\.[a-z0-9](?:[a-z0-9-]{0,62}))*"
)
_TRIES = 5


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A token in clear: shown now and never again."""

    account: Account
    token: Token
    secret: str


@dataclass(frozen=True, slots=True)
class Registered:
    account: Account
    team: Team
    token: Token
    secret: str


@dataclass(frozen=True, slots=True)
class Me:
    account: Account
    team: Team
    teams: tuple[TeamOfAccount, ...]


def register(platform: Platform, email: str, password: str, *, attempts: Attempts, place: str) -> Registered:
    """A new account with its personal team, its wallet with the sign-up credit, and a session.

    ``place`` is where the request came from, for the rate limit. Raises :class:`Invalid` for a bad mail
    address or password, :class:`Conflict` when the address has an account.
    """
    if not platform.settings.registration_open:
        raise Forbidden("Registration is closed here.", hint="Ask the operator for an account.")
    attempts.count_registration(place)
    address = normal_email(email)
    fault = password_fault(password, address)
    if fault is not None:
        raise Invalid(faults=[fault])
    return _add_account(platform, address, platform.passwords.hash_of(password))


def _add_account(
    platform: Platform, address: str, password_hash: str, *, operator: bool = False
) -> Registered:
    for _ in range(_TRIES):
        try:
            return _write_account(platform, address, password_hash, operator)
        except IntegrityError:
            continue  # a rival took the mail address, the team's name or its number at the same moment
    raise Conflict("Too many registrations at the same moment; try again.")


def _write_account(platform: Platform, email: str, password_hash: str, operator: bool) -> Registered:
    with platform.database.write() as connection:
        now = platform.clock.now()
        if accounts.find_account(connection, email) is not None:
            raise Conflict(f"{email} has an account already.", hint=f"Sign in: `starverse login {email}`.")
        account = Account(AccountId(platform.ids.uuid7()), email, operator, False, now)
        accounts.add_account(connection, account, password_hash)
        team = team_cases.open_team(
            platform, connection, account.id, team_cases.free_name(connection, email), now, personal=True
        )
        if not operator:
            team_cases.give_signup_credit(platform, connection, team.id, account.id, now)
        token, secret = _issue(platform, connection, account.id, "session", now, days=SESSION_DAYS)
        record(
            connection,
            Event(now, "account", account.id, "registered", team_id=team.id, account_id=account.id),
        )
        return Registered(account, team, token, secret)


def normal_email(email: str) -> str:
    """The mail address in lower case; raises :class:`Invalid` when it is none."""
    address = email.strip().lower()
    if len(address) > 254 or _EMAIL.fullmatch(address) is None:
        raise Invalid(faults=[FieldFault("email", email[:254], "a mail address such as name@example.org")])
    return address


def login(platform: Platform, email: str, password: str, *, attempts: Attempts, place: str) -> SignedIn:
    """A new session. An unknown address and a wrong password get the same answer after the same work."""
    address = email.strip().lower()[:254]
    attempts.count_login(address, place)
    with platform.database.read() as connection:
        stored_hash = accounts.password_hash_of(connection, address)
    if not platform.passwords.is_right(stored_hash, password):
        raise Unauthenticated("The mail address or the password is wrong.")
    outdated = platform.passwords.needs_new_hash(stored_hash or "")
    new_hash = platform.passwords.hash_of(password) if outdated else None
    with platform.database.write() as connection:
        now = platform.clock.now()
        account = accounts.find_account(connection, address)
        if account is None or accounts.password_hash_of(connection, address) != stored_hash:
            raise Unauthenticated("The mail address or the password is wrong.")
        if account.disabled:
            raise Forbidden("This account is disabled; ask the operator.")
        if new_hash is not None:
            accounts.set_password_hash(connection, account.id, new_hash)
        token, secret = _issue(platform, connection, account.id, "session", now, days=SESSION_DAYS)
    attempts.login_succeeded(address, place)
    return SignedIn(account, token, secret)


def logout(platform: Platform, identity: Identity) -> None:
    """The token of this very request ends."""
    with platform.database.write() as connection:
        accounts.revoke_token(connection, identity.account_id, identity.token_id, platform.clock.now())


def identify(platform: Platform, secret: str | None, team_name: str | None = None) -> Identity:
    """Who holds this token, acting for ``team_name`` (default: the token's team, else the personal one).

    Raises :class:`Unauthenticated` for a token that is missing, unknown, revoked, expired or whose
    allocation ended; :class:`NotFound` for a team that the token does not reach.
    """
    if not secret:
        raise Unauthenticated
    with platform.database.read() as connection:
        token = accounts.find_valid_token(connection, digest_of(secret), platform.clock.now())
        account = None if token is None else accounts.get_account(connection, token.account_id)
        if token is None or account is None or account.disabled:
            raise Unauthenticated(
                "This token is not valid (any more).", hint="Sign in: `starverse login EMAIL`."
            )
        mine = teams.teams_of(connection, account.id)
    reached = [own for own in mine if token.team_id in (None, own.team.id)]
    chosen = [own for own in reached if team_name in (None, own.team.name)]
    if not reached:
        raise Unauthenticated(
            "This token's team is no longer yours.", hint="Sign in: `starverse login EMAIL`."
        )
    if not chosen:
        raise NotFound(f"There is no team {team_name!r}, or you are not in it.")
    return Identity(
        account_id=account.id,
        email=account.email,
        team_id=chosen[0].team.id,
        team_name=chosen[0].team.name,
        operator=account.operator and token.scope == "account",
        scope=token.scope,
        token_id=token.id,
        allocation_id=token.allocation_id,
        role=chosen[0].role,
    )


def me(platform: Platform, identity: Identity) -> Me:
    """The account, the team it acts for, and all its teams (for a team token: that one)."""
    with platform.database.read() as connection:
        account = accounts.get_account(connection, identity.account_id)
        team = teams.get_team(connection, identity.team_id)
        mine = teams.teams_of(connection, identity.account_id)
    if account is None or team is None:
        raise Unauthenticated
    if identity.scope != "account":
        mine = tuple(own for own in mine if own.team.id == identity.team_id)
    return Me(account, team, mine)


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A token for scripts. ``team`` ``None``: for all teams; ``expires_in_days`` ``None``: it never ends."""

    name: str
    team: str | None = None
    expires_in_days: int | None = None
    once: Once | None = None


def create_token(platform: Platform, identity: Identity, request: TokenRequest) -> SignedIn:
    """A named token, shown once. A repeated idempotency key is a :class:`Conflict`: no secret is stored."""
    faults = []
    if not 1 <= len(request.name) <= 64 or not request.name.isprintable():
        faults.append(FieldFault("name", request.name[:64], "1 to 64 printable characters"))
    days = request.expires_in_days
    if days is not None and not 1 <= days <= TOKEN_DAYS_MAX:
        faults.append(FieldFault("expires_in_days", str(days), f"1 to {TOKEN_DAYS_MAX} days, or none"))
    if faults:
        raise Invalid(faults=faults)
    with platform.database.write() as connection:
        now = platform.clock.now()
        team_id = None
        if request.team is not None:
            team_id = team_cases.own_team(connection, identity, request.team).team.id
        token_id = platform.ids.uuid7()
        if claim(connection, identity.account_id, request.once, token_id, now) is not None:
            raise Conflict(
                "This request made a token already, and its secret is shown once only.",
                hint="Delete that token and ask for a new one under a new key.",
            )
        account = accounts.get_account(connection, identity.account_id)
        if account is None:
            raise Unauthenticated
        token, secret = _issue(
            platform, connection, account.id, request.name, now, team_id=team_id, days=days, token_id=token_id
        )
    return SignedIn(account, token, secret)


def list_tokens(platform: Platform, identity: Identity) -> tuple[Token, ...]:
    """The account's own usable tokens, newest first."""
    with platform.database.read() as connection:
        return accounts.list_tokens(connection, identity.account_id, platform.clock.now())


def revoke_token(platform: Platform, identity: Identity, token_id: str) -> None:
    """End one of the account's own tokens; raises :class:`NotFound` for any other."""
    with platform.database.write() as connection:
        found = accounts.revoke_token(
            connection, identity.account_id, TokenId(token_id), platform.clock.now()
        )
    if not found:
        raise NotFound(f"There is no token {token_id}, or it is not yours.")


def issue_workload_token(
    platform: Platform,
    connection: Connection,
    account_id: AccountId,
    team_id: TeamId,
    allocation_id: AllocationId,
) -> str:
    """A token for the shims inside an allocation; it stops working when the allocation is not open."""
    now = platform.clock.now()
    _, secret = _issue(
        platform, connection, account_id, "workload", now, team_id=team_id, allocation_id=allocation_id
    )
    return secret


def ensure_operator(platform: Platform) -> str:
    """The operator's token: makes ``operator@localhost`` once and keeps its token in the data folder (0600).

    A file that was lost or whose token was revoked is replaced by a new token.
    """
    path = platform.settings.data / OPERATOR_TOKEN_FILE
    stored = path.read_text("utf-8").strip() if path.is_file() else ""
    with platform.database.read() as connection:
        account = accounts.find_account(connection, OPERATOR_EMAIL)
        token = accounts.find_valid_token(connection, digest_of(stored), platform.clock.now())
    if account is not None and token is not None and token.account_id == account.id:
        return stored
    if account is None:
        account = _add_account(platform, OPERATOR_EMAIL, NO_PASSWORD, operator=True).account
    with platform.database.write() as connection:
        _, secret = _issue(platform, connection, account.id, "operator on this machine", platform.clock.now())
    write_secret(path, secret)
    return secret


def digest_of(secret: str) -> str:
    """What the database keeps of a token; a plain hash is right for a secret of 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _issue(
    platform: Platform,
    connection: Connection,
    account_id: AccountId,
    name: str,
    now: datetime,
    *,
    team_id: TeamId | None = None,
    allocation_id: AllocationId | None = None,
    days: int | None = None,
    token_id: str | None = None,
) -> tuple[Token, str]:
    secret = f"sv_{platform.ids.secret()}"
    token = Token(
        id=TokenId(token_id or platform.ids.uuid7()),
        account_id=account_id,
        team_id=team_id,
        allocation_id=allocation_id,
        name=name,
        scope="workload" if allocation_id else "team" if team_id else "account",
        created_at=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    accounts.add_token(connection, token, digest_of(secret))
    return token, secret
