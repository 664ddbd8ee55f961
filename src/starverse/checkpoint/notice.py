"""Hearing of a notice: the platform's file appears, or SIGUSR1 arrives."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType


@dataclass(frozen=True, slots=True)
class Notice:
    """Why this run has to end, and when at the latest (``None``: not told)."""

    reason: str
    deadline: datetime | None = None


class NoticeListener:
    """Knows whether this run was asked to end. Cheap to ask at every step of a training loop."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._signalled = threading.Event()

    def listen(self) -> bool:
        """Handle SIGUSR1 from now on, passing it on to a handler set before.

        Only the main thread can; returns ``False`` elsewhere, where the file alone is watched.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        before = signal.getsignal(signal.SIGUSR1)
        after = before if callable(before) else None

        def handle(number: int, frame: FrameType | None) -> None:
            self._signalled.set()
            if after is not None:
                after(number, frame)

        signal.signal(signal.SIGUSR1, handle)
        return True

    @property
    def requested(self) -> bool:
        """Whether a notice has been given."""
        return self._signalled.is_set() or (self.file is not None and self.file.exists())

    @property
    def notice(self) -> Notice | None:
        """The notice with its reason and deadline; ``None`` as long as there is none."""
        if not self.requested:
            return None
        try:
            body = json.loads(self.file.read_bytes()) if self.file is not None else {}
        except (OSError, ValueError, RecursionError):
            body = {}
        if not isinstance(body, dict) or not isinstance(body.get("reason"), str):
            return Notice("signal" if self._signalled.is_set() else "unknown")
        return Notice(body["reason"], _instant(body.get("deadline")))


def _instant(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
