"""Observe: the record follows what launchers report, launchers follow the record.

Target set: an allocation is recorded as running, ended or lost if and only if its launcher says so, or has
said nothing for longer than its lease. A launcher that holds its claim and hangs is ended from outside.
"""

from __future__ import annotations

from starverse.app.observing import observe_all
from starverse.app.overdue import Watch
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 1.0


def make(platform: Platform) -> Reconciler:
    watch = Watch()
    return Reconciler(
        "observe",
        "record what launchers report, tell them what is wanted",
        PERIOD_SECONDS,
        lambda: observe_all(platform, watch),
    )
