"""What operators do with accounts and teams: member classes, rights, passwords, gifts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app.disabled_accounts import end_work
from starverse.app.etags import require_version
from starverse.app.gifts import Gift, give_credit
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.passwords import password_fault
from starverse.app.platform import Platform
from starverse.app.views import PAGE_ITEMS_DEFAULT, Page
from starverse.db import accounts, ledger, teams
from starverse.db.accounts import Account
from starverse.db.events import Event, record
from starverse.db.metering import load_books, member_changes
from starverse.domain.errors import Conflict, FieldFault, Invalid, InvariantBroken, NotFound
from starverse.domain.ids import LedgerAccountId, TransferId
from starverse.domain.ledger.accounts import GIFTS, coupon
from starverse.domain.ledger.transfers import Purpose, move
from starverse.domain.money import MICRO_PER_FEN, ZERO, Money
from starverse.domain.pricing.rating import MemberChange
from starverse.domain.timespan import ceil_to_second, format_instant

GRANT_MAX = Money(1_000_000_000_000)


@dataclass(frozen=True, slots=True)
class AccountChange:
    """What to change; ``None`` leaves a thing as it is. ``member`` ``""`` takes the member class away."""

    member: str | None = None
    disabled: bool | None = None
    operator: bool | None = None
    password: str | None = None


@dataclass(frozen=True, slots=True)
class TeamSummary:
    """A team and its money, for operators."""

    id: str
    name: str
    personal: bool
    members: tuple[str, ...]
    created_at: datetime
    free: Money
    held: Money


@dataclass(frozen=True, slots=True)
class Grant:
    """A gift to a team. ``kind``: credit, or coupon (pays a share only); ``expires_at`` ``None``: never."""

    kind: str
    amount: Money
    reason: str
    expires_at: datetime | None = None
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """The gift's own ledger account."""

    id: LedgerAccountId
    team: str
    kind: str
    amount: Money
    expires_at: datetime | None


def list_accounts(
    platform: Platform, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Account]:
    """All accounts by mail address."""
    with platform.database.read() as connection:
        found = accounts.list_accounts(connection, limit + 1, cursor)
    return Page(found[:limit], found[limit - 1].email if len(found) > limit else None)


def get_account(platform: Platform, email: str) -> Account:
    """One account."""
    with platform.database.read() as connection:
        return _account(connection, email)


def change_account(
    platform: Platform, identity: Identity, email: str, change: AccountChange, version: str | None
) -> Account:
    """Change an account; ``version`` is the one that was read (``None``: whatever it is now).

    Signing someone out follows a new password and a disabled account, whose instances and jobs end as well.
    Nobody takes their own rights away.
    """
    new_hash = None
    if change.password is not None:
        fault = password_fault(change.password, email.strip().lower())
        if fault is not None:
            raise Invalid(faults=[fault])
        new_hash = platform.passwords.hash_of(change.password)
    with platform.database.write() as connection:
        now = platform.clock.now()
        account = _account(connection, email)
        require_version(version, account)
        if account.id == identity.account_id and (change.disabled or change.operator is False):
            raise Conflict("You cannot take your own rights away; let another operator do it.")
        accounts.set_flags(
            connection,
            account.id,
            operator=account.operator if change.operator is None else change.operator,
            disabled=account.disabled if change.disabled is None else change.disabled,
        )
        if change.member is not None and (change.member or None) != account.member:
            _set_member(platform, connection, account, change.member or None, now)
        if new_hash is not None:
            accounts.set_password_hash(connection, account.id, new_hash)
        if new_hash is not None or change.disabled:
            accounts.revoke_account_tokens(connection, account.id, now)
        what = [name for name in ("member", "disabled", "operator") if getattr(change, name) is not None]
        said = ", ".join(
            [*(f"{name} {getattr(change, name)}" for name in what), *(["password"] if new_hash else [])]
        )
        event = Event(
            now, "account", account.id, "changed", "", f"{said}, by {identity.email}", account_id=account.id
        )
        record(connection, event)
        changed = _account(connection, email)
    if change.disabled:
        end_work(platform, changed.id, f"its account was disabled by {identity.email}")
    return changed


