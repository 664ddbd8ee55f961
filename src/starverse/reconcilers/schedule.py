"""Schedule: every queued job that can run, may run and is next in its turn gets its cards.

Target set: a job is placed if and only if the decision on the present snapshot places it and the same rule
still holds on current rows. A decision that breaks a rule of the linter is not applied.
"""

from __future__ import annotations

from starverse.app.apply_decision import apply_decision
from starverse.app.disk_space import may_start_anything
from starverse.app.platform import Platform
from starverse.app.snapshot import take_snapshot
from starverse.app.usage_memory import UsageMemory
from starverse.domain.errors import InvariantBroken
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.linter import lint
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 1.0


def make(platform: Platform) -> Reconciler:
    usage = UsageMemory()

    def act() -> str:
        now = platform.clock.now()
        snapshot = take_snapshot(platform, now, may_start_anything(platform), usage)
        if not snapshot.waiting and not snapshot.running:
            return ""
        decision = decide(snapshot, now)
        faults = lint(snapshot, decision)
        if faults:
            raise InvariantBroken("the decision breaks its own rules", context={"faults": faults})
        applied = apply_decision(platform, decision)
        if applied.placed:
            platform.wakeups.wake("launch")
        if applied.noticed:
            platform.wakeups.wake("observe")
        if applied.fault is not None:
            raise applied.fault
        did = [f"placed {len(applied.placed)}"] if applied.placed else []
        did += [f"gave notice to {len(applied.noticed)}"] if applied.noticed else []
        return ", ".join(did)

    return Reconciler("schedule", "place queued jobs on cards, reclaim spot for them", PERIOD_SECONDS, act)
