"""Sweep: nothing runs that nobody owns, nothing is left of what is over.

Target set: a launcher lives if and only if its allocation is open; an allocation is marked clean if and only
if its engine removed what was left of it; from then on nobody has its disks.
"""

from __future__ import annotations

from starverse.app.disks.attachments import record_cleaned
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.db import allocations
from starverse.domain.workloads.launch import Desired
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        running = platform.engine.running()
        with platform.database.read() as connection:
            owned = {a.id for a in allocations.open_ones(connection)}
            over = allocations.not_cleaned(connection)
        orphans = [allocation_id for allocation_id in running if allocation_id not in owned]
        return ", ".join([*each(orphans, end_orphan), *each([a.id for a in over], clean)])

    def end_orphan(allocation_id: str) -> str:
        platform.engine.steer(allocation_id, Desired(stop=True, release=True))
        platform.engine.clean(allocation_id)
        return f"ended orphan {allocation_id}"

    def clean(allocation_id: str) -> str:
        platform.engine.clean(allocation_id)
        record_cleaned(platform, allocation_id)
        return f"cleaned {allocation_id}"

    return Reconciler("sweep", "end what nobody owns, clean up what is over", PERIOD_SECONDS, act)
