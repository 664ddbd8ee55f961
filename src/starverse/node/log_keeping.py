"""An attempt's logs while its launcher lives: their cap, their copies, and the reserve of their disk.

The workload writes its log itself and stops for nobody. So from the moment that the disk is down to its
reserve, a log holds no more than it held while there was room: what it gains at its end it loses at its
beginning (:mod:`~starverse.node.log_cap`). A chatty script costs its own oldest lines, and nobody's disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.disk_reserve import room_bytes
from starverse.node.folder import AllocationFolder
from starverse.node.log_cap import cap_log
from starverse.node.logs import OutputCopier, log_paths, open_log, plan_copies

PERIOD_SECONDS = 1.0
HURRY_SECONDS = 0.05
HURRY_BYTES = 8 * 1024**3
"""With less room than this the logs are looked at as often as ``HURRY_SECONDS``: so much can be written
in a second."""
HELD_BYTES_MIN = 1024**2
"""A log always keeps so much, however full the disk is."""


class LogKeeper:
    """Made by :func:`open_logs`. ``wake_at``: when the next :meth:`tend` is due."""

    def __init__(self, spec: LaunchSpec, logs: tuple[int, ...], copier: OutputCopier) -> None:
        self.logs = logs
        self.wake_at = 0.0
        self._spec = spec
        self._copier = copier
        self._held: dict[int, int] = {}
        self._said: set[str] = set()

    def say(self, line: str) -> None:
        """A line of ours in the workload's log."""
        with contextlib.suppress(OSError):
            os.write(self.logs[-1], f"starverse: {line}\n".encode())

    def tend(self, now: float) -> None:
        """Cap the logs and bring their copies up to date."""
        if now < self.wake_at:
            return
        room = self._cap_all()
        self.wake_at = now + (PERIOD_SECONDS if room >= HURRY_BYTES else HURRY_SECONDS)
        self._copier.step()
        self._tell_of_pauses()

    def finish(self, breathe: Callable[[], None]) -> None:
        """Bring the copies to their end; what finds no room is told of in the log."""
        self._cap_all()
        self._copier.finish(breathe)
        for paused in self._copier.paused:
            self.say(
                f"the copy in {paused.path} ends at byte {paused.at}: the disk is down to its reserve; "
                f"the log itself is in `starverse job logs {self._spec.job_number}`"
            )

    def _cap_all(self) -> int:
        """Answers how many bytes the logs' disk has above its reserve."""
        try:
            room = room_bytes(self.logs[0], self._spec.disk_reserve_bytes)
        except OSError:
            room = 0
        for log in self.logs:
            with contextlib.suppress(OSError):  # no holes here: `doctor` says so
                self._cap(log, room)
        return room

    def _cap(self, log: int, room: int) -> None:
        held = held_bytes(log)
        if room > 0:
            self._held[log] = held
        cap = self._spec.log_cap_bytes
        if room <= 0:
            cap = min(cap, max(HELD_BYTES_MIN, self._held.get(log, 0) * 8 // 9))  # an eighth more is let grow
            self._tell_once("log", f"the disk is down to its reserve: this log keeps its newest {cap} bytes")
        if held > cap + cap // 8:
            cap_log(log, cap, 0)

    def _tell_of_pauses(self) -> None:
        for paused in self._copier.paused:
            text = (
                f"the copy in {paused.path} waits at byte {paused.at}: the disk is down to its reserve; the "
                f"log itself is in `starverse job logs {self._spec.job_number}`"
            )
            self._tell_once(paused.path, text)

    def _tell_once(self, subject: str, text: str) -> None:
        if subject not in self._said:
            self._said.add(subject)
            self.say(text)


def open_logs(spec: LaunchSpec, folder: AllocationFolder) -> LogKeeper:
    """Open the logs and plan their copies; what ``--output`` may not name is told in the log."""
    output, error = log_paths(spec)
    logs = (open_log(output),) if error == output else (open_log(output), open_log(error))
    refused = plan_copies(spec, folder)
    keeper = LogKeeper(spec, logs, OutputCopier(folder, spec.unix_uid, spec.disk_reserve_bytes))
    for text in refused:
        keeper.say(text)
    return keeper


def held_bytes(log: int) -> int:
    """What a log really takes up on its disk."""
    return os.fstat(log).st_blocks * 512
