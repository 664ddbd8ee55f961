"""Idle: instances stop when their time is over.

Target set: an instance is stopped by this loop if and only if its time to live is over, or every source of
evidence has been quiet for as long as its owner allows, fresh evidence says so, and its owner was warned; a
warning is recorded if and only if 80 % of that time are over.
"""

from __future__ import annotations

from starverse.app.instances.watching import watch_all
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    return Reconciler(
        "idle",
        "stop instances that are idle or whose time to live is over",
        PERIOD_SECONDS,
        lambda: watch_all(platform),
    )
