"""The platform's clock: it follows the machine's forwards and never goes back, nor does it stand still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starverse.app.ports import SystemClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


class Machine:
    """A wall clock that is set by hand, and an elapsed time that only grows."""

    def __init__(self) -> None:
        self.wall, self.elapsed = NOON, 1000.0
        self.clock = SystemClock(lambda: self.wall, lambda: self.elapsed)

    def pass_by(self, seconds: float) -> datetime:
        self.wall += timedelta(seconds=seconds)
        self.elapsed += seconds
        return self.clock.now()


def test_it_follows_the_wall_clock_also_when_that_jumps_ahead() -> None:
    machine = Machine()
    machine.clock.now()
    assert machine.pass_by(60) == NOON + timedelta(seconds=60)
    machine.wall += timedelta(hours=1)
    assert machine.clock.now() == machine.wall


def test_after_a_jump_back_it_goes_on_a_little_slower_until_the_wall_clock_has_caught_up() -> None:
    machine = Machine()
    before = machine.clock.now()
    machine.wall -= timedelta(seconds=100)
    assert machine.clock.now() == before
    assert machine.pass_by(100) == before + timedelta(seconds=90)
    seen = [machine.pass_by(100) for _ in range(20)]
    assert seen == sorted(seen)
    assert seen[-1] == machine.wall, "the gap of 100 s is closed after 1000 s"
