"""Money in and back: top-ups through a payment provider, refunds to the source, automatic top-ups.

An order is recorded before its provider is asked, and becomes money only by the provider's signed
notification, once. Each step is one transaction; none is open while a provider is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.one_by_one import Round, each
from starverse.app.payment_providers import PaymentProvider, SignedNotification, provider_named, providers_of
from starverse.app.platform import Platform
from starverse.app.teams import require_owner
from starverse.app.views import PAGE_ITEMS_DEFAULT, Page
from starverse.db import ledger, topups
from starverse.db.events import Event, record
from starverse.db.topups import AutoTopUp, Refund, TopUp
from starverse.domain.errors import Conflict, FieldFault, Invalid, InvariantBroken, NotEnoughMoney, NotFound
from starverse.domain.ids import TransferId
from starverse.domain.ledger.accounts import cash_id, gateway, gateway_id
from starverse.domain.ledger.posting import Reason
from starverse.domain.ledger.transfers import Purpose, move, refund
from starverse.domain.money import MICRO_PER_FEN, ZERO, Money, total

AMOUNT_MAX = Money(1_000_000_000_000)
"""CNY 1 000 000 in one top-up."""

SWEEP_MAX = 100

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TopUpView:
    """A top-up with what went back of it. ``pay_url`` is set while it waits to be paid on a page."""

    id: str
    provider: str
    amount: Money
    state: str
    automatic: bool
    created_at: datetime
    paid_at: datetime | None
    refunded: Money
    refunds: tuple[Refund, ...]
    pay_url: str | None = None


@dataclass(frozen=True, slots=True)
class TopUpRequest:
    """How much, and through whom."""

    amount: Money
    provider: str = "mock"
    once: Once | None = None


def create_topup(platform: Platform, identity: Identity, request: TopUpRequest) -> TopUpView:
    """Order a top-up for the caller's team and start its payment."""
    provider = provider_named(platform, request.provider)
    _check_amount("amount", request.amount)
    topup_id = platform.ids.uuid7()
    with platform.database.write() as connection:
        now = platform.clock.now()
        earlier = claim(connection, identity.account_id, request.once, topup_id, now)
        if earlier is None:
            order = TopUp(
                topup_id,
                identity.team_id,
                identity.account_id,
                request.provider,
                request.amount,
                "pending",
                False,
                now,
            )
            topups.add_topup(connection, order)
    pay_url = _start(platform, provider, earlier or topup_id)
    return _view(platform, identity, earlier or topup_id, pay_url)


