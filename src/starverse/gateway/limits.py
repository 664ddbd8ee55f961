"""How many strangers may stand at the door, and how often they may try: in memory, per server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Connections that are not signed in yet, in all and from one place; how often one place may fail to
    sign in within ``minutes``; how many keys one connection may offer."""

    strangers: int = 256
    strangers_per_place: int = 64
    failures_per_place: int = 120
    minutes: int = 5
    keys_offered: int = 20


class Doorkeeper:
    """Counts; used from one event loop."""

    def __init__(self, limits: DoorLimits | None = None) -> None:
        self.limits = limits or DoorLimits()
        self._strangers: Counter[str] = Counter()
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._failures = RateLimitItemPerMinute(self.limits.failures_per_place, self.limits.minutes)

    def enter(self, place: str) -> bool:
        """Whether someone from this place may try to sign in; if so, they count until :meth:`leave`."""
        if self._strangers.total() >= self.limits.strangers:
            return False
        if self._strangers[place] >= self.limits.strangers_per_place:
            return False
        if not self._limiter.test(self._failures, place):
            return False
        self._strangers[place] += 1
        return True

    def leave(self, place: str, signed_in: bool) -> None:
        """They are in, or gone without having been."""
        self._strangers[place] -= 1
        if self._strangers[place] <= 0:
            del self._strangers[place]
        if not signed_in:
            self._limiter.hit(self._failures, place)
