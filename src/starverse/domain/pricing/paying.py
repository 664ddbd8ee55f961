"""Who pays a charge: coupons, then credit, then cash. One function for quotes, holds and posts.

Normative: pricing.md, Paying a charge. Coupons together pay at most ``share_max`` of what a subject accrues
after each was redeemed, cumulatively: ``floor(share_max x growth of A) - already paid``. Earliest expiry
first. A coupon pays for usage before its expiry even if that is metered later: pieces are in usage time, and
callers split them at ``pay_edges``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction

from starverse.domain.errors import InvariantBroken
from starverse.domain.money import ZERO, Money, floor_to_micro, round_to_fen, total
from starverse.domain.timespan import ceil_to_second, floor_to_second, utc

_NEVER = datetime.max.replace(tzinfo=UTC)


class SourceKind(StrEnum):
    """Where money comes from, in paying order."""

    COUPON = "coupon"
    CREDIT = "credit"
    CASH = "cash"


@dataclass(frozen=True, slots=True)
class Coupon:
    """A coupon with ``left`` to spend on usage in [redeemed_at, expires_at); ``None`` never expires."""

    id: str
    left: Money
    redeemed_at: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Credit:
    """A gift with ``left`` to spend on usage before ``expires_at``; ``None`` never expires."""

    id: str
    left: Money
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """What a wallet has free. ``cash`` is ``None`` where it is not to be the limit (a quote)."""

    coupons: tuple[Coupon, ...] = ()
    credits: tuple[Credit, ...] = ()
    cash: Money | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Usage time [start, end) of one subject and the growth of its running total over it.

    What is paid at one instant (a package at its purchase) has ``start == end``.
    """

    start: datetime
    end: datetime
    growth: Money


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a subject stood when a coupon was redeemed: what it had accrued, what coupons had paid of it."""

    accrued: Money
    coupon_paid: Money


@dataclass(frozen=True, slots=True)
class SubjectPaid:
    """What a subject accrued and coupons paid of it so far; kept with the subject between its holds."""

    accrued: Money = ZERO
    coupon_paid: Money = ZERO
    marks: Mapping[str, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """An amount from one source; ``id`` is empty for cash."""

    kind: SourceKind
    id: str
    amount: Money


@dataclass(frozen=True, slots=True)
class Payment:
    """Who pays, what nobody could pay (``missing``), and how sources and subject stand afterwards."""

    parts: tuple[Part, ...]
    missing: Money
    sources: Sources
    subject: SubjectPaid

    def amount_of(self, kind: SourceKind) -> Money:
        """The sum of the parts of one kind."""
        return total([part.amount for part in self.parts if part.kind is kind])


def pay(
    pieces: Sequence[Piece], sources: Sources, share_max: Fraction, subject: SubjectPaid | None = None
) -> Payment:
    """Split the growth of one subject's running total over its sources.

    ``pieces`` are in order of time, split at ``pay_edges``; a source that does not hold for a whole piece
    pays nothing of it. Never negative, never more than a source has left. What cash cannot pay is
    ``missing``: an outcome, not an error.
    """
    wallet = _Wallet(sources)
    subject = subject or SubjectPaid()
    missing = 0
    for piece in pieces:
        if piece.growth < ZERO:
            raise InvariantBroken(context={"piece": piece})
        marks = dict(subject.marks)
        for coupon in sources.coupons:
            if utc(coupon.redeemed_at) <= piece.start:
                marks.setdefault(coupon.id, Mark(subject.accrued, subject.coupon_paid))
        accrued = subject.accrued + piece.growth
        open_growth, coupon_paid = piece.growth.micro, subject.coupon_paid.micro
        for coupon in sorted(sources.coupons, key=_coupon_order):
            if _pays_for(piece, coupon.expires_at, since=coupon.redeemed_at):
                mark = marks[coupon.id]
                since_redeemed = share_max * (accrued - mark.accrued).micro
                allowance = floor_to_micro(since_redeemed).micro - (coupon_paid - mark.coupon_paid.micro)
                took = wallet.take(SourceKind.COUPON, coupon.id, min(open_growth, allowance))
                open_growth, coupon_paid = open_growth - took, coupon_paid + took
        for credit in sorted(sources.credits, key=_credit_order):
            if _pays_for(piece, credit.expires_at):
                open_growth -= wallet.take(SourceKind.CREDIT, credit.id, open_growth)
        missing += open_growth - wallet.take(SourceKind.CASH, "", open_growth)
        subject = SubjectPaid(accrued, Money(coupon_paid), marks)
    return Payment(wallet.parts(), Money(missing), wallet.sources(), subject)


def pay_edges(sources: Sources) -> list[datetime]:
    """The whole seconds at which what may pay changes: where usage has to be split before ``pay``.

    A coupon pays from the first whole second after its redemption on, and until the last one before its
    expiry: usage is counted in whole seconds, whatever the instant of a gift.
    """
    edges = [ceil_to_second(coupon.redeemed_at) for coupon in sources.coupons]
    edges += [floor_to_second(coupon.expires_at) for coupon in sources.coupons if coupon.expires_at]
    edges += [floor_to_second(credit.expires_at) for credit in sources.credits if credit.expires_at]
    return sorted(set(edges))


@dataclass(frozen=True, slots=True)
class HoldPeriod:
    """The pieces of one subject inside one of its hold periods, which ends at ``end``."""

    subject_id: str
    end: datetime
    pieces: tuple[Piece, ...]


def pay_in_order(
    periods: Iterable[HoldPeriod],
    sources: Sources,
    share_max: Fraction,
    subjects: Mapping[str, SubjectPaid] | None = None,
) -> list[tuple[HoldPeriod, Payment]]:
    """Pay the hold periods of several subjects from one wallet, in order of (period end, subject id)."""
    standing = dict(subjects or {})
    paid: list[tuple[HoldPeriod, Payment]] = []
    for period in sorted(periods, key=lambda period: (utc(period.end), period.subject_id)):
        payment = pay(period.pieces, sources, share_max, standing.get(period.subject_id))
        sources, standing[period.subject_id] = payment.sources, payment.subject
        paid.append((period, payment))
    return paid


def statement_total(charges: Sequence[Money]) -> tuple[Money, Money]:
    """The sum of a statement rounded to the fen, once and half up, and the rounding line that explains it."""
    exact = total(list(charges))
    rounded = round_to_fen(exact)
    return rounded, rounded - exact


class _Wallet:
    """What is left of each source while a charge is split, and what each has paid."""

    def __init__(self, sources: Sources) -> None:
        self._before = sources
        self._paid: dict[tuple[SourceKind, str], int] = {}
        self._left: dict[tuple[SourceKind, str], int | None] = {
            **{(SourceKind.COUPON, coupon.id): coupon.left.micro for coupon in sources.coupons},
            **{(SourceKind.CREDIT, credit.id): credit.left.micro for credit in sources.credits},
            (SourceKind.CASH, ""): None if sources.cash is None else sources.cash.micro,
        }

    def take(self, kind: SourceKind, source_id: str, wanted: int) -> int:
        """Take up to ``wanted``; returns what was there to take, never less than nothing."""
        key = (kind, source_id)
        left = self._left[key]
        took = max(0, wanted if left is None else min(wanted, left))
        if took:
            self._left[key] = None if left is None else left - took
            self._paid[key] = self._paid.get(key, 0) + took
        return took

    def parts(self) -> tuple[Part, ...]:
        order = list(SourceKind)
        paid = sorted(self._paid.items(), key=lambda item: order.index(item[0][0]))
        return tuple(Part(kind, source_id, Money(amount)) for (kind, source_id), amount in paid)

    def sources(self) -> Sources:
        def left(kind: SourceKind, source_id: str) -> Money:
            return Money(self._left[kind, source_id] or 0)

        return Sources(
            tuple(
                replace(coupon, left=left(SourceKind.COUPON, coupon.id)) for coupon in self._before.coupons
            ),
            tuple(
                replace(credit, left=left(SourceKind.CREDIT, credit.id)) for credit in self._before.credits
            ),
            None if self._before.cash is None else left(SourceKind.CASH, ""),
        )


def _pays_for(piece: Piece, expires_at: datetime | None, since: datetime | None = None) -> bool:
    if since is not None and piece.start < utc(since):
        return False
    return expires_at is None or (piece.start < utc(expires_at) and piece.end <= utc(expires_at))


def _coupon_order(coupon: Coupon) -> tuple[datetime, datetime, str]:
    return (utc(coupon.expires_at) if coupon.expires_at else _NEVER, utc(coupon.redeemed_at), coupon.id)


def _credit_order(credit: Credit) -> tuple[datetime, str]:
    return (utc(credit.expires_at) if credit.expires_at else _NEVER, credit.id)
