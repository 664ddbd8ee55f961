"""Syncs: disks are copied to and from remotes as was asked and scheduled.

Target set: a sync runs if and only if it waits and its time has come, no other of its disk and direction
runs, and this server has room; a schedule has a run for each of its times at which the one before was over;
what runs on record is held by a server that said so within its lease. Each runs in a thread of its own,
outside every transaction, and goes on when the loop moves to another server: its own lease says whose it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from starverse.app.disks import syncs
from starverse.app.disks.syncs import LEASE_SECONDS, Try
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.app.ports import Copier, Copying
from starverse.db import syncs as rows
from starverse.domain.catalog.syncs import CopyEnd, Ending, Progress
from starverse.domain.errors import StarverseError
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 2.0
RUNNING_MAX = 4
"""Of one server at once."""
BATCH = 50
KEEP_SECONDS = 2.0
LOOK_SECONDS = 0.5
CANCEL_SECONDS_MAX = 15.0
"""So long a copy may tidy up after a cancel; then it is killed."""

log = structlog.get_logger(__name__)


def make(platform: Platform, runs: Runs | None = None) -> Reconciler:
    own = runs or Runs(platform)

    def act() -> str:
        return ", ".join(_act(platform, own))

    return Reconciler("syncs", "copy disks to and from remotes", PERIOD_SECONDS, act)


def _act(platform: Platform, runs: Runs) -> list[str]:
    with platform.database.read() as connection:
        due = rows.due_schedules(connection, platform.clock.now(), BATCH)
    round_ = Round()
    round_.act_on(due, lambda schedule: syncs.begin_scheduled(platform, schedule))
    round_.act_on([platform], lambda _: ", ".join(syncs.take_up_abandoned(platform)))
    round_.act_on([runs], lambda own: ", ".join(own.begin()))
    return round_.end()


class Runs:
    """The copies that this server runs."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._holder = platform.ids.uuid7()
        self._threads: list[threading.Thread] = []

    def begin(self) -> list[str]:
        """Begin what waits, as far as there is room."""
        begun: list[str] = []
        copier = self._platform.copier
        if copier.missing():
            return begun
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while len(self._threads) < RUNNING_MAX:
            taken = syncs.take_next(self._platform, self._holder)
            if taken is None:
                break
            name = f"sync-{taken.sync.id}"
            thread = threading.Thread(target=self._run, args=(copier, taken), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
            begun.append(f"{taken.sync.id} begun")
        return begun

    def join(self, seconds: float) -> bool:
        """Wait for what runs; whether all of it ended."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, copier: Copier, taken: Try) -> None:
        sync_id = taken.sync.id
        try:
            end = self._copy(copier, taken)
            if end is not None:
                syncs.finish(self._platform, sync_id, self._holder, end)
                self._platform.wakeups.wake_here("syncs")
        except Exception:  # nobody else sees what a thread meets; its lease runs out and it is taken up again
            log.exception("sync failed", sync=sync_id)

    def _copy(self, copier: Copier, taken: Try) -> CopyEnd | None:
        """One try; ``None``: its lease was lost, and it was killed."""
        if taken.order is None:
            return taken.ended
        try:
            with copier.start(taken.order, last=taken.last) as copying:
                return Following(copying, lambda told: self._keep(taken.sync.id, told)).follow()
        except OSError as error:
            return CopyEnd(Ending.INTERRUPTED, f"it could not be begun: {error.strerror}", Progress())

    def _keep(self, sync_id: str, progress: Progress) -> str:
        kept = syncs.keep(self._platform, sync_id, self._holder, progress)
        if kept is None:
            return "lost"
        return "cancel" if kept.cancel_requested_at is not None else "go on"


class Following:
    """Follows one copy; ``keep`` notes how far it is and answers ``go on``, ``cancel`` or ``lost``."""

    def __init__(self, copying: Copying, keep: Callable[[Progress], str]) -> None:
        self._copying = copying
        self._keep = keep

    def follow(self) -> CopyEnd | None:
        """Its end; ``None`` where it is another server's by now, or nobody could be asked for so long that it
        may be: then it was killed."""
        kept = asked = time.monotonic()
        cancelled: float | None = None
        while True:
            told = self._copying.wait(LOOK_SECONDS)
            now = time.monotonic()
            if isinstance(told, CopyEnd):
                return told
            if cancelled is not None and now - cancelled > CANCEL_SECONDS_MAX:
                self._copying.kill()
            if now - asked < KEEP_SECONDS:
                continue
            asked = now
            try:
                answer = self._keep(told)
            except StarverseError:
                if now - kept < LEASE_SECONDS / 2:
                    continue
                answer = "lost"
            if answer == "lost":
                self._copying.kill()
                return None
            kept = now
            if answer == "cancel" and cancelled is None:
                cancelled = now
                self._copying.cancel()
            elif cancelled is None:
                self._copying.go_on()
