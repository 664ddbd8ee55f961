"""Accounts (people), their price-book memberships, and their tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from starverse.db.prepared import Prepared, among
from starverse.db.tables import accounts, allocations, memberships, tokens
from starverse.domain.ids import AccountId, AllocationId, TeamId, TokenId
from starverse.domain.pricing.rating import MemberChange
from starverse.domain.workloads.states import OPEN_ALLOCATION_STATES


@dataclass(frozen=True, slots=True)
class Account:
    """A person who signs in. ``member`` is the price-book class in effect, ``None`` for none."""

    id: AccountId
    email: str
    operator: bool
    disabled: bool
    created_at: datetime
    member: str | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. ``scope``: account, team or workload; ``expires_at`` ``None``: never."""

    id: TokenId
    account_id: AccountId
    team_id: TeamId | None
    allocation_id: AllocationId | None
    name: str
    scope: str
    created_at: datetime
    expires_at: datetime | None


_TOKEN_COLUMNS = (
    tokens.c.id,
    tokens.c.account_id,
    tokens.c.team_id,
    tokens.c.allocation_id,
    tokens.c.name,
    tokens.c.scope,
    tokens.c.created_at,
    tokens.c.expires_at,
)


def add_account(connection: Connection, account: Account, password_hash: str) -> None:
    """Raises ``IntegrityError`` when the mail address has an account."""
    connection.execute(
        insert(accounts).values(
            id=account.id,
            email=account.email,
            password_hash=password_hash,
            operator=account.operator,
            disabled=account.disabled,
            created_at=account.created_at,
        )
    )


def find_account(connection: Connection, email: str) -> Account | None:
    """The account with this (lower-case) mail address."""
    row = connection.execute(_select_accounts().where(accounts.c.email == email)).one_or_none()
    return None if row is None else _account(row)


def get_account(connection: Connection, account_id: AccountId) -> Account | None:
    row = _GET.first(connection, wanted=account_id)
    return None if row is None else Account(**row._asdict())


def password_hash_of(connection: Connection, email: str) -> str | None:
    """The stored argon2 hash; ``None`` for an unknown mail address."""
    return connection.execute(select(accounts.c.password_hash).where(accounts.c.email == email)).scalar()


def set_password_hash(connection: Connection, account_id: AccountId, password_hash: str) -> None:
    connection.execute(
        update(accounts).where(accounts.c.id == account_id).values(password_hash=password_hash)
    )


def list_accounts(connection: Connection, limit: int, after_email: str | None = None) -> tuple[Account, ...]:
    """Accounts by mail address, those after ``after_email``."""
    query = _select_accounts().order_by(accounts.c.email).limit(limit)
    if after_email is not None:
        query = query.where(accounts.c.email > after_email)
    return tuple(_account(row) for row in connection.execute(query))


def set_flags(connection: Connection, account_id: AccountId, *, operator: bool, disabled: bool) -> None:
    connection.execute(
        update(accounts).where(accounts.c.id == account_id).values(operator=operator, disabled=disabled)
    )


def add_membership(
    connection: Connection, membership_id: str, account_id: AccountId, membership: MemberChange
) -> None:
    """Raises ``IntegrityError`` when the account has a change at this very instant."""
    connection.execute(
        insert(memberships).values(
            id=membership_id, account_id=account_id, member=membership.member, since=membership.since
        )
    )


def emails_of(connection: Connection, account_ids: Collection[str]) -> dict[str, str]:
    """Address by id, of the accounts that exist."""
    return dict(_EMAILS.rows(connection, ids=account_ids)) if account_ids else {}


def add_token(connection: Connection, token: Token, digest: str) -> None:
    values = {field.name: getattr(token, field.name) for field in dataclasses.fields(token)}
    _INSERT_TOKEN.run(connection, **values, digest=digest)


def find_valid_token(connection: Connection, digest: str, now: datetime) -> Token | None:
    """The token with this digest if it can be used: not revoked, not expired, its allocation open."""
    row = _VALID_TOKEN.first(connection, digest=digest, now=now)
    return None if row is None else Token(**row._asdict())


