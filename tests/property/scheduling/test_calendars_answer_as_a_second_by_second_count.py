"""Random bookings, claims and releases: every answer equals that of a plain array of one number a second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.scheduling.calendar.calendar import Calendar, Window

ZERO = datetime(2026, 3, 8, tzinfo=UTC)
LENGTH, CAPACITY = 90, 12


def at(second: int) -> datetime:
    return ZERO + timedelta(seconds=second)


class Plain:
    """The oracle: cards booked and claimed in each second of ``LENGTH``."""

    def __init__(self) -> None:
        self.booked, self.claimed = [0] * LENGTH, [0] * LENGTH

    def free(self, start: int, end: int, beside: bool) -> int:
        both = [b + (c if beside else 0) for b, c in zip(self.booked, self.claimed, strict=True)]
        return max(CAPACITY - max(both[start:end]), 0)

    def starts(self, cards: int, seconds: int, first: int, last: int, beside: bool) -> list[int]:
        return [
            start
            for start in range(first, last - seconds + 1)
            if self.free(start, start + seconds, beside) >= cards
        ]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), block=st.sampled_from([2, 3, 8, 1024]))
def test_whatever_was_booked_claimed_and_released(seed: int, block: int) -> None:
    random, plain, calendar = Random(seed), Plain(), Calendar(block)
    calendar.set_capacity("p", CAPACITY)
    open_windows: dict[str, tuple[int, int, int]] = {}
    for number in range(40):
        start = random.randrange(LENGTH - 1)
        end = random.randint(start + 1, min(LENGTH, start + random.choice((3, 20, LENGTH))))
        cards = random.randint(1, 6)
        kind = random.random()
        if kind < 0.6:
            fits = plain.free(start, end, False) >= cards
            assert calendar.book(str(number), "p", cards, at(start), at(end)) == fits
            if fits:
                open_windows[str(number)] = (start, end, cards)
                plain.booked[start:end] = [level + cards for level in plain.booked[start:end]]
        elif kind < 0.7:
            calendar.claim(str(number), "p", cards, at(0), at(end))
            plain.claimed[:end] = [level + cards for level in plain.claimed[:end]]
        elif open_windows:
            name = random.choice(sorted(open_windows))
            begin, stop, held = open_windows.pop(name)
            release = max(begin, start)
            calendar.release(name, at(start))
            plain.booked[release:stop] = [level - held for level in plain.booked[release:stop]]
        _same_answers(random, calendar, plain)


def _same_answers(random: Random, calendar: Calendar, plain: Plain) -> None:
    first = random.randrange(LENGTH - 1)
    last, seconds = random.randint(first + 1, LENGTH), random.randint(1, 30)
    cards, beside = random.randint(1, CAPACITY), random.random() < 0.5
    assert calendar.free("p", at(first), at(last), beside_on_demand=beside) == plain.free(first, last, beside)
    starts = plain.starts(cards, seconds, first, last, beside)
    asked = ("p", cards, seconds, at(first), at(last))
    assert calendar.first_window(*asked, beside_on_demand=beside) == _window(starts[:1], seconds)
    assert calendar.last_window(*asked, beside_on_demand=beside) == _window(starts[-1:], seconds)


def _window(starts: list[int], seconds: int) -> Window | None:
    return Window(at(starts[0]), at(starts[0] + seconds)) if starts else None
