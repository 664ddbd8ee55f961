"""Each rule of admission, at its edge; and what a refusal offers instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from starverse.domain.ids import TeamId
from starverse.domain.scheduling.calendar.admission import (
    Accepted,
    BookingRequest,
    BookingRules,
    Offer,
    RefusalReason,
    Refused,
    TeamState,
    admit,
)
from starverse.domain.scheduling.calendar.calendar import Calendar, Window

NOW = datetime(2026, 3, 10, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
TEAM = TeamId("team")
RULES = BookingRules(open_card_hours=2000)


def asked(cards: int = 8, lead: timedelta = 24 * HOUR, length: timedelta = 10 * HOUR) -> BookingRequest:
    return BookingRequest("b", TEAM, "p", cards, NOW + lead, NOW + lead + length, NOW)


def a_calendar(cards: int = 16) -> Calendar:
    calendar = Calendar()
    calendar.set_capacity("p", cards)
    return calendar


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asked(cards=0), RefusalReason.BAD_CARDS),
        (replace(asked(cards=12), per_node=8), RefusalReason.BAD_CARDS),
        (asked(length=timedelta(0)), RefusalReason.BAD_LENGTH),
        (asked(length=-HOUR), RefusalReason.BAD_LENGTH),
        (asked(length=timedelta(minutes=61, seconds=1)), RefusalReason.BAD_LENGTH),
        (asked(length=timedelta(hours=1, microseconds=1)), RefusalReason.BAD_LENGTH),
        (asked(length=timedelta(minutes=9)), RefusalReason.BAD_LENGTH),
        (asked(length=timedelta(days=32)), RefusalReason.BAD_LENGTH),
        (asked(lead=timedelta(seconds=-1)), RefusalReason.IN_THE_PAST),
        (asked(lead=timedelta(days=90, seconds=1)), RefusalReason.TOO_FAR_AHEAD),
        (asked(cards=17), RefusalReason.POOL_TOO_SMALL),
        (replace(asked(), pool="elsewhere"), RefusalReason.POOL_TOO_SMALL),
    ],
)
def test_what_no_calendar_could_meet_is_refused_by_name(
    request_: BookingRequest, reason: RefusalReason
) -> None:
    refused = admit(request_, a_calendar(), TeamState(), RULES)
    assert isinstance(refused, Refused)
    assert refused.reason is reason
    assert refused.message


@pytest.mark.parametrize(
    ("team", "reason"),
    [
        (TeamState(open_card_seconds=1920 * 3600), None),
        (TeamState(open_card_seconds=1920 * 3600 + 1), RefusalReason.OPEN_HOURS),
        (TeamState(ended=3, no_shows=3), None),
        (TeamState(ended=4, no_shows=2), None),
        (TeamState(ended=4, no_shows=3), RefusalReason.NO_SHOWS),
    ],
)
def test_a_team_that_hoards_is_bounded(team: TeamState, reason: RefusalReason | None) -> None:
    answer = admit(asked(), a_calendar(), team, RULES)
    assert (answer.reason if isinstance(answer, Refused) else None) is reason


def test_only_a_booking_made_a_week_ahead_takes_cards_of_an_endless_claim() -> None:
    calendar = a_calendar()
    calendar.claim("instance", "p", 12, NOW - HOUR)
    week = admit(asked(lead=168 * HOUR), calendar, TeamState(), RULES)
    assert week == Accepted(8, Window(NOW + 168 * HOUR, NOW + 178 * HOUR), 604_800, takes_on_demand=4)
    late = admit(asked(lead=168 * HOUR - timedelta(seconds=1)), calendar, TeamState(), RULES)
    assert isinstance(late, Refused)
    assert late.nearest == (
        Offer(8, Window(NOW + 168 * HOUR, NOW + 178 * HOUR)),
        Offer(4, Window(NOW + 168 * HOUR - timedelta(seconds=1), NOW + 178 * HOUR - timedelta(seconds=1))),
    )
    calendar.unclaim("instance")
    assert isinstance(admit(asked(), calendar, TeamState(), RULES), Accepted)


def test_a_full_window_is_refused_with_the_windows_around_it_and_with_fewer_cards() -> None:
    calendar = a_calendar()
    assert calendar.book("other", "p", 12, NOW + 24 * HOUR, NOW + 30 * HOUR)
    refused = admit(asked(), calendar, TeamState(), RULES)
    assert isinstance(refused, Refused)
    assert refused.reason is RefusalReason.NO_CARDS
    assert refused.nearest == (
        Offer(8, Window(NOW + 30 * HOUR, NOW + 40 * HOUR)),
        Offer(8, Window(NOW + 14 * HOUR, NOW + 24 * HOUR)),
        Offer(4, Window(NOW + 24 * HOUR, NOW + 34 * HOUR)),
    )
    for offer in refused.nearest:
        again = replace(asked(), cards=offer.cards, start=offer.window.start, end=offer.window.end)
        assert isinstance(admit(again, calendar, TeamState(), RULES), Accepted)


def test_a_window_is_as_long_as_it_lasts_across_a_change_of_clocks() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime(2026, 3, 28, 12, tzinfo=berlin)
    spring = replace(asked(), start=start, end=datetime(2026, 3, 29, 12, tzinfo=berlin))
    left_for_it = TeamState(open_card_seconds=(2000 - 8 * 23) * 3600)
    accepted = admit(spring, a_calendar(), left_for_it, RULES)
    assert isinstance(accepted, Accepted)
    assert accepted.window.seconds == 23 * 3600


def test_whole_nodes_leave_single_cards_aside() -> None:
    calendar = a_calendar(24)
    calendar.book("other", "p", 1, NOW + 24 * HOUR, NOW + 25 * HOUR)
    assert calendar.free("p", NOW + 24 * HOUR, NOW + 25 * HOUR, per_node=8) == 16
    assert isinstance(admit(replace(asked(cards=16), per_node=8), calendar, TeamState(), RULES), Accepted)
    assert isinstance(admit(replace(asked(cards=24), per_node=8), calendar, TeamState(), RULES), Refused)


def test_a_pool_that_shrinks_names_the_newest_bookings_that_no_longer_fit() -> None:
    calendar = a_calendar()
    for number in range(4):
        assert calendar.book(str(number), "p", 4, NOW, NOW + 10 * HOUR)
    assert calendar.book("late", "p", 8, NOW + 10 * HOUR, NOW + 12 * HOUR)
    calendar.set_capacity("p", 8)
    assert [booked.booking_id for booked in calendar.over_capacity("p", NOW)] == ["3", "2"]
    assert calendar.over_capacity("p", NOW + 10 * HOUR) == ()
    assert calendar.free("p", NOW, NOW + HOUR) == 0


def test_the_same_booking_again_is_one_booking_and_another_window_under_its_id_is_an_error() -> None:
    calendar = a_calendar(8)
    assert calendar.book("a", "p", 8, NOW, NOW + HOUR)
    assert calendar.book("a", "p", 8, NOW, NOW + HOUR)
    assert not calendar.book("b", "p", 1, NOW, NOW + HOUR)
    with pytest.raises(ValueError, match="another window"):
        calendar.book("a", "p", 4, NOW, NOW + HOUR)
    calendar.release("a", NOW + HOUR / 2)
    calendar.release("a", NOW + HOUR / 2)
    assert calendar.free("p", NOW + HOUR / 2, NOW + HOUR) == 8
    assert calendar.free("p", NOW, NOW + HOUR) == 0
