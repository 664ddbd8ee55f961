"""The driver: wake-ups, back-off, statuses; a failing loop never stops itself or the others."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

import pytest

from starverse.app.one_by_one import each
from starverse.app.ports import Wakeups
from starverse.domain.errors import Conflict, InvariantBroken
from starverse.reconcilers.driver import (
    BACKOFF_SECONDS_MAX,
    RACES_MAX,
    Driver,
    OwnTurn,
    Reconciler,
    backoff_seconds,
)
from starverse.testing.platforms import SetClock


def driver_of(*reconcilers: Reconciler, wakeups: Wakeups | None = None) -> Driver:
    return Driver(reconcilers, SetClock(), wakeups or Wakeups())


def test_a_wake_up_runs_a_loop_long_before_its_period() -> None:
    ran, twice = [], threading.Event()

    def act() -> str:
        ran.append(1)
        if len(ran) == 2:
            twice.set()
        return "ran"

    wakeups = Wakeups()
    driver = driver_of(Reconciler("loop", "tests", 3600, act), wakeups=wakeups)
    driver.start()
    wakeups.wake("loop", "nobody-listens")
    assert twice.wait(10)
    driver.stop()
    assert driver.statuses()[0].message == "ran"


def test_a_failure_is_counted_shown_and_forgotten_after_the_next_good_round() -> None:
    outcomes = iter([InvariantBroken("broken"), ValueError("odd"), None])

    def act() -> str:
        outcome = next(outcomes)
        if outcome is not None:
            raise outcome
        return ""

    driver = driver_of(Reconciler("loop", "tests", 1, act))
    driver.run_once("loop")
    driver.run_once("loop")
    failing = driver.statuses()[0]
    assert (failing.healthy, failing.failures, failing.activations) == (False, 2, 2)
    assert failing.message == "ValueError: odd"
    driver.run_once("loop")
    healthy = driver.statuses()[0]
    assert (healthy.healthy, healthy.failures, healthy.activations) == (True, 0, 3)


def test_a_lost_race_is_no_failure() -> None:
    def act() -> str:
        raise Conflict

    driver = driver_of(Reconciler("loop", "tests", 1, act))
    driver.run_once("loop")
    assert driver.statuses()[0].healthy


def test_a_race_that_is_lost_again_and_again_is_a_failure() -> None:
    def act() -> str:
        raise Conflict

    driver = driver_of(Reconciler("loop", "tests", 1, act))
    for _ in range(RACES_MAX + 2):
        driver.run_once("loop")
    assert driver.statuses()[0].failures == 2


def test_no_wake_up_shortens_the_pause_after_a_failure() -> None:
    ran, failed = [], threading.Event()

    def act() -> str:
        ran.append(1)
        failed.set()
        raise ValueError

    wakeups = Wakeups()
    driver = driver_of(Reconciler("loop", "tests", 3600, act), wakeups=wakeups)
    driver.start()
    assert failed.wait(10)
    for _ in range(100):
        wakeups.wake("loop")
    driver.stop()
    assert len(ran) == 1


def test_the_fault_of_one_item_delays_no_round_of_the_others() -> None:
    ran, done = [], threading.Event()

    def act() -> str:
        ran.append(1)
        if len(ran) == 5:
            done.set()
        return ", ".join(each([0, 1], lambda item: str(1 // item)))

    driver = driver_of(Reconciler("loop", "tests", 0.001, act))
    driver.start()
    assert done.wait(60)
    driver.stop()
    assert driver.statuses()[0].failures >= 4
    assert "ZeroDivisionError" in driver.statuses()[0].message


@pytest.mark.parametrize(
    ("period", "failures", "pause"),
    [(1, 1, 1), (0.1, 1, 0.4), (0.1, 3, 1.6), (1, 50, BACKOFF_SECONDS_MAX), (3600, 1, BACKOFF_SECONDS_MAX)],
)
def test_pauses_double_and_end_at_half_a_minute(period: float, failures: int, pause: float) -> None:
    assert backoff_seconds(period, failures) == pytest.approx(pause)


def test_every_item_is_acted_on_and_the_first_real_fault_is_told() -> None:
    seen = []

    def act(item: int) -> str:
        seen.append(item)
        faults = {1: Conflict("lost"), 2: ValueError("odd"), 3: KeyError("late")}
        if item in faults:
            raise faults[item]
        return f"did {item}"

    with pytest.raises(ValueError, match="odd"):
        each([0, 1, 2, 3, 4], act)
    assert seen == [0, 1, 2, 3, 4]
    assert each([0, 4], act) == ["did 0", "did 4"]


class _Turns(OwnTurn):
    """A database that goes away and comes back."""

    def __init__(self) -> None:
        self.away = False

    def holds(self, name: str) -> bool:
        return not self.away

    def round_of(self, name: str) -> AbstractContextManager[bool]:
        return nullcontext(not self.away)

    def fault(self) -> str:
        return "the database does not answer" if self.away else ""


def test_what_kept_a_loop_from_its_turn_is_over_with_it_and_not_at_its_next_round() -> None:
    def act() -> str:
        return "did something"

    turns = _Turns()
    driver = Driver([Reconciler("slow", "tests", 300, act)], SetClock(), Wakeups(), turns)
    driver.run_once("slow")
    turns.away = True
    driver.run_once("slow")
    assert not driver.statuses()[0].healthy
    turns.away = False
    assert driver.statuses()[0].healthy
