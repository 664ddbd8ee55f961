"""Random calendars and requests: offers would be accepted as they are, what is accepted is booked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.ids import TeamId
from starverse.domain.scheduling.calendar.admission import (
    Accepted,
    BookingRequest,
    BookingRules,
    RefusalReason,
    TeamState,
    admit,
)
from starverse.domain.scheduling.calendar.calendar import Calendar

NOW = datetime(2026, 3, 8, 12, 0, 0, 500_000, tzinfo=UTC)
FIRST = NOW.replace(microsecond=0)
HOUR = timedelta(hours=1)
RULES = BookingRules(open_card_hours=None, ahead_seconds=20 * 86_400, search_seconds=4 * 86_400)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_offers_are_accepted_as_they_are(seed: int) -> None:
    random, calendar = Random(seed), Calendar(4)
    calendar.set_capacity("pool", 24)
    for number in range(3):
        until = random.choice((None, NOW + random.randint(1, 300) * HOUR))
        calendar.claim(f"claim{number}", "pool", random.randint(1, 6), NOW - HOUR, until)
    refused = 0
    for number in range(60):
        start = FIRST + random.randint(1, 480) * HOUR
        per_node = random.choice((1, 8))
        cards = random.randint(1, 24 // per_node) * per_node
        end = start + random.randint(1, 60) * HOUR
        request = BookingRequest(str(number), TeamId("t"), "pool", cards, start, end, NOW, per_node)
        answer = admit(request, calendar, TeamState(), RULES)
        if isinstance(answer, Accepted):
            assert calendar.book(request.booking_id, "pool", cards, start, end)
            continue
        assert answer.reason is RefusalReason.NO_CARDS
        refused += 1
        for offer in answer.nearest:
            again = replace(request, cards=offer.cards, start=offer.window.start, end=offer.window.end)
            assert isinstance(admit(again, calendar, TeamState(), RULES), Accepted)
    assert refused
