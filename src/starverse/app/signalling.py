"""Signals that people ask for: recorded with the allocation, delivered by ``observe`` until it is there.

Level-triggered: the record holds the newest one and how many were asked for; a launcher sends each once.
"""

from __future__ import annotations

from sqlalchemy import Connection

from starverse.app import job_views
from starverse.app.identity import Identity
from starverse.app.jobs import cancel, find_jobs
from starverse.app.platform import Platform
from starverse.app.views import JobView
from starverse.db import allocations, events
from starverse.db.events import Event
from starverse.domain.errors import Conflict, FieldFault, Invalid
from starverse.domain.workloads.signals import NAMES, SignalTo, read_signal
from starverse.domain.workloads.states import AllocationState

_RUNS = (AllocationState.RUNNING, AllocationState.STOPPING)


def send_signal(platform: Platform, identity: Identity, ref: str, name: str, to: SignalTo) -> JobView:
    """Send a signal to processes inside a job, or inside every task of an array that runs.

    KILL for more than the batch shell cancels, as in Slurm. Raises ``Conflict`` where nothing of it runs,
    ``Invalid`` for a signal that scancel does not know.
    """
    try:
        known = read_signal(name)
    except ValueError as error:
        raise Invalid(faults=[FieldFault("signal", name, f"one of {', '.join(NAMES)}")]) from error
    if known == "KILL" and to is not SignalTo.BATCH:
        return cancel(platform, identity, ref)

    def act(connection: Connection) -> list[str]:
        now, reached = platform.clock.now(), []
        found = find_jobs(connection, identity, ref)
        runs = allocations.of_jobs(connection, [job.id for job in found])
        for job in found:
            run = next((run for run in runs[job.id] if run.state in _RUNS), None)
            if run is None:
                continue
            count = (run.signal_count or 0) + 1
            allocations.change(connection, run, signal_count=count, signal_name=known, signal_to=to.value)
            text = f"{known} to {_WORDS[to]}, asked for by {identity.email}"
            event = Event(now, "job", job.id, "signal", known, text, job.team_id, identity.account_id)
            events.record(connection, event)
            reached.append(job.id)
        if not reached:
            raise Conflict(f"job {ref} does not run: there is nothing to send {known} to")
        return reached

    reached = platform.database.write_retrying(act)
    platform.wakeups.wake("observe")
    return job_views.one(platform, reached[0])


_WORDS = {
    SignalTo.STEPS: "all processes but the batch shell",
    SignalTo.BATCH: "the batch shell",
    SignalTo.ALL: "all processes",
}
