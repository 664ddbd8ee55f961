"""Disk meter: disks are charged by the full hour, and measured now and then.

Target set: an hour of a disk is charged if and only if it is over; what a disk holds was measured less than
ten minutes ago, as far as there is time to look.
"""

from __future__ import annotations

from starverse.app.disks.metering import meter_all
from starverse.app.disks.storage import measure_some
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 60.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        round_ = Round()
        round_.act_on([platform], lambda own: ", ".join(meter_all(own)))
        round_.act_on([platform], lambda own: ", ".join(measure_some(own)))
        return ", ".join(round_.end())

    return Reconciler("disk_meter", "charge disks by the hour, measure them", PERIOD_SECONDS, act)