def list_teams(
    platform: Platform, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[TeamSummary]:
    """All teams by name, with their money."""
    with platform.database.read() as connection:
        now = platform.clock.now()
        found = teams.list_teams(connection, limit + 1, cursor)
        items = []
        for team in found[:limit]:
            wallet = ledger.team_wallet(connection, team.id)
            members = tuple(member.email for member in teams.members_of(connection, team.id))
            items.append(
                TeamSummary(
                    team.id,
                    team.name,
                    team.personal,
                    members,
                    team.created_at,
                    wallet.free(now),
                    wallet.held,
                )
            )
    return Page(tuple(items), items[-1].name if len(found) > limit else None)


def grant(platform: Platform, identity: Identity, team_name: str, wanted: Grant) -> Granted:
    """Give a team credit or a coupon, out of the ledger's gifts."""
    now = platform.clock.now()
    _check_grant(wanted, now)
    with platform.database.write() as connection:
        team = teams.find_team(connection, team_name)
        if team is None:
            raise NotFound(f"There is no team {team_name[:80]!r}.")
        grant_id = f"{wanted.kind}:{platform.ids.uuid7()}"
        earlier = claim(connection, identity.account_id, wanted.once, grant_id, now)
        if earlier is not None:
            return Granted(LedgerAccountId(earlier), team.name, wanted.kind, wanted.amount, wanted.expires_at)
        if wanted.kind == "credit":
            gift_id = LedgerAccountId(grant_id)
            credit = Gift(
                team.id, wanted.amount, wanted.reason, team.id, expires_at=wanted.expires_at, grant_id=gift_id
            )
            give_credit(connection, platform.ids, credit, now)
        else:
            given = coupon(LedgerAccountId(grant_id), team.id, now, wanted.reason, wanted.expires_at)
            ledger.open_accounts(connection, [given], now)
            gift = move(
                TransferId(platform.ids.uuid7()),
                GIFTS,
                given.id,
                wanted.amount,
                Purpose.COUPON,
                subject=team.id,
            )
            outcome = ledger.post(connection, [gift], now)
            if not outcome.ok:
                raise InvariantBroken("A coupon was refused.", context={"refusal": outcome.refusal})
        message = f"{wanted.kind} of {wanted.amount}: {wanted.reason}, by {identity.email}"
        record(connection, Event(now, "team", team.id, "granted", wanted.kind, message, team_id=team.id))
    platform.wakeups.wake("schedule")
    return Granted(LedgerAccountId(grant_id), team.name, wanted.kind, wanted.amount, wanted.expires_at)


def _check_grant(wanted: Grant, now: datetime) -> None:
    faults = []
    if wanted.kind not in ("credit", "coupon"):
        faults.append(FieldFault("kind", wanted.kind[:40], "credit or coupon"))
    if not ZERO < wanted.amount <= GRANT_MAX or wanted.amount.micro % MICRO_PER_FEN:
        faults.append(FieldFault("amount", wanted.amount.decimal(), "0.01 to 1000000.00 yuan in whole fen"))
    if wanted.expires_at is not None and wanted.expires_at <= now:
        given = format_instant(wanted.expires_at)
        faults.append(FieldFault("expires_at", given, f"a time after now, {format_instant(now)}"))
    if not wanted.reason.strip() or len(wanted.reason) > 200:
        faults.append(FieldFault("reason", wanted.reason[:80], "1 to 200 characters"))
    if faults:
        raise Invalid(faults=faults)


def _set_member(
    platform: Platform, connection: Connection, account: Account, member: str | None, now: datetime
) -> None:
    """From the next whole second on: usage is rated in whole seconds, and no second twice."""
    known = load_books(connection).books.at(now).members
    if member is not None and member not in known:
        expected = f"one of {', '.join(known)}, or nothing" if known else "nothing: the book has no members"
        raise Invalid(faults=[FieldFault("member", member[:40], expected)])
    before = member_changes(connection, account.id)
    since = ceil_to_second(now)
    if before and before[-1].since >= since:
        since = before[-1].since + timedelta(seconds=1)
    accounts.add_membership(connection, platform.ids.uuid7(), account.id, MemberChange(since, member))


def _account(connection: Connection, email: str) -> Account:
    account = accounts.find_account(connection, email.strip().lower())
    if account is None:
        raise NotFound(f"There is no account {email[:254]!r}.")
    return account
