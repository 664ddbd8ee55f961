"""Waiting for what has to come, with a bound: tests look again and again instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class NotInTime(AssertionError):
    """Something that had to come did not; the text says what was waited for."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    """Ask again and again until the answer is true; that answer. Raises :class:`NotInTime`."""
    give_up = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > give_up:
            raise NotInTime(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
