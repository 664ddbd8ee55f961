"""Holds that were taken for a time: what nobody posted or voided by then goes back to its wallet.

Holds of allocations have no such time: they are settled with their allocation, and never expire while it is
open (pricing.md, Holds).
"""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.db import ledger
from starverse.domain.ids import TransferId
from starverse.domain.ledger.transfers import expire_hold

BATCH = 200


def expire_overdue(platform: Platform) -> str:
    """Expire at most a batch of the holds whose time is over; each stands or falls alone."""
    now = platform.clock.now()
    with platform.database.read() as connection:
        if not ledger.overdue_holds(connection, now, 1):
            return ""
    with platform.database.write() as connection:
        overdue = [stored.transfer for stored in ledger.overdue_holds(connection, now, BATCH)]
        groups = [[expire_hold(TransferId(f"{hold.id}:expired"), hold)] for hold in overdue]
        outcomes = ledger.post_groups(connection, groups, now)
    done = sum(outcome.ok for outcome in outcomes)
    return f"{done} holds expired" if done else ""
