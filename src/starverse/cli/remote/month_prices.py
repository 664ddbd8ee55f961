"""What a disk costs: its GiB-months beyond the team's free ones, said before it is made or resized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from starverse.cli.remote.hour_prices import yuan_text
from starverse.cli.remote.session import Session

NEWEST = "~"
"""Sorts after every id: the disk that there is not yet."""
_COSTS = ("making", "ready")


@dataclass(frozen=True, slots=True)
class Sized:
    """A disk as far as its price goes; ids are in the order in which disks were made."""

    id: str
    kind: str
    gib: int


def charged_gib(disks: Sequence[Sized], free_gib: int) -> dict[str, int]:
    """How many GiB of each are charged: the free ones fall to the disks in the order of their making."""
    left, charged = free_gib, {}
    for disk in sorted(disks, key=lambda disk: disk.id):
        free = min(left, disk.gib)
        left -= free
        charged[disk.id] = disk.gib - free
    return charged


def month_price(disks: Sequence[Sized], rates: Mapping[str, Decimal], free_gib: int) -> Decimal:
    """Yuan per month of all of them together."""
    charged = charged_gib(disks, free_gib)
    return sum((rates[disk.kind] * charged[disk.id] for disk in disks), Decimal(0))


def tell_month_price(session: Session, *, kind: str, gib: int, resized: str = NEWEST) -> None:
    """One line on stderr: ``price: CNY 10.00 per month: 50 of 100 GiB at CNY 0.20, the others are free``;
    of a disk that is ``resized`` (its id) also what all of them come to, as the free GiB move."""
    client = session.client()
    prices = client.disks.prices()
    rates = {
        "shared": Decimal(prices["shared_gib_month"]),
        "block": Decimal(prices["block_gib_month"]),
    }
    free_gib = prices["free_gib"]
    before = [
        Sized(one["id"], one["kind"], one["gib"]) for one in client.disks.list() if one["state"] in _COSTS
    ]
    after = [*(one for one in before if one.id != resized), Sized(resized, kind, gib)]
    charged = charged_gib(after, free_gib)[resized]
    amount, rate = yuan_text(rates[kind] * charged), yuan_text(rates[kind])
    line = f"price: CNY {amount} per month: {charged} of {gib} GiB at CNY {rate}"
    if charged < gib:
        line += f"; the other {gib - charged} are among the team's {free_gib} free ones"
    if resized != NEWEST:
        now, then = (yuan_text(month_price(disks, rates, free_gib)) for disks in (before, after))
        line += f"; all disks together CNY {then} instead of CNY {now}"
    session.note(line)
