"""Shapes of wallets and transfers, top-ups and bills. Every amount is ``x_micro`` and ``x``."""

from __future__ import annotations

from starverse.http.shapes import InstantText, Out


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
