"""The driver: wake-ups, back-off, statuses; a failing loop never stops itself or the others."""

from __future__ import annotations

import threading

from starverse.app.ports import Wakeups
from starverse.domain.errors import Conflict, InvariantBroken
from starverse.reconcilers.driver import Driver, Reconciler
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
