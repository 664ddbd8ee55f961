"""Meter: every held hour that is over is charged, and the next one is held in time.

Target set: an hour of an allocation is charged if and only if it is over; hour k+1 is held from ten minutes
before the end of hour k. A hold that was taken until a time stands if and only if that time is not over.
"""

from __future__ import annotations

from starverse.app.expiring_holds import expire_overdue
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.app.running_meters import meter_all
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        round_ = Round()
        round_.act_on([platform], meter_all)
        if round_.did:
            platform.wakeups.wake("observe", "reclaim")
        round_.act_on([platform], expire_overdue)
        return ", ".join(round_.end())

    return Reconciler("meter", "charge hours that are over, hold the next ones", PERIOD_SECONDS, act)
