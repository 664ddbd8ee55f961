"""What runs now and is not charged yet, priced as its charge will be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from starverse.db.metering import Meter
from starverse.domain.money import Money
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import MemberChange, Subject, SubjectKind, Terms, Usage, charge_usages
from starverse.domain.timespan import Timespan, ceil_to_second, floor_to_second
from starverse.domain.workloads.records import Allocation


@dataclass(frozen=True, slots=True)
class Uncharged:
    """The seconds of a run since its last charge, and what they cost."""

    span: Timespan
    amount: Money


def uncharged(
    run: Allocation,
    meter: Meter | None,
    members: Mapping[str, tuple[MemberChange, ...]],
    books: PriceBooks,
    now: datetime,
) -> Uncharged | None:
    """``None``: nothing is due, since it does not run or was charged to the second.

    ``members`` holds the membership history of the account that started it.
    """
    if not run.open or run.ready_at is None or run.card_model is None:
        return None
    since = meter.metered_until if meter else ceil_to_second(run.ready_at)
    until = floor_to_second(now)
    if until <= since:
        return None
    terms = Terms(run.tariff, run.card_model, run.fabric, members=members[run.account_id])
    span = Timespan(since, until)
    usage = Usage(Subject(SubjectKind.ALLOCATION, run.id), span, run.cards_priced, terms)
    return Uncharged(span, charge_usages([usage], books, meter.running if meter else None).total)
