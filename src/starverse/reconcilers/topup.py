"""Top-up: a wallet that fell below its mark is topped up, once per crossing.

Target set: an automatic top-up is started if and only if the team asked for it, its free money is below the
mark and none was started since it was last above; and every refund was made known to its provider.
"""

from __future__ import annotations

from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.app.topups import finish_refunds, run_auto_topups
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 10.0


def make(platform: Platform) -> Reconciler:
    def start_topups(platform: Platform) -> str:
        started = run_auto_topups(platform)
        return f"started {started}" if started else ""

    def act() -> str:
        return ", ".join(each((finish_refunds, start_topups), lambda step: step(platform)))

    return Reconciler("topup", "top up wallets that fell below their mark", PERIOD_SECONDS, act)
