"""Top-up: a wallet that fell below its mark is topped up, once per crossing.

Target set: an automatic top-up is started if and only if the team asked for it, its free money is below the
mark and none was started since it was last above.
"""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.app.topups import run_auto_topups
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 10.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        started = run_auto_topups(platform)
        return f"started {started}" if started else ""

    return Reconciler("topup", "top up wallets that fell below their mark", PERIOD_SECONDS, act)
