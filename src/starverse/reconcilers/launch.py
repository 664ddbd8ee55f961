"""Launch: what is placed gets a launcher.

Target set: an allocation is submitted if and only if it is placed, or it is starting and its engine has no
trace of it (a crash came between the record and the submit), and its time to start is not over. Repeating a
submit is harmless.
"""

from __future__ import annotations

import structlog

from starverse.app import launching
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import allocations
from starverse.db.session import DatabaseAway
from starverse.domain.errors import Conflict, StarverseError
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.states import AllocationState
from starverse.engines.base import EngineUnavailable, Presence
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 2.0
BATCH = 64

log = structlog.get_logger(__name__)


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        with platform.database.read() as connection:
            placed = allocations.placed(connection, BATCH)
            starting = [a for a in allocations.starting(connection) if a.stop_requested_at is None]
        seen = platform.engine.observe([a.id for a in starting]) if starting else {}
        again = [
            a
            for a in starting
            if a.id in seen
            and seen[a.id].presence is Presence.UNKNOWN
            and not launching.is_too_late(platform, a)
        ]
        round_ = Round()
        round_.act_on([*placed, *again][:BATCH], lambda a: a.id if _start(platform, a) else "")
        if round_.did:
            platform.wakeups.wake("observe")
        if len(placed) == BATCH and round_.did:
            platform.wakeups.wake("launch")  # there is more, and nobody waits for the next period
        started = len(round_.end())
        return f"submitted {started}" if started else ""

    return Reconciler("launch", "hand placed allocations to their engine", PERIOD_SECONDS, act)


def _start(platform: Platform, allocation: Allocation) -> bool:
    """Start one; a fault of its own ends it and never keeps the others from starting."""
    now = platform.clock.now()
    if allocation.state is AllocationState.PLACED and launching.is_too_late(platform, allocation):
        launching.withdraw(platform, allocation, EndCause.PLATFORM, "its engine did not answer in time", now)
        return False
    if allocation.stop_requested_at is not None:
        launching.withdraw(platform, allocation, EndCause.CANCELLED, "cancelled before its start", now)
        return False
    try:
        return launching.start(platform, allocation)
    except (EngineUnavailable, Conflict, DatabaseAway):  # it is looked at again in the next round
        raise
    except (StarverseError, OSError) as error:
        log.warning("a start failed", allocation=allocation.id, error=str(error))
        launching.fail(platform, allocation, str(error))
    except Exception as error:
        log.error("a start failed by a fault of ours", allocation=allocation.id, exc_info=error)
        text = f"the platform could not start it ({type(error).__name__}); the server's log says more"
        launching.fail(platform, allocation, text)
    return False
