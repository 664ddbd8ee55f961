"""What an hour of an instance, or a month of a disk, costs: said before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal

from starverse.cli.remote.wording import when
from starverse.client.shapes import Offer

_EXACT = Context(prec=60)
NO_GPU = "no_gpu"


def hours_of(offers: Iterable[Offer], tariff: str, cards: int) -> list[Decimal]:
    """Yuan per hour in each pool that sells the tariff, each value once, lowest first; without a GPU one card
    counts whatever the instance's cards."""
    counted = Decimal(1 if tariff == NO_GPU else cards)
    rates = {
        Decimal(line["rate"]) for offer in offers for line in offer["prices"] if line["tariff"] == tariff
    }
    return sorted(_EXACT.multiply(rate, counted) for rate in rates)


def price_line(offers: Sequence[Offer], *, card: str, cards: int, tariff: str) -> str | None:
    """``price: 2 x rtx4090, on_demand: CNY 3.32 per hour``; ``None``: no pool sells it."""
    pools = [offer for offer in offers if offer["card"] == card]
    hours = hours_of(pools, tariff, cards)
    if not hours:
        return None
    what = f"{cards} x {card}, {tariff}" if tariff != NO_GPU else f"{NO_GPU} ({cards} x {card} stay away)"
    span = f"CNY {yuan_text(hours[0])} per hour"
    if len(hours) > 1:
        span = f"CNY {yuan_text(hours[0])} to {yuan_text(hours[-1])} per hour, by pool"
    changes = sorted({change for offer in pools if (change := offer.get("next_price_change_at"))})
    until = f" (changes next at {when(changes[0])})" if changes else ""
    return f"price: {what}: {span}{until}"


def yuan_text(amount: Decimal) -> str:
    """Exact, with at least two places: ``3.32``, ``0.498``, ``1.00``."""
    whole, _, places = format(amount, "f").partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')}"
