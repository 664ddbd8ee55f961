"""Not asking again at once what just was not answered: each call may cost its whole time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from starverse.engines.base import EngineUnavailable
from starverse.engines.slurm.facts import SlurmUnavailable

SECONDS_MAX = 30.0


def pause_seconds(first: float, failures: int) -> float:
    """The pause after so many failures in a row: it doubles, and ends at ``SECONDS_MAX`` however many."""
    return min(SECONDS_MAX, first * float(2 ** min(failures, 10)))


class BackOff:
    """``with back_off:`` around a kind of call. After a failure, the next ones are refused for a while, with
    the same words, that doubles from failure to failure. Other errors than *unavailable* are answers."""

    def __init__(self, seconds: float, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._elapsed = seconds, elapsed
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._why = ""

    def __enter__(self) -> None:
        with self._lock:
            if self._elapsed() < self._until:
                raise SlurmUnavailable(self._why)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if isinstance(error, EngineUnavailable):
                self._failures += 1
                self._why = error.detail
                self._until = self._elapsed() + pause_seconds(self._seconds, self._failures)
            else:
                self._failures = 0
