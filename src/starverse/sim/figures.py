"""What a replay comes to: use of the cards, waits, money, reclaims, lost work."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from starverse.domain.money import ZERO, Money
from starverse.sim.replay import Fate, Outcome


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one replay. ``cost_by_team`` has the dearest first; a wait counts each time a job queued."""

    name: str
    jobs: int
    not_placed: int
    utilisation: float
    wait_mean_seconds: float
    wait_p50_seconds: float
    wait_p90_seconds: float
    wait_longest_seconds: int
    revenue: Money
    cost_by_team: tuple[tuple[str, Money], ...]
    reclaims: int
    lost_card_hours: float
    decide_p50_ms: float
    decide_longest_ms: float

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "jobs": self.jobs,
            "not_placed": self.not_placed,
            "utilisation": round(self.utilisation, 4),
            "wait_seconds": {
                "mean": round(self.wait_mean_seconds, 1),
                "p50": self.wait_p50_seconds,
                "p90": self.wait_p90_seconds,
                "longest": self.wait_longest_seconds,
            },
            "revenue": self.revenue.decimal(),
            "cost_by_team": {team: cost.decimal() for team, cost in self.cost_by_team},
            "reclaims": self.reclaims,
            "lost_card_hours": round(self.lost_card_hours, 3),
            "decide_ms": {"p50": round(self.decide_p50_ms, 3), "longest": round(self.decide_longest_ms, 3)},
        }


def figures(outcome: Outcome) -> Figures:
    """Utilisation is over the time from the first arrival to the last one, while there was work to choose."""
    placed = [fate for fate in outcome.fates if not fate.refused]
    waits = sorted(fate.wait_seconds for fate in placed) or [0]
    costs: dict[str, Money] = defaultdict(lambda: ZERO)
    for fate in outcome.fates:
        costs[fate.job.team] = costs[fate.job.team] + fate.cost
    decides = sorted(outcome.decide_seconds) or [0.0]
    return Figures(
        name=outcome.rules.name,
        jobs=len(outcome.fates),
        not_placed=len(outcome.fates) - len(placed),
        utilisation=_utilisation(outcome),
        wait_mean_seconds=statistics.fmean(waits),
        wait_p50_seconds=waits[len(waits) // 2],
        wait_p90_seconds=waits[int(0.9 * (len(waits) - 1))],
        wait_longest_seconds=waits[-1],
        revenue=sum((fate.cost for fate in outcome.fates), ZERO),
        cost_by_team=tuple(sorted(costs.items(), key=lambda found: (-found[1].micro, found[0]))),
        reclaims=sum(fate.reclaims for fate in outcome.fates),
        lost_card_hours=sum(fate.lost_card_seconds for fate in outcome.fates) / 3600,
        decide_p50_ms=1000 * decides[len(decides) // 2],
        decide_longest_ms=1000 * decides[-1],
    )


def waits_of(fates: Sequence[Fate]) -> list[int]:
    """Seconds waited by each job that was placed, ascending."""
    return sorted(fate.wait_seconds for fate in fates if not fate.refused)


def _utilisation(outcome: Outcome) -> float:
    last = max(fate.job.at for fate in outcome.fates)
    busy = whole = 0.0
    for earlier, later in pairwise(outcome.samples):
        if earlier.at > last:
            break
        seconds = (later.at - earlier.at).total_seconds()
        busy += earlier.busy_cards * seconds
        whole += outcome.cards * seconds
    return busy / whole if whole else 0.0
