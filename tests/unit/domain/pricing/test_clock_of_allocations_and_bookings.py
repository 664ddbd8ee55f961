"""Which seconds are charged: from ready to ended, cut at proof of life and deadline; what a booking pays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from starverse.domain.pricing.clock import (
    BookingReport,
    RunReport,
    charged_booking_span,
    charged_span,
    credited_span,
)
from starverse.domain.timespan import Timespan
from starverse.testing.pricing import at, span

READY = at("2026-03-10 10:00:00.400")
NOW = at("2026-03-10 12:00:00.900")

RUNS = [
    ("a start that failed", RunReport(None), None),
    ("a start that failed after a while", RunReport(None, timedelta(seconds=40)), None),
    ("start rounds up, end rounds down", RunReport(READY, timedelta(seconds=60.7)), ("10:00:01", "10:01:01")),
    ("less than a second is one", RunReport(READY, timedelta(seconds=0.1)), ("10:00:01", "10:00:02")),
    ("no time at all is one", RunReport(READY, timedelta(0)), ("10:00:01", "10:00:02")),
    ("a clock that went back is one", RunReport(READY, timedelta(seconds=-9)), ("10:00:01", "10:00:02")),
    ("running so far", RunReport(READY), ("10:00:01", "12:00:00")),
    (
        "running under notice",
        RunReport(READY, reclaim_deadline=at("2026-03-10 11:30:00.5")),
        ("10:00:01", "11:30:00"),
    ),
    (
        "spot that went beyond the deadline",
        RunReport(READY, timedelta(hours=1, seconds=9), reclaim_deadline=at("2026-03-10 11:00:00")),
        ("10:00:01", "11:00:00"),
    ),
    (
        "spot that left before the deadline",
        RunReport(READY, timedelta(minutes=5), reclaim_deadline=at("2026-03-10 11:00:00")),
        ("10:00:01", "10:05:00"),
    ),
    (
        "a lost node ends at its last proof of life",
        RunReport(READY, lost=True, proof_of_life_at=at("2026-03-10 10:45:10.9")),
        ("10:00:01", "10:45:10"),
    ),
    ("a node lost before its first heartbeat", RunReport(READY, lost=True), ("10:00:01", "10:00:02")),
]


@pytest.mark.parametrize(("report", "charged"), [r[1:] for r in RUNS], ids=[r[0] for r in RUNS])
def test_charged_seconds_of_an_allocation(report: RunReport, charged: tuple[str, str] | None) -> None:
    expected = span(*(f"2026-03-10 {clock}" for clock in charged)) if charged else None
    assert charged_span(report, NOW) == expected


def test_a_running_allocation_has_no_charged_second_before_its_first_is_over() -> None:
    assert charged_span(RunReport(READY), at("2026-03-10 10:00:01.999")) is None
    assert charged_span(RunReport(READY), at("2026-03-10 10:00:02")) == span(
        "2026-03-10 10:00:01", "2026-03-10 10:00:02"
    )


def test_after_a_node_loss_the_seconds_since_the_newest_checkpoint_come_back() -> None:
    charged = span("2026-03-10 10:00", "2026-03-10 11:00")
    assert credited_span(charged, at("2026-03-10 10:40:00.9")) == span("2026-03-10 10:40", "2026-03-10 11:00")
    assert credited_span(charged, None) == charged
    assert credited_span(charged, at("2026-03-10 09:00")) == charged
    assert credited_span(charged, at("2026-03-10 11:00:00.5")) is None


WINDOW = span("2026-03-20 00:00", "2026-03-20 10:00")
CLAIMED = at("2026-03-20 00:10")
SHORT = span("2026-03-20 00:00", "2026-03-20 00:20")


def booking(window: Timespan = WINDOW, **more: str) -> BookingReport:
    return BookingReport(window, **{name: at(f"2026-03-{text}") for name, text in more.items()})


BOOKINGS = [
    ("used to its end", booking(first_claimed_at="20 00:10"), ("00:00", "10:00")),
    ("released early", booking(first_claimed_at="20 00:10", released_at="20 04:00:00.7"), ("00:00", "04:00")),
    ("cancelled before the start", booking(cancelled_at="19 23:59:59"), None),
    ("cancelled at the start is a release", booking(cancelled_at="20 00:00"), ("00:00", "00:00:01")),
    ("nobody came", booking(), ("00:00", "00:30")),
    ("somebody came too late", booking(first_claimed_at="20 00:30"), ("00:00", "00:30")),
    ("somebody came at the last second", booking(first_claimed_at="20 00:29:59"), ("00:00", "10:00")),
    ("nobody came and it was given back", booking(released_at="20 00:12"), ("00:00", "00:12")),
    ("nobody came to a short one", booking(SHORT), ("00:00", "00:20")),
]


@pytest.mark.parametrize(("report", "charged"), [b[1:] for b in BOOKINGS], ids=[b[0] for b in BOOKINGS])
def test_charged_seconds_of_a_booking(report: BookingReport, charged: tuple[str, str] | None) -> None:
    expected = span(*(f"2026-03-20 {clock}" for clock in charged)) if charged else None
    assert charged_booking_span(report) == expected