def list_topups(
    platform: Platform, identity: Identity, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[TopUpView]:
    """The team's top-ups, newest first."""
    with platform.database.read() as connection:
        found = topups.list_topups(connection, identity.team_id, limit + 1, cursor)
        returned = topups.refunds_of(connection, [topup.id for topup in found])
    items = tuple(_shown(topup, returned[topup.id]) for topup in found[:limit])
    return Page(items, items[-1].id if len(found) > limit else None)


def get_topup(platform: Platform, identity: Identity, topup_id: str) -> TopUpView:
    """One of the team's top-ups."""
    return _view(platform, identity, topup_id)


def notify(platform: Platform, provider_name: str, notice: SignedNotification) -> str:
    """Take a provider's signed notification: the order's money arrives, once. Returns the order's id."""
    if provider_name not in providers_of(platform):
        raise NotFound(f"There is no payment provider {provider_name!r} here.")
    provider = provider_named(platform, provider_name)
    payment = provider.read(notice, platform.clock.now())
    with platform.database.write() as connection:
        now = platform.clock.now()
        topup = topups.get_topup(connection, payment.order)
        if topup is None or topup.provider != provider_name:
            raise NotFound(f"There is no order {payment.order[:80]!r} at {provider_name}.")
        if payment.amount != topup.amount:
            fault = FieldFault("amount_micro", str(payment.amount.micro), f"{topup.amount.micro}, as ordered")
            raise Invalid(faults=[fault])
        transfer_id = TransferId(f"{topup.id}:paid")
        if not topups.mark_paid(connection, topup.id, transfer_id, now):
            return topup.id  # a repeat of the notification
        ledger.open_accounts(connection, [gateway(provider_name)], now)
        arrival = move(
            transfer_id,
            gateway_id(provider_name),
            cash_id(topup.team_id),
            topup.amount,
            Purpose.TOP_UP,
            subject=topup.id,
        )
        outcome = ledger.post(connection, [arrival], now)
        if not outcome.ok:
            raise InvariantBroken("A top-up was refused.", context={"refusal": outcome.refusal})
        message = f"{topup.amount} through {provider_name}"
        record(connection, _event(topup, "topped_up", message, now))
        _rearm(connection, topup, now)
    platform.wakeups.wake("schedule")
    return topup.id


@dataclass(frozen=True, slots=True)
class RefundRequest:
    """How much of a top-up to pay back; ``amount`` ``None``: all of it that is still there in cash."""

    topup_id: str
    amount: Money | None = None
    once: Once | None = None


def refund_topup(
    platform: Platform,
    identity: Identity,
    request: RefundRequest,
    providers: Mapping[str, PaymentProvider] | None = None,
) -> Refund:
    """Pay cash back to where the top-up came from: never more than was paid, never what is held or spent.

    It is recorded first, as pending; a provider that is away is told later. ``providers`` default to those
    of this installation.
    """
    require_owner(identity, "ask for a refund")
    refund_id = platform.ids.uuid7()
    with platform.database.write() as connection:
        now = platform.clock.now()
        topup = _own(connection, identity, request.topup_id)
        earlier = claim(connection, identity.account_id, request.once, refund_id, now)
        if earlier is not None:
            made = topups.refunds_of(connection, [topup.id])[topup.id]
            return next(one for one in made if one.id == earlier)
        if topup.transfer_id is None:
            raise Conflict(f"This top-up is {topup.state}; only one that was paid can be paid back.")
        payment = ledger.find_transfers(connection, [topup.transfer_id])[topup.transfer_id].transfer
        left = payment.amount - ledger.refunded(connection, payment.id)
        cash = ledger.team_wallet(connection, identity.team_id).cash.available
        amount = min(left, cash) if request.amount is None else request.amount
        if amount <= ZERO:
            _refuse_refund(request.amount, left, cash)
        outcome = ledger.post(connection, [refund(TransferId(refund_id), payment, amount)], now)
        if outcome.refusal is not None:
            if outcome.refusal.reason not in (Reason.EXCEEDS_PAID, Reason.NOT_ENOUGH_MONEY):
                raise InvariantBroken("A refund was refused.", context={"refusal": outcome.refusal})
            _refuse_refund(amount, left, cash)
        done = Refund(refund_id, topup.id, amount, now)
        topups.add_refund(connection, done, identity.team_id)
        record(connection, _event(topup, "refunded", f"{amount} to {topup.provider}", now))
    try:
        return _tell(
            platform, providers_of(platform) if providers is None else providers, done, topup.provider
        )
    except Exception as error:
        _log.warning(
            "a refund is tried again later", refund=done.id, provider=topup.provider, error=repr(error)
        )
        return done


def finish_refunds(platform: Platform, providers: Mapping[str, PaymentProvider] | None = None) -> str:
    """Tell providers of every refund that is still pending; what was done, in words. For a reconciler.

    The money left the wallet with the refund's row: a server that was killed before its provider heard of
    it, or a provider that was away, delays it only.
    """
    known = providers_of(platform) if providers is None else providers
    with platform.database.read() as connection:
        pending = topups.pending_refunds(connection, SWEEP_MAX, tuple(known))

    def tell(item: tuple[Refund, str]) -> str:
        return f"paid {_tell(platform, known, *item).amount} back"

    return ", ".join(each(pending, tell))


def _tell(platform: Platform, providers: Mapping[str, PaymentProvider], refund: Refund, name: str) -> Refund:
    """A provider pays a refund once, however often it is told of it."""
    if name not in providers:
        return refund
    providers[name].refund(refund.topup_id, refund.id, refund.amount)
    with platform.database.write() as connection:
        now = platform.clock.now()
        topups.mark_refunded(connection, refund.id, now)
    return replace(refund, done_at=now)


def _refuse_refund(amount: Money | None, left: Money, cash: Money) -> None:
    if amount is not None and (amount <= ZERO or amount > left):
        expected = f"above 0, at most {left.decimal()}: what was paid and did not go back yet"
        raise Invalid(faults=[FieldFault("amount", amount.decimal(), expected)])
    if left <= ZERO:
        raise Conflict("All of this top-up went back already.")
    raise NotEnoughMoney(
        f"Only {cash} of cash is neither spent nor held.",
        hint=f"Ask for at most {min(left, cash).decimal()}; gifts of credit are not paid out.",
    )


def set_auto_topup(platform: Platform, identity: Identity, below: Money, amount: Money) -> AutoTopUp:
    """Top up by ``amount`` each time free money falls below ``below``."""
    require_owner(identity, "set automatic top-ups")
    faults = [
        *_amount_faults("below", below),
        *_amount_faults("amount", amount),
    ]
    if faults:
        raise Invalid(faults=faults)
    rule = AutoTopUp(identity.team_id, identity.account_id, below, amount, armed=True)
    with platform.database.write() as connection:
        topups.set_rule(connection, rule)
    return rule


def get_auto_topup(platform: Platform, identity: Identity) -> AutoTopUp:
    """The team's rule; raises :class:`NotFound` where there is none."""
    with platform.database.read() as connection:
        rule = topups.get_rule(connection, identity.team_id)
    if rule is None:
        raise NotFound("This team has no automatic top-up.")
    return rule


def remove_auto_topup(platform: Platform, identity: Identity) -> None:
    """No automatic top-ups any more; where there was none, nothing changes."""
    require_owner(identity, "remove automatic top-ups")
    with platform.database.write() as connection:
        topups.remove_rule(connection, identity.team_id)


def run_auto_topups(platform: Platform) -> int:
    """Fire each rule whose mark was crossed, once per crossing; how many fired. For a reconciler.

    Afterwards it starts the payment of every automatic order that still waits, also those of a run that
    was killed between order and payment.
    """
    with platform.database.read() as connection:
        rules = topups.all_rules(connection)
    providers = providers_of(platform)
    fired: list[str] = []

    def fire(rule: AutoTopUp) -> str:
        if _fire(platform, rule, next(iter(providers))):
            fired.append(rule.team_id)
        return ""

    def start(topup: TopUp) -> str:
        if topup.provider in providers:
            _start(platform, providers[topup.provider], topup.id)
        return ""

    round_ = Round()
    if providers:
        round_.act_on(rules, fire)
    with platform.database.read() as connection:
        waiting = topups.pending_automatic(connection, SWEEP_MAX)
    round_.act_on(waiting, start)
    round_.end()
    return len(fired)


def _fire(platform: Platform, rule: AutoTopUp, provider_name: str) -> bool:
    with platform.database.read() as connection:
        free = ledger.team_wallet(connection, rule.team_id).free(platform.clock.now())
        if rule.armed == (free >= rule.below):
            return False
    with platform.database.write() as connection:
        now = platform.clock.now()
        # Disarm before looking: the row's lock lets one of many through, and the look comes after its turn.
        disarmed = topups.set_armed(connection, rule.team_id, False)
        current = topups.get_rule(connection, rule.team_id)
        if current is None:
            return False
        if ledger.team_wallet(connection, rule.team_id).free(now) >= current.below:
            topups.set_armed(connection, rule.team_id, True)
            return False
        if not disarmed:
            return False
        order = TopUp(
            platform.ids.uuid7(),
            current.team_id,
            current.account_id,
            provider_name,
            current.amount,
            "pending",
            True,
            now,
        )
        topups.add_topup(connection, order)
        record(connection, _event(order, "auto_topup", f"free money fell below {current.below}", now))
        return True


def _rearm(connection: Connection, topup: TopUp, now: datetime) -> None:
    """After money came: a rule is armed again only when it is back above its mark."""
    rule = topups.get_rule(connection, topup.team_id)
    if rule is not None and ledger.team_wallet(connection, topup.team_id).free(now) >= rule.below:
        topups.set_armed(connection, topup.team_id, True)


def _start(platform: Platform, provider: PaymentProvider, topup_id: str) -> str | None:
    """Start (again) the payment of an order that waits; the page to pay on, if any."""
    with platform.database.read() as connection:
        topup = topups.get_topup(connection, topup_id)
    if topup is None or topup.state != "pending":
        return None
    started = provider.start(topup.id, topup.amount, platform.clock.now())
    if started.notice is not None:
        notify(platform, provider.name, started.notice)
    return started.pay_url


def _view(platform: Platform, identity: Identity, topup_id: str, pay_url: str | None = None) -> TopUpView:
    with platform.database.read() as connection:
        topup = _own(connection, identity, topup_id)
        return _shown(topup, topups.refunds_of(connection, [topup.id])[topup.id], pay_url)


def _own(connection: Connection, identity: Identity, topup_id: str) -> TopUp:
    topup = topups.get_topup(connection, topup_id)
    if topup is None or topup.team_id != identity.team_id:
        raise NotFound(f"There is no top-up {topup_id[:80]!r} in team {identity.team_name}.")
    return topup


def _shown(topup: TopUp, returned: tuple[Refund, ...], pay_url: str | None = None) -> TopUpView:
    return TopUpView(
        id=topup.id,
        provider=topup.provider,
        amount=topup.amount,
        state=topup.state,
        automatic=topup.automatic,
        created_at=topup.created_at,
        paid_at=topup.paid_at,
        refunded=total([one.amount for one in returned]),
        refunds=returned,
        pay_url=pay_url,
    )


def _check_amount(field: str, amount: Money) -> None:
    faults = _amount_faults(field, amount)
    if faults:
        raise Invalid(faults=faults)


def _amount_faults(field: str, amount: Money) -> list[FieldFault]:
    if ZERO < amount <= AMOUNT_MAX and amount.micro % MICRO_PER_FEN == 0:
        return []
    return [FieldFault(field, amount.decimal(), f"0.01 to {AMOUNT_MAX.decimal()} yuan in whole fen")]


def _event(topup: TopUp, kind: str, message: str, now: datetime) -> Event:
    return Event(
        now, "topup", topup.id, kind, "", message, team_id=topup.team_id, account_id=topup.account_id
    )
