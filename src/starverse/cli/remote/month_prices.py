"""What a disk costs: its GiB-months beyond the team's free ones, said before it is made or grows."""

from __future__ import annotations

from decimal import Decimal

from starverse.cli.remote.hour_prices import yuan_text
from starverse.cli.remote.session import Session


def month_price(rate: Decimal, gib: int, free_gib_left: int) -> tuple[Decimal, int]:
    """Yuan per month, and how many GiB are charged."""
    charged = max(0, gib - max(0, free_gib_left))
    return rate * charged, charged


def tell_month_price(session: Session, *, kind: str, gib: int, instead_of: int = 0) -> None:
    """One line on stderr: ``price: CNY 10.00 per month: 50 of 100 GiB at CNY 0.20, the others are free``."""
    client = session.client()
    prices = client.disks.prices()
    held = sum(one["gib"] for one in client.disks.list()) - instead_of
    rate = Decimal(prices["block_gib_month"] if kind == "block" else prices["shared_gib_month"])
    amount, charged = month_price(rate, gib, prices["free_gib"] - held)
    line = f"price: CNY {yuan_text(amount)} per month: {charged} of {gib} GiB at CNY {yuan_text(rate)}"
    if charged < gib:
        line += f"; the other {gib - charged} are among the team's {prices['free_gib']} free ones"
    session.note(line)
