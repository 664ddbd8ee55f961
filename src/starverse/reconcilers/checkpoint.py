"""Checkpoint: what runs published is verified and recorded; only the newest few are kept.

Target set: a checkpoint is recorded as verified if and only if every byte of it was read and matched; what
follows from the checkpoints of a run that is over is settled if and only if all of them were read.

What is read in no time is read in the round; the rest in the background, a few at once and one of a team, so
that nobody waits for somebody else's terabyte.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from starverse.app import checkpoints
from starverse.app.endings import settle_checkpoints
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import allocations, jobs
from starverse.db import checkpoints as rows_of
from starverse.db.checkpoints import CheckpointRow
from starverse.domain.workloads.records import Job
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 2.0
AT_ONCE = 4


@dataclass(slots=True)
class _Line:
    """The checkpoints of a job and of those that resume it; ``over``: allocations to settle afterwards."""

    job: Job
    rows: list[CheckpointRow]
    over: list[str] = field(default_factory=list)


class Background:
    """Long work in threads that end with the process; whatever they leave undone is found again."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._errors: list[Exception] = []
        self._lock = threading.Lock()

    def start(self, team_id: str, work: Callable[[], object]) -> bool:
        """Begin, unless too much is under way or something of this team is."""
        with self._lock:
            if team_id in self._busy or len(self._busy) >= AT_ONCE:
                return False
            self._busy.add(team_id)
        threading.Thread(target=self._run, args=(team_id, work), name="verify", daemon=True).start()
        return True

    def errors(self) -> list[Exception]:
        """What went wrong since the last look."""
        with self._lock:
            found, self._errors = self._errors, []
            return found

    def _run(self, team_id: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            with self._lock:
                self._errors.append(error)
        finally:
            with self._lock:
                self._busy.discard(team_id)


def make(platform: Platform) -> Reconciler:
    background = Background()

    def act() -> str:
        def look(line: _Line) -> str:
            if checkpoints.is_quick(platform, line.job.checkpoints_id, line.rows):
                return _examine(platform, line)
            started = background.start(line.job.team_id, lambda: _examine(platform, line))
            return f"reads the checkpoints of job {line.job.display_number}" if started else ""

        round_ = Round()
        round_.act_on(background.errors(), _raise)
        round_.act_on(_lines(platform), look)
        return ", ".join(round_.end())

    return Reconciler("checkpoint", "verify and record what runs published", PERIOD_SECONDS, act)


def _lines(platform: Platform) -> list[_Line]:
    """What runs, and what is over and not settled yet."""
    with platform.database.read() as connection:
        running = [a for a in allocations.open_ones(connection) if a.ready_at is not None]
        over = allocations.not_examined(connection)
        owners = jobs.get_many(connection, {a.job_id for a in (*running, *over)})
        known = rows_of.of_jobs(connection, {job.checkpoints_id for job in owners.values()})
    lines = {job.checkpoints_id: _Line(job, known[job.checkpoints_id]) for job in owners.values()}
    for allocation in over:
        lines[owners[allocation.job_id].checkpoints_id].over.append(allocation.id)
    return list(lines.values())


def _examine(platform: Platform, line: _Line) -> str:
    """Read what is new, keep the newest, and settle what is over."""
    job = line.job
    new = checkpoints.record_found(platform, job.checkpoints_id, job.team_id, line.rows)
    removed = checkpoints.keep_newest(platform, job.checkpoints_id) if new else 0
    settled = sum(settle_checkpoints(platform, allocation_id) for allocation_id in line.over)
    if settled:
        platform.wakeups.wake("schedule")
    did = [f"recorded {new}, removed {removed}"] if new else []
    did += [f"settled {settled}"] if settled else []
    return f"job {job.display_number}: {', '.join(did)}" if did else ""


def _raise(error: Exception) -> str:
    raise error
