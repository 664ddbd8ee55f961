"""What the use cases need of the outside world, injected: time, ids, secrets, wake-ups."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import uuid_utils


class Clock(Protocol):
    """Gives the time; read once per transaction and passed on as ``now``."""

    def now(self) -> datetime:
        """The present instant in UTC, never earlier than one given before."""
        ...


class Ids(Protocol):
    """Makes ids and secrets."""

    def uuid7(self) -> str: ...

    def secret(self) -> str:
        """An unguessable URL-safe text of at least 256 bits."""
        ...


class SystemClock:
    """The machine's clock, kept from going back: a jump backwards stands still until time catches up."""

    def __init__(self, read: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._read = read
        self._newest: datetime | None = None
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            read = self._read()
            if self._newest is None or read > self._newest:
                self._newest = read
            return self._newest


class RandomIds:
    """Time-ordered uuid7 ids and secrets of the operating system."""

    def uuid7(self) -> str:
        return str(uuid_utils.uuid7())

    def secret(self) -> str:
        return secrets.token_urlsafe(32)


class Wakeups:
    """Tells reconcilers that something changed; only a hint, they also run periodically."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def listen(self, name: str, wake: Callable[[], None]) -> None:
        self._listeners.setdefault(name, []).append(wake)

    def wake(self, *names: str) -> None:
        for name in names:
            for listener in self._listeners.get(name, ()):
                listener()