def list_tokens(connection: Connection, account_id: AccountId, now: datetime) -> tuple[Token, ...]:
    """An account's own usable tokens, newest first; those of workloads are left out."""
    query = (
        select(*_TOKEN_COLUMNS)
        .where(
            tokens.c.account_id == account_id,
            tokens.c.scope != "workload",
            tokens.c.revoked_at.is_(None),
            or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now),
        )
        .order_by(tokens.c.id.desc())
    )
    return tuple(Token(**row._mapping) for row in connection.execute(query))


def revoke_token(connection: Connection, account_id: AccountId, token_id: TokenId, now: datetime) -> bool:
    """Whether a usable token of the account had this id."""
    done = connection.execute(
        update(tokens)
        .where(tokens.c.id == token_id, tokens.c.account_id == account_id, tokens.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    return done.rowcount == 1


def revoke_account_tokens(connection: Connection, account_id: AccountId, now: datetime) -> None:
    """After a new password or a disabled account: nothing signed in before stays so."""
    connection.execute(
        update(tokens)
        .where(tokens.c.account_id == account_id, tokens.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )


def revoke_team_tokens(connection: Connection, account_id: AccountId, team_id: TeamId, now: datetime) -> None:
    """When someone leaves a team: their tokens for it."""
    connection.execute(
        update(tokens)
        .where(tokens.c.account_id == account_id, tokens.c.team_id == team_id, tokens.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )


def revoke_allocation_tokens(connection: Connection, allocation_id: AllocationId, now: datetime) -> None:
    _REVOKE_OF_ALLOCATION.run(connection, wanted=allocation_id, revoked_at=now)


def forget_tokens(connection: Connection, before: datetime) -> None:
    """Drop tokens that nobody could use since then: revoked, expired, or of a run that is over."""
    _FORGET_TOKENS.run(connection, before=before)


def _select_accounts() -> Select[*tuple[object, ...]]:
    newest = (
        select(memberships.c.account_id, func.max(memberships.c.since).label("since"))
        .group_by(memberships.c.account_id)
        .subquery()
    )
    current = memberships.alias()
    return select(
        accounts.c.id,
        accounts.c.email,
        accounts.c.operator,
        accounts.c.disabled,
        accounts.c.created_at,
        current.c.member,
    ).select_from(
        accounts.outerjoin(newest, newest.c.account_id == accounts.c.id).outerjoin(
            current,
            and_(current.c.account_id == newest.c.account_id, current.c.since == newest.c.since),
        )
    )


def _account(row: Row[*tuple[object, ...]]) -> Account:
    return Account(**row._mapping)


_GET = Prepared(_select_accounts().where(accounts.c.id == bindparam("wanted")))
_EMAILS = Prepared(select(accounts.c.id, accounts.c.email).where(among(accounts.c.id, "ids")))
_INSERT_TOKEN = Prepared(insert(tokens), (*(field.name for field in dataclasses.fields(Token)), "digest"))
_VALID_TOKEN = Prepared(
    select(*_TOKEN_COLUMNS)
    .select_from(tokens.outerjoin(allocations, allocations.c.id == tokens.c.allocation_id))
    .where(
        tokens.c.digest == bindparam("digest"),
        tokens.c.revoked_at.is_(None),
        or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > bindparam("now")),
        or_(tokens.c.scope != "workload", allocations.c.state.in_(tuple(OPEN_ALLOCATION_STATES))),
    )
)
_FORGET_TOKENS = Prepared(
    delete(tokens).where(
        or_(tokens.c.revoked_at < bindparam("before"), tokens.c.expires_at < bindparam("before"))
    )
)
_REVOKE_OF_ALLOCATION = Prepared(
    update(tokens).where(tokens.c.allocation_id == bindparam("wanted"), tokens.c.revoked_at.is_(None)),
    ("revoked_at",),
)
