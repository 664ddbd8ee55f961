"""What a benchmark started ends with it, also where it is ended by SIGTERM (``timeout`` does that)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM leaves through every ``with`` and ``finally`` on the way, as Ctrl-C does. Main thread only."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # the way out is not cut short by another one
    raise SystemExit(128 + number)
