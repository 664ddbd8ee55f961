"""How much a team has used lately: card-seconds that count half after each 24 hours.

The measure of fairness within a claim class (architecture.md, Scheduling). Not money: floats are fine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from starverse.domain.ids import TeamId
from starverse.domain.scheduling.snapshot import RunningAllocation

HALF_LIFE_SECONDS = 24 * 3600

COMMITTED_SECONDS = 3600
"""A placement counts at once for the hour whose money it holds, so that teams alternate also while
several cards are handed out in one decision."""


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """``cards`` used from ``start`` to ``end`` (``end`` at most now)."""

    cards: int
    start: datetime
    end: datetime


def decayed_usage(spans: Iterable[UsageSpan], now: datetime) -> float:
    """Card-seconds of the spans at ``now``: the integral of cards x 2^(-age / 24 h). Linear time."""
    scale = HALF_LIFE_SECONDS / math.log(2)
    return math.fsum(
        span.cards * scale * (_weight(span.end, now) - _weight(span.start, now)) for span in spans
    )


def decayed(card_seconds: float, seconds: float) -> float:
    """What a decayed figure is worth ``seconds`` later, when nothing more was used."""
    return card_seconds * math.exp2(-seconds / HALF_LIFE_SECONDS)


def with_commitments(
    usage: Mapping[TeamId, float], running: Iterable[RunningAllocation], now: datetime
) -> dict[TeamId, float]:
    """Usage per team, plus what is left of the first hour of each allocation placed within it."""
    standing = dict(usage)
    for allocation in running:
        left = COMMITTED_SECONDS - (now - allocation.placed_at).total_seconds()
        if left > 0:
            more = allocation.cards * min(left, COMMITTED_SECONDS)
            standing[allocation.team_id] = standing.get(allocation.team_id, 0.0) + more
    return standing


def _weight(instant: datetime, now: datetime) -> float:
    return math.exp2(-(now - instant).total_seconds() / HALF_LIFE_SECONDS)
