"""What disks cost: GiB-months by the second.

Normative: pricing.md (storage). Basis: the price of a GiB-month is spread over the seconds of the *local
calendar month* it falls in, so that a whole month costs exactly the price whatever its length, and a month is
the sum of its days in every zone (scenarios 5 and 6). Neither tariffs nor membership nor the floor apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.money import Money
from starverse.domain.pricing.price_book import PriceBook, PriceBooks
from starverse.domain.pricing.rating import RunningTotal
from starverse.domain.pricing.windows import epoch_second, instant_of, local_month_pieces
from starverse.domain.timespan import Timespan


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """A disk of ``gib`` over whole seconds; ``free_gib`` of it cost nothing (see ``free_gib_shares``)."""

    span: Timespan
    kind: DiskKind
    gib: int
    free_gib: int = 0


@dataclass(frozen=True, slots=True)
class DiskSegment:
    """Part of a disk's usage in one calendar month under one price; ``amount`` is the growth of its total."""

    span: Timespan
    charged_gib: int
    price_per_gib_month: Money
    month_seconds: int
    exact: Fraction
    amount: Money


def charge_disk(
    usages: Sequence[DiskUsage], books: PriceBooks, before: RunningTotal | None = None
) -> tuple[tuple[DiskSegment, ...], RunningTotal]:
    """Price one disk's usages in order of time; storage follows the version in effect at each instant."""
    running = before or RunningTotal()
    segments: list[DiskSegment] = []
    for usage in sorted(usages, key=lambda usage: usage.span):
        if usage.gib < 0 or usage.free_gib < 0:
            raise Invalid(faults=[FieldFault("gib", str(min(usage.gib, usage.free_gib)), "at least 0")])
        charged = max(0, usage.gib - usage.free_gib)
        for part in usage.span.split_at(books.edges(usage.span.start, usage.span.end)):
            book = books.at(part.start)
            price = gib_month_price(book, usage.kind)
            start, end = epoch_second(part.start), epoch_second(part.end)
            for begins, ends, month_seconds in local_month_pieces(start, end, book.timezone):
                exact = Fraction(price.micro * charged * (ends - begins), month_seconds)
                running, amount = running.add(exact)
                span = Timespan(instant_of(begins), instant_of(ends))
                segments.append(DiskSegment(span, charged, price, month_seconds, exact, amount))
    return tuple(segments), running


def free_gib_shares(book: PriceBook, disks: Sequence[tuple[str, int]]) -> dict[str, int]:
    """How a team's free GiB fall to its disks ``(id, gib)``: in order of id, each as much as it can use."""
    left = book.storage.free_gib
    shares: dict[str, int] = {}
    for disk_id, gib in sorted(disks):
        shares[disk_id] = min(left, gib)
        left -= shares[disk_id]
    return shares


def gib_month_price(book: PriceBook, kind: DiskKind) -> Money:
    """What a GiB costs for a month."""
    return book.storage.block_gib_month if kind is DiskKind.BLOCK else book.storage.shared_gib_month
