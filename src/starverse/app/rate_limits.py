"""How often someone may try to sign in or register: kept in memory, per process."""

from __future__ import annotations

from dataclasses import dataclass

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from starverse.domain.errors import LimitExceeded


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """Attempts within ``minutes``: failed sign-ins of one mail address from one place, all sign-ins from
    one place, registrations from one place."""

    minutes: int = 5
    failed_logins_per_mail_and_place: int = 10
    logins_per_place: int = 200
    registrations_per_place: int = 50


class Attempts:
    """Counts attempts in a moving window; raises :class:`LimitExceeded` with the seconds to wait."""

    def __init__(self, limits: AttemptLimits | None = None) -> None:
        chosen = limits or AttemptLimits()
        self._window_seconds = chosen.minutes * 60
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._by_mail = RateLimitItemPerMinute(chosen.failed_logins_per_mail_and_place, chosen.minutes)
        self._by_place = RateLimitItemPerMinute(chosen.logins_per_place, chosen.minutes)
        self._registrations = RateLimitItemPerMinute(chosen.registrations_per_place, chosen.minutes)

    def count_login(self, email: str, place: str) -> None:
        """Count before the password is looked at, so that parallel guesses count too."""
        self._count(self._by_place, "login", place)
        self._count(self._by_mail, "mail", email, place)

    def login_succeeded(self, email: str, place: str) -> None:
        """Forget the failed sign-ins before this one."""
        self._limiter.clear(self._by_mail, "mail", email, place)

    def count_registration(self, place: str) -> None:
        self._count(self._registrations, "register", place)

    def _count(self, item: RateLimitItem, *key: str) -> None:
        if not self._limiter.hit(item, *key):
            raise LimitExceeded(
                "Too many attempts from here; wait before the next one.",
                retry_after_seconds=self._window_seconds,
                context={"key": key},
            )
