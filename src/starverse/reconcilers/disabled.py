"""Disabled: who was shut out has nothing running.

Target set: a job or an instance of a disabled account is asked to end if and only if it has not ended.
"""

from __future__ import annotations

from starverse.app.disabled_accounts import end_what_goes_on
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 60.0


def make(platform: Platform) -> Reconciler:
    return Reconciler(
        "disabled",
        "end what accounts that were disabled still run",
        PERIOD_SECONDS,
        lambda: end_what_goes_on(platform),
    )
