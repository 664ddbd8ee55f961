"""A launcher's part in checkpoints by template: when an act of it is due, and that it is seen through."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from starverse.domain.recovery.checkpoint_interval import SavePace
from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.folder import AllocationFolder
from starverse.node.steady_clock import SteadyClock

PUBLISHED = " published from "
"""In the line of an act that made a checkpoint."""


def pace_line(pace: SavePace) -> str:
    """What the log says once a save was measured."""
    interval = pace.interval
    return (
        f"a checkpoint took {pace.save_seconds:.1f} s and {pace.reclaims_per_second * 3600:.2f} reclaims an "
        f"hour are expected here: one every {interval.seconds:.0f} s, and about "
        f"{100 * interval.expected_loss_share:.1f} % of the time for saves and work done again"
    )


class TemplateKeeper:
    """Does nothing where the job has no template. ``say`` writes a line of ours into the log; ``breathe``
    passes a moment, in which the launcher goes on beating."""

    def __init__(
        self,
        spec: LaunchSpec,
        folder: AllocationFolder,
        clock: SteadyClock,
        say: Callable[[str], None],
        breathe: Callable[[], None],
    ) -> None:
        self._template = spec.template
        self._folder = folder
        self._clock = clock
        self._say = say
        self._breathe = breathe
        self._act: subprocess.Popen[str] | None = None
        self._due_at = float("inf")
        template = spec.template
        self._pace = SavePace(template.interval_seconds, template.reclaims_per_second) if template else None
        self._saving_since: float | None = None
        self._published = False

    def begin(self) -> None:
        """The workload was started: from now on it is saved every interval."""
        if self._pace is not None:
            self._due_at = self._clock.now() + self._pace.interval.seconds

    def save_soon(self) -> None:
        if self._template is not None:
            self._due_at = self._clock.now()

    def tend(self, now: float) -> None:
        """Start what is due, one act at a time."""
        if self._pace is None:
            return
        if self._act is not None:
            if self._act.poll() is None:
                return
            begun = self._saving_since
            if self._finish() == "" and self._published and begun is not None:
                self._measured(now - begun)
                self._due_at = min(self._due_at, now + self._pace.interval.seconds)
        if now >= self._due_at:
            self._act = self._start("periodic")
            self._saving_since, self._due_at = now, now + self._pace.interval.seconds

    def _measured(self, seconds: float) -> None:
        """Learn from a save; the first one tells in the log what follows from it."""
        assert self._pace is not None, "only what has a template saves"
        self._pace.saved(seconds)
        if self._pace.measured == 1 and self._pace.reclaims_per_second:
            self._say(pace_line(self._pace))

    def perform(self, act: str) -> str:
        """An act that has to be over before what comes next; answers why it was not done, ``""``: it was."""
        if self._template is None:
            return ""
        while self._act is not None and self._act.poll() is None:
            self._breathe()
        self._finish()
        self._act = self._start(act)
        while self._act.poll() is None and not self._folder.is_revoked():
            self._breathe()
        return self._finish()

    def _start(self, act: str) -> subprocess.Popen[str]:
        from starverse.node.template_runner import start_act

        return start_act(self._folder.path, act)

    def _finish(self) -> str:
        if self._act is None:
            return ""
        if self._act.poll() is None:
            self._act.kill()
        line = (self._act.communicate()[0] or "").strip()
        told = line.splitlines()[-1] if line else ""
        self._published = PUBLISHED in told
        self._saving_since = None
        if told:
            self._say(told)
        failed = self._act.returncode != 0
        self._act = None
        return told or "the checkpoint template ended without a word" if failed else ""
