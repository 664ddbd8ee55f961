"""Fabric: what operators asked to measure between nodes is measured.

Target set: a check has its job if and only if it was asked for and not refused; its figures are recorded if
and only if that job succeeded and what it printed is a probe's result about these two nodes.
"""

from __future__ import annotations

from starverse.app.fabric import advance
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        return ", ".join(advance(platform))

    return Reconciler("fabric", "measure what operators asked to measure", PERIOD_SECONDS, act)
