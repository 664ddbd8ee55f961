"""What all followers of logs wait for, read once for all of them: no follower asks the database.

One thread reads the pulses (state, attempt, notice) of the followed jobs twice a second while there are
followers; it belongs to no event loop, so one hub serves any number of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import structlog

from starverse.app.logs import JobPulse

PERIOD_SECONDS = 0.5

_log = structlog.get_logger(__name__)


class PulseHub:
    """Keeps the newest pulse of every followed job."""

    def __init__(
        self,
        read: Callable[[Collection[str]], Mapping[str, JobPulse]],
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._read = read
        self._period_seconds = period_seconds
        self._lock = threading.Lock()
        self._followers: Counter[str] = Counter()
        self._newest: dict[str, JobPulse] = {}
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()

    @contextmanager
    def watch(self, first: JobPulse) -> Iterator[Callable[[], JobPulse]]:
        """Follow a job; the callable gives its newest pulse without waiting."""
        job_id = first.job_id
        with self._lock:
            self._followers[job_id] += 1
            self._newest.setdefault(job_id, first)
            if self._thread is None:
                self._idle = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._idle,), name="log-pulses", daemon=True
                )
                self._thread.start()
        try:
            yield lambda: self._newest.get(job_id, first)
        finally:
            with self._lock:
                self._followers[job_id] -= 1
                if self._followers[job_id] == 0:
                    del self._followers[job_id]
                    self._newest.pop(job_id, None)
                if not self._followers:
                    self._idle.set()
                    self._thread = None

    def _run(self, idle: threading.Event) -> None:
        while not idle.wait(self._period_seconds):
            with self._lock:
                followed = list(self._followers)
            try:
                found = self._read(followed)
            except Exception as error:  # the database may be away for a while; followers wait
                _log.warning("pulses were not read", exc_info=error)
                continue
            with self._lock:
                self._newest.update(
                    (job_id, pulse) for job_id, pulse in found.items() if job_id in self._followers
                )
