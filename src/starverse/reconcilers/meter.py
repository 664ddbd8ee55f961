"""Meter: every held hour that is over is charged, and the next one is held in time.

Target set: an hour of an allocation is charged if and only if it is over; hour k+1 is held from ten minutes
before the end of hour k.
"""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.app.running_meters import meter_all
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        did = meter_all(platform)
        if did:
            platform.wakeups.wake("observe", "reclaim")
        return did

    return Reconciler("meter", "charge hours that are over, hold the next ones", PERIOD_SECONDS, act)
