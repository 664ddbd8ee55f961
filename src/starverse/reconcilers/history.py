"""History: what each pool had at the beginning of an hour is kept, for forecasts.

Target set: an hour of a pool is on record if and only if a server ran in it and it is younger than 26 weeks.
"""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.app.pool_history import record_hour
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 60.0


def make(platform: Platform) -> Reconciler:
    return Reconciler(
        "history",
        "keep free cards and spot prices of each hour",
        PERIOD_SECONDS,
        lambda: record_hour(platform),
    )
