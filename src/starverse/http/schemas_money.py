"""Shapes of wallets and transfers, top-ups and bills. Every amount is ``x_micro`` and ``x``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from starverse.app.bill import Explanation
from starverse.app.disks.bill import DiskExplanation
from starverse.http.shapes import Amount, In, InstantText, Out


class GiftOut(Out):
    """A gift of credit or a coupon; ``expires_at`` null: never."""

    id: str
    label: str
    left_micro: int
    left: str
    expires_at: InstantText | None


class WalletOut(Out):
    """A team's wallet; ``free`` is credit and cash that no hold keeps back."""

    team: str
    cash_micro: int
    cash: str
    credits: list[GiftOut]
    coupons: list[GiftOut]
    held_micro: int
    held: str
    free_micro: int
    free: str
    burn_micro_per_hour: int
    burn_per_hour: str
    runway_seconds: int | None
    warnings: list[str]


class TransferOut(Out):
    """What moved in the wallet: ``amount`` gained (below zero: lost), ``held`` kept back."""

    id: str
    at: InstantText
    kind: str
    purpose: str
    subject: str | None
    account: str
    amount_micro: int
    amount: str
    held_micro: int
    held: str


class TopUpIn(In):
    """How much to top up, in yuan, and through whom."""

    amount: Amount
    provider: Annotated[str, Field(max_length=40)] = "mock"


class RefundIn(In):
    """How much to pay back; left out: all of the top-up that is still there in cash."""

    amount: Amount | None = None


class RefundOut(Out):
    """Money paid back to where it came from."""

    id: str
    topup_id: str
    amount_micro: int
    amount: str
    created_at: InstantText


class TopUpOut(Out):
    """A top-up; ``pay_url`` is set while it waits to be paid on a page."""

    id: str
    provider: str
    amount_micro: int
    amount: str
    state: str
    automatic: bool
    created_at: InstantText
    paid_at: InstantText | None
    refunded_micro: int
    refunded: str
    refunds: list[RefundOut]
    pay_url: str | None


class AutoTopUpIn(In):
    """Top up by ``amount`` each time free money falls below ``below``."""

    below: Amount
    amount: Amount


class AutoTopUpOut(Out):
    """``armed`` false: it fired and waits until free money is back above the mark."""

    below_micro: int
    below: str
    amount_micro: int
    amount: str
    armed: bool


class NotificationOut(Out):
    """The order that was paid."""

    order: str


class SegmentOut(Out):
    """Part of a charge at one rate; ``on_demand`` is what the same seconds cost on demand."""

    start: InstantText
    end: InstantText
    cards: int
    tariff: str
    rate_micro_per_card_hour: str
    factors: dict[str, Any]
    amount_micro: int
    amount: str
    on_demand_micro: int
    on_demand: str


class ChargeOut(Out):
    """A charge: what ran when, at which rates, and who paid."""

    id: str
    job: str
    job_id: str
    attempt: int
    start: InstantText
    end: InstantText
    tariff: str
    card: str | None
    fabric: str
    cost_label: str | None
    total_micro: int
    total: str
    coupon_micro: int
    coupon: str
    credit_micro: int
    credit: str
    cash_micro: int
    cash: str
    written_off_micro: int
    written_off: str
    on_demand_micro: int
    on_demand: str
    segments: list[SegmentOut]


class DiskSegmentOut(Out):
    """Part of a disk's charge: ``free_gib`` of ``gib`` cost nothing, the others the price of a GiB-month
    by the seconds of that month."""

    start: InstantText
    end: InstantText
    gib: int
    free_gib: int
    price_micro_per_gib_month: int
    price_per_gib_month: str
    month_seconds: int
    amount_micro: int
    amount: str


class DiskChargeOut(Out):
    """What a disk cost over a span, and who paid."""

    id: str
    disk: str
    disk_id: str
    kind: str
    start: InstantText
    end: InstantText
    total_micro: int
    total: str
    coupon_micro: int
    coupon: str
    credit_micro: int
    credit: str
    cash_micro: int
    cash: str
    written_off_micro: int
    written_off: str
    segments: list[DiskSegmentOut]


class OpenEstimateOut(Out):
    """What runs now and is not charged yet."""

    job: str
    attempt: int
    since: InstantText
    until: InstantText
    amount_micro: int
    amount: str


class BillOut(Out):
    """``rounded`` is ``total`` to the fen, once per statement; ``rounding`` is the difference. ``disks``
    are on the bill of a month alone."""

    team: str
    total_micro: int
    total: str
    coupon_micro: int
    coupon: str
    credit_micro: int
    credit: str
    cash_micro: int
    cash: str
    written_off_micro: int
    written_off: str
    credit_back_micro: int
    credit_back: str
    rounding_micro: int
    rounding: str
    rounded_micro: int
    rounded: str
    lost_work_seconds: int
    on_demand_total_micro: int
    on_demand_total: str
    saved_micro: int
    saved: str
    charges: list[ChargeOut]
    disks: list[DiskChargeOut]
    open: list[OpenEstimateOut]


class BookRefOut(Out):
    """A price-book version that a charge used."""

    id: str
    effective_from: InstantText


class ChargeTransferOut(Out):
    """Money that moved for a charge, between ledger accounts of these kinds."""

    id: str
    at: InstantText
    kind: str
    purpose: str
    debit: str
    credit: str
    amount_micro: int
    amount: str


class ExplanationOut(ChargeOut):
    """A charge with its arithmetic in words; ``price_book`` is the version at its start."""

    subject: Literal["allocation"] = "allocation"
    steps: list[str]
    price_book: BookRefOut | None
    price_books: list[BookRefOut]
    transfers: list[ChargeTransferOut]

    @classmethod
    def made(cls, view: Explanation) -> ExplanationOut:
        first = view.price_books[0] if view.price_books else None
        return cls.of(
            view.charge,
            steps=view.steps,
            price_book=first,
            price_books=view.price_books,
            transfers=view.transfers,
        )


class DiskExplanationOut(DiskChargeOut):
    """A disk's charge with its arithmetic in words."""

    subject: Literal["disk"] = "disk"
    steps: list[str]
    price_books: list[BookRefOut]
    transfers: list[ChargeTransferOut]

    @classmethod
    def made(cls, view: DiskExplanation) -> DiskExplanationOut:
        return cls.of(view.charge, steps=view.steps, price_books=view.price_books, transfers=view.transfers)
