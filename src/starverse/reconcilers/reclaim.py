"""Reclaim: running work is given notice when what it was started on no longer holds.

Target set: an open allocation is under notice if and only if the scheduler wants its cards, its window
closes within the grace, a card of it is faulty, or its team's money ends before the next hour.
"""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.app.stopping import give_due_notices
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 1.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        did = give_due_notices(platform)
        if did:
            platform.wakeups.wake("observe")
        return did

    return Reconciler(
        "reclaim", "give notice when a window closes, a card fails or money ends", PERIOD_SECONDS, act
    )
