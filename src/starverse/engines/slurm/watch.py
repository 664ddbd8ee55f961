"""The queue, looked at again and again by a thread of its own, so that a Slurm that hangs holds up nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from starverse.domain.errors import StarverseError
from starverse.engines.slurm.back_off import pause_seconds
from starverse.engines.slurm.facts import SlurmJob, SlurmUnavailable

NUDGED_AFTER_SECONDS = 0.15
"""The least time between two looks, when somebody waits for the next one."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Jobs that are not over, by name, as of a look that began at ``begun`` (monotonic) and ``begun_at``
    (since the epoch)."""

    begun: float
    begun_at: float
    jobs: Mapping[str, SlurmJob]


class QueueWatch:
    """``load`` asks Slurm; ``news`` is called when the queue changed. After a failure it asks less and less
    often, up to :data:`~starverse.engines.slurm.back_off.SECONDS_MAX`."""

    def __init__(
        self, load: Callable[[], tuple[SlurmJob, ...]], news: Callable[[], None], poll_seconds: float
    ) -> None:
        self._load, self._news, self._poll_seconds = load, news, poll_seconds
        self._changed = threading.Condition()
        self._newest: Snapshot | None = None
        self._trouble = "it was not asked yet"
        self._failures = 0
        self._nudged = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="slurm-queue", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    @property
    def trouble(self) -> str:
        """Why the last look failed; ``""``: it did not."""
        with self._changed:
            return self._trouble

    def newest(self, seconds_max: float) -> Snapshot | None:
        """The newest snapshot that is not older than this."""
        with self._changed:
            young = self._newest is not None and time.monotonic() - self._newest.begun <= seconds_max
            return self._newest if young else None

    def nudge(self) -> None:
        """Have it look soon, unless Slurm is away."""
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def look_after(self, moment: float, patience_seconds: float) -> Snapshot:
        """A snapshot begun after ``moment`` (monotonic); raises ``SlurmUnavailable`` where none comes."""
        give_up = time.monotonic() + patience_seconds
        with self._changed:
            while self._newest is None or self._newest.begun < moment:
                left = give_up - time.monotonic()
                if self._failures > 1 or left <= 0 or self._closing:
                    raise SlurmUnavailable(f"no news of Slurm: {self._trouble or 'it takes too long'}")
                self._nudged = True
                self._changed.notify_all()
                self._changed.wait(left)
            return self._newest

    def _run(self) -> None:
        while not self._closing:
            self._look()
            self._pause()

    def _look(self) -> None:
        begun, begun_at = time.monotonic(), time.time()
        try:
            found = sorted(self._load(), key=lambda job: not job.waits)
            jobs = {job.name: job for job in found}  # of one name, the one that runs
        except Exception as error:  # whatever it is, the queue is looked at again
            if not isinstance(error, StarverseError):
                log.exception("the queue cannot be read")
            with self._changed:
                self._failures += 1
                self._trouble = error.detail if isinstance(error, StarverseError) else repr(error)
                self._changed.notify_all()
            return
        with self._changed:
            before = self._newest
            self._newest = Snapshot(begun, begun_at, jobs)
            self._failures, self._trouble = 0, ""
            self._changed.notify_all()
        if before is None or _shape(before.jobs) != _shape(jobs):
            self._news()

    def _pause(self) -> None:
        until = time.monotonic() + self._poll_seconds
        if self._failures:
            until += pause_seconds(self._poll_seconds, self._failures)
        earliest = time.monotonic() + NUDGED_AFTER_SECONDS
        with self._changed:
            self._nudged = False
            while not self._closing:
                due = earliest if self._nudged and not self._failures else until
                left = due - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)


def _shape(jobs: Mapping[str, SlurmJob]) -> Mapping[str, frozenset[str]]:
    return {name: job.states for name, job in jobs.items()}
