"""Shapes of wallets and transfers, top-ups and bills. Every amount is ``x_micro`` and ``x``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

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
