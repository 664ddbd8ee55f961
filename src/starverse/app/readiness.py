"""Whether a server can serve, and what keeps the platform from doing its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starverse.app.platform import Platform
from starverse.app.views import ReconcilerStatus


@dataclass(frozen=True, slots=True)
class Readiness:
    """``serves``: requests are answered. ``reasons``: what does not go well all the same, for anybody to see;
    details are for operators (``starverse admin status``)."""

    serves: bool
    reasons: tuple[str, ...] = ()


def readiness(platform: Platform, reconcilers: Sequence[ReconcilerStatus]) -> Readiness:
    """An engine that is away keeps nobody from submitting and reading: that is said, and requests go on."""
    if not platform.database.now_answers():
        return Readiness(False, ("the database does not answer",))
    reasons = (
        ["the engine does not answer (starverse admin status says why)"]
        if engine_is_away(reconcilers)
        else []
    )
    failing = [status.name for status in reconcilers if not status.healthy and not status.away]
    reasons += [f"failing: {', '.join(failing)}"] if failing else []
    return Readiness(True, tuple(reasons))


def engine_is_away(reconcilers: Sequence[ReconcilerStatus]) -> bool:
    """Whether a loop was not answered by the engine in its last round."""
    return any(status.away == "engine" for status in reconcilers)


def engine_trouble(reconcilers: Sequence[ReconcilerStatus]) -> str:
    """What the engine said to the loop that it did not answer, for operators; ``""`` where it answers."""
    return next((status.message for status in reconcilers if status.away == "engine"), "")
