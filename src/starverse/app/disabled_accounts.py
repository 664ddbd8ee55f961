"""What an account had running when an operator disables it: ended as if its owner had asked for it."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from starverse.app.instances.stopping import STANDING, stop_run
from starverse.app.jobs import CANCEL_BATCH, cancel_some
from starverse.app.platform import Platform
from starverse.db import instances, jobs
from starverse.db.statements import in_chunks
from starverse.domain.workloads.instances import InstanceReason
from starverse.domain.workloads.states import JobState


def end_what_goes_on(platform: Platform) -> str:
    """End what disabled accounts still run: a server may have died between the account and its work."""
    with platform.database.read() as connection:
        found = jobs.accounts_to_stop(connection)
    for account_id in found:
        end_work(platform, account_id, "its account was disabled")
    return f"ended the work of {len(found)} disabled accounts" if found else ""


def end_work(platform: Platform, account_id: str, who: str) -> None:
    """Stop the instances and cancel the jobs that the account started, in whichever team.

    They have the notice that a stop gives; files and disks stay. A repeat ends what is left running.
    """
    with platform.database.read() as connection:
        standing = [
            one.id for one in instances.in_state(connection, *STANDING) if one.account_id == account_id
        ]
        alive = [
            job.id
            for job in jobs.in_state(connection, JobState.QUEUED, JobState.RUNNING)
            if job.account_id == account_id and job.instance_id is None and job.cancel_requested_at is None
        ]
    for instance_id in standing:
        platform.database.write_retrying(partial(_stop, platform, instance_id, who))
    for some in in_chunks(alive, CANCEL_BATCH):
        platform.database.write_retrying(partial(cancel_some, platform, who, None, some))
    if standing or alive:
        platform.wakeups.wake("observe", "schedule")


def _stop(platform: Platform, instance_id: str, who: str, connection: Connection) -> None:
    instance = instances.get(connection, instance_id)
    if instance is not None and instance.state in STANDING:
        stop_run(connection, platform, instance, InstanceReason.ACCOUNT_DISABLED, who, None)
